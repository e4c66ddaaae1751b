"""What a model has said so far, part by part. Above: `decode.py`. Below: `core`.

Deltas are told as they come. They cannot hold the signature of a text, nor a picture: then the whole message is told
at the end, with each signature on the very part that it came on.
"""

import binascii
from typing import Any, TypeAlias

import msgspec

from perdure.core.event import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.core.message import Audio, Image, Message, Part, Text, Thinking, ToolCall
from perdure.core.plain import clean
from perdure.models.profile import Profile

from .chunk import ABSENT, Blob

_Words: TypeAlias = list[str]
"""A text without a signature that may go on."""


class Reply:
    """Collects parts and tells events."""

    __slots__ = ("_calls", "_open", "_parts", "_profile", "_thoughts", "_whole", "metadata")

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._parts: list[Part | _Words | tuple[_Words, int]] = []
        """Parts that are finished; the words of a text; the words of a thought, and which one it is."""
        self._open: _Words | None = None
        """The words of the last part, if it may go on."""
        self._thoughts = 0
        self._calls = 0
        self._whole = False
        """Whether deltas do not say everything."""
        self.metadata: dict[str, Any] = {}
        """Sources and citations, for those who show them."""

    @property
    def has_calls(self) -> bool:
        """Whether a tool is called."""
        return self._calls > 0

    @property
    def is_begun(self) -> bool:
        """Whether anything has been said."""
        return bool(self._parts)

    def text(self, text: str, signature: str, events: list[ModelEvent]) -> None:
        """Words."""
        if signature:
            self._end_with(Text(text, signature))
            self._whole = True
        elif text:
            parts = self._parts
            if self._open is None or type(parts[-1]) is not list:
                parts.append(words := [text])
                self._open = words
            else:
                self._open.append(text)
        if text:
            events.append(TextDelta(text=text))

    def thought(self, text: str, signature: str, events: list[ModelEvent]) -> None:
        """Thinking that may be read."""
        if not text and not signature:
            return
        last = self._parts[-1] if self._open is not None else None
        if signature or type(last) is not tuple:
            self._thoughts += 1
        if signature:
            self._end_with(self._thinking(text, signature))
        elif type(last) is tuple:
            last[0].append(text)
        else:
            words = [text]
            self._parts.append((words, self._thoughts))
            self._open = words
        events.append(ThinkingDelta(text=text, signature=signature, index=self._thoughts))

    def call(self, name: str, call_id: str, arguments: str, signature: str, events: list[ModelEvent]) -> None:
        """A call, which is always whole."""
        call = ToolCall(clean(call_id), clean(name), clean(arguments), signature)
        self._end_with(call)
        events.append(
            ToolCallDelta(
                call_id=call.call_id, name=call.name, arguments=call.arguments, signature=signature, index=self._calls
            )
        )
        self._calls += 1

    def media(self, blob: Blob, signature: str, events: list[ModelEvent]) -> None:
        """Something that the model has made. Its signature is kept beside it."""
        try:
            data = binascii.a2b_base64(blob.data.replace("-", "+").replace("_", "/"))
        except ValueError:
            data = b""
        kind = Audio if blob.mime_type.startswith("audio/") else Image
        self._end_with(kind(data, media_type=blob.mime_type))
        self._whole = True
        if signature:
            self.opaque({"of": "the part before"}, signature, events)

    def opaque(self, details: dict[str, Any], signature: str, events: list[ModelEvent]) -> None:
        """What means nothing to us and has to go back to its author."""
        self._thoughts += 1
        self._end_with(self._thinking("", signature, details))
        events.append(ThinkingDelta(signature=signature, details=details, index=self._thoughts))

    def message(self) -> Message | None:
        """All that was said; nothing when the deltas have said it."""
        if not self._whole and not self.metadata:
            return None
        parts = tuple([self._finished(part) for part in self._parts])
        return Message("assistant", parts, metadata=self.metadata)

    def _end_with(self, part: Part) -> None:
        self._parts.append(part)
        self._open = None

    def _finished(self, part: Part | _Words | tuple[_Words, int]) -> Part:
        if isinstance(part, list):
            return Text("".join(part))
        return self._thinking("".join(part[0]), "") if isinstance(part, tuple) else part

    def _thinking(self, text: str, signature: str, details: dict[str, Any] | None = None) -> Thinking:
        return Thinking(text, signature, "", self._profile.provider, self._profile.model, details or {})


def compact(arguments: msgspec.Raw) -> str:
    """Arguments as they came, without the blanks between them; an empty object when there are none."""
    if arguments is ABSENT:
        return "{}"
    text = msgspec.json.format(bytes(arguments), indent=-1).decode()
    return "{}" if text == "null" else text
