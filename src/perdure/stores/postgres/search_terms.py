"""Search terms of a PostgreSQL store: tokenize texts, and build full-text queries.

A token is a sequence of letters and digits, in lower case. The server's parser would take `store.py` for a host and
`<T>` for a tag, and depends on the locale of the database; it gets plain tokens instead, which it leaves as they are.
"""

import re
from typing import Final, NamedTuple

_WORD: Final = re.compile(r"[^\W_]+")
_BETWEEN: Final = re.compile(r"[\W_]+")
_LONGEST: Final = 2046  # bytes of a word; the server would leave out longer ones, after it has gone through them
MAX_INDEXED_CHARACTERS: Final = 500_000
"""The most characters of a text that are indexed with the places of their terms, by which phrases are found."""
MAX_FURTHER_CHARACTERS: Final = 300_000
"""The most characters of the terms behind those, each of which is indexed once."""
MAX_READ_CHARACTERS: Final = 16_000_000
"""The most characters of a text that are looked through for terms."""
_TOO_LONG: Final = re.compile(rf"[^ ]{{{_LONGEST + 1},}}")


class ParsedQuery(NamedTuple):
    """A search query in the form that PostgreSQL is sent, with the terms to mark in the hits."""

    text: str
    """The query for the server; empty if it has no search term."""
    words: frozenset[str]
    """The terms to mark in snippets."""


def build_index_text(text: str) -> str:
    """Return the search terms of a text, separated by spaces, in the form that PostgreSQL indexes.

    The server cannot index more than a megabyte of terms, and takes long to find that out. So of a very long text only
    the beginning is indexed as it is, then each further term once, and nothing beyond `MAX_READ_CHARACTERS`.
    """
    words = _BETWEEN.sub(" ", text[:MAX_INDEXED_CHARACTERS].lower()).strip()
    if len(text) > MAX_INDEXED_CHARACTERS:
        words += _list_further_terms(text, set(words.split(" ")))
    return words if len(words) <= _LONGEST else _TOO_LONG.sub("", words)


def _list_further_terms(text: str, known: set[str]) -> str:
    """Return the terms of the rest of a long text that are not known yet, each with a space in front."""
    found: list[str] = []
    room = MAX_FURTHER_CHARACTERS
    for match in _WORD.finditer(text[MAX_INDEXED_CHARACTERS:MAX_READ_CHARACTERS].lower()):
        if (word := match[0]) in known:
            continue
        known.add(word)
        room -= len(word) + 1
        if room < 0:
            break
        found.append(f" {word}")
    return "".join(found)


def tokenize(data: bytes) -> list[tuple[int, int, str]]:
    """Return the search terms of a UTF-8 text, each with its start and end offset in bytes."""
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


def build_plain_query(query: str) -> ParsedQuery:
    """Build a query (for `plainto_tsquery`) that matches texts with all of these terms."""
    words = dict.fromkeys(_WORD.findall(query.lower()))
    if any(len(word.encode()) > _LONGEST for word in words):
        return ParsedQuery("", frozenset())
    return ParsedQuery(" ".join(words), frozenset(words))


def build_websearch_query(query: str) -> ParsedQuery:
    """Build a query (for `websearch_to_tsquery`) from search engine syntax: `"exact phrase"`, `or`, `-without`."""
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
    return ParsedQuery(" ".join(parts), frozenset(shown - {"or"}))
