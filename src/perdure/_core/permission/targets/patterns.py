"""Targets of tool calls (files, commands, URLs, text), and the patterns with which permission rules match them.

A tool returns what a call will touch: a `PathTarget`, `CommandTarget`, `UrlTarget`, or plain text. Rules match that
object and not a text, and the function gets the same object as `context.target`: what was checked is what is used.
"""

# ruff: noqa: PTH118 - a word may have any form, and pathlib changes some of them
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

from perdure._core.values import checks
from perdure._core.values.error import ConfigError

from .command import CommandPattern, CommandTarget, build_subcommand_pattern, list_possible_words
from .path import PathPattern, PathTarget, build_folder_pattern
from .text import TextPattern, TextTarget, UncomputableTarget, is_text_pattern_within, matches_text
from .url import UrlPattern, UrlTarget, build_host_pattern

__all__ = [
    "CommandPattern",
    "CommandTarget",
    "PathPattern",
    "PathTarget",
    "Pattern",
    "Target",
    "TextPattern",
    "TextTarget",
    "UncomputableTarget",
    "UrlPattern",
    "UrlTarget",
    "command",
    "path",
    "url",
]

Target: TypeAlias = PathTarget | CommandTarget | UrlTarget | TextTarget | UncomputableTarget
"""The target of a tool call."""
Pattern: TypeAlias = PathPattern | CommandPattern | UrlPattern | TextPattern
"""A pattern for targets."""
Match: TypeAlias = Literal["yes", "maybe", "unproved", "no"]
"""Whether a denying or asking rule matches: `maybe` if it cannot be ruled out, and `unproved` if that is only because
nobody knows which files a command reads. A rule that allows the command by its words then outweighs it.
"""

ANY_TARGET = TextPattern("*")
_TARGETS = (PathTarget, CommandTarget, UrlTarget, TextTarget)
_PATTERNS = (PathPattern, CommandPattern, UrlPattern, TextPattern)


def path(pattern: str) -> PathPattern:
    """Make a pattern for the target of a rule that matches paths, such as `path("drafts/**")`."""
    return PathPattern(_require_text("path", pattern))


def command(pattern: str) -> CommandPattern:
    """Make a pattern for the target of a rule that matches shell commands by their first words: `command("git
    status")`.
    """
    return CommandPattern(_require_text("command", pattern))


def url(pattern: str) -> UrlPattern:
    """Make a pattern for the target of a rule that matches URLs, such as `url("https://docs.python.org/**")`."""
    return UrlPattern(_require_text("url", pattern))


def _require_text(name: str, pattern: object) -> str:
    if not isinstance(pattern, str):
        message = f"{name}({pattern!r}): give a pattern as text"
        raise ConfigError(message)
    return pattern


def is_target_pattern(value: object) -> bool:
    """Return True if the target of a permission rule is a pattern object, such as a `PathPattern`."""
    return isinstance(value, _PATTERNS)


def to_target(value: object, function: object = None) -> Target:
    """Convert the return value of a tool's `target` function to a target; numbers, paths, dates become text.

    Raises `ConfigError` for all else, such as None, a list or a coroutine, since no rule could match what it means.
    """
    if isinstance(value, _TARGETS):
        return cast("Target", value)
    if not isinstance(value, str) and not hasattr(value, "__fspath__"):
        checks.require_plain_return_type(
            "target", function, _to_plain_value(value), (str, int, float), "a target, or text"
        )
    return TextTarget(str(value))


