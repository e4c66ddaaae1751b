"""Find the text that an edit replaces in a file, by five levels of comparison if the model did not copy it exactly.

Models get blanks, indentation and quotation marks wrong. Each rung forgives more than the one before, and the first
rung with a match decides, so that an exact copy never matches anything else. Whatever could mean two places is refused.
Pure functions: nothing is read or written here.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from perdure._core.values.error import ToolError

Rung: TypeAlias = Literal["exact", "trailing blanks", "indentation", "typography", "first and last line"]
"""The comparison by which a text was found, the strictest first."""

_LEAST_ANCHORED_LINES: Final = 3
_MOST_ECHOED: Final = 120
_DOUBLE_QUOTES: Final = "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"
_SINGLE_QUOTES: Final = "\u2018\u2019\u201a\u201b\u2032\u00b4"
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_SPACES: Final = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_FOLDED: Final = str.maketrans(
    _DOUBLE_QUOTES + _SINGLE_QUOTES + _DASHES + _SPACES,
    '"' * len(_DOUBLE_QUOTES) + "'" * len(_SINGLE_QUOTES) + "-" * len(_DASHES) + " " * len(_SPACES),
)
"""One character for each: a place in the folded text is the same place in the text."""
_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\"": '"', r"\'": "'"}
_ESCAPE: Final = re.compile(r"\\[ntr\"']")
_PLACEHOLDER: Final = re.compile(
    r"(?:\.\.\.|\u2026)[^\n]{0,40}\b(?:existing|rest of|unchanged|remaining|omitted|same as|previous)\b"
    r"|\b(?:existing|remaining|unchanged|previous) code\b[^\n]{0,40}(?:\.\.\.|\u2026)"
    r"|\brest of (?:the |your )?(?:code|file|function|method|class|implementation|logic)\b[^\n]{0,40}"
    r"(?:\.\.\.|\u2026|unchanged|(?:stays|remains|is) (?:the )?same|as before|omitted|goes here)"
    r"|\bcode omitted\b|\bomitted for brevity\b|\bunchanged code\b|\bno changes? (?:here|below|needed)\b",
    re.IGNORECASE,
)
"""Text that stands for code which the model did not want to repeat: written to a file, it would delete that code."""


class TextEdit(Struct, frozen=True):
    """An edit of a file: the text to replace, and the new text."""

    old_string: str
    """The text to replace, copied from the file, with enough lines around it to be unique."""
    new_string: str
    """The text to put in its place."""
    replace_all: bool = False
    """Replace every occurrence instead of exactly one."""


class EditRefused(ToolError):
    """Raised when an edit cannot be applied; the message has the reason, and what to do instead."""


class EditResult(NamedTuple):
    """The text after an edit, the lines that changed, and how the old text was found."""

    text: str
    places: int
    """The number of places that were replaced."""
    rung: str
    """The comparison by which they were found; `exact` if all were exact."""
    first_line: int
    """The number of the first line that changed, from 1."""
    last_line: int
    """The number of the last line of the new text at that first place."""


class Replacement(NamedTuple):
    """A range of a text to replace, and the text to put in its place."""

    start: int
    end: int
    text: str


def apply_edit(text: str, step: TextEdit) -> EditResult:
    """Apply one edit to a text, and return the result. Raises `EditRefused`.

    Line ends may be of either kind, and a mark at the beginning of the file (BOM) is not compared; both stay.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    body = text.removeprefix("\ufeff")
    plain = body.replace("\r\n", "\n")
    old, new = (each.removeprefix("\ufeff").replace("\r\n", "\n") for each in (step.old_string, step.new_string))
    _check_strings(old, new)
    rung, found = _climb(plain, old, new)
    if not found and (unescaped := _unescape(old)) != old:
        rung, found = _climb(plain, unescaped, _unescape(new))
        rung = f"{rung}, with escapes read as characters"
    _check_found(plain, old, found, rung, replace_all=step.replace_all)
    changed = mark + _splice(body, plain, found)
    if changed == text:
        raise EditRefused("the edit changes nothing: the file has this text already")
    first = found[0]
    first_line = plain.count("\n", 0, first.start) + 1
    return EditResult(changed, len(found), rung, first_line, first_line + first.text.rstrip("\n").count("\n"))


