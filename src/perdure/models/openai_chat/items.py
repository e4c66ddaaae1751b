"""Messages as items of this wire, each made once. Pure. Above: `encode.py`. Below: `content.py`, `dialect.py`, `core`.

A model gets its own thinking back on the turns on which it called tools, and nobody else's ever: those that think
between calls lose their thread without it, and on other turns it is ignored or refused.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.core.message import Media, Message, Part, Status, Text, Thinking, ToolCall, ToolResult
from perdure.models.attachment import note, opened
from perdure.models.memo import encoded
from perdure.models.naming import tool_name
from perdure.models.profile import Profile

from .content import item_of, said_by_user, shown, text_item
from .details import DETAILS
from .dialect import Dialect

_UNSIGNED = "skip_thought_signature_validator"
"""What Gemini 3 takes for the signature of a call that it has not written."""

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_LONGEST_ID = 40
"""Some refuse longer ones, though most do not."""
_NINE = re.compile(r"[A-Za-z0-9]{9}").fullmatch


class Writer:
    """Writes the messages of a conversation for one model."""

    def __init__(self, profile: Profile, dialect: Dialect, *, echo: bool | None) -> None:
        self._profile = profile
        self._dialect = dialect
        self._echoes = dialect.takes_back(profile.model) if echo is None else echo
        self._field = dialect.echo or "reasoning_content"
        self._must_sign = dialect.signed_calls and "gemini-3" in profile.model

    def items(self, message: Message) -> Sequence[dict[str, Any]]:
        """The items of a message: one, or one for each result, or none when nothing was said."""
        match message.role:
            case "assistant":
                return self._assistant(message)
            case "tool":
                return self._results(message)
            case role:
                return [{"role": role, "content": said_by_user(message.parts, self._profile, self._dialect)}]

    # -- what a model said ---------------------------------------------------------------------------------------------

    def _assistant(self, message: Message) -> Sequence[dict[str, Any]]:
        calls = message.tool_calls
        text = "".join([_words(part) for part in message.parts])
        if not (calls or text.strip()):
            return ()
        item: dict[str, Any] = {"role": "assistant"}
        if text.strip():
            item["content"] = text
        if not calls:
            return [item]
        is_own = self._profile.wrote(message.provider, message.model)
        if is_own and self._echoes:
            self._echo(message, item)
        item["tool_calls"] = [self._call(call, is_own=is_own, is_first=place == 0) for place, call in enumerate(calls)]
        return [item]

    def _echo(self, message: Message, item: dict[str, Any]) -> None:
        """Give the model its thinking back: its blocks as they came, or else the words of it."""
        thoughts = [part for part in message.parts if isinstance(part, Thinking)]
        blocks = [block for thought in thoughts for block in thought.details.get(DETAILS, ())]
        words = "".join([thought.text for thought in thoughts])
        if blocks:
            item[DETAILS] = blocks
        elif words and self._field == "content":
            thinking = {"type": "thinking", "thinking": [text_item(words)]}
            item["content"] = [thinking, text_item(item["content"])] if "content" in item else [thinking]
        elif words:
            item[self._field] = words

    def _call(self, call: ToolCall, *, is_own: bool, is_first: bool) -> dict[str, Any]:
        function = {"name": tool_name(call.name), "arguments": _object_text(call.arguments)}
        said: dict[str, Any] = {"id": self._id(call.call_id), "type": "function", "function": function}
        if self._dialect.signed_calls:
            signature = call.signature if is_own else ""
            if self._must_sign and is_first:
                signature = signature or _UNSIGNED
            if signature:
                said["extra_content"] = {"google": {"thought_signature": signature}}
        return said

    def _id(self, call_id: str) -> str:
        if not self._dialect.nine_letter_ids:
            return (
                call_id if len(call_id) <= _LONGEST_ID else f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"
            )
        if _NINE(call_id):
            return call_id
        number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8])
        letters: list[str] = []
        for _ in range(9):
            number, letter = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[letter])
        return "".join(letters)

    # -- what tools said -----------------------------------------------------------------------------------------------

    def _results(self, message: Message) -> Sequence[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        following: list[dict[str, Any]] = []
        for result in message.tool_results:
            item = {"role": "tool", "tool_call_id": self._id(result.call_id), "content": self._told(result, following)}
            if self._dialect.named_results:
                item["name"] = tool_name(result.name)
            items.append(item)
        if following:
            items.append({"role": "user", "content": following})
        return items

    def _told(self, result: ToolResult, following: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """The content of a result. What it has to show follows the results, where it cannot be shown in one."""
        items: list[dict[str, Any]] = []
        for part in result.content:
            media = opened(part) if isinstance(part, Media) else None
            view = shown(media, self._profile, self._dialect) if media is not None else None
            if media is None or view is None or self._dialect.images_in_results:
                items += [item] if (item := item_of(part, self._profile, self._dialect)) is not None else []
            else:
                items.append(text_item(note(media, "it follows these results")))
                following += [text_item(f"From the result of {result.name}:"), view]
        if result.is_error:
            items.insert(0, text_item(_FAILED[result.status]))
        if not items:
            return "[no output]"
        if all(item["type"] == "text" for item in items):
            return "\n".join([item["text"] for item in items])
        return items


_FAILED: Mapping[Status, str] = {
    status: f"[{str(status).replace('_', ' ')}]" for status in Status if status is not Status.OK
}
"""What is said before the words of a result that is none: this wire has no other way to mark it."""


def _words(part: Part) -> str:
    """What a model has said; of what it has shown we can only say that it was there."""
    if isinstance(part, Text):
        return part.text
    return note(part, "made by the assistant") if isinstance(part, Media) else ""


def _object_text(arguments: str) -> str:
    """The arguments as they were written; or, where they are no JSON object, as one that holds them.

    Servers hand them to a template that reads them as JSON, and fail when they are none.
    """
    if arguments.strip() in ("", "null"):
        return "{}"
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return encoded({"_raw": arguments}).decode()
    return arguments
