"""Rewrite earlier tool calls and results as JSON text, for models that call tools by writing JSON.

{"tool": "add", "args": {"a": 1, "b": 2}}     the model's call
{"tool": "add", "result": "3"}                its result, in a user message; "error" if it failed
{"final": "They are three."}                  the model's answer
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from perdure.core.jsonable import to_text
from perdure.core.message import Media, Message, Part, Text, Thinking, ToolResult

AnswerForm: TypeAlias = Literal["bare", "text", "value"]
"""How an earlier answer is rewritten: not at all; as the text of a `final`; as the JSON value of one."""

MAX_CACHED = 4096
"""Maximum number of rewritten messages that are cached."""


class MessageRewriter:
    """Rewrites the tool calls and results of messages as JSON text; the same message always gives the same object."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, AnswerForm], tuple[Message, Message]] = OrderedDict()
        """Rewritten messages by the id of the original, which is kept too, so that no other message can have its id."""

    def __call__(self, message: Message, form: AnswerForm) -> Message:
        """Return the message with its tool calls and results rewritten as JSON text of this form."""
        if message.role not in {"assistant", "tool"}:
            return message
        name = (id(message), form)
        kept = self._kept.pop(name, None) or (message, _rewrite_message(message, form))
        if not any(isinstance(part, Media) for part in kept[1].parts):  # media may be large
            self._kept[name] = kept
        if len(self._kept) > MAX_CACHED:
            self._kept.popitem(last=False)
        return kept[1]


def _rewrite_message(message: Message, form: AnswerForm) -> Message:
    if message.role == "tool":
        return Message("user", _rewrite_result_parts(message.tool_results))
    if form == "bare" and not message.tool_calls:
        return message
    return replace(message, parts=_rewrite_assistant_parts(message, form))


def _rewrite_assistant_parts(message: Message, form: AnswerForm) -> tuple[Part, ...]:
    """Return a line of JSON for each tool call, or the answer. Text before a call is kept."""
    text = message.text
    calls = [
        encode_spaced_json({"tool": call.name, "args": _embed_json(call.arguments)}) for call in message.tool_calls
    ]
    if text and not calls:
        text = encode_spaced_json({"final": _embed_json(text) if form == "value" else text})
    lines = "\n".join([text, *calls] if text else calls)
    thoughts = [part for part in message.parts if isinstance(part, Thinking)]
    return (*thoughts, Text(lines)) if lines else tuple(thoughts)


def _rewrite_result_parts(results: Sequence[ToolResult]) -> tuple[Part, ...]:
    """Return a line of JSON for each tool result, followed by images and other media."""
    lines = [
        encode_spaced_json({"tool": each.name, "error" if each.is_error else "result": each.text}) for each in results
    ]
    media = [part for each in results for part in each.content if not isinstance(part, Text)]
    return (Text("\n".join(lines)), *media)


def _embed_json(text: str) -> Any:
    """Return JSON text as a raw JSON value; any other text as a string."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return msgspec.Raw(text.encode())


def encode_spaced_json(value: Any) -> str:
    """Encode a value as JSON on one line, with a space after each comma and colon, as models usually write it."""
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    except (TypeError, ValueError, RecursionError):  # values that JSON cannot represent are converted to text
        return to_text(value)
