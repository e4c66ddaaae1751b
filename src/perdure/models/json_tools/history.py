"""What was said before, in the form of JSON tool mode. Above: `question.py`. Below: `core`.

{"tool": "add", "args": {"a": 1, "b": 2}}     the model's call
{"tool": "add", "result": "3"}                its result, in a user message; "error" when it failed
{"final": "They are three."}                  the model's answer
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from perdure.core.message import Media, Message, Part, Text, Thinking, ToolResult
from perdure.core.plain import to_text

Form: TypeAlias = Literal["bare", "text", "value"]
"""How an earlier answer is told: as it is; as the text of a `final`; as the JSON value of one."""

MOST_KEPT = 4096
"""Messages whose retold form is kept."""


class Retold:
    """Messages in this form. A message is retold as the same object each time, so that wires encode it only once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, Form], tuple[Message, Message]] = OrderedDict()
        """By the id of a message, which is kept too: so no other message can have its id."""

    def __call__(self, message: Message, form: Form) -> Message:
        """A message, retold."""
        if message.role not in {"assistant", "tool"}:
            return message
        name = (id(message), form)
        kept = self._kept.pop(name, None) or (message, _retold(message, form))
        if not any(isinstance(part, Media) for part in kept[1].parts):  # which may be of any size
            self._kept[name] = kept
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return kept[1]


def _retold(message: Message, form: Form) -> Message:
    if message.role == "tool":
        return Message("user", _result_parts(message.tool_results))
    if form == "bare" and not message.tool_calls:
        return message
    return replace(message, parts=_assistant_parts(message, form))


def _assistant_parts(message: Message, form: Form) -> tuple[Part, ...]:
    """A line for each call, or the answer. Words in front of a call are no answer, and stay as they are."""
    text = message.text
    calls = [spaced({"tool": call.name, "args": _embedded(call.arguments)}) for call in message.tool_calls]
    if text and not calls:
        text = spaced({"final": _embedded(text) if form == "value" else text})
    lines = "\n".join([text, *calls] if text else calls)
    thoughts = [part for part in message.parts if isinstance(part, Thinking)]
    return (*thoughts, Text(lines)) if lines else tuple(thoughts)


def _result_parts(results: Sequence[ToolResult]) -> tuple[Part, ...]:
    """A line for each result. Pictures and the like follow, for endpoints that can look at them."""
    lines = [spaced({"tool": each.name, "error" if each.is_error else "result": each.text}) for each in results]
    media = [part for each in results for part in each.content if not isinstance(part, Text)]
    return (Text("\n".join(lines)), *media)


def _embedded(text: str) -> Any:
    """JSON text as the value that it is, written as it was; anything else as a text."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return msgspec.Raw(text.encode())


def spaced(value: Any) -> str:
    """JSON on one line, with the blanks that models have seen most."""
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    except (TypeError, ValueError, RecursionError):  # what JSON cannot hold is told as well as can be
        return to_text(value)
