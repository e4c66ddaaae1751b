"""Messages as `input` items of the Responses wire. Pure. Above: `encode.py`. Below: `content.py`, `mark.py`.

A reply of several items comes back as the same items, in the same order. Its reasoning comes back only to the model
that wrote it, and only where it helps: in turns with calls, ours or the provider's own.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.core.message import Media, Message, Part, Text, Thinking, ToolCall, ToolResult
from perdure.models import attachment
from perdure.models.memo import Item
from perdure.models.naming import tool_name
from perdure.models.profile import Profile

from . import mark
from .content import contents, input_text, only_words, output_text
from .dialect import Dialect

NO_OUTPUT = "(no output)"
"""What is said of a result that has nothing in it."""


class Writer:
    """Turns the messages of one request into items, in order."""

    def __init__(
        self, messages: Sequence[Message], profile: Profile, dialect: Dialect, *, echo: bool | None, stored: bool
    ) -> None:
        """`echo` is `Settings.echo_reasoning`; `stored` says whether the provider keeps what it answers."""
        self._messages = messages
        self._profile = profile
        self._dialect = dialect
        self._echo = echo
        self._stored = stored
        self._before: Message | None = None

    def items(self, message: Message) -> Sequence[Item]:
        """The items of the next message."""
        before, self._before = self._before, message
        match message.role:
            case "assistant":
                return self._reply(message)
            case "tool":
                return self._results(message, before or self._preceding(message))
            case role:
                said = contents(message.parts, self._profile, self._dialect)
                return [_message("user" if role == "user" else self._dialect.system_role, said)] if said else ()

    def _preceding(self, message: Message) -> Message | None:
        """What comes before a message when that was encoded in an earlier request."""
        for place in range(len(self._messages) - 1, 0, -1):
            if self._messages[place] is message:
                return self._messages[place - 1]
        return None

    # -- what a model wrote --------------------------------------------------------------------------------------------

    def _reply(self, message: Message) -> Sequence[Item]:
        own = self._profile.wrote(message.provider, message.model)
        echoes = own and self._echoes(message)
        items: list[Item] = []
        for part in message.parts:
            match part:
                case Text(text=text) if text:
                    items.append(_said(text, self._marks(part.signature, own=own, echoes=echoes)))
                case Thinking() if echoes:
                    items.append(self._thought(part))
                case ToolCall():
                    items.append(_call(part, self._marks(part.signature, own=own, echoes=echoes)))
                case Media():
                    items.append(_said(attachment.note(part, "not shown again"), {}))
                case _:
                    pass
        while items and items[-1]["type"] == "reasoning":  # refused without the item that it belongs to
            items.pop()
        return items

    def _echoes(self, message: Message) -> bool:
        """Whether the reasoning of an own message is sent back; all of it, or nothing."""
        thoughts = [part for part in message.parts if type(part) is Thinking]
        if self._echo is False or not all(mark.can_return(thought, stored=self._stored) for thought in thoughts):
            return False
        has_calls = any(type(part) is ToolCall for part in message.parts)
        return bool(self._echo) or has_calls or any(mark.is_opaque(thought) for thought in thoughts)

    def _marks(self, signature: str, *, own: bool, echoes: bool) -> mark.Marks:
        """What goes back beside words or a call, and to the author alone.

        An id goes back only where the provider has kept the item: one that keeps nothing looks for it in vain, and
        refuses the request.
        """
        if not own:
            return {}
        marks = mark.read(signature)
        if "id" in marks and not (self._stored and echoes):
            return {name: value for name, value in marks.items() if name != "id"}
        return marks

    def _thought(self, thought: Thinking) -> Item:
        item = mark.returned(thought)
        if item["type"] == "reasoning" and not self._stored:
            item.pop("id", None)
        return item

    # -- what tools answered -------------------------------------------------------------------------------------------

    def _results(self, message: Message, asking: Message | None) -> Sequence[Item]:
        custom = self._custom_calls(asking)
        items: list[Item] = []
        attached: list[Item] = []
        for result in message.tool_results:
            output, beside = self._output(result)
            kind = mark.CUSTOM if result.call_id in custom else "function_call"
            items.append({"type": f"{kind}_output", "call_id": result.call_id, "output": output})
            if beside:
                attached += [input_text(f"Attachments of {result.name}, call {result.call_id}:"), *beside]
        return [*items, _message("user", attached)] if attached else items

    def _custom_calls(self, asking: Message | None) -> frozenset[str]:
        if asking is None or not self._profile.wrote(asking.provider, asking.model):
            return frozenset()
        calls = asking.tool_calls
        return frozenset([call.call_id for call in calls if mark.read(call.signature).get("type") == mark.CUSTOM])

    def _output(self, result: ToolResult) -> tuple[Any, list[Item]]:
        """What the model is told, and what has to follow in a message of its own."""
        failed = [Text(f"[{result.status}]")] if result.is_error else []
        parts: list[Part] = [*failed, *result.content]
        shown = contents(parts, self._profile, self._dialect)
        words = only_words(shown)
        if words is not None:
            return words or NO_OUTPUT, []
        if self._dialect.rich_results:
            return shown, []
        told = [each for each in shown if each["type"] == "input_text"]
        beside = [each for each in shown if each["type"] != "input_text"]
        return "\n".join([str(each["text"]) for each in told] or ["(see the attachments)"]), beside


def _said(text: str, marks: mark.Marks) -> Item:
    """Words of the model; with their phase, which a model that marks its phases wants back in any case."""
    return {"type": "message", "role": "assistant", "content": [output_text(text)], **marks}


def _call(call: ToolCall, marks: mark.Marks) -> Item:
    named = {"call_id": call.call_id, "name": tool_name(call.name)}
    if marks.get("type") == mark.CUSTOM:
        return {**named, "input": call.arguments, **marks}
    return {"type": "function_call", **named, "arguments": _as_object(call.arguments), **marks}


def _message(role: str, content: Sequence[Item]) -> Item:
    return {"type": "message", "role": role, "content": content}


def _as_object(arguments: str) -> str:
    """The arguments as they are, or in an object when they are none: servers that read them refuse anything else."""
    try:
        if isinstance(msgspec.json.decode(arguments), dict):
            return arguments
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        pass
    return msgspec.json.encode({"_raw": arguments}).decode() if arguments.strip() else "{}"
