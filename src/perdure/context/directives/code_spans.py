"""Find the code in a Markdown text, where `/name` and `@path` are not directives.

Code is a fence of three or more backticks or tildes, up to a fence at least as long or to the end; or a span between
two runs of equally many backticks in one paragraph. A run without a match is plain text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

_FENCE: Final = re.compile(r"^[ \t>]*(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$", re.MULTILINE)
_BLANK: Final = re.compile(r"\n[ \t]*(?=\n)")
_TICKS: Final = re.compile("`+")


class CodeSpans:
    """The ranges of a Markdown text that are code; `index in spans` tests a position."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, text: str) -> None:
        stretches = list(_find_code(text)) if "`" in text or "~~~" in text else []
        self._starts = [start for start, _ in stretches]
        self._ends = [end for _, end in stretches]

    def __contains__(self, place: int) -> bool:
        """Return True if the character at this index is code."""
        before = bisect_right(self._starts, place) - 1
        return before >= 0 and place < self._ends[before]


def _find_code(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of code, in order."""
    told = 0
    for start, end in _find_fences(text):
        yield from _find_inline_spans(text, told, start)
        yield start, end
        told = end
    yield from _find_inline_spans(text, told, len(text))


def _find_fences(text: str) -> Iterator[tuple[int, int]]:
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]) and not fence[2].strip():
            yield opened.start(), fence.end()
            opened = None
    if opened is not None:
        yield opened.start(), len(text)


def _find_inline_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the code spans between two indexes, paragraph by paragraph."""
    borders = [start, *[blank.start() for blank in _BLANK.finditer(text, start, end)], end]
    for begin, stop in pairwise(borders):
        yield from _pair_backticks(list(_TICKS.finditer(text, begin, stop)))


def _pair_backticks(runs: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    lonely: set[int] = set()  # lengths without another run, so that each is searched for once
    at = 0
    while at < len(runs):
        length = len(runs[at][0])
        like = (
            None if length in lonely else next((i for i in range(at + 1, len(runs)) if len(runs[i][0]) == length), None)
        )
        if like is None:
            lonely.add(length)
            at += 1
        else:
            yield runs[at].start(), runs[like].end()
            at = like + 1
