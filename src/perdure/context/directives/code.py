"""Where a text is code, so that nothing in it is taken for a directive. Above: `token.py`, `mention.py`.

The rules are those of Markdown: a fence of three or more backticks or tildes, up to a fence as long or to the end; and
a span between two runs of equally many backticks in one paragraph. A run without its like is just backticks.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

_FENCE: Final = re.compile(r"^[ \t>]*(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$", re.MULTILINE)
_BLANK: Final = re.compile(r"\n[ \t]*(?=\n)")
_TICKS: Final = re.compile("`+")


class Code:
    """The stretches of one text that are code."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, text: str) -> None:
        stretches = list(_stretches(text)) if "`" in text or "~~~" in text else []
        self._starts = [start for start, _ in stretches]
        self._ends = [end for _, end in stretches]

    def __contains__(self, place: int) -> bool:
        """Whether the character at that place is code."""
        before = bisect_right(self._starts, place) - 1
        return before >= 0 and place < self._ends[before]


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    """Where code begins and ends, in order."""
    told = 0
    for start, end in _fenced(text):
        yield from _spans(text, told, start)
        yield start, end
        told = end
    yield from _spans(text, told, len(text))


def _fenced(text: str) -> Iterator[tuple[int, int]]:
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]) and not fence[2].strip():
            yield opened.start(), fence.end()
            opened = None
    if opened is not None:
        yield opened.start(), len(text)


def _spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans between these two places, paragraph by paragraph."""
    borders = [start, *[blank.start() for blank in _BLANK.finditer(text, start, end)], end]
    for begin, stop in pairwise(borders):
        yield from _spans_of_paragraph(list(_TICKS.finditer(text, begin, stop)))


def _spans_of_paragraph(runs: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    lonely: set[int] = set()  # lengths of which no more runs follow, so that nobody looks for one twice
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
