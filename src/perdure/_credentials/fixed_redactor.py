"""Redaction of a fixed set of secrets in texts, in objects that contain texts, and in streamed text.

A value, in the forms of `secret_forms` and `scattered_secret_finder`, is replaced by its placeholder, which the model
knows.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from perdure._core.tools.tool import ToolOutput
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import to_jsonable, to_text
from perdure._core.values.message import PART_TYPES, Media, Message, Thinking, ToolCall

from .forms import (
    SecretFormFinder,
    encode_forms_as_latin1,
    find_revealing_prefix_length,
    list_secret_forms,
    list_unencoded_forms,
    map_forms_to_names,
    replace_spans,
)
from .hidden_forms import DumpedSecretFinder, ObfuscatedSecretFinder
from .secret import MIN_SECRET_LENGTH, is_a, type_of

_IDS = ("call_id", "provider_call_id", "name", "model", "provider", "signature")
_KEPT_OF_MESSAGES = frozenset({*_IDS, "role", "origin", "status", "stop"})
"""Fields of messages and their parts with identifiers, which are never redacted; events declare theirs themselves.
Changing one would break the conversation."""
_NAMES = frozenset({"name", "tool", "input_id"})
"""Identifiers that a model, a tool or a caller chooses: of these, values of some length are redacted."""
_KEPT_OF_MEDIA = frozenset({"media_type", "file_id", "detail"})
_KEPT_OF_THOUGHTS = _KEPT_OF_MESSAGES | {"data", "details"}

_OURS = (*PART_TYPES, Message, Event, ToolOutput)
_STAYS = (str, bytes, *_OURS)
_LISTS: frozenset[Any] = frozenset({list, tuple})


class FixedSecretsRedactor:
    """Replaces a fixed set of secrets by placeholders `{{name}}`, in texts and in any object that contains texts.

    Values are given by name. If two names have the same value, the first name replaces it. Values that are too short to
    be distinguished from ordinary text are ignored; vaults do not hand them out.
    """

    __slots__ = ("_bytes", "_dumped", "_finder", "_is_json", "_is_number", "_names", "_scattered")

    def __init__(self, values: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
        given = cast("Iterable[tuple[str, str]]", values.items() if isinstance(values, Mapping) else values)
        pairs = [(name, value) for name, value in given if len(value.strip()) >= MIN_SECRET_LENGTH]
        pairs.sort(key=lambda pair: -len(pair[1]))
        self._names = map_forms_to_names((name, list_secret_forms(value)) for name, value in pairs)
        starts = {value: least for _, value in pairs if (least := find_revealing_prefix_length(value)) is not None}
        self._finder = SecretFormFinder(self._names, starts)
        plain = map_forms_to_names((name, list_unencoded_forms(value)) for name, value in pairs)
        self._scattered = ObfuscatedSecretFinder(plain)
        self._dumped = DumpedSecretFinder(plain)
        self._bytes: SecretFormFinder | None = None
        self._is_number = any(_is_number(value) for _, value in pairs)
        self._is_json = any(value.lstrip()[:1] in {"{", "["} for _, value in pairs)

    def __repr__(self) -> str:
        return f"FixedSecretsRedactor({', '.join(sorted(set(self._names.values())))})"

    @property
    def longest(self) -> int:
        """Length of the longest form (such as an encoding) of a secret."""
        return self._finder.longest

    def redact_text(self, text: str) -> str:
        """Return the text with all secrets replaced by placeholders."""
        scattered = [*self._scattered.find_spans(text), *self._dumped.find_spans(text)]
        if not scattered:
            return self._finder.replace_forms(text)[0]
        return replace_spans(text, [*scattered, *self._finder.find_spans(text)])

    def redact_name(self, name: str) -> str:
        """Return a name or an id with secrets replaced, except short secrets, which occur in names by chance."""
        return self._scattered.replace_plain(name)

    def redact_partial_text(self, text: str) -> tuple[str, str]:
        """Redact the beginning of a text that continues; return it, and the end of the text that may be the start of a
        secret.
        """
        return self._finder.replace_forms(text, continues=True)

    def redact_bytes(self, data: bytes) -> bytes:
        """Return the bytes with all secrets redacted, such as in the text of a document or the comment in an image."""
        if self._bytes is None:
            self._bytes = SecretFormFinder(encode_forms_as_latin1(self._names))
        text = data.decode("latin-1")
        scrubbed = self._bytes.replace_forms(text)[0]
        return data if scrubbed is text else scrubbed.encode("latin-1")

    def redact_value(self, value: Any) -> Any:
        """Return any object with all secrets redacted: the same object if it contains none, else its JSON form.

        Text, bytes, parts, messages, events and tool outputs keep their types.
        """
        if isinstance(value, _STAYS) or _is_list_of_parts(value):
            return self._redact_nested(value)
        plain = to_jsonable(value)
        scrubbed = self._redact_decoded_json(self._redact_nested(plain))
        return value if scrubbed == plain else scrubbed

    def _redact_decoded_json(self, plain: Any) -> Any:
        """Redact a decoded dict that is a secret given as JSON: the placeholder replaces the whole dict."""
        if not self._is_json or not is_a(plain, (dict, list)):
            return plain
        written = to_text(plain)
        scrubbed = self.redact_text(written)
        return plain if scrubbed == written else scrubbed

    def _redact_nested(self, value: Any) -> Any:
        kind = type_of(value)
        if kind is str:
            return self.redact_text(value)
        if kind is dict:
            return self._redact_dict(value)
        if kind in _LISTS:
            items = [self._redact_nested(each) for each in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else kind(items)
        if kind is bytes:
            return self.redact_bytes(value)
        if kind is int or kind is float:
            return self._redact_number(value)
        if isinstance(value, str):  # of a class of its own, such as an enum
            return value if self.redact_text(str.__str__(value)) == value else self.redact_text(str.__str__(value))
        return self._redact_struct(value) if isinstance(value, _OURS) else value

    def _redact_number(self, value: float) -> Any:
        if not self._is_number:
            return value
        written = str(value)
        scrubbed = self.redact_text(written)
        return value if scrubbed == written else scrubbed

    def _redact_dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        changed = False
        for key, each in value.items():
            new_key, new = self._redact_nested(key), self._redact_nested(each)
            changed = changed or new_key is not key or new is not each
            while new_key in found:  # two keys that were forms of one value
                new_key = f"{new_key} ({len(found) + 1})"
            found[new_key] = new
        return found if changed else value

    def _redact_struct(self, value: Any) -> Any:
        if isinstance(value, ToolCall):
            name = self.redact_name(value.name)
            return _replace_changed(value, {"name": name, "arguments": self._redact_arguments(value.arguments)})
        if isinstance(value, ToolOutput):
            content, render = self.redact_value(value.content), self.redact_value(value.render)
            return _replace_changed(
                value, {"content": content, "render": render, "summary": self.redact_value(value.summary)}
            )
        kept = _KEPT_OF_MESSAGES
        if isinstance(value, Event):
            kept = value.structural
        elif isinstance(value, Media):
            kept = _KEPT_OF_MEDIA
        elif isinstance(value, Thinking):
            kept = _KEPT_OF_THOUGHTS
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in kept}
        changed = {name: self._redact_decoded_json(self._redact_nested(each)) for name, each in fields.items()}
        for field in _NAMES & kept & {*value.__struct_fields__}:
            changed[field] = self.redact_name(getattr(value, field))
        scrubbed = _replace_changed(value, changed)
        if isinstance(scrubbed, Thinking) and scrubbed is not value:
            return msgspec.structs.replace(scrubbed, signature="")  # it would not match the redacted text
        return scrubbed

    def _redact_arguments(self, arguments: str) -> str:
        """Redact the arguments of a tool call, keeping them valid JSON if possible: a number becomes a string."""
        if self.redact_text(arguments) == arguments:
            return arguments
        try:
            decoded: Any = msgspec.json.decode(arguments)
        except Exception:  # noqa: BLE001 - several kinds, and a model can cause all of them
            return self.redact_text(arguments)
        return self.redact_text(msgspec.json.encode(self._redact_nested(decoded)).decode())


class RedactingStream:
    """Redacts a text that arrives in pieces, also secrets that are split across pieces.

    Text that may be the beginning of a value is delayed until it is clear: never more than the length of the longest
    form.
    """

    __slots__ = ("_held", "changed", "fixed")

    def __init__(self, fixed: FixedSecretsRedactor) -> None:
        self.fixed = fixed
        """Redactor of the values known so far. It may be replaced by one with more values."""
        self.changed = False
        """True if anything was redacted so far."""
        self._held = ""

    def feed(self, chunk: str) -> str:
        """Add a piece of the text; return the redacted text that can be shown by now."""
        text = self._held + chunk
        clear, self._held = self.fixed.redact_partial_text(text)
        self.changed = self.changed or len(clear) + len(self._held) != len(text) or not text.startswith(clear)
        return clear

    def end(self) -> str:
        """End the text; return the rest of it, redacted. The stream can then be used for another text."""
        rest = self.fixed.redact_text(self._held)
        self.changed = self.changed or rest != self._held
        self._held = ""
        return rest


def _replace_changed(value: Any, fields: Mapping[str, Any]) -> Any:
    different = {name: new for name, new in fields.items() if new is not getattr(value, name)}
    return msgspec.structs.replace(value, **different) if different else value


def _is_list_of_parts(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return all(isinstance(each, PART_TYPES) for each in cast("list[Any]", value))


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
