"""Patterns for paths, such as `src/**/*.py`: `*` and `?` within a name, `**` for any folders, `{a,b}`, `[a-z]`.

A pattern without a slash matches the name of a file in any folder.
"""

import re
from typing import Final

from perdure.core.error import ToolError

MOST_CHARACTERS: Final = 500
"""The longest pattern."""
MOST_ALTERNATIVES: Final = 64
"""The most patterns that the braces of one may stand for."""
_MOST_ANY_DEPTH: Final = 4


def extract_file_name_patterns(pattern: str) -> list[str]:
    """Return plain patterns for the file names that a path pattern can match; empty if that is not possible.

    They are for programs that can filter by names, and are plain: `*`, `?` and sets in brackets.
    """
    names = {each.rstrip("/").rpartition("/")[2] for each in _expand_braces(pattern.strip())}
    is_plain = all(each != "**" and not set(each) & set("\\{},:") and each.strip() for each in names)
    return sorted(names) if is_plain and "*" not in names else []


def compile_glob(pattern: str) -> "re.Pattern[str]":
    """Compile a glob pattern to a regular expression that matches whole paths. Raises `ToolError` if it is invalid."""
    text = pattern.strip().removeprefix("./")
    if not text or "\0" in text or len(text) > MOST_CHARACTERS:
        raise ToolError(f"{pattern[:80]!r} is no pattern for paths: use one such as '*.py' or 'src/**/*.py'")
    if text.startswith("/") or ".." in text.split("/"):
        raise ToolError(f"{pattern!r}: a pattern is relative to the folder, without '..'; give the folder as path")
    alternatives = _expand_braces(text)
    if len(alternatives) > MOST_ALTERNATIVES:
        raise ToolError(f"{pattern!r} has more than {MOST_ALTERNATIVES} alternatives: use fewer braces")
    try:
        return re.compile("|".join([_translate(each) for each in alternatives]), re.DOTALL)
    except re.error as error:
        raise ToolError(f"{pattern!r} is no pattern for paths: {error}") from error


def _expand_braces(text: str) -> list[str]:
    """Expand the alternatives `{a,b}` of a pattern; braces without a comma stay."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if found is None:
        return [text]
    expanded: list[str] = []
    for each in found.group(1).split(","):
        expanded += _expand_braces(text[: found.start()] + each + text[found.end() :])
        if len(expanded) > MOST_ALTERNATIVES:
            break
    return expanded


def _translate(text: str) -> str:
    steps = text.strip("/").split("/")
    if len(steps) == 1 and steps != ["**"]:
        steps = ["**", *steps]
    if steps.count("**") > _MOST_ANY_DEPTH:
        raise ToolError(f"{text!r} has more than {_MOST_ANY_DEPTH} times '**': use fewer")
    parts: list[str] = []
    for place, step in enumerate(steps):
        last = place == len(steps) - 1
        if step == "**":
            parts.append(".+" if last else "(?>(?:.*/)?)" if place == len(steps) - 2 else "(?:.*/)?")
        else:
            parts.append(_translate_name(step) + ("" if last else "/"))
    return "(?:" + "".join(parts) + ")"


def _translate_name(name: str) -> str:
    """Return the expression for one name. Each `*` with the text after it is atomic, so that it takes linear time."""
    tokens = _split_name(name)
    parts: list[str] = []
    at = 0
    while at < len(tokens):
        if tokens[at] != "*":
            parts.append(tokens[at])
            at += 1
            continue
        while at < len(tokens) and tokens[at] == "*":
            at += 1
        fixed: list[str] = []
        while at < len(tokens) and tokens[at] != "*":
            fixed.append(tokens[at])
            at += 1
        following = "".join(fixed)
        parts.append(f"[^/]*{following}" if at == len(tokens) else f"(?>[^/]*?{following})")
    return "".join(parts)


def _split_name(name: str) -> list[str]:
    """Return the expressions of the characters of a name; `*` stays."""
    tokens: list[str] = []
    at = 0
    while at < len(name):
        found = re.compile(r"\[([!^]?)(\]?[^\]]+|\])\]").match(name, at)
        if name[at] == "[" and found:
            members = found.group(2).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
            members = re.sub(r"[&~|]", lambda each: "\\" + each.group(), members).replace("^", "\\^")
            tokens.append(f"[{'^/' if found.group(1) else ''}{members}]")
            at = found.end()
        else:
            tokens.append("*" if name[at] == "*" else "[^/]" if name[at] == "?" else re.escape(name[at]))
            at += 1
    return tokens
