"""Find directives (`/name` and `@path`) in the text of a user's message, but not in its code."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

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


NAME_PATTERN: Final = r"[A-Za-z][\w-]*"
"""Pattern of a name after the slash."""
MAX_TOKENS: Final = 50
"""Maximum number of tokens in one text. More are left unchanged."""

_TOKEN: Final = re.compile(rf"(?<!\S)/({NAME_PATTERN})(?!\S)")
_BEFORE: Final = r"(?<![^\s(\[{<\"'“‘])"  # noqa: RUF001 - people type them
_MENTION: Final = re.compile(
    _BEFORE + r"(?P<escape>@(?=@[^\s@]))?@(?:\"(?P<quoted>[^\"\n]+)\"|(?P<bare>[^\s\"`@][^\s\"`]*))"
)
_TRAILING: Final = ".,;:!?…)]}>'’”"  # noqa: RUF001 - as above


class SlashToken(NamedTuple):
    """A `/name` found in a text, with the rest of its line as arguments."""

    name: str
    arguments: str
    """Rest of its line."""


def mark_slash_names(text: str, is_bound: Callable[[str], bool]) -> tuple[str, list[SlashToken]]:
    """Mark each `/name` of a known command or skill in a text as `[/name]`; return the new text and the names.

    Each name is returned with its arguments.

    The mark shows the model, and later readers, what was requested, and is not a token itself.
    """
    tokens: list[SlashToken] = []
    if "/" not in text:
        return text, tokens
    code = CodeSpans(text)

    def mark_match(found: re.Match[str]) -> str:
        if len(tokens) == MAX_TOKENS or found.start() in code or not is_bound(found[1]):
            return found[0]
        tokens.append(SlashToken(found[1], _get_rest_of_line(text, found.end())))
        return f"[{found[0]}]"

    return _TOKEN.sub(mark_match, text), tokens


def _get_rest_of_line(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[place : None if end < 0 else end].strip()


def parse_mentions(text: str) -> tuple[str, list[str]]:
    """Return the text with `@@name` unescaped, and the paths that it mentions as `@path`, without duplicates.

    `@@name` becomes `@name`.

    A mention starts where a word does, so an e-mail address is not one; it ends with the word, or is quoted. The files
    are not checked here.
    """
    if "@" not in text:
        return text, []
    code = CodeSpans(text)
    paths: dict[str, None] = {}

    def collect_match(found: re.Match[str]) -> str:
        if found.start() in code:
            return found[0]
        if found["escape"]:
            return found[0][1:]
        if path := found["quoted"] or found["bare"].rstrip(_TRAILING):
            paths[path] = None
        return found[0]

    return _MENTION.sub(collect_match, text), list(paths)
