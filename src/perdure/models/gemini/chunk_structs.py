"""Parse the chunks (JSON objects) of a Gemini response into typed structs.

Nearly every chunk is decoded in one typed pass. One that does not fit the types is decoded again field by field, and
invalid fields are left out.
"""

from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure.core.thread_safe_msgspec import convert
from perdure.models.mistyped_json_fields import parse_lenient_json

ABSENT = msgspec.Raw()
"""Value of a raw field that is missing."""


class GeminiCallPiece(Struct, rename="camel"):
    """Function call in a chunk of a Gemini response, or a streamed piece of one."""

    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = ABSENT
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class GeminiBlob(Struct, rename="camel"):
    """Media in a chunk of a Gemini response, such as an image that the model has made."""

    mime_type: str = ""
    data: str = ""


class ChunkPart(Struct, rename="camel"):
    """Part of the model's output in a chunk of a Gemini response: text, thought, function call or media."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: GeminiCallPiece | None = None
    inline_data: GeminiBlob | None = None


class ChunkContent(Struct):
    """Model output in one chunk of a Gemini response, as a list of parts."""

    parts: list[ChunkPart] | None = None


class Candidate(Struct, rename="camel"):
    """Candidate (alternative reply) in a chunk of a Gemini response, with its finish reason."""

    content: ChunkContent | None = None
    finish_reason: str | int | None = None
    """Name of the reason; a number if a client library wrote the chunk."""
    finish_message: str | None = None
    index: int | None = None
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None
    url_context_metadata: dict[str, Any] | None = None
    avg_logprobs: float | None = None
    logprobs_result: dict[str, Any] | None = None
    safety_ratings: list[dict[str, Any]] | None = None


class TokenCounts(Struct, rename="camel"):
    """Token counts of a Gemini response, as one of its chunks reports them."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    total_token_count: int | None = None
    service_tier: str | None = None
    traffic_type: str | None = None
    """Vertex AI's name for the tier of service."""


class PromptFeedback(Struct, rename="camel"):
    """Gemini's verdict on the prompt: the reason, if the prompt was blocked."""

    block_reason: str | int | None = None
    block_reason_message: str | None = None


class GeminiChunk(Struct, rename="camel"):
    """Chunk of a streamed Gemini response: candidates, token counts and feedback on the prompt."""

    candidates: list[Candidate] | None = None
    usage_metadata: TokenCounts | None = None
    prompt_feedback: PromptFeedback | None = None
    model_version: str | None = None
    error: msgspec.Raw = ABSENT


_decode = msgspec.json.Decoder(GeminiChunk).decode


def parse_chunk(data: bytes) -> GeminiChunk | None:
    """Parse a chunk of a Gemini response; `None` if the bytes are not a JSON object."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = parse_json_or_none(data)
    return (
        cast("GeminiChunk", _build_leniently(GeminiChunk, cast("dict[str, Any]", value)))
        if isinstance(value, dict)
        else None
    )


def parse_json_or_none(data: bytes) -> Any:
    """Parse JSON of Gemini, including `NaN` and lone surrogates; None if it is invalid."""
    try:
        return parse_lenient_json(data)
    except msgspec.DecodeError:
        return None


def get_raw_parts(data: bytes) -> list[Any]:
    """Return the first candidate's parts in a chunk as untyped JSON: some must be sent back unchanged."""
    try:
        return cast("list[Any]", parse_json_or_none(data)["candidates"][0]["content"]["parts"])
    except (TypeError, KeyError, IndexError):
        return []


_NESTED_TYPES: dict[tuple[type[Struct], str], type[Struct]] = {
    (GeminiChunk, "usageMetadata"): TokenCounts,
    (GeminiChunk, "promptFeedback"): PromptFeedback,
    (Candidate, "content"): ChunkContent,
    (ChunkPart, "functionCall"): GeminiCallPiece,
    (ChunkPart, "inlineData"): GeminiBlob,
}
_NESTED_LIST_TYPES: dict[tuple[type[Struct], str], type[Struct]] = {
    (GeminiChunk, "candidates"): Candidate,
    (ChunkContent, "parts"): ChunkPart,
}


def _build_leniently(kind: type[Struct], value: dict[str, Any]) -> Struct:
    """Build a struct from the fields of an object that have valid values."""
    fields: dict[str, Any] = {}
    for info in msgspec.structs.fields(kind):
        found = _convert_field(kind, info, value.get(info.encode_name))
        if found is not None:
            fields[info.name] = found
    return kind(**fields)


def _convert_field(kind: type[Struct], info: msgspec.structs.FieldInfo, value: Any) -> Any:
    inside, each = _NESTED_TYPES.get((kind, info.encode_name)), _NESTED_LIST_TYPES.get((kind, info.encode_name))
    if inside is not None:
        return _build_leniently(inside, cast("dict[str, Any]", value)) if isinstance(value, dict) else None
    if each is not None:
        items = cast("Any", value) if isinstance(value, list) else ()
        return [_build_leniently(each, cast("dict[str, Any]", item)) for item in items if isinstance(item, dict)]
    if info.name in {"args", "error"}:
        return None if value is None else msgspec.Raw(msgspec.json.encode(value))
    try:
        return convert(value, info.type, strict=False)
    except msgspec.ValidationError:
        return None
