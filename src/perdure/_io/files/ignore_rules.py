"""Parse `.gitignore` files, and match paths against their rules.

They are read as git reads them: the last rule of a file that matches decides, a file further down beats one further up,
`!` takes back, and nothing inside an ignored folder is looked at.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

FILE_NAME: Final = ".gitignore"
MOST_BYTES: Final = 1024 * 1024
"""The most bytes of a file of rules that are read."""
_STAR: Final = "*"
_END_OF_NAME: Final = ("/", "")


class IgnoreRule(NamedTuple):
    """A rule from one line of a `.gitignore` file."""

    expression: "re.Pattern[str]"
    """Matches the path of a file, relative to the folder of the rules."""
    is_taken_back: bool
    """True for a line that begins with `!`."""
    only_folders: bool


class IgnoreRules(NamedTuple):
    """The rules of the `.gitignore` file in one folder, and the position of the folder relative to the search root."""

    depth: int
    """The number of names from the root of the search to the folder; negative above it."""
    above: tuple[str, ...]
    """The names from the folder down to the root of the search, if it is above that."""
    rules: tuple[IgnoreRule, ...]

    def decide(self, steps: Sequence[str], *, is_folder: bool) -> bool | None:
        """Return True if a path is ignored, False if it is taken back, and `None` if no rule matches it."""
        path = "/".join([*self.above, *steps[max(self.depth, 0) :]])
        for rule in reversed(self.rules):
            if (is_folder or not rule.only_folders) and rule.expression.fullmatch(path):
                return not rule.is_taken_back
        return None


def parse_rules(text: str) -> tuple[IgnoreRule, ...]:
    """Parse the text of a `.gitignore` file into its rules, in order; invalid lines are skipped, as git does."""
    found: list[IgnoreRule] = []
    for line in text.removeprefix("\ufeff").split("\n"):
        rule = _parse_line(line.removesuffix("\r"))
        if rule is not None:
            found.append(rule)
    return tuple(found)


def is_ignored(steps: Sequence[str], rules: Sequence[IgnoreRules], *, is_folder: bool) -> bool:
    """Return True if a path is ignored by `rules`, from the `.gitignore` of each folder above it, outermost first."""
    for each in reversed(rules):
        decided = each.decide(steps, is_folder=is_folder)
        if decided is not None:
            return decided
    return False


def _parse_line(line: str) -> IgnoreRule | None:
    if line.startswith("#"):
        return None
    line = re.sub(r"(?<!\\) +$", "", line)
    is_taken_back = line.startswith("!")
    pattern = line[1:] if is_taken_back else line
    only_folders = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    if not pattern or pattern == "/":
        return None
    is_anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    try:
        expression = re.compile(_translate(pattern if is_anchored else f"**/{pattern}"), re.DOTALL)
    except re.error:
        return None
    return IgnoreRule(expression, is_taken_back, only_folders)


def _translate(pattern: str) -> str:
    """Return the expression for a pattern that begins at the folder of its rules.

    What follows `*` or `**/` up to the next one is found where it first fits, and nowhere else: it takes linear time.
    """
    first, *others = _split(pattern)
    parts = [_join_names(first)]
    for number, tokens in enumerate(others, 1):
        is_last = number == len(others)
        names = _join_names(tokens)
        parts.append(f"(?:[^/]+/)*{names}" if is_last else f"(?>(?:[^/]+/)*?{names})")
    return "".join(parts)


def _split(pattern: str) -> list[list[str]]:
    """Return the expressions of the characters of a pattern, parted at each `**/`; `*` stays."""
    parts: list[list[str]] = [[]]
    at = 0
    while at < len(pattern):
        begins = at == 0 or pattern[at - 1] == "/"
        if begins and pattern.startswith("**/", at):
            parts.append([])
            at += 3
        elif begins and pattern[at:] == "**":
            parts[-1].append(".+")
            at += 2
        else:
            taken, size = _translate_character(pattern[at:])
            parts[-1].append(taken)
            at += size
    return parts


def _join_names(tokens: Sequence[str]) -> str:
    """Return the expression for names, in which each `*` but the last of a name is decided at once."""
    parts: list[str] = []
    fixed: list[str] = []
    has_star = False
    for token in (*tokens, ""):
        if token != _STAR and token not in _END_OF_NAME:
            fixed.append(token)
            continue
        text = "".join(fixed)
        if token == _STAR:
            parts.append(f"(?>[^/]*?{text})" if has_star else text)
        else:
            parts.append(f"{'[^/]*' if has_star else ''}{text}{token}")
        fixed, has_star = [], token == _STAR
    return "".join(parts)


def _translate_character(rest: str) -> tuple[str, int]:
    """Return the expression for the first character of a pattern, and the number of characters that it took.

    Stars stay one star.
    """
    if rest[0] == "*":
        stars = len(rest) - len(rest.lstrip("*"))
        return _STAR, stars
    if rest[0] == "?":
        return "[^/]", 1
    if rest[0] == "\\" and len(rest) > 1:
        return re.escape(rest[1]), 2
    if rest[0] == "[" and (found := re.match(r"\[([!^]?)(\]?[^\]]+|\])\]", rest)):
        members = re.sub(r"[\[\]&~|^]", lambda each: "\\" + each.group(), found.group(2))
        return f"(?![/])[{'^' if found.group(1) else ''}{members}]", found.end()
    return re.escape(rest[0]), 1
