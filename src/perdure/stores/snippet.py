"""A few words of a text around what was found in it, on one line. Above: `sqlite/search.py`. Below: nothing.

The text is cut into words by the tokenizer of the index, so that what is marked here is what was found there. A long
text is cut bit by bit, and only as far as the first place that has something to show.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

WORDS: Final = 16
"""How many there are in a snippet."""

_STRIDE: Final = 16_384  # characters that are cut into words at a time
_LONGEST: Final = 80  # bytes of a word, or of what stands between two
_LONG: Final = 400  # bytes of a snippet that is shown as it is, whatever its words are
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")  # or obeyed
_MOST_PLACES: Final = 200  # that are compared with one another

Token: TypeAlias = tuple[int, int, str]
"""Where a word begins and ends in the UTF-8 of the text, and what the index knows it by."""
Tokenize: TypeAlias = Callable[[bytes], Sequence[Token]]


class Wanted(NamedTuple):
    """What is looked for, as the index knows it."""

    words: Collection[str]
    beginnings: tuple[str, ...] = ()
    """Words that begin like this count as well."""

    def places(self, tokens: Sequence[Token]) -> list[tuple[int, str]]:
        """Which of the words of a text are wanted, by their place."""
        words, beginnings = self.words, self.beginnings
        if not beginnings:
            return [(place, token[2]) for place, token in enumerate(tokens) if token[2] in words]
        return [
            (place, token[2])
            for place, token in enumerate(tokens)
            if token[2] in words or token[2].startswith(beginnings)
        ]


def snippet(text: str, wanted: Wanted, tokenize: Tokenize) -> str:
    """The place where most of what is wanted stands together, each of it between « and »."""
    first: tuple[bytes, Sequence[Token]] | None = None
    for piece in _pieces(text):
        data = piece.encode()
        tokens = tokenize(data)
        places = wanted.places(tokens)
        if places:
            start = min(_best(places[:_MOST_PLACES]), max(len(tokens) - WORDS, 0))
            return _shown(data, tokens, start, {place for place, _ in places})
        first = first or (data, tokens)
    return _shown(*first, 0, frozenset()) if first else ""


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that end between words, wherever they can."""
    start = 0
    while start < len(text):
        end = start + _STRIDE
        if end < len(text):
            end = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end)) + 1 or end
        yield text[start:end]
        start = end


def _best(places: Sequence[tuple[int, str]]) -> int:
    """The word to begin with, so that the most different things that are wanted are seen."""
    best, start, last = 0, 0, 0
    for index, (place, _) in enumerate(places):
        within = [(other, which) for other, which in places[index : index + WORDS] if other < place + WORDS]
        seen = len({which for _, which in within})
        if seen > best:
            best, start, last = seen, place, within[-1][0]
    before = (WORDS - (last - start + 1)) // 2
    return max(start - before, 0)


def _shown(data: bytes, tokens: Sequence[Token], start: int, marked: Collection[int]) -> str:
    end = min(start + WORDS, len(tokens))
    at = tokens[start][0] if start else 0
    stop = tokens[end - 1][1] if end < len(tokens) else len(data)
    cut = bytes if stop - at <= _LONG else _cut
    shown: list[bytes] = []
    for place in range(start, end):
        if cut is _cut or place in marked:
            begin, after, _ = tokens[place]
            word = cut(data[begin:after])
            shown += (cut(data[at:begin]), b"\xc2\xab%b\xc2\xbb" % word if place in marked else word)
            at = after
    shown.append(cut(data[at:stop]))
    line = " ".join(_UNSEEN.sub(" ", b"".join(shown).decode()).split())
    return f"{'…' if start else ''}{line}{'…' if end < len(tokens) else ''}"


def _cut(data: bytes) -> bytes:
    """The beginning of a word, or of what stands between two, that is too long."""
    if len(data) <= _LONGEST:
        return data
    return data[:_LONGEST].decode(errors="ignore").encode() + b"\xe2\x80\xa6"
