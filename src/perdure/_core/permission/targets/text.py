"""Plain text as the target of a permission rule, and the wildcard matching that all kinds of targets share.

Wildcards on plain text are a convenience, and no protection: a text has as many spellings as its tool accepts. Tools
that touch files, commands or addresses return a `PathTarget`, `CommandTarget` or `UrlTarget` instead.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")

_WILDCARDS = "*?["


class TextTarget(Struct, frozen=True, tag_field="kind", tag="text"):
    """Target of a tool call for permission rules that is plain text, such as an order number."""

    text: str

    def __str__(self) -> str:
        return self.text


class UncomputableTarget(Struct, frozen=True, tag_field="kind", tag="unknown"):
    """Target of a tool call that could not be computed: no rule allows such a call, and a person is asked."""

    problem: str
    """Why it could not be computed."""

    def __str__(self) -> str:
        return f"unknown ({self.problem})"


class TextPattern(Struct, frozen=True, tag_field="kind", tag="text"):
    """A pattern for plain text, with the wildcards `*`, `?` and `[…]`.

    For a target of another kind, it is parsed as a pattern of that kind.
    """

    pattern: str

    def __str__(self) -> str:
        return repr(self.pattern)

    @property
    def text(self) -> str:
        """The pattern as text."""
        return self.pattern


class TargetFromArgument(Generic[T]):
    """A callable for `@tool(target=…)` that builds the target of a call from one of its arguments."""

    __slots__ = ("_make", "default", "name")

    def __init__(self, name: str, make: Callable[[Any], T], default: Any = None) -> None:
        self.name = name
        """The name of the argument."""
        self.default = default
        """The value when a call leaves the argument out."""
        self._make = make

    def __call__(self, arguments: Mapping[str, Any]) -> T:
        return self._make(arguments.get(self.name, self.default))

    def with_default(self, default: Any) -> "TargetFromArgument[T]":
        """Return a copy with the default value that the tool declares."""
        return TargetFromArgument(self.name, self._make, default)


def has_wildcard(pattern: str) -> bool:
    """Return True if a pattern has a wildcard."""
    return any(each in pattern for each in _WILDCARDS)


def escape_pattern(text: str) -> str:
    """Return a pattern that matches exactly this text."""
    return "".join([f"[{each}]" if each in _WILDCARDS else each for each in text])


def matches_text(text: str, pattern: str) -> bool:
    """Return True if a text matches a pattern with wildcards; case matters."""
    if pattern == "*":
        return True
    if not has_wildcard(pattern):
        return text == pattern
    from fnmatch import fnmatchcase

    return fnmatchcase(text, pattern)


def is_text_pattern_within(narrow: str, wide: str) -> bool:
    """Return True if it is certain that every text which matches `narrow` matches `wide`."""
    if wide in {narrow, "*"}:
        return True
    if not has_wildcard(narrow):
        return matches_text(narrow, wide)
    literal = wide[:-1]
    return wide.endswith("*") and not has_wildcard(literal) and narrow.startswith(literal)
