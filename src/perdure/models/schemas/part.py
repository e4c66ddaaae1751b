"""A schema of one kind of value, while it is being made. Above: `compiler.py`. Below: `dialect.py`, `note.py`."""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.core.definitions import is_array

from .dialect import Dialect, is_simple
from .note import described, noted
from .repair import kind_of

_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": _NUMBERS,
    "integer": _NUMBERS,
    "object": ("minProperties", "maxProperties", "patternProperties", "propertyNames"),
    "array": ("minItems", "maxItems", "uniqueItems", "contains"),
}
"""What can be said about each kind, besides what is in it."""
_ABOUT_ALL = ("not", "if", "then", "else", "dependentRequired", "default", "examples", "example")


class Part:
    """Begun with a schema and the kinds that are asked for; `finished` is what the provider gets."""

    __slots__ = ("dialect", "found", "inexact", "kinds", "notes", "schema")

    def __init__(self, schema: dict[str, Any], kinds: list[str], notes: Iterable[str], dialect: Dialect) -> None:
        self.schema = schema
        self.kinds = kinds
        self.dialect = dialect
        self.found: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        self.notes = list(notes)
        """What could not be said otherwise."""
        self.inexact: list[str] = []
        """What the provider cannot be held to, though it should be."""
        for word in dict.fromkeys(word for kind in kinds for word in _WORDS.get(kind, ())):
            if word in schema:
                self.bound(word, schema[word])
        self._list_values()

    def knows(self, word: str) -> bool:
        """Whether the provider knows this word."""
        return word in (self.dialect.keywords or ())

    def bound(self, word: str, value: Any) -> None:
        """Say this of the value, or note it."""
        if self.knows(word) and self._takes(word, value):
            self.found[word] = value
            return
        self.notes.append(noted(word, value))
        wider = word.removeprefix("exclusive").lower()
        if wider != word.lower() and self.knows(wider) and not isinstance(value, bool):
            self.found.setdefault(wider, value)
        if word == "minItems" and self.knows(word) and self.dialect.most_least_items is not None:
            self.found[word] = self.dialect.most_least_items
        if word in ("patternProperties", "propertyNames") and self.dialect.closed:
            self.inexact.append(f"{word} cannot be said")

    def finished(self) -> dict[str, Any]:
        """With all that is told to people."""
        for word in _ABOUT_ALL:
            if word in self.schema and self.knows(word):
                self.found[word] = self.schema[word]
            elif word in self.schema:
                self.notes.append(noted(word, self.schema[word]))
        return {**self.found, **titled(self.schema), **described(self.schema, self.notes)}

    def _takes(self, word: str, value: Any) -> bool:
        dialect = self.dialect
        if word == "format" and dialect.formats is not None:
            return any(value in dialect.formats.get(kind, ()) for kind in self.kinds)
        if word == "pattern" and dialect.simple_patterns:
            return is_simple(value)
        if word == "minItems" and dialect.most_least_items is not None:
            return value in range(dialect.most_least_items + 1)
        if dialect.most_repeats is not None and word.endswith(("Items", "Length")):
            return isinstance(value, int) and value <= dialect.most_repeats
        return not isinstance(value, bool) or word == "uniqueItems"

    def _list_values(self) -> None:
        """The allowed values, as far as they are of these kinds."""
        if "const" in self.schema:
            self.found["const"] = self.schema["const"]
        values = self.schema.get("enum")
        if not is_array(values):
            return
        fitting = [value for value in values if self._fits(value)]
        if not self._takes_values(fitting):
            self.notes.append(noted("enum", fitting))
            if self.dialect.closed:
                self.inexact.append("these values cannot be listed")
        elif fitting:
            self.found["enum"] = fitting

    def _fits(self, value: Any) -> bool:
        kind = kind_of(value)
        if kind == "integer":
            return "integer" in self.kinds or "number" in self.kinds
        return kind in self.kinds or (kind == "number" and "integer" in self.kinds and float(value).is_integer())

    def _takes_values(self, values: list[Any]) -> bool:
        if self.dialect.text_enums:
            return all(isinstance(value, str) and value for value in values)
        return not (self.dialect.plain_enums and any(isinstance(value, (dict, list)) for value in values))


def titled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The title, if there is one."""
    return {"title": schema["title"]} if "title" in schema else {}
