"""Split the bytes of a Gemini response into chunks, and parse these JSON objects into typed structs."""

import codecs
import json
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure._core.values.jsonable import convert
from perdure._io.http.sse import SseParser
from perdure._models.wires.lenient_json import parse_lenient_json

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


_SPACE = b" \t\r\n\xef\xbb\xbf"
_LARGE = 64 * 1024

_scan_json = json.JSONDecoder(strict=False).raw_decode


class ResponseSplitter:
    """Incremental splitter of a Gemini response into chunks (JSON objects).

    Bytes may be fed in pieces of any size.
    """

    __slots__ = ("_beginning", "_reader")

    def __init__(self) -> None:
        self._beginning = b""
        self._reader: SseParser | _JsonArraySplitter | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the chunks that they complete."""
        reader = self._reader
        if reader is None:
            data = (self._beginning + data).lstrip(_SPACE)
            if not data:
                return []
            reader = self._reader = _JsonArraySplitter() if data[:1] in {b"[", b"{"} else SseParser()
        if type(reader) is SseParser:
            return [event for _, event in reader.feed(data)]
        return reader.feed(data)  # type: ignore[return-value] # mypy does not narrow by type(…) is not

    def flush(self) -> list[bytes]:
        """Return the remaining bytes at the end: a chunk without its terminator, or one that was cut off."""
        if isinstance(self._reader, SseParser):
            return [event for _, event in self._reader.flush()]
        return [] if self._reader is None else self._reader.flush()

    @property
    def is_single_object(self) -> bool:
        """True if the response is a single JSON object, not a stream of chunks."""
        return isinstance(self._reader, _JsonArraySplitter) and not self._reader.is_array


class _JsonArraySplitter:
    """Splitter of a JSON array into its elements while it is received. A single object is returned at the end."""

    __slots__ = ("_decoder", "_text", "_try_from", "is_array")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._try_from = 0
        """Minimum length of the text before it is parsed again, so a large element is not parsed at every piece."""
        self.is_array: bool | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the elements that they complete."""
        self._text += self._decoder.decode(data)
        if self.is_array is None and self._text:
            self.is_array = self._text[0] == "["
        if not self.is_array or b"}" not in data or len(self._text) < self._try_from:
            return []
        return self._split_elements()

    def flush(self) -> list[bytes]:
        """Return a single object, or the rest of an array that was cut off."""
        text = self._text.strip(" \t\r\n,[]") if self.is_array else self._text
        self._text = ""
        return [text.encode()] if text else []

    def _split_elements(self) -> list[bytes]:
        found: list[bytes] = []
        text = self._text.lstrip(" \t\r\n,[")
        while text[:1] == "{":
            try:
                _, end = _scan_json(text)
            except (ValueError, RecursionError):
                break
            found.append(text[:end].encode())
            text = text[end:].lstrip(" \t\r\n,")
        self._text = text
        self._try_from = len(text) + len(text) // 4 if len(text) > _LARGE else 0
        return found
