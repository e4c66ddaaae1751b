"""Values taken out of whatever is shown or kept. Above: `redactor.py`. Below: `forms.py`, `finder.py`.

In the place of a value, in whatever form, stands the placeholder that the model knows it by.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from perdure.core.event import Event, ThinkingDelta
from perdure.core.message import PART_TYPES, Media, Message, Thinking, ToolCall
from perdure.core.plain import to_jsonable, to_text
from perdure.core.tool import ToolOutput

from .finder import Finder, as_bytes, named_forms
from .forms import forms_of
from .look import is_a, type_of
from .secret import SHORTEST

_IDS = ("run_id", "session_id", "call_id", "provider_call_id", "ask_id", "slot_id", "item_id", "input_id", "grant_id")
_NAMES = ("path", "child", "name", "tool", "agent", "model", "provider", "renderer", "limit", "guardrail")
_WORDS = ("role", "origin", "status", "about", "source", "scope", "mode", "action", "cause", "effect", "until", "stop")
_PROOFS = ("signature", "idempotency_key", "arguments_hash", "prefix", "kind", "type")
_KEPT = frozenset({*_IDS, *_NAMES, *_WORDS, *_PROOFS})
"""Texts by which something is found again, which nobody said. To change one would break the conversation."""
_KEPT_OF_MEDIA = frozenset({"media_type", "file_id", "detail"})
_KEPT_OF_THOUGHTS = _KEPT | {"data", "details"}

_OURS = (*PART_TYPES, Message, Event, ToolOutput)
_STAYS = (str, bytes, *_OURS)
_LISTS: frozenset[Any] = frozenset({list, tuple})


class Scrubber:
    """Takes values out of texts and of anything that holds texts.

    Values are given by name. Of two names with the same value, the first one stands for it. A value that is too
    short to be told from ordinary text is not looked for; vaults do not hand one out.
    """

    __slots__ = ("_bytes", "_finder", "_is_json", "_is_number", "_names")

    def __init__(self, values: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
        given = cast("Iterable[tuple[str, str]]", values.items() if isinstance(values, Mapping) else values)
        pairs = [(name, value) for name, value in given if len(value.strip()) >= SHORTEST]
        pairs.sort(key=lambda pair: -len(pair[1]))
        self._names = named_forms((name, forms_of(value)) for name, value in pairs)
        self._finder = Finder(self._names)
        self._bytes: Finder | None = None
        self._is_number = any(_looks_like_a_number(value) for _, value in pairs)
        self._is_json = any(value.lstrip()[:1] in {"{", "["} for _, value in pairs)

    def __repr__(self) -> str:
        return f"Scrubber({', '.join(sorted(set(self._names.values())))})"

    @property
    def longest(self) -> int:
        """How many characters the longest form of a value has."""
        return self._finder.longest

    def text(self, text: str) -> str:
        """A text without the values."""
        return self._finder.scrubbed(text)[0]

    def opening(self, text: str) -> tuple[str, str]:
        """The beginning of a text that goes on, without the values; and its end, which may be the beginning of one."""
        return self._finder.scrubbed(text, more=True)

    def data(self, data: bytes) -> bytes:
        """Bytes without the values: the text of a document, the comment in a picture."""
        if self._bytes is None:
            self._bytes = Finder(as_bytes(self._names))
        text = data.decode("latin-1")
        scrubbed = self._bytes.scrubbed(text)[0]
        return data if scrubbed is text else scrubbed.encode("latin-1")

    def value(self, value: Any) -> Any:
        """Anything without the values: itself if there are none in it, else what JSON can hold of it.

        Text, bytes, parts, messages, events and what a tool returns stay what they are.
        """
        if isinstance(value, _STAYS) or _is_list_of_parts(value):
            return self._deep(value)
        plain = to_jsonable(value)
        scrubbed = self._whole(self._deep(plain))
        return value if scrubbed == plain else scrubbed

    def _whole(self, plain: Any) -> Any:
        """A value that is JSON may turn up as the dict that it describes. Then the text of it stands for it."""
        if not self._is_json or not is_a(plain, (dict, list)):
            return plain
        written = to_text(plain)
        scrubbed = self.text(written)
        return plain if scrubbed == written else scrubbed

    def _deep(self, value: Any) -> Any:
        kind = type_of(value)
        if kind is str:
            return self.text(value)
        if kind is dict:
            return self._dict(value)
        if kind in _LISTS:
            items = [self._deep(each) for each in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else kind(items)
        if kind is bytes:
            return self.data(value)
        if kind is int or kind is float:
            return self._number(value)
        if isinstance(value, str):  # of a class of its own, such as an enum
            return value if self.text(str.__str__(value)) == value else self.text(str.__str__(value))
        return self._struct(value) if isinstance(value, _OURS) else value

    def _number(self, value: float) -> Any:
        if not self._is_number:
            return value
        written = str(value)
        scrubbed = self.text(written)
        return value if scrubbed == written else scrubbed

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        changed = False
        for key, each in value.items():
            new_key, new = self._deep(key), self._deep(each)
            changed = changed or new_key is not key or new is not each
            while new_key in found:  # two keys that were forms of one value
                new_key = f"{new_key} ({len(found) + 1})"
            found[new_key] = new
        return found if changed else value

    def _struct(self, value: Any) -> Any:
        if isinstance(value, ToolCall):
            return _replaced(value, {"arguments": self._arguments(value.arguments)})
        if isinstance(value, ToolOutput):
            content, render = self.value(value.content), self.value(value.render)
            return _replaced(value, {"content": content, "render": render, "summary": self.value(value.summary)})
        kept = _KEPT
        if isinstance(value, Media):
            kept = _KEPT_OF_MEDIA
        elif isinstance(value, (Thinking, ThinkingDelta)):
            kept = _KEPT_OF_THOUGHTS
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in kept}
        scrubbed = _replaced(value, {name: self._whole(self._deep(each)) for name, each in fields.items()})
        if isinstance(scrubbed, Thinking) and scrubbed is not value:
            return msgspec.structs.replace(scrubbed, signature="")  # it proves what is not there any more
        return scrubbed

    def _arguments(self, arguments: str) -> str:
        """The arguments of a call, as the same JSON where that is possible: a number becomes a text."""
        if self.text(arguments) == arguments:
            return arguments
        try:
            decoded: Any = msgspec.json.decode(arguments)
        except Exception:  # noqa: BLE001 - several kinds, and a model can cause all of them
            return self.text(arguments)
        return self.text(msgspec.json.encode(self._deep(decoded)).decode())


class ScrubbedStream:
    """Takes values out of a text that comes in pieces, also where a value begins in one piece and ends in another.

    What may be the beginning of a value is held back until it is clear: never more than the longest form needs.
    """

    __slots__ = ("_held", "changed", "scrubber")

    def __init__(self, scrubber: Scrubber) -> None:
        self.scrubber = scrubber
        """What takes the values out. It may be changed for one that knows more of them."""
        self.changed = False
        """Whether anything was taken out so far."""
        self._held = ""

    def feed(self, chunk: str) -> str:
        """What is clear by now."""
        text = self._held + chunk
        clear, self._held = self.scrubber.opening(text)
        self.changed = self.changed or len(clear) + len(self._held) != len(text) or not text.startswith(clear)
        return clear

    def end(self) -> str:
        """The rest, when nothing more comes. The stream can then be used for another text."""
        rest = self.scrubber.text(self._held)
        self.changed = self.changed or rest != self._held
        self._held = ""
        return rest


def _replaced(value: Any, fields: Mapping[str, Any]) -> Any:
    different = {name: new for name, new in fields.items() if new is not getattr(value, name)}
    return msgspec.structs.replace(value, **different) if different else value


def _is_list_of_parts(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return all(isinstance(each, PART_TYPES) for each in cast("list[Any]", value))


def _looks_like_a_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
