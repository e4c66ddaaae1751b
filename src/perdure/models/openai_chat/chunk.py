"""One chunk of a stream as a typed value, or a whole answer in the same form. Above: `decode.py`. Below: `core`.

Nearly every chunk is read in one typed pass. What does not fit the types (content in a list, arguments that are an
object, a number where a word should be) is read once more without them, and put into the same form.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure.models import untrusted
from perdure.models.memo import encoded


class Function(Struct, gc=False):
    """Which tool, and a piece of its arguments."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(Struct, gc=False):
    """A piece of a call."""

    function: Function | None = None
    id: str | None = None
    index: int | None = None
    extra_content: dict[str, Any] | None = None
    """What Gemini adds: the signature of the call."""

    @property
    def signature(self) -> str:
        """The provider's proof that it wrote this call."""
        said = (object_of((self.extra_content or {}).get("google")) or {}).get("thought_signature")
        return said if isinstance(said, str) else ""


class Delta(Struct, gc=False):
    """A piece of a message; or the whole message, which has the same fields."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    thinking: str | None = None
    """A third name for reasoning."""
    function_call: Function | None = None
    """What calls were before there could be several."""
    audio: dict[str, Any] | None = None
    items: tuple[tuple[str, str], ...] = ()
    """Content that came as a list: what kind each item is, `text` or `thinking`, and its words. Never on the wire."""


class Choice(Struct, gc=False):
    """One of the answers; all but the first are left aside."""

    delta: Delta | None = None
    finish_reason: str | None = None
    message: Delta | None = None
    index: int | None = None


class Chunk(Struct, gc=False):
    """What one event of a stream says, or a whole answer."""

    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    x_groq: dict[str, Any] | None = None


_typed = msgspec.json.Decoder(Chunk).decode


def read(data: bytes) -> Chunk | None:
    """The chunk in these bytes; nothing when they are no JSON object."""
    try:
        chunk = _typed(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # a ValidationError is one as well
        return _loose(data)
    if chunk.choices is None and chunk.usage is None and chunk.error is None:
        return _loose(data)
    return chunk


def _loose(data: bytes) -> Chunk | None:
    said = object_of(parsed(data))
    if said is None:
        return None
    choices = said.get("choices")
    return Chunk(
        [_choice(each) for each in _objects(choices)] if isinstance(choices, list) else None,
        object_of(said.get("usage")),
        said.get("error") or _flat_error(said),
        object_of(said.get("x_groq")),
    )


def parsed(data: bytes) -> Any:
    """JSON, also such as only browsers and Python take: lone surrogates, `NaN`. Nothing when it is none at all, or
    nested without end.
    """
    try:
        return untrusted.parsed(data)
    except msgspec.DecodeError:
        return None


def _flat_error(said: Mapping[str, Any]) -> Any:
    """An error that is told without a key `error` around it."""
    if "choices" in said or "usage" in said:
        return None
    is_error = said.get("object") == "error" or said.get("type") == "error" or "detail" in said
    return said if is_error or ("message" in said and "code" in said) else None


def _choice(said: Mapping[str, Any]) -> Choice:
    delta, message = object_of(said.get("delta")), object_of(said.get("message"))
    finish, index = said.get("finish_reason"), said.get("index")
    return Choice(
        None if delta is None else _delta(delta),
        None if finish is None else str(finish),
        None if message is None else _delta(message),
        index if isinstance(index, int) else None,
    )


def _delta(said: Mapping[str, Any]) -> Delta:
    content, call = said.get("content"), object_of(said.get("function_call"))
    return Delta(
        content=_words(content) if not isinstance(content, list) else None,
        reasoning_content=_words(said.get("reasoning_content")),
        reasoning=_words(said.get("reasoning")),
        tool_calls=[_piece(each) for each in _objects(said.get("tool_calls"))] or None,
        reasoning_details=_objects(said.get("reasoning_details")) or None,
        refusal=_words(said.get("refusal")),
        thinking=_words(said.get("thinking")),
        function_call=None if call is None else _function(call),
        audio=object_of(said.get("audio")),
        items=tuple(_items(_list(content))),
    )


def _items(content: list[Any]) -> list[tuple[str, str]]:
    """The words of a list of content, each with its kind. What is neither text nor thinking has none."""
    found: list[tuple[str, str]] = []
    for item in content:
        if isinstance(item, str):
            found.append(("text", item))
        elif (said := object_of(item)) is not None:
            inner = said.get("thinking")
            if isinstance(inner, list):
                found += [("thinking", words) for _, words in _items(_list(inner))]
            elif isinstance(inner, str):
                found.append(("thinking", inner))
            elif isinstance(said.get("text"), str):
                found.append(("text", said["text"]))
    return found


def _piece(said: Mapping[str, Any]) -> CallPiece:
    function, name, index = object_of(said.get("function")), said.get("id"), said.get("index")
    return CallPiece(
        None if function is None else _function(function),
        None if name is None else str(name),
        index if isinstance(index, int) else None,
        object_of(said.get("extra_content")),
    )


def _function(said: Mapping[str, Any]) -> Function:
    return Function(_words(said.get("name")), _words(said.get("arguments")))


def _words(value: Any) -> str | None:
    """Text as it is; anything else, an object where text should be, as the JSON that it stands for."""
    if value is None:
        return None
    return value if isinstance(value, str) else encoded(value).decode()


def object_of(value: Any) -> dict[str, Any] | None:
    """A value that is an object; nothing for any other."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, (list, tuple)) else []


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in _list(value) if isinstance(each, dict)]