# -- the ladder --------------------------------------------------------------------------------------------------------


def _climb(text: str, old: str, new: str) -> tuple[str, list[Replacement]]:
    """Return the first rung on which the text is found, with what to replace; an empty list if there is none."""
    if found := _find_exactly(text, old, new):
        return "exact", found
    if not old.strip():
        return "exact", []  # blanks alone match anywhere
    lines = _Lines(text)
    looser: tuple[tuple[Rung, Callable[[str], str]], ...] = (
        ("trailing blanks", str.rstrip),
        ("indentation", str.strip),
        ("typography", _fold_line),
    )
    for rung, normalize in looser:
        if found := lines.find(old, new, normalize, indent=rung != "trailing blanks"):
            return rung, found
    if "\n" not in old.strip("\n") and (found := _find_folded(text, old, new)):
        return "typography", found
    return "first and last line", lines.find_anchored(old, new)


def _find_exactly(text: str, old: str, new: str) -> list[Replacement]:
    found: list[Replacement] = []
    at = text.find(old)
    while at >= 0:
        found.append(Replacement(at, at + len(old), new))
        at = text.find(old, at + len(old))
    return found


def _find_folded(text: str, old: str, new: str) -> list[Replacement]:
    """Find a part of a line in which only quotation marks, dashes or blanks are others."""
    return _find_exactly(text.translate(_FOLDED), old.translate(_FOLDED), new)


def _fold_line(line: str) -> str:
    return line.translate(_FOLDED).strip()


class _Lines:
    """The lines of a text, with their places, in which blocks of lines are looked for."""

    def __init__(self, text: str) -> None:
        self._size = len(text)
        self._lines = text.split("\n")
        self._starts = [0, *accumulate(len(each) + 1 for each in self._lines)]

    def find(self, old: str, new: str, normalize: Callable[[str], str], *, indent: bool) -> list[Replacement]:
        """Find the blocks of lines that equal those of `old` once each line is normalized."""
        wanted, ends_line = _split_lines(old)
        looked_for = [normalize(each) for each in wanted]
        here = [normalize(each) for each in self._lines]
        return [
            self._replace_block(at, wanted, new, ends_line=ends_line, indent=indent)
            for at in _find_blocks(here, looked_for)
        ]

    def find_anchored(self, old: str, new: str) -> list[Replacement]:
        """Find the blocks with as many lines as `old` whose first and last lines equal its own."""
        wanted, ends_line = _split_lines(old)
        if len(wanted) < _LEAST_ANCHORED_LINES:
            return []
        first, last = _fold_line(wanted[0]), _fold_line(wanted[-1])
        if not last or not any(map(str.isalnum, first)):
            return []  # blank lines and lone brackets are everywhere
        here, rest = [_fold_line(each) for each in self._lines], len(wanted) - 1
        places = [at for at in range(len(here) - rest) if here[at] == first and here[at + rest] == last]
        return [self._replace_block(at, wanted, new, ends_line=ends_line, indent=True) for at in places]

    def _replace_block(self, at: int, wanted: Sequence[str], new: str, *, ends_line: bool, indent: bool) -> Replacement:
        after = at + len(wanted)
        start, end = self._starts[at], self._starts[after] - 1
        if indent:
            new = _indent_like(new, wanted, self._lines[at:after])
        if ends_line and end < self._size:
            end += 1
        elif ends_line:
            new = new.removesuffix("\n")
        return Replacement(start, end, new)


def _split_lines(old: str) -> tuple[list[str], bool]:
    """Return the lines of a text, and whether it ends with the end of its last line."""
    lines = old.split("\n")
    return (lines[:-1], True) if len(lines) > 1 and not lines[-1] else (lines, False)


