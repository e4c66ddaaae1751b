"""Argument checks shared by all stores: of session ids, pages, counts, posts, forks and search requests."""

import math
from typing import Final

from msgspec import Struct

from perdure._core.log.store import Post, SearchOptions, SearchSyntax
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import replace_surrogates, short_repr

_LARGEST: Final = 2**63 - 1


def check_session_id(session_id: str, *, what: str = "a session id") -> None:
    """Raise `ConfigError` unless the session id is a text that every kind of store can keep.

    An id that only some stores accept would be lost when a session is moved to another store.
    """
    if not isinstance(session_id, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise ConfigError(f"{what} must be a string, and {session_id!r} is not")
    if not session_id and what == "a session id":
        raise ConfigError("a session id must not be empty: leave it out to get a new one, or pass a name")
    if "\0" in session_id or not (session_id.isascii() or _is_encodable(session_id)):
        raise ConfigError(f"{what} must be text that UTF-8 can encode, without NUL, and {session_id!r} is not")


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_page(prefix: str, limit: int, offset: int) -> None:
    """Raise `ConfigError` unless `prefix`, `limit` and `offset` are valid arguments for listing sessions."""
    check_session_id(prefix, what="a prefix")
    check_count("limit", limit)
    check_count("offset", offset)


def check_count(name: str, value: int) -> None:
    """Raise `ConfigError` unless the argument `name` is an integer from 0 to 2**63 - 1."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ConfigError(f"{name}={value!r} is not possible: pass a whole number from 0")


def check_post(post: Post) -> None:
    """Raise `ConfigError` unless the id and kind of a post (a message to a session) are valid in every store.

    The id must also be valid for a log entry, and not be empty.
    """
    check_session_id(post.id, what="the id of a post")
    check_session_id(post.kind, what="the kind of a post")
    if not post.id:
        raise ConfigError("a post must have an id, so that it counts once: pass one, such as new_id()")


def check_fork(session_id: str, at: int | None, head: int) -> None:
    """Raise `ConfigError` unless a session of `head` entries can be forked after entry `at` (`None`: the last)."""
    if at is not None and (type(at) is not int or not 0 < at <= head):
        raise ConfigError(
            f"session {session_id!r} cannot be forked at={at!r}: pass a number from 1 to {head}, or leave it out"
        )


MAX_HITS: Final = 100
"""The maximum number of hits on one page."""
MAX_QUERY_LENGTH: Final = 4096
"""The maximum length of a query in characters."""
MAX_QUERY_TERMS: Final = 64
"""The maximum number of terms in a query; each must occur, so more would hardly find anything."""
ROLES: Final = ("user", "assistant", "tool")


class SearchRequest(Struct, frozen=True):
    """A search query with its filters and page, validated. Each store parses the text of the query by itself."""

    query: str
    syntax: SearchSyntax = "words"
    session_id: str = ""
    prefix: str = ""
    role: str = ""
    since: float | None = None
    until: float | None = None
    limit: int = 20
    offset: int = 0


def validate_search(query: str, options: SearchOptions) -> SearchRequest:
    """Check a query and its filters, and return them as a `SearchRequest`. Raises `ConfigError` for invalid ones."""
    if type(query) is not str or not query.strip():
        raise ConfigError(f"there is nothing to look for in {query!r}: pass a word or several")
    if len(query) > MAX_QUERY_LENGTH:
        raise ConfigError(
            f"a query has {MAX_QUERY_LENGTH} characters at most, and {short_repr(query, 40)} has {len(query)}"
        )
    if unknown := options.keys() - SearchOptions.__annotations__.keys():
        known = ", ".join(SearchOptions.__annotations__)
        raise ConfigError(f"a search cannot be narrowed by {', '.join(sorted(unknown))}: use {known}")
    question = SearchRequest(replace_surrogates(query).replace("\0", " "), **options)
    _check_filters(question)
    return question


def _check_filters(request: SearchRequest) -> None:
    if request.syntax not in ("words", "query"):
        raise ConfigError(f"syntax={request.syntax!r} is not known: pass 'words' or 'query'")
    if request.role not in ("", *ROLES):
        known = ", ".join(ROLES)
        raise ConfigError(f"role={request.role!r} says nothing that is kept: pass one of {known}, or leave it out")
    if request.session_id:
        check_session_id(request.session_id)
    check_page(request.prefix, request.limit, request.offset)
    if not 1 <= request.limit <= MAX_HITS:
        raise ConfigError(
            f"limit={request.limit!r} is not possible: pass 1 to {MAX_HITS}, and use offset for further pages"
        )
    _check_time("since", request.since)
    _check_time("until", request.until)


def split_query(query: str) -> list[str]:
    """Split a plain query into its terms, without duplicates. Raises `ConfigError` if there are too many."""
    words = list(dict.fromkeys(query.split()))
    if len(words) > MAX_QUERY_TERMS:
        raise ConfigError(f"a query has {MAX_QUERY_TERMS} words at most, and this one has {len(words)}: leave some out")
    return words


def _check_time(name: str, value: float | None) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and math.isfinite(value)):
        raise ConfigError(f"{name}={value!r} is no time: pass seconds since 1970, as time.time() gives them")
