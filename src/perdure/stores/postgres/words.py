"""What counts as a word in a PostgreSQL store, in what was said and in what is looked for. Above: `row.py`,
`search.py`. Below: nothing.

A word is a run of letters and digits, in small letters. The server's own parser would take `store.py` for a host and
`<T>` for a tag, and it depends on the locale of the database; it is given plain words, and leaves them as they are.
"""

import re
from typing import Final, NamedTuple

_WORD: Final = re.compile(r"[^\W_]+")
_BETWEEN: Final = re.compile(r"[\W_]+")
_LONGEST: Final = 2046  # bytes of a word; the server would leave out longer ones, after it has gone through them
_TOO_LONG: Final = re.compile(rf"[^ ]{{{_LONGEST + 1},}}")


class Query(NamedTuple):
    """What is looked for."""

    text: str
    """As the server is told it; empty when there is no word in it."""
    words: frozenset[str]
    """Those that are to be shown in what was found."""


def words_only(text: str) -> str:
    """The words of a text that can be found, with a space between them."""
    words = _BETWEEN.sub(" ", text.lower()).strip()
    return words if len(words) <= _LONGEST else _TOO_LONG.sub("", words)


def placed_words(data: bytes) -> list[tuple[int, int, str]]:
    """Where the words of a text begin and end in its UTF-8, and what they are."""
    text = data.decode()
    if len(text) == len(data):
        return [(match.start(), match.end(), match[0].lower()) for match in _WORD.finditer(text)]
    found: list[tuple[int, int, str]] = []
    at = end = 0
    for match in _WORD.finditer(text):
        at += len(text[end : match.start()].encode())
        size = len(match[0].encode())
        found.append((at, at + size, match[0].lower()))
        at, end = at + size, match.end()
    return found


def plain_query(query: str) -> Query:
    """Words that must all occur, for `plainto_tsquery`."""
    words = dict.fromkeys(_WORD.findall(query.lower()))
    if any(len(word.encode()) > _LONGEST for word in words):
        return Query("", frozenset())
    return Query(" ".join(words), frozenset(words))


def web_query(query: str) -> Query:
    """What people write for a search engine, for `websearch_to_tsquery`: `"these words together"`, `or`, `-without`."""
    parts: list[str] = []
    shown: set[str] = set()
    denied = False  # a minus before a quote

    def add(words: list[str], *, quoted: bool, minus: str) -> None:
        if words:
            parts.append(f'{minus}"{" ".join(words)}"' if quoted else minus + words[0])
            shown.update(words if not minus else ())

    for place, piece in enumerate(query.lower().split('"')):
        if place % 2:
            add(_WORD.findall(piece), quoted=True, minus="-" if denied else "")
            denied = False
            continue
        for term in piece.split():
            words = _WORD.findall(term)
            add(words, quoted=len(words) > 1, minus="-" if term.startswith("-") else "")
            denied = term == "-"
    return Query(" ".join(parts), frozenset(shown - {"or"}))
