"""Search patterns: globs such as `src/**/*.py`, and regular expressions that ripgrep and Python read alike."""

import re
from typing import Final

from perdure._core.values.error import ToolError

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


MOST_REGEX_CHARACTERS: Final = 1_000
"""The longest pattern."""
_QUANTIFIER: Final = re.compile(r"\{\d{1,3}(?:,\d{0,3})?\}")
_GROUP: Final = re.compile(r"\(\?(?::|P<[A-Za-z_]\w*>)", re.ASCII)
_ESCAPE: Final = re.compile(r"\\(?:[dDwWsSbtfva]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
_CLASS_ESCAPE: Final = re.compile(r"\\(?:[dDwWsStfva]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
_PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")
_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$#&-~")
_IN_CLASS: Final = frozenset("[&~")


class PortableRegex:
    """A regular expression normalized for all search engines; raises `ToolError` for unsupported syntax."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        if not pattern:
            raise ToolError("the pattern is empty: give a regular expression, such as 'def \\w+'")
        if len(pattern) > MOST_REGEX_CHARACTERS:
            raise ToolError(f"the pattern has {len(pattern):,} characters, and {MOST_REGEX_CHARACTERS:,} are the most")
        rest = pattern.removeprefix("(?i)")
        self.ignore_case = ignore_case or rest != pattern
        """True if upper and lower case are not told apart."""
        self.text = _Parser(rest).parse()
        """The pattern in the plain form."""
        try:
            re.compile(self.text)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(f"{pattern!r} is no regular expression: {error}") from error


class _Parser:
    """Reads a pattern from left to right, and writes it in the plain form."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._parts: list[str] = []
        self._groups_with_end = [False]  # for each open group, whether `$` is in it
        self._group_starts = [True]  # for each open group, whether nothing precedes it
        self._is_at_start = True

    def parse(self) -> str:
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            self._check_start(character)
            if character == "\\":
                self._take_escape(_ESCAPE)
            elif character == "[":
                self._take_class()
            elif character == "(":
                self._take_group()
            elif character in "$)":
                self._take_end(character)
            elif character in "*+?":
                self._take_quantifier(character)
            elif character == "{":
                found = _QUANTIFIER.match(self._pattern, self._at)
                self._take_quantifier(found.group()) if found else self._take("{", "\\{")
            elif character in "}]":
                self._take(character, f"\\{character}")
            elif character in "\n\r":
                self._refuse("a line end", "lines are searched one by one: give a pattern for one line")
            else:
                self._take(character)
        return "".join(self._parts)

    def _take(self, given: str, written: str = "") -> None:
        self._parts.append(written or given)
        self._at += len(given)

    def _take_escape(self, known: "re.Pattern[str]") -> None:
        if found := known.match(self._pattern, self._at):
            self._take(found.group())
            return
        following = self._pattern[self._at + 1 : self._at + 2]
        if following in {"n", "r"}:
            self._refuse(f"\\{following}", "lines are searched one by one: give a pattern for one line")
        if not following or following not in _PUNCTUATION:
            self._refuse(f"\\{following}", "use \\d \\w \\s \\b \\t, \\xHH, \\uHHHH, or a backslash before punctuation")
        self._take(f"\\{following}", f"\\{following}" if following in _SPECIAL else following)

    def _check_start(self, character: str) -> None:
        """Refuse a `^` that something precedes: engines differ there, and it is hardly meant."""
        if character == "^" and not self._is_at_start:
            advice = "nothing can precede the beginning of a line: write a backslash before a caret"
            self._refuse(self._pattern[self._at - 1 : self._at + 1], advice)
        if character == "(":
            self._group_starts.append(self._is_at_start)
        elif character == "|":
            self._is_at_start = self._group_starts[-1]
        else:
            self._is_at_start = False
            if character == ")" and len(self._group_starts) > 1:
                self._group_starts.pop()

    def _take_end(self, character: str) -> None:
        """Take the end of a line, or of a group. Engines differ in what may follow `$`, so nothing may."""
        self._take(character)
        has_end = character == "$"
        if character == ")" and len(self._groups_with_end) > 1:
            has_end = self._groups_with_end.pop()
        self._groups_with_end[-1] |= has_end
        if has_end and self._pattern[self._at : self._at + 1] not in {"", ")", "|"}:
            advice = "nothing can follow the end of a line: write a backslash before a dollar sign"
            self._refuse(self._pattern[self._at - 1 : self._at + 1], advice)

    def _take_group(self) -> None:
        self._groups_with_end.append(False)
        if not self._pattern.startswith("(?", self._at):
            self._take("(")
        elif found := _GROUP.match(self._pattern, self._at):
            self._take(found.group())
        else:
            end = self._pattern[self._at : self._at + 4]
            self._refuse(end, "use ( ) and (?: ): there is no lookaround, backreference or flag inside a pattern")

    def _take_quantifier(self, quantifier: str) -> None:
        self._take(quantifier)
        if self._pattern.startswith("?", self._at):
            self._take("?")
        if self._pattern[self._at : self._at + 1] in {"*", "+", "?"} or _QUANTIFIER.match(self._pattern, self._at):
            self._refuse(self._pattern[self._at - 1 : self._at + 1], "one quantifier may follow another only in ( )")

    def _take_class(self) -> None:
        """Take a set of characters in brackets."""
        start = self._at
        self._take("[")
        if self._pattern.startswith("^", self._at):
            self._take("^")
        if self._pattern.startswith("]", self._at):
            self._take("]", "\\]")
        while not self._pattern.startswith("]", self._at):
            if self._at >= len(self._pattern):
                self._refuse(self._pattern[start : start + 20], "a set in brackets has no end: add ], or escape [")
            if self._pattern.startswith("[:", self._at):
                self._refuse("[:", "use \\d, \\w or ranges such as [a-z] instead of named sets")
            self._take_member()
        self._take("]")

    def _take_member(self) -> None:
        character = self._pattern[self._at]
        if character == "\\":
            self._take_escape(_CLASS_ESCAPE)
        elif character in "\n\r":
            self._refuse("a line end", "lines are searched one by one")
        elif character == "-":
            is_range = self._parts[-1] not in {"[", "^"} and self._pattern[self._at + 1 : self._at + 2] not in {
                "]",
                "-",
                "",
            }
            self._take("-", "-" if is_range and self._parts[-1] != "-" else "\\-")
        else:
            self._take(character, f"\\{character}" if character in _IN_CLASS else character)

    def _refuse(self, what: str, advice: str) -> None:
        raise ToolError(f"{self._pattern!r} cannot be searched for: {what!r} is not supported; {advice}")
