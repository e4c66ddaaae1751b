"""Parse the chunks of a chat completions stream into typed structs.

A whole response is parsed in the same form.

Nearly every chunk is decoded in one typed pass. One that does not fit the types (content in a list, arguments that are
an object, a number where a string is expected) is decoded again without types and converted.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure._models.endpoint.memo import encode_lossy_json
from perdure._models.wires import lenient_json as untrusted


class FunctionPiece(Struct, gc=False):
    """Streamed piece of a tool call's function: the name, and a part of the arguments."""

    name: str | None = None
    arguments: str | None = None


class ToolCallPiece(Struct, gc=False):
    """Streamed piece of a tool call: index, id and function."""

    function: FunctionPiece | None = None
    id: str | None = None
    index: int | None = None
    extra_content: dict[str, Any] | None = None
    """Gemini's addition, which has the signature of the call."""

    @property
    def signature(self) -> str:
        """Thought signature that Gemini attaches to the call; empty if there is none."""
        return get_google_signature(self.extra_content or {})


def get_google_signature(extra: Mapping[str, Any]) -> str:
    """Return Google's thought signature from the `extra_content` of a call or a message; empty if there is none."""
    said = (as_dict_or_none(extra.get("google")) or {}).get("thought_signature")
    return said if isinstance(said, str) else ""


class ChatDelta(Struct, gc=False):
    """Streamed piece of a chat completions message, or a whole message, which has the same fields."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallPiece] | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    thinking: str | None = None
    """Third name for reasoning."""
    function_call: FunctionPiece | None = None
    """Legacy form of a call, from before a message could have several."""
    audio: dict[str, Any] | None = None
    extra_content: dict[str, Any] | None = None
    """Gemini's addition, which has the signature of the message."""
    annotations: list[dict[str, Any]] | None = None
    provider_metadata: dict[str, Any] | None = None
    """Vercel's addition, which has the cost and the company that answered."""
    items: tuple[tuple[str, str], ...] = ()
    """Content that was sent as a list: the kind of each item, `text` or `thinking`, and its text. Never part of the
    JSON.
    """


ABSENT = msgspec.Raw()
"""Value of a field that is not in the JSON, and of one that is not decoded at once because it is rarely needed."""


class ChatChoice(Struct, gc=False):
    """Choice (alternative reply) in a chunk of a chat completions stream; all but the first become metadata."""

    delta: ChatDelta | None = None
    finish_reason: str | None = None
    message: ChatDelta | None = None
    index: int | None = None
    error: Any = None
    logprobs: Any = None
    content_filter_results: msgspec.Raw = ABSENT


