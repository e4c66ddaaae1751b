"""What may be asked of a search, the same in every store. Above: the stores that can search. Below: `listing.py`.

Plain words are data, whatever is in them: they are looked for, and never obeyed.
"""

import math
from typing import Final

from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.plain import clean, excerpt
from perdure.core.store import Narrowed, Syntax

from .listing import check_page, check_session_id

MOST_HITS: Final = 100
"""On one page."""
LONGEST_QUERY: Final = 4096
"""In characters."""
MOST_WORDS: Final = 64
"""In one query; each of them must occur, so more would hardly find anything."""
ROLES: Final = ("user", "assistant", "tool")


class Asked(Struct, frozen=True):
    """A search that makes sense so far; what is in the query is for the store to judge."""

    query: str
    syntax: Syntax = "words"
    session_id: str = ""
    prefix: str = ""
    role: str = ""
    since: float | None = None
    until: float | None = None
    limit: int = 20
    offset: int = 0


def asked(query: str, narrowed: Narrowed) -> Asked:
    """Check what was asked. Raises `ConfigError`."""
    if type(query) is not str or not query.strip():
        raise ConfigError(f"there is nothing to look for in {query!r}: pass a word or several")
    if len(query) > LONGEST_QUERY:
        raise ConfigError(f"a query has {LONGEST_QUERY} characters at most, and {excerpt(query, 40)} has {len(query)}")
    if unknown := narrowed.keys() - Narrowed.__annotations__.keys():
        known = ", ".join(Narrowed.__annotations__)
        raise ConfigError(f"a search cannot be narrowed by {', '.join(sorted(unknown))}: use {known}")
    question = Asked(clean(query).replace("\0", " "), **narrowed)
    _check_narrowed(question)
    return question


def _check_narrowed(question: Asked) -> None:
    if question.syntax not in ("words", "query"):
        raise ConfigError(f"syntax={question.syntax!r} is not known: pass 'words' or 'query'")
    if question.role not in ("", *ROLES):
        known = ", ".join(ROLES)
        raise ConfigError(f"role={question.role!r} says nothing that is kept: pass one of {known}, or leave it out")
    if question.session_id:
        check_session_id(question.session_id)
    check_page(question.prefix, question.limit, question.offset)
    if not 1 <= question.limit <= MOST_HITS:
        raise ConfigError(
            f"limit={question.limit!r} is not possible: pass 1 to {MOST_HITS}, and use offset for further pages"
        )
    _check_time("since", question.since)
    _check_time("until", question.until)


def words_of(query: str) -> list[str]:
    """The words of a plain query, each once. Raises `ConfigError` when there are too many."""
    words = list(dict.fromkeys(query.split()))
    if len(words) > MOST_WORDS:
        raise ConfigError(f"a query has {MOST_WORDS} words at most, and this one has {len(words)}: leave some out")
    return words


def _check_time(name: str, value: float | None) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and math.isfinite(value)):
        raise ConfigError(f"{name}={value!r} is no time: pass seconds since 1970, as time.time() gives them")
