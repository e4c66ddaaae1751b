"""Full-text search in memories, in bounded time: terms that occur everywhere are only used if there are no others.

A query is text, whatever is in it: no character of it is an operator.
"""

import re
from collections.abc import Sequence
from typing import Final

from perdure._core.values.jsonable import replace_surrogates
from perdure._stores.sqlite.driver import Connection

from .rows import MemoryFilter

MAX_QUERY_CHARACTERS: Final = 4_096
"""Characters of a query that are read; the rest is ignored."""
MAX_QUERY_WORDS: Final = 24
MAX_MATCHES: Final = 5_000
"""Matches that are ranked. Words with more are used after all rarer ones, or to filter by time."""
MAX_CANDIDATES: Final = 200
"""Best matches of which the recency is looked at."""

_WORD: Final = re.compile(r"\w+")


def split_query_words(query: str) -> list[str]:
    """Return the search terms in a query, in lower case and without duplicates."""
    text = replace_surrogates(query[:MAX_QUERY_CHARACTERS]).casefold()
    return list(dict.fromkeys(_WORD.findall(text)))[:MAX_QUERY_WORDS]


def search_text(connection: Connection, scope: int, query: str, condition: MemoryFilter) -> dict[int, float]:
    """Return the rows of the memories that match a query, with their relevance from 0 to 1; the best has 1."""
    expressions = [f'"{word}"' for word in split_query_words(query)]
    counts = {each: _count_matches(connection, scope, each) for each in expressions}
    words = sorted([each for each, count in counts.items() if count], key=counts.__getitem__)
    if not words:
        return {}
    if counts[words[0]] > MAX_MATCHES:
        return _find_latest(connection, scope, words, condition)
    used, total = [words[0]], counts[words[0]]
    for word in words[1:]:
        total += counts[word]
        if total > MAX_MATCHES:
            break
        used.append(word)
    return _rank_matches(connection, scope, used, condition)


def _count_matches(connection: Connection, scope: int, expression: str) -> int:
    """Return the number of memories with a term; one more than `MAX_MATCHES` if there are more."""
    table = f"search_{scope}"
    count: int = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT {MAX_MATCHES + 1})",  # noqa: S608
        (expression,),
    ).get
    return count


def _rank_matches(
    connection: Connection, scope: int, words: Sequence[str], condition: MemoryFilter
) -> dict[int, float]:
    conditions, values = condition.build_conditions()
    table = f"search_{scope}"
    join = f"CROSS JOIN memory ON memory.id = {table}.rowid" if conditions else ""
    found = connection.execute(
        f"SELECT {table}.rowid, -{table}.rank FROM {table} {join} "  # noqa: S608 - the scope is a number
        f"WHERE {table} MATCH ?{conditions} ORDER BY {table}.rank, {table}.rowid DESC LIMIT {MAX_CANDIDATES}",
        (" OR ".join(words), *values),
    ).fetchall()
    best = max([score for _, score in found], default=0.0)
    return {row: score / best if best > 0 else 1.0 for row, score in found}


def _find_latest(connection: Connection, scope: int, words: Sequence[str], condition: MemoryFilter) -> dict[int, float]:
    """Return the latest memories with all these terms, or with the rarest: all are too common to rank by."""
    conditions, values = condition.build_conditions()
    table = f"search_{scope}"
    join = f"CROSS JOIN memory ON memory.id = {table}.rowid" if conditions else ""
    for expression in dict.fromkeys((" AND ".join(words), words[0])):
        found = connection.execute(
            f"SELECT {table}.rowid FROM {table} {join} WHERE {table} MATCH ?{conditions} "  # noqa: S608
            f"ORDER BY {table}.rowid DESC LIMIT {MAX_CANDIDATES}",
            (expression, *values),
        ).fetchall()
        if found:
            return {row: 1.0 for (row,) in found}
    return {}