class ChatChunk(Struct, gc=False):
    """A chunk of a chat completions stream, or a whole response, which has the same fields."""

    choices: list[ChatChoice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    x_groq: dict[str, Any] | None = None
    prompt_filter_results: msgspec.Raw = ABSENT


_decode_typed_chunk = msgspec.json.Decoder(ChatChunk).decode


def parse_chunk(data: bytes) -> ChatChunk | None:
    """Parse a chunk of a chat completions response; `None` if the bytes are not a JSON object."""
    try:
        chunk = _decode_typed_chunk(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # a ValidationError is one as well
        return _parse_chunk_leniently(data)
    if chunk.choices is None and chunk.usage is None and chunk.error is None:
        return _parse_chunk_leniently(data)
    return chunk


def _parse_chunk_leniently(data: bytes) -> ChatChunk | None:
    said = as_dict_or_none(parse_json_or_none(data))
    if said is None:
        return None
    choices = said.get("choices")
    return ChatChunk(
        [_build_choice(each) for each in _as_objects(choices)] if isinstance(choices, list) else None,
        as_dict_or_none(said.get("usage")),
        said.get("error") or _find_unwrapped_error(said),
        as_dict_or_none(said.get("x_groq")),
        prompt_filter_results=_as_raw(said.get("prompt_filter_results")),
    )


def parse_json_or_none(data: bytes) -> Any:
    """Parse JSON of a provider, including `NaN` and lone surrogates; None if it is invalid."""
    try:
        return untrusted.parse_lenient_json(data)
    except msgspec.DecodeError:
        return None


def _find_unwrapped_error(said: Mapping[str, Any]) -> Any:
    """Return the error of a body that is itself the error object, without a key `error`; None if it is not."""
    if "choices" in said or "usage" in said:
        return None
    is_error = said.get("object") == "error" or said.get("type") == "error" or "detail" in said
    return said if is_error or ("message" in said and "code" in said) else None


def _build_choice(said: Mapping[str, Any]) -> ChatChoice:
    delta, message = as_dict_or_none(said.get("delta")), as_dict_or_none(said.get("message"))
    finish, index = said.get("finish_reason"), said.get("index")
    return ChatChoice(
        None if delta is None else _build_delta(delta),
        None if finish is None else str(finish),
        None if message is None else _build_delta(message),
        index if isinstance(index, int) else None,
        said.get("error"),
        said.get("logprobs"),
        _as_raw(said.get("content_filter_results")),
    )


def _as_raw(value: Any) -> msgspec.Raw:
    return ABSENT if value is None else msgspec.Raw(encode_lossy_json(value))


def _build_delta(said: Mapping[str, Any]) -> ChatDelta:
    content, call = said.get("content"), as_dict_or_none(said.get("function_call"))
    return ChatDelta(
        content=_as_text(content) if not isinstance(content, list) else None,
        reasoning_content=_as_text(said.get("reasoning_content")),
        reasoning=_as_text(said.get("reasoning")),
        tool_calls=[_build_call_piece(each) for each in _as_objects(said.get("tool_calls"))] or None,
        reasoning_details=_as_objects(said.get("reasoning_details")) or None,
        refusal=_as_text(said.get("refusal")),
        thinking=_as_text(said.get("thinking")),
        function_call=None if call is None else _build_function_piece(call),
        audio=as_dict_or_none(said.get("audio")),
        extra_content=as_dict_or_none(said.get("extra_content")),
        annotations=_as_objects(said.get("annotations")) or None,
        provider_metadata=as_dict_or_none(said.get("provider_metadata")),
        items=tuple(_extract_content_items(_as_list(content))),
    )


def _extract_content_items(content: list[Any]) -> list[tuple[str, str]]:
    """Return the kind and text of each item in a content list. Items that are neither text nor thinking are skipped."""
    found: list[tuple[str, str]] = []
    for item in content:
        if isinstance(item, str):
            found.append(("text", item))
        elif (said := as_dict_or_none(item)) is not None:
            inner = said.get("thinking")
            if isinstance(inner, list):
                found += [("thinking", words) for _, words in _extract_content_items(_as_list(inner))]
            elif isinstance(inner, str):
                found.append(("thinking", inner))
            elif isinstance(said.get("text"), str):
                found.append(("text", said["text"]))
    return found


def _build_call_piece(said: Mapping[str, Any]) -> ToolCallPiece:
    function, name, index = as_dict_or_none(said.get("function")), said.get("id"), said.get("index")
    return ToolCallPiece(
        None if function is None else _build_function_piece(function),
        None if name is None else str(name),
        index if isinstance(index, int) else None,
        as_dict_or_none(said.get("extra_content")),
    )


def _build_function_piece(said: Mapping[str, Any]) -> FunctionPiece:
    return FunctionPiece(_as_text(said.get("name")), _as_text(said.get("arguments")))


def _as_text(value: Any) -> str | None:
    """Return a string unchanged, and any other value as JSON text; None for None."""
    if value is None:
        return None
    return value if isinstance(value, str) else encode_lossy_json(value).decode()


def as_dict_or_none(value: Any) -> dict[str, Any] | None:
    """Return the value if it is a dict (a JSON object), else None."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, (list, tuple)) else []


def _as_objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in _as_list(value) if isinstance(each, dict)]