def _find_blocks(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the places of a block of lines that do not overlap."""
    found: list[int] = []
    at, size = 0, len(wanted)
    first = wanted[0]
    while at <= len(lines) - size:
        if lines[at] == first and lines[at : at + size] == wanted:
            found.append(at)
            at += size
        else:
            at += 1
    return found


def _indent_like(new: str, wanted: Sequence[str], found: Sequence[str]) -> str:
    """Return the new text with the indentation of the file, as far as that of the old text shows how they differ."""
    pairs: dict[str, str] = {}
    for each, there in zip(wanted, found, strict=True):
        if each.strip():
            pairs.setdefault(_indent_of(each), _indent_of(there))
    longest_first = sorted(pairs.items(), key=lambda pair: -len(pair[0]))
    return "\n".join([_indent_line(each, longest_first) for each in new.split("\n")])


def _indent_line(line: str, pairs: Sequence[tuple[str, str]]) -> str:
    if not line.strip():
        return line
    indent = _indent_of(line)
    for given, there in pairs:
        if indent.startswith(given):
            return there + indent[len(given) :] + line[len(indent) :]
    for given, there in reversed(pairs):  # less than any line of the old text: as much less than in the file
        missing = given[len(indent) :]
        if given.startswith(indent) and there.endswith(missing):
            return there[: len(there) - len(missing)] + line[len(indent) :]
    return line


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


# -- refusals ----------------------------------------------------------------------------------------------------------


def _check_strings(old: str, new: str) -> None:
    if not old:
        raise EditRefused("old_string is empty: copy the text to replace from the file, or use `write` for a new file")
    if old == new:
        raise EditRefused("old_string and new_string are the same: nothing would change")
    if found := find_placeholder(new, old):
        raise EditRefused(
            f"new_string has {found!r} in place of code, which would be lost: write out the whole replacement"
        )


def find_placeholder(new: str, old: str) -> str:
    """Return the first placeholder for omitted code (`... existing code`) in `new` that is not in `old`; else empty."""
    known = {each.group().casefold() for each in _PLACEHOLDER.finditer(old)}
    return next((each.group() for each in _PLACEHOLDER.finditer(new) if each.group().casefold() not in known), "")


def _check_found(text: str, old: str, found: Sequence[Replacement], rung: str, *, replace_all: bool) -> None:
    if not found:
        raise EditRefused(
            f"old_string was not found: {_shorten(old)!r}. {_describe_near_lines(text, old)}"
            "Read the file again, and copy the text exactly."
        )
    is_vague = rung.startswith("first and last line")
    if len(found) > 1 and (is_vague or not replace_all):
        places = [str(text.count("\n", 0, each.start) + 1) for each in found[:10]]
        advice = "add lines around it until it is unique" + ("" if is_vague else ", or set replace_all")
        how = "" if rung == "exact" else f" (compared by {rung})"
        raise EditRefused(
            f"old_string is ambiguous: it was found {len(found)} times{how}, at lines {', '.join(places)}: {advice}"
        )


def _describe_near_lines(text: str, old: str) -> str:
    """Return a sentence with the lines that equal the first line of the text that was not found; empty for none."""
    first = next((_fold_line(each) for each in old.split("\n") if each.strip()), "")
    places = [str(number) for number, line in enumerate(text.split("\n"), 1) if first and _fold_line(line) == first]
    return f"Its first line is line {', '.join(places[:5])} of the file, but what follows differs. " if places else ""


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_ECHOED else f"{text[:_MOST_ECHOED]}…"


# -- characters --------------------------------------------------------------------------------------------------------


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPES[found.group()], text)


def _splice(body: str, plain: str, found: Sequence[Replacement]) -> str:
    """Return the text with its replacements, whose places are those in the text with plain line ends."""
    if len(body) == len(plain):
        return _join_parts(plain, found)
    returns = [each.start() for each in re.finditer("\r\n", body)]
    plain_returns = [place - number for number, place in enumerate(returns)]  # in `plain`, that of the line feed
    mostly = len(returns) * 2 > plain.count("\n")

    def to_body(place: int) -> int:
        return place + bisect_left(plain_returns, place)

    placed: list[Replacement] = []
    for each in found:
        inside = bisect_left(plain_returns, each.end) - bisect_left(plain_returns, each.start)
        ends_with_return = bool(inside) if "\n" in plain[each.start : each.end] else mostly
        new = each.text.replace("\n", "\r\n") if ends_with_return else each.text
        placed.append(Replacement(to_body(each.start), to_body(each.end), new))
    return _join_parts(body, placed)


def _join_parts(text: str, found: Sequence[Replacement]) -> str:
    parts: list[str] = []
    at = 0
    for each in found:
        parts += [text[at : each.start], each.text]
        at = each.end
    return "".join([*parts, text[at:]])
