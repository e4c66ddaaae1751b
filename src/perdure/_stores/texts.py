"""Texts from log entries: titles of sessions, the text that can be searched, and the snippets of search hits."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from perdure._core.values.event import Entry, MessageAdded, SessionConfigured, ToolFinished
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import Part, Text, ToolCall

SNIPPET_TOKENS: Final = 16
"""The number of tokens in a snippet."""

_STRIDE: Final = 16_384  # characters that are cut into words at a time
_LONGEST: Final = 80  # bytes of a word, or of the text between two
_LONG: Final = 400  # bytes of a snippet that is shown as it is, whatever its words are
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")  # or obeyed
_MOST_PLACES: Final = 200  # that are compared with one another

Token: TypeAlias = tuple[int, int, str]
"""Start and end offset of a token in the UTF-8 of the text, and its form in the index."""
Tokenize: TypeAlias = Callable[[bytes], Sequence[Token]]


class SearchTerms(NamedTuple):
    """The terms that a search looked for, in the form in which the search index has them."""

    exact: Collection[str]
    prefixes: tuple[str, ...] = ()
    """Prefixes: tokens that begin with one of them match as well."""

    def find_matches(self, tokens: Sequence[Token]) -> list[tuple[int, str]]:
        """Return the position and the term of each token that matches a search term."""
        words, beginnings = self.exact, self.prefixes
        if not beginnings:
            return [(place, token[2]) for place, token in enumerate(tokens) if token[2] in words]
        return [
            (place, token[2])
            for place, token in enumerate(tokens)
            if token[2] in words or token[2].startswith(beginnings)
        ]


def make_snippet(text: str, terms: SearchTerms, tokenize: Tokenize) -> str:
    """Return the part of a text with the most matches close together, on one line, each match between « and »."""
    first: tuple[bytes, Sequence[Token]] | None = None
    for piece in _split_text(text):
        data = piece.encode()
        tokens = tokenize(data)
        places = terms.find_matches(tokens)
        if places:
            start = min(_best_start(places[:_MOST_PLACES]), max(len(tokens) - SNIPPET_TOKENS, 0))
            return _render_snippet(data, tokens, start, {place for place, _ in places})
        first = first or (data, tokens)
    return _render_snippet(*first, 0, frozenset()) if first else ""


def _split_text(text: str) -> Iterator[str]:
    """Split a text into pieces that end at a blank or line end where possible."""
    start = 0
    while start < len(text):
        end = start + _STRIDE
        if end < len(text):
            end = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end)) + 1 or end
        yield text[start:end]
        start = end


def _best_start(places: Sequence[tuple[int, str]]) -> int:
    """Return the token position to start at, so that the most different terms are shown."""
    best, start, last = 0, 0, 0
    for index, (place, _) in enumerate(places):
        within = [
            (other, which) for other, which in places[index : index + SNIPPET_TOKENS] if other < place + SNIPPET_TOKENS
        ]
        seen = len({which for _, which in within})
        if seen > best:
            best, start, last = seen, place, within[-1][0]
    before = (SNIPPET_TOKENS - (last - start + 1)) // 2
    return max(start - before, 0)


def _render_snippet(data: bytes, tokens: Sequence[Token], start: int, marked: Collection[int]) -> str:
    end = min(start + SNIPPET_TOKENS, len(tokens))
    at = tokens[start][0] if start else 0
    stop = tokens[end - 1][1] if end < len(tokens) else len(data)
    cut = bytes if stop - at <= _LONG else _shorten_token
    shown: list[bytes] = []
    for place in range(start, end):
        if cut is _shorten_token or place in marked:
            begin, after, _ = tokens[place]
            word = cut(data[begin:after])
            shown += (cut(data[at:begin]), b"\xc2\xab%b\xc2\xbb" % word if place in marked else word)
            at = after
    shown.append(cut(data[at:stop]))
    line = " ".join(_UNSEEN.sub(" ", b"".join(shown).decode()).split())
    return f"{'…' if start else ''}{line}{'…' if end < len(tokens) else ''}"


def _shorten_token(data: bytes) -> bytes:
    """Cut a token, or the text between two tokens, that is too long."""
    if len(data) <= _LONGEST:
        return data
    return data[:_LONGEST].decode(errors="ignore").encode() + b"\xe2\x80\xa6"


TITLE_LENGTH: Final = 80
"""The maximum length of a title in characters."""


def find_message_title(entries: Sequence[Entry]) -> str:
    """Return a title for a session: the beginning of its first user message, on one line; empty if there is none."""
    for entry in entries:
        event = entry.event
        if type(event) is not MessageAdded or event.message.role != "user":
            continue
        if title := _clean_title(event.message.text):
            return title
    return ""


def find_given_title(entries: Sequence[Entry]) -> str | None:
    """Return the title that was explicitly set for a session, the last one in these entries; `None` if none was set.

    It is the text `title` in the changes of a `SessionConfigured` event, and takes precedence over
    `find_message_title`. A title without any printable character is ignored.
    """
    for entry in reversed(entries):
        event = entry.event
        if type(event) is SessionConfigured:
            title = event.changes.get("title")
            if isinstance(title, str) and (shown := _clean_title(title)):
                return shown
    return None


def extract_searchable_text(event: Event) -> tuple[str, str] | None:
    """Return the role (`user`, `assistant` or `tool`) and the searchable text of an event; `None` if it has none.

    Thinking and the arguments of tool calls are not searchable. A lone surrogate and a NUL become U+FFFD, so that any
    database can store the text.
    """
    found = event.search_text()
    if found is None or not found[1]:
        return None
    role, text = found
    return role, replace_surrogates(text).replace("\0", "\ufffd")


def _clean_title(text: str) -> str:
    """Return the beginning of a text, at most `TITLE_LENGTH` printable characters on one line."""
    title = text[:TITLE_LENGTH]
    if title.isprintable() and "  " not in title and title[:1] != " ":  # the rule below would change nothing
        return title.rstrip()
    beginning = text[: TITLE_LENGTH * 4]
    if not beginning.isprintable():
        beginning = "".join([character if character.isprintable() else " " for character in beginning])
    return " ".join(beginning.split())[:TITLE_LENGTH].rstrip()


LARGE_TEXT = 1_000_000
"""Characters or bytes in one part of a message from which on it is not encoded on the event loop."""


def has_large_content(entries: Sequence[Entry]) -> bool:
    """Return True if a message or result in these entries is so large that encoding it would delay the event loop."""
    for entry in entries:
        event = entry.event
        if type(event) is ToolFinished:
            parts: Sequence[Part] = event.result.content
        elif type(event) is MessageAdded:
            parts = event.message.parts
        else:
            continue
        for part in parts:
            if _part_length(part) > LARGE_TEXT:
                return True
    return False


def _part_length(part: Part) -> int:
    if type(part) is Text:
        return len(part.text)
    if type(part) is ToolCall:
        return len(part.arguments)
    return len(getattr(part, "data", ""))
