"""What a file says that has the right form, and cannot work. Above: `validation.py`. Below: `tables.py`.

Each mistake comes with the path of its value, so that it can be told with its line.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from perdure.core.plain import excerpt

from .lines import Path
from .tables import ConfigFile, PermissionsTable, RuleTable

Mistake: TypeAlias = tuple[Path, str]
"""Where, and what."""

LONGEST_PATTERN: Final = 1000
"""Characters of a pattern."""

_IMPORT: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_TOOL: Final = re.compile(r"[\w.:/*?!\[\]-]+")
_URL: Final = re.compile(r"https?://[^\s/?#@\\]+[^\s@\\]*", re.IGNORECASE)


def mistakes_in(file: ConfigFile) -> Iterator[Mistake]:
    """All of them."""
    if not file.name.strip():
        yield ("name",), "the agent needs a name: fill it, or leave it out"
    given = [name for name in ("instructions", "instructions_file", "prompts") if getattr(file, name)]
    for name in given[1:]:
        yield (name,), f"there is {given[0]!r} already: keep one of the two"
    for place, path in enumerate(file.tools):
        if not _IMPORT.fullmatch(path):
            yield ("tools", place), f"{excerpt(path, 80)} is no place to import from: write it as 'package.module:name'"
    if file.base_url and not _URL.fullmatch(file.base_url):
        yield ("base_url",), f"{excerpt(file.base_url, 80)} is no address: write it as 'https://host/path'"
    if file.base_url and not file.model:
        yield ("base_url",), "there is no 'model' that could be reached there: add one"
    if file.permissions is not None:
        yield from _in_permissions(file.permissions)


def _in_permissions(table: PermissionsTable) -> Iterator[Mistake]:
    for policy in ("allow", "deny", "ask"):
        for place, entry in enumerate(getattr(table, policy)):
            path: Path = ("permissions", policy, place)
            if isinstance(entry, str):
                yield from ((path, message) for message in _in_tool(entry))
            else:
                yield from ((path, message) for message in _in_rule(entry))
    if table.expires_seconds is not None and not table.expires_seconds > 0:
        yield ("permissions", "expires_seconds"), "give a number above zero"


def _in_rule(rule: RuleTable) -> Iterator[str]:
    yield from _in_tool(rule.tool)
    yield from _in_pattern("action", rule.action)
    yield from _in_pattern("target", rule.target)


def _in_tool(pattern: str) -> Iterator[str]:
    """A rule that is meant to be narrow, and would match no tool at all, must not pass for a rule."""
    if "(" in pattern:
        yield f'{excerpt(pattern, 80)} names no tool: write {{ tool = "shell", target = "git *" }} to say on what'
    elif pattern and not _TOOL.fullmatch(pattern):
        yield f"{excerpt(pattern, 80)} can match no name of a tool: write it like 'git_*'"
    else:
        yield from _in_pattern("tool", pattern)


def _in_pattern(name: str, pattern: str) -> Iterator[str]:
    if not pattern or len(pattern) > LONGEST_PATTERN:
        yield f"the pattern of {name!r} is {excerpt(pattern, 80)}: give 1 to {LONGEST_PATTERN} characters"
    elif not _closes(pattern):
        yield f"the pattern {excerpt(pattern, 80)} has a '[' that is not closed: close it, or write '[[]'"


def _closes(pattern: str) -> bool:
    """Whether each `[` has its `]`. One that has none stands for itself, and hardly anybody means that."""
    place = pattern.find("[")
    while place >= 0:
        first = place + (2 if pattern.startswith("!", place + 1) else 1)
        end = pattern.find("]", first + 1)  # a ']' that comes first stands for itself
        if end < 0:
            return False
        place = pattern.find("[", end)
    return True
