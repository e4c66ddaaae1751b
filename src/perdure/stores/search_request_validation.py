"""Search requests to a store: check a query and its filters, in the same way for every store.

A query with `syntax="words"` is data, whatever is in it: no character of it is an operator.
"""

import math
from typing import Final

from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.jsonable import replace_surrogates, short_repr
from perdure.core.store import SearchOptions, SearchSyntax

from .argument_checks import check_page, check_session_id

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
