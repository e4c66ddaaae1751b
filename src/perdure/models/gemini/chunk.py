"""One chunk of an answer, as a typed value. Above: `decode.py`. Below: msgspec.

Nearly every chunk is read in one go. One that is not as it should be is read again, field by field, and what cannot
be understood of it is left out.
"""

from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure.models.untrusted import parsed

ABSENT = msgspec.Raw()
"""What is not there, of fields that are kept as they came."""


class Call(Struct, rename="camel"):
    """A function call, or a piece of one."""

    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = ABSENT
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class Blob(Struct, rename="camel"):
    """Something that is not text, such as a picture that the model has made."""

    mime_type: str = ""
    data: str = ""


class ChunkPart(Struct, rename="camel"):
    """A part of what the model said."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: Call | None = None
    inline_data: Blob | None = None


class Content(Struct):
    """What the model said."""

    parts: list[ChunkPart] | None = None


class Candidate(Struct, rename="camel"):
    """One of the answers."""

    content: Content | None = None
    finish_reason: str | int | None = None
    """A name; a number where a client library has written it down."""
    finish_message: str | None = None
    index: int | None = None
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None
    url_context_metadata: dict[str, Any] | None = None


class Counts(Struct, rename="camel"):
    """Tokens, up to this chunk."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    total_token_count: int | None = None


class Feedback(Struct, rename="camel"):
    """What the provider thinks of the prompt."""

    block_reason: str | int | None = None
    block_reason_message: str | None = None


class Chunk(Struct, rename="camel"):
    """One chunk."""

    candidates: list[Candidate] | None = None
    usage_metadata: Counts | None = None
    prompt_feedback: Feedback | None = None
    error: msgspec.Raw = ABSENT


_decode = msgspec.json.Decoder(Chunk).decode


def read(data: bytes) -> Chunk | None:
    """The chunk that these bytes are; nothing when they are no object."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = untyped(data)
    return cast("Chunk", _built(Chunk, cast("dict[str, Any]", value))) if isinstance(value, dict) else None


def untyped(data: bytes) -> Any:
    """The same bytes as JSON values, with text that can be encoded; nothing when they are no JSON."""
    try:
        return parsed(data)
    except msgspec.DecodeError:
        return None


def raw_parts(data: bytes) -> list[Any]:
    """The parts of the first candidate just as they came, for those that must go back so."""
    try:
        return cast("list[Any]", untyped(data)["candidates"][0]["content"]["parts"])
    except (TypeError, KeyError, IndexError):
        return []


_INSIDE: dict[tuple[type[Struct], str], type[Struct]] = {
    (Chunk, "usageMetadata"): Counts,
    (Chunk, "promptFeedback"): Feedback,
    (Candidate, "content"): Content,
    (ChunkPart, "functionCall"): Call,
    (ChunkPart, "inlineData"): Blob,
}
_INSIDE_LISTS: dict[tuple[type[Struct], str], type[Struct]] = {
    (Chunk, "candidates"): Candidate,
    (Content, "parts"): ChunkPart,
}


def _built(kind: type[Struct], value: dict[str, Any]) -> Struct:
    """A value of this kind, of the fields that can be understood."""
    fields: dict[str, Any] = {}
    for info in msgspec.structs.fields(kind):
        found = _field(kind, info, value.get(info.encode_name))
        if found is not None:
            fields[info.name] = found
    return kind(**fields)


def _field(kind: type[Struct], info: msgspec.structs.FieldInfo, value: Any) -> Any:
    inside, each = _INSIDE.get((kind, info.encode_name)), _INSIDE_LISTS.get((kind, info.encode_name))
    if inside is not None:
        return _built(inside, cast("dict[str, Any]", value)) if isinstance(value, dict) else None
    if each is not None:
        items = cast("Any", value) if isinstance(value, list) else ()
        return [_built(each, cast("dict[str, Any]", item)) for item in items if isinstance(item, dict)]
    if info.name in {"args", "error"}:
        return None if value is None else msgspec.Raw(msgspec.json.encode(value))
    try:
        return msgspec.convert(value, info.type, strict=False)
    except msgspec.ValidationError:
        return None
