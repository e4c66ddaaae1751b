"""Build a reply from the parts of a Gemini response, and emit its delta events.

Deltas cannot carry the signature of a text, nor an image: a reply with one is sent as a whole message at the end, with
each signature on the part that it was received with.
"""

import binascii
from typing import Any, TypeAlias

import msgspec

from perdure.core.event import CitationAdded, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.core.jsonable import replace_surrogates
from perdure.core.message import Audio, Citation, Image, Message, Part, Text, Thinking, ToolCall
from perdure.models.profile import Profile

from .chunk_structs import ABSENT, GeminiBlob

_TextPieces: TypeAlias = list[str]
"""Pieces of a text without a signature, which may be continued."""


class GeminiReplyBuilder:
    """Builder of one reply of a Gemini model: it collects the message, and appends delta events to `events`."""

    __slots__ = ("_calls", "_citations", "_open", "_parts", "_profile", "_thoughts", "_whole")

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._parts: list[Part | _TextPieces | tuple[_TextPieces, int]] = []
        """Finished parts; pieces of a text; pieces of a thought with its number."""
        self._open: _TextPieces | None = None
        """Pieces of the last part, if it may be continued."""
        self._thoughts = 0
        self._calls = 0
        self._whole = False
        """True if the deltas do not carry everything."""
        self._citations: list[Citation] = []

    @property
    def has_calls(self) -> bool:
        """True if the reply has tool calls."""
        return self._calls > 0

    @property
    def has_parts(self) -> bool:
        """True if the reply has any part."""
        return bool(self._parts)

    @property
    def text(self) -> str:
        """Text of the reply so far."""
        texts = [part for part in map(self._build_part, self._parts) if isinstance(part, Text)]
        return "".join([part.text for part in texts])

    def add_citations(self, citations: list[Citation], events: list[ModelEvent]) -> None:
        """Add the citations of the whole text, and emit them."""
        self._citations = citations
        events.extend(map(CitationAdded, citations))

    def add_text(self, text: str, signature: str, events: list[ModelEvent]) -> None:
        """Add a piece of the answer's text, and emit its delta."""
        if signature:
            self._append_part(Text(text, signature))
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

    def add_thought(self, text: str, signature: str, events: list[ModelEvent]) -> None:
        """Add a piece of readable thinking, and emit its delta."""
        if not text and not signature:
            return
        last = self._parts[-1] if self._open is not None else None
        if signature or type(last) is not tuple:
            self._thoughts += 1
        if signature:
            self._append_part(self._build_thinking(text, signature))
        elif type(last) is tuple:
            last[0].append(text)
        else:
            words = [text]
            self._parts.append((words, self._thoughts))
            self._open = words
        events.append(ThinkingDelta(text=text, signature=signature, index=self._thoughts))

    def add_call(self, name: str, call_id: str, arguments: str, signature: str, events: list[ModelEvent]) -> None:
        """Add a complete tool call, and emit its delta."""
        call = ToolCall(replace_surrogates(call_id), replace_surrogates(name), replace_surrogates(arguments), signature)
        self._append_part(call)
        events.append(
            ToolCallDelta(
                call_id=call.call_id, name=call.name, arguments=call.arguments, signature=signature, index=self._calls
            )
        )
        self._calls += 1

    def add_media(self, blob: GeminiBlob, signature: str, events: list[ModelEvent]) -> None:
        """Add media made by the model. Their signature is stored in a separate part."""
        try:
            data = binascii.a2b_base64(blob.data.replace("-", "+").replace("_", "/"))
        except ValueError:
            data = b""
        kind = Audio if blob.mime_type.startswith("audio/") else Image
        self._append_part(kind(data, media_type=blob.mime_type))
        self._whole = True
        if signature:
            self.add_opaque_part({"of": "the part before"}, signature, events)

    def add_opaque_part(self, details: dict[str, Any], signature: str, events: list[ModelEvent]) -> None:
        """Add a part of an unknown type, which is only stored so that it can be sent back to its author."""
        self._thoughts += 1
        part = self._build_thinking("", signature, details)
        self._append_part(part)
        events.append(ThinkingDelta(signature=signature, details=details, index=self._thoughts, is_item=part.is_item))

    def build_message(self) -> Message | None:
        """Return the whole message; None if the emitted deltas already contain all of the reply."""
        if not self._whole:
            return None
        return Message("assistant", (*map(self._build_part, self._parts), *self._citations))

    def _append_part(self, part: Part) -> None:
        self._parts.append(part)
        self._open = None

    def _build_part(self, part: Part | _TextPieces | tuple[_TextPieces, int]) -> Part:
        if isinstance(part, list):
            return Text("".join(part))
        return self._build_thinking("".join(part[0]), "") if isinstance(part, tuple) else part

    def _build_thinking(self, text: str, signature: str, details: dict[str, Any] | None = None) -> Thinking:
        is_item = details is not None and "part" in details  # otherwise it is a signature of the part before
        return Thinking(text, signature, "", self._profile.provider, self._profile.model, details or {}, is_item)


def strip_json_whitespace(arguments: msgspec.Raw) -> str:
    """Return a call's JSON arguments without whitespace between tokens; an empty object if there are none."""
    if arguments is ABSENT:
        return "{}"
    text = msgspec.json.format(bytes(arguments), indent=-1).decode()
    return "{}" if text == "null" else text
