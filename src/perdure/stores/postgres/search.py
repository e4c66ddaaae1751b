"""Full-text search in the sessions of one tenant of a PostgreSQL store.

The server finds and ranks the entries; snippets are made from the entries themselves, whose text the index does not
store again.
"""

from typing import Any, Final

from psycopg import AsyncConnection

from perdure.core.error import ConfigError, StoreError
from perdure.core.store import Hit
from perdure.stores.search_request_validation import SearchRequest
from perdure.stores.snippet import SearchTerms, make_snippet
from perdure.stores.title_and_search_text import extract_searchable_text

from .entry_rows import decode_row_event
from .search_terms import ParsedQuery, build_plain_query, build_websearch_query, tokenize

_FITS: Final = "({0} = $3 OR $3 = '') AND pg_catalog.starts_with({0}, $4)"
# What forks share belongs to the session that was forked. When that one is not asked for, or deleted, it is found in
# the oldest fork that is.
_HEIR: Final = f"""
WITH RECURSIVE heir(key, id) AS (
    SELECT key, id FROM perdure.session WHERE parent = said.session AND at >= said.seq
    UNION ALL
    SELECT younger.key, younger.id
    FROM heir JOIN perdure.session AS younger ON younger.parent = heir.key AND younger.at >= said.seq
)
SELECT id FROM heir WHERE {_FITS.format("id")} ORDER BY key LIMIT 1"""  # noqa: S608 - made of constants
_FOUND: Final = f"""
SELECT place.id, said.session, said.seq, said.role,
    pg_catalog.ts_rank(said.words, {{parse}}('pg_catalog.simple', $2)) AS score
FROM perdure.said JOIN perdure.session AS owner ON owner.key = said.session
CROSS JOIN LATERAL (
    SELECT CASE WHEN {_FITS.format("owner.id")} THEN owner.id ELSE ({_HEIR}) END AS id
) AS place
WHERE owner.tenant = $1 AND place.id IS NOT NULL
    AND said.words @@ ({{parse}}('pg_catalog.simple', $2) && perdure.mark($1)::tsquery)
    AND ($3 = '' OR said.session IN (
        SELECT line.session FROM perdure.session CROSS JOIN LATERAL perdure.line(session.key) AS line
        WHERE tenant = $1 AND id = $3
    ))
    AND ($5 = '' OR said.role = $5) AND ($6::float8 IS NULL OR said.at >= $6) AND ($7::float8 IS NULL OR said.at <= $7)
ORDER BY score DESC, said.at DESC, said.session DESC, said.seq DESC LIMIT $8 OFFSET $9"""  # noqa: S608 - made of constants
_SEARCH: Final = f"""
SELECT found.id, seq, role, score, entry.at, critical, version, body
FROM ({_FOUND}) AS found JOIN perdure.entry USING(session, seq)
ORDER BY score DESC, at DESC, session DESC, seq DESC"""  # noqa: S608 - made of constants
_BY_WORDS: Final = _SEARCH.format(parse="pg_catalog.plainto_tsquery")
_BY_QUERY: Final = _SEARCH.format(parse="pg_catalog.websearch_to_tsquery")


async def search_entries(
    connection: AsyncConnection, tenant: str, request: SearchRequest, query: ParsedQuery
) -> list[Hit]:
    """Search the log entries of one tenant's sessions, and return a page of hits, the best first."""
    statement = _BY_WORDS if request.syntax == "words" else _BY_QUERY
    narrowed = (request.session_id, request.prefix, request.role, request.since, request.until)
    values = (tenant, query.text, *narrowed, request.limit, request.offset)
    cursor = await connection.execute(statement.encode(), values, binary=True)
    wanted = SearchTerms(query.words)
    return [_build_hit(row, wanted) for row in await cursor.fetchall()]


def parse_search_query(request: SearchRequest) -> ParsedQuery:
    """Parse the text of a search request into a query for PostgreSQL.

    Raises `ConfigError` for a query in search syntax that has no word.
    """
    if request.syntax == "words":
        return build_plain_query(request.query)
    query = build_websearch_query(request.query)
    if not query.text:
        raise ConfigError(
            f'there is no word in the query {request.query!r}: write words, "words together", or, -without'
        )
    return query


def _build_hit(row: tuple[Any, ...], wanted: SearchTerms) -> Hit:
    session_id, seq, role, score, at, critical, version, body = row
    try:
        said = extract_searchable_text(decode_row_event(session_id, seq, critical, version, body))
    except StoreError:  # one damaged entry must not hide all the others; reading the session reports it
        said = None
    return Hit(session_id, seq, role, make_snippet(said[1], wanted, tokenize) if said else "", score, at)