def _to_plain_value(value: object) -> object:
    """Return a value as it would be in JSON, if it has such a form; else unchanged."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return cast("object", value)
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return value


def matches_everything(pattern: Pattern) -> bool:
    """Return True if the target pattern of a permission rule matches every target."""
    return isinstance(pattern, TextPattern) and pattern.pattern == "*"


def matches_allow_rule(pattern: Pattern, target: Target) -> bool:
    """Return True if an allow rule with this pattern matches the target of a tool call.

    Patterns for other kinds of targets never do.
    """
    if isinstance(target, UncomputableTarget):
        return False
    if matches_everything(pattern):
        return True
    typed = convert_to_kind(pattern, target)
    if isinstance(typed, TextPattern):
        return isinstance(target, TextTarget) and matches_text(target.text, typed.pattern)
    return typed is not None and typed.allows(cast("Any", target))


def match_restricting_rule(pattern: Pattern, target: Target, arguments: Mapping[str, Any]) -> Match:
    """Return whether the pattern of a denying or asking rule matches a target: `yes`, `no` or `maybe`.

    Such a pattern is matched widely.

    One for another kind of target is applied to every text in the arguments: a denied file is denied to a tool too
    that does not say which files it touches.
    """
    if matches_everything(pattern):
        return "yes"
    if isinstance(target, UncomputableTarget):
        return "maybe"
    if isinstance(pattern, TextPattern) and matches_text(str(target), pattern.pattern):
        return "yes"
    typed = convert_to_kind(pattern, target)
    if isinstance(typed, TextPattern):
        return "no"
    if typed is None:
        return "yes" if _mentions(pattern, target, arguments) else _match_files_read(pattern, target)
    if typed.may_match(cast("Any", target)):
        return "yes"
    return "maybe" if isinstance(typed, CommandPattern) and typed.might_match(cast("Any", target)) else "no"


def _match_files_read(pattern: Pattern, target: Target) -> Match:
    """Return whether a pattern for paths matches a file that a command can show.

    Of a tool that does not tell what its commands read, only lines that cannot be split into words are in doubt.
    """
    if not isinstance(pattern, PathPattern) or not isinstance(target, CommandTarget):
        return "no"
    if any(pattern.may_match(each) for each in _list_linked_paths(target)):
        return "yes"
    found: Match = "no" if target.argv or target.parts else "unproved"
    for part in target.parts:
        for path in part.reads or ():
            if pattern.may_match(PathTarget(path, target.root)):
                return "yes"
            if path.endswith("/") and pattern.may_match_below(path, target.root):
                found = "maybe"
        if part.reads is None and found == "no":
            found = "unproved"
    return found


def _list_linked_paths(target: CommandTarget) -> Iterator[PathTarget]:
    """Yield where the words of a command lead that are paths with a link in them, seen from its folder."""
    words = [word for argv in (target.argv, *[each.argv for each in target.parts]) for word in argv[1:]]
    for word in dict.fromkeys(words) if target.root else ():
        for each in dict.fromkeys((word, *list_possible_words(word))):
            named = os.path.normpath(os.path.join(target.root, each))
            if "\0" not in named and (real := os.path.realpath(named)) != named:
                yield PathTarget(real, target.root)


def convert_to_kind(pattern: Pattern, target: Target) -> Pattern | None:
    """Convert a text pattern to a pattern for paths, commands or URLs, as the target needs; `None` if it is invalid.

    A text pattern is parsed as a pattern of the target's kind; one of that kind is returned as it is.
    """
    kinds: dict[type, type] = {PathTarget: PathPattern, CommandTarget: CommandPattern, UrlTarget: UrlPattern}
    wanted = kinds.get(type(target), TextPattern)
    if isinstance(pattern, wanted):
        return pattern
    if not isinstance(pattern, TextPattern):
        return None
    try:
        typed: Pattern = wanted(pattern.pattern)
    except ConfigError:
        return None
    return typed


def _mentions(pattern: Pattern, target: Target, arguments: Mapping[str, Any]) -> bool:
    """Return True if a pattern for another kind of target matches a text in the arguments of a call."""
    if isinstance(pattern, TextPattern):
        return False
    texts = [str(target), *_texts_in(arguments)]
    if isinstance(pattern, CommandPattern):
        commands = [CommandTarget.of(each) for each in texts if each.strip()]
        return any(pattern.may_match(each) for each in commands)
    if isinstance(target, CommandTarget):
        texts += [word for each in (*target.argv, target.text) for word in (each, *list_possible_words(each))]
    return any(pattern.may_match_text(each) for each in texts if each)


def _texts_in(value: Any) -> Iterator[str]:
    """Yield every text in the arguments of a call."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in cast("Mapping[str, Any]", value).values():
            yield from _texts_in(each)
    elif isinstance(value, list | tuple):
        for each in cast("list[Any]", value):
            yield from _texts_in(each)


def is_narrower_pattern(narrow: Pattern, wide: Pattern) -> bool:
    """Return True if it is certain that every target which matches `narrow` matches `wide`."""
    if matches_everything(wide):
        return True
    if isinstance(narrow, TextPattern) and isinstance(wide, TextPattern):
        return is_text_pattern_within(narrow.pattern, wide.pattern)
    if isinstance(narrow, TextPattern) or isinstance(wide, TextPattern):
        typed = _same_kind(narrow, wide)
        return typed is not None and typed[0].is_within(typed[1])
    return type(narrow) is type(wide) and narrow.is_within(cast("Any", wide))


def _same_kind(narrow: Pattern, wide: Pattern) -> tuple[Any, Any] | None:
    """Convert two patterns to the same kind, if one of them is text; `None` if the text is not valid for that kind."""
    kind = type(wide) if isinstance(narrow, TextPattern) else type(narrow)
    try:
        return (narrow, kind(wide.text)) if isinstance(wide, TextPattern) else (kind(narrow.text), wide)
    except ConfigError:
        return None


def list_wider_patterns(target: Target) -> list[tuple[Pattern, str]]:
    """Return wider patterns that match a target (its folder, host or subcommand), each with a description."""
    if isinstance(target, PathTarget):
        folder = build_folder_pattern(target)
        return [(folder, f"every file and folder below {folder.pattern.removesuffix('/**') or '/'}")]
    if isinstance(target, UrlTarget):
        return [(build_host_pattern(target), f"every page of {target.origin}")]
    if isinstance(target, CommandTarget) and (begin := build_subcommand_pattern(target)) is not None:
        return [(begin, f"every command that begins with: {begin.pattern}")]
    return []
