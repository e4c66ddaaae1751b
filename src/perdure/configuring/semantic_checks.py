"""Find settings in `perdure.toml` that fit the schema but cannot work, such as a rule that matches no tool.

Each mistake has the path of its value, so that it can be reported with its line.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from perdure.core.jsonable import short_repr

from .line_numbers import ValuePath
from .named_imports import is_import_path
from .schedules import find_schedule_mistakes
from .table_classes import ConfigFile, PermissionsTable, RuleTable

Mistake: TypeAlias = tuple[ValuePath, str]
"""Path of a wrong value, and the message."""

MAX_PATTERN: Final = 1000
"""Limit on the characters of a pattern in a permission rule."""

_TOOL: Final = re.compile(r"[\w.:/*?!\[\]-]+")
_URL: Final = re.compile(r"https?://[^\s/?#@\\]+[^\s@\\]*", re.IGNORECASE)


def find_mistakes(file: ConfigFile) -> Iterator[Mistake]:
    """Yield each setting of `perdure.toml` that contradicts another or can have no effect, as path and message."""
    if not file.name.strip():
        yield ("name",), "the agent needs a name: fill it, or leave it out"
    given = [name for name in ("instructions", "instructions_file", "prompts") if getattr(file, name)]
    for name in given[1:]:
        yield (name,), f"there is {given[0]!r} already: keep one of the two"
    for place, path in enumerate(file.tools):
        if not is_import_path(path):
            forms = "'package.module:name', or as './file.py:name' for a file beside this one"
            yield ("tools", place), f"{short_repr(path, 80)} is no place to import from: write it as {forms}"
    if file.base_url and not _URL.fullmatch(file.base_url):
        yield ("base_url",), f"{short_repr(file.base_url, 80)} is no address: write it as 'https://host/path'"
    if file.base_url and not file.model:
        yield ("base_url",), "there is no 'model' that could be reached there: add one"
    if file.permissions is not None:
        yield from _find_in_permissions(file.permissions)
    if file.schedule:
        yield from find_schedule_mistakes(file.schedule)


def _find_in_permissions(table: PermissionsTable) -> Iterator[Mistake]:
    for policy in ("allow", "deny", "ask"):
        for place, entry in enumerate(getattr(table, policy)):
            path: ValuePath = ("permissions", policy, place)
            if isinstance(entry, str):
                yield from ((path, message) for message in _find_in_tool(entry))
            else:
                yield from ((path, message) for message in _find_in_rule(entry))
    if table.expires_seconds is not None and not table.expires_seconds > 0:
        yield ("permissions", "expires_seconds"), "give a number above zero"


def _find_in_rule(rule: RuleTable) -> Iterator[str]:
    yield from _find_in_tool(rule.tool)
    yield from _find_in_pattern("action", rule.action)
    yield from _find_in_pattern("target", rule.target)
    if rule.when:
        yield from _find_in_pattern("when", rule.when)


def _find_in_tool(pattern: str) -> Iterator[str]:
    """Yield the mistakes in a pattern for tool names, such as one that can match no tool."""
    if "(" in pattern:
        yield f'{short_repr(pattern, 80)} names no tool: write {{ tool = "shell", target = "git *" }} to say on what'
    elif pattern and not _TOOL.fullmatch(pattern):
        yield f"{short_repr(pattern, 80)} can match no name of a tool: write it like 'git_*'"
    else:
        yield from _find_in_pattern("tool", pattern)


def _find_in_pattern(name: str, pattern: str) -> Iterator[str]:
    if not pattern or len(pattern) > MAX_PATTERN:
        yield f"the pattern of {name!r} is {short_repr(pattern, 80)}: give 1 to {MAX_PATTERN} characters"
    elif not _has_closed_brackets(pattern):
        yield f"the pattern {short_repr(pattern, 80)} has a '[' that is not closed: close it, or write '[[]'"


def _has_closed_brackets(pattern: str) -> bool:
    """Return True if each `[` has its `]`. An unclosed `[` would match itself, which is hardly ever meant."""
    place = pattern.find("[")
    while place >= 0:
        first = place + (2 if pattern.startswith("!", place + 1) else 1)
        end = pattern.find("]", first + 1)  # a ']' at the first position is literal
        if end < 0:
            return False
        place = pattern.find("[", end)
    return True
