"""SQL statements of a PostgreSQL store: acquire, append to, read, list and search sessions, and their posts."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from perdure._core.log.codec import VERSION, decode_event, encode_event
from perdure._core.log.status import RunProgress
from perdure._core.log.store import Hit, InterruptedSession, Lease, Post, SessionInfo
from perdure._core.values.error import ConfigError, StoreError
from perdure._core.values.event import Custom, Entry
from perdure._stores.checks import SearchRequest
from perdure._stores.lease_holder import parse_holder
from perdure._stores.texts import SearchTerms, extract_searchable_text, make_snippet

from .leases import ActiveLease
from .rows import (
    PROGRESS_NUMBERS,
    EntryRow,
    ParsedQuery,
    build_plain_query,
    build_websearch_query,
    decode_row,
    decode_row_event,
    encode_rows,
    tokenize,
)

_TAKEN: Final = """
SELECT FROM perdure.session CROSS JOIN LATERAL perdure.line(session.key) AS line
JOIN perdure.entry ON entry.session = line.session AND seq <= upto
WHERE session.tenant = $1 AND session.id = $2 AND entry.id = """
# A row with the same token is from an earlier attempt whose response was lost.
_POST: Final = f"""
INSERT INTO perdure.post AS post(tenant, session, id, at, token, version, body)
SELECT $1, $2, $3, $4, $5, $6, $7 WHERE NOT EXISTS ({_TAKEN} $3)
ON CONFLICT(tenant, session, id) DO UPDATE SET token = excluded.token WHERE post.token = excluded.token
RETURNING pg_catalog.set_config('synchronous_commit', 'on', true)"""
_POSTS: Final = f"""
SELECT id, at, version, body FROM perdure.post
WHERE tenant = $1 AND session = $2 AND NOT EXISTS ({_TAKEN} post.id) ORDER BY place"""  # noqa: S608 - made of constants


class MailboxStatements:
    """SQL statements of one tenant that add and read posts (messages to a session); each is one transaction."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant

    async def add(self, connection: AsyncConnection, session_id: str, post: Post, token: str) -> bool:
        """Store a post (a message to a session); return False if another one with its id was stored before."""
        body = encode_event(Custom(post.kind, post.body))  # which takes any value, and gives JSON back
        values = (self._tenant, session_id, post.id, post.at, token, VERSION, body)
        return await (await connection.execute(_POST, values)).fetchone() is not None

    async def read_pending(self, connection: AsyncConnection, session_id: str) -> list[Post]:
        """Return the posts of a session that the process running it has not taken yet."""
        cursor = await connection.execute(_POSTS, (self._tenant, session_id), binary=True)
        return [_decode_post(*row) for row in await cursor.fetchall()]


def _decode_post(post_id: str, at: float, version: int, body: bytes) -> Post:
    event: Any = decode_event(body, version=version)
    return Post(post_id, event.name, event.data, at)


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


# A session is free when it has no holder, when its lease has ended by the database's clock, or when its holder is in
# the array: this lease, if the response of an earlier attempt was lost, or a process that is known to have died.
_TAKE: Final = """
INSERT INTO perdure.session AS session(tenant, id, fence, holder, lease_until, created_at, updated_at)
SELECT $1, $2, coalesce(pg_catalog.max(value), 0) + 1, $3,
    pg_catalog.now() + pg_catalog.make_interval(secs => $4), $5::float8, $5::float8
FROM perdure.meta WHERE tenant = $1 AND name = 'fence'
ON CONFLICT(tenant, id) DO UPDATE
SET fence = session.fence + 1, holder = excluded.holder, lease_until = excluded.lease_until
WHERE session.holder IS NULL OR session.lease_until <= pg_catalog.now() OR session.holder = ANY($6::text[]) OR $7
RETURNING fence, head, at, pg_catalog.set_config('synchronous_commit', 'on', true)"""
_GIVE_BACK: Final = """
WITH given_back AS (
    UPDATE perdure.session SET holder = NULL, lease_until = NULL
    FROM unnest($2::text[], $3::bigint[], $4::text[]) AS held(id, fence, holder)
    WHERE session.tenant = $1 AND session.id = held.id AND session.fence = held.fence AND session.holder = held.holder
    RETURNING session.key, session.id
), taken AS (
    DELETE FROM perdure.post USING given_back, perdure.entry
    WHERE post.tenant = $1 AND post.session = given_back.id AND entry.session = key AND entry.id = post.id
)
SELECT pg_catalog.set_config('synchronous_commit', 'off', true) FROM given_back"""
# The server plans each of these anew, which takes longer than doing it: so each contains only what is needed.
_APPEND: Final = """
WITH advanced AS (
    UPDATE perdure.session
    SET head = $6, updated_at = $7, lease_until = pg_catalog.now() + pg_catalog.make_interval(secs => $8) {progress}
    WHERE tenant = $1 AND id = $2 AND fence = $3 AND holder = $4 AND head = $5 {unshared}
    RETURNING key
), given AS MATERIALIZED (
    SELECT key, given.* FROM advanced, pg_catalog.json_to_recordset($10) AS given(
        seq bigint, id text, kind text, critical boolean, at double precision, title text, role text, words text,
        start integer, length integer
    )
), added AS (
    INSERT INTO perdure.entry(session, seq, id, kind, critical, version, at, title, body)
    SELECT key, seq, id, kind, critical, $9, coalesce(at, 'NaN'), title, substring($11::bytea FROM start FOR length)
    FROM given
) {heard}
SELECT pg_catalog.set_config('synchronous_commit', $12, true) FROM advanced"""
# A fork also looks for the ids in what it shares: the index knows of a session's own entries only.
_UNSHARED: Final = """
AND NOT EXISTS (
    SELECT FROM perdure.line(key) JOIN perdure.entry USING(session)
    WHERE seq <= upto AND entry.id IN (SELECT given.id FROM pg_catalog.json_to_recordset($10) AS given(id text))
)"""
_HEARD: Final = """
, heard AS (
    INSERT INTO perdure.said(session, seq, role, at, words)
    SELECT key, seq, role, coalesce(at, 'NaN'), perdure.vector($1, words) FROM given WHERE words IS NOT NULL
)"""
_PROGRESS: Final = ", progress = $13, due_at = $14"
_APPENDS: Final = {
    (is_fork, is_heard, has_progress): _APPEND.format(
        unshared=_UNSHARED if is_fork else "",
        heard=_HEARD if is_heard else "",
        progress=_PROGRESS if has_progress else "",
    ).encode()
    for is_fork in (False, True)
    for is_heard in (False, True)
    for has_progress in (False, True)
}
"""By whether the session is a fork, whether there is searchable text, and whether a run begins, waits or ends."""
_PROGRESS_NAMES: Final[dict[int, RunProgress]] = {number: name for name, number in PROGRESS_NUMBERS.items()}
_SYNC: Final = """
UPDATE perdure.session SET lease_until = pg_catalog.now() + pg_catalog.make_interval(secs => $5)
WHERE tenant = $1 AND id = $2 AND fence = $3 AND holder = $4
RETURNING pg_catalog.set_config('synchronous_commit', 'on', true)"""
_HELD: Final = """
SELECT FROM perdure.session
WHERE tenant = $1 AND id = $2 AND fence = $3 AND holder = $4 AND lease_until > pg_catalog.now()"""
_FIND: Final = "SELECT head, fence, holder FROM perdure.session WHERE tenant = $1 AND id = $2"
_LOG: Final = """
FROM perdure.session CROSS JOIN LATERAL perdure.line(session.key) AS line
JOIN perdure.entry ON entry.session = line.session AND seq <= upto
WHERE tenant = $1 AND session.id = $2"""
_COMPARE: Final = f"SELECT seq, entry.id {_LOG} AND seq BETWEEN $3 AND $4 ORDER BY seq"
_READ: Final = f"""
SELECT seq, entry.at, coalesce(entry.id, ''), critical, version, body {_LOG} AND seq > $3 ORDER BY seq"""
_TITLE: Final = """
SELECT title FROM perdure.line(line.key) JOIN perdure.entry USING(session)
WHERE seq <= upto AND title IS NOT NULL AND kind = '{}' ORDER BY seq {} LIMIT 1"""
_LINES: Final = f"""
SELECT line.id, line.head, line.created_at, line.updated_at,
    coalesce(({_TITLE.format("session_configured", "DESC")}), ({_TITLE.format("message_added", "ASC")}), ''),
    coalesce(parent.id, ''), CASE WHEN parent.id IS NULL THEN 0 ELSE line.at END
FROM ({{}}) AS line LEFT JOIN perdure.session AS parent ON parent.key = line.parent
ORDER BY line.updated_at DESC, line.key DESC"""  # noqa: S608 - made of constants
_LIST: Final = _LINES.format("""
    SELECT * FROM perdure.session WHERE tenant = $1 AND head > 0 AND pg_catalog.starts_with(id, $2)
    ORDER BY updated_at DESC, key DESC LIMIT $3 OFFSET $4""")
_INFO: Final = _LINES.format("SELECT * FROM perdure.session WHERE tenant = $1 AND head > 0 AND id = $2")


# A session that was posted to need not exist yet. One whose lease has not ended by the database's clock is driven,
# unless its process is known to have died.
_INTERRUPTED: Final = """
SELECT id, progress, head, updated_at, posts, due_at, CASE WHEN lease_until > pg_catalog.now() THEN holder END FROM (
    SELECT id, progress, head, updated_at, due_at, lease_until, holder,
        (SELECT pg_catalog.count(*) FROM perdure.post WHERE post.tenant = $1 AND post.session = session.id) AS posts
    FROM perdure.session WHERE progress > 0 AND tenant = $1 AND id IS NOT NULL
    UNION ALL
    SELECT waiting.session, 0, coalesce(head, 0),
        CASE WHEN coalesce(head, 0) > 0 THEN updated_at ELSE waiting.at END, NULL, lease_until, holder, waiting.posts
    FROM (
        SELECT session, pg_catalog.min(at) AS at, pg_catalog.count(*) AS posts
        FROM perdure.post WHERE tenant = $1 AND $2 GROUP BY session
    ) AS waiting LEFT JOIN perdure.session ON session.tenant = $1 AND session.id = waiting.session
    WHERE coalesce(progress, 0) = 0
) AS found
WHERE (progress = 1 OR posts > 0 OR due_at <= $3) AND pg_catalog.starts_with(id, $4)
ORDER BY updated_at, id"""


class SessionState(NamedTuple):
    """The state of a session in the database: its lease holder, fence number and number of entries."""

    head: int
    fence: int
    holder: str | None


class SessionStatements:
    """SQL statements about the sessions and log entries of one tenant; each is one transaction."""

    def __init__(self, tenant: str, lease_seconds: float) -> None:
        self._tenant = tenant
        self._lease_seconds = lease_seconds

    async def acquire(
        self,
        connection: AsyncConnection,
        session_id: str,
        grip: str,
        free: Sequence[str],
        now: float,
        *,
        take_over: bool,
    ) -> tuple[int, int, int] | None:
        """Acquire a session that is free, or create it; return its fence number, its number of entries, and how many
        of them it shares.

        Returns `None` if it is driven.
        """
        values = (self._tenant, session_id, grip, self._lease_seconds, now, [grip, *free], take_over)
        cursor = await connection.execute(_TAKE, values)
        row = await cursor.fetchone()
        return row[:3] if row else None

    async def release(self, connection: AsyncConnection, held: Sequence[ActiveLease]) -> None:
        """Release leases. Sessions that another process has acquired meanwhile are not changed."""
        columns = [each.lease.session_id for each in held], [each.lease.fence for each in held], [e.grip for e in held]
        await connection.execute(_GIVE_BACK, (self._tenant, *columns))

    async def append(
        self, connection: AsyncConnection, held: ActiveLease, rows: Sequence[EntryRow], *, sync: bool
    ) -> bool:
        """Append rows to a session's log. If they do not follow its last entry, store nothing and return False."""
        first, last, lease = rows[0], rows[-1], held.lease
        compared = (self._tenant, lease.session_id, lease.fence, held.grip, first.seq - 1)
        changed = (last.seq, last.at, self._lease_seconds)
        values = (*compared, *changed, VERSION, *encode_rows(rows), "on" if sync else "off")
        progress = [(row.progress, row.due_at) for row in rows if row.progress is not None][-1:]
        statement = _APPENDS[held.is_fork, any(row.words is not None for row in rows), bool(progress)]
        cursor = await connection.execute(statement, (*values, *[each for pair in progress for each in pair]))
        return await cursor.fetchone() is not None

    async def sync(self, connection: AsyncConnection, held: ActiveLease) -> None:
        """Wait until everything that was committed before is on the server's disk."""
        lease = held.lease
        values = (self._tenant, lease.session_id, lease.fence, held.grip, self._lease_seconds)
        await connection.execute(_SYNC, values)

    async def holds(self, connection: AsyncConnection, held: ActiveLease) -> bool:
        """Return True if the database has this lease, and it has not expired."""
        lease = held.lease
        cursor = await connection.execute(_HELD, (self._tenant, lease.session_id, lease.fence, held.grip))
        return await cursor.fetchone() is not None

    async def find(self, connection: AsyncConnection, session_id: str) -> SessionState | None:
        """Read the lease holder, fence number and entry count of a session; `None` if it does not exist."""
        row = await (await connection.execute(_FIND, (self._tenant, session_id))).fetchone()
        return SessionState(*row) if row else None

    async def read_ids(self, connection: AsyncConnection, lease: Lease, first: int, last: int) -> list[tuple[Any, ...]]:
        """Read the numbers and ids of entries from `first` to `last`."""
        cursor = await connection.execute(_COMPARE, (self._tenant, lease.session_id, first, last))
        return await cursor.fetchall()

    async def read(self, connection: AsyncConnection, session_id: str, after: int) -> list[Entry]:
        """Read the entries of a session above a number."""
        cursor = await connection.execute(_READ, (self._tenant, session_id, after), binary=True)
        return [decode_row(session_id, row) for row in await cursor.fetchall()]

    async def read_interrupted(
        self, connection: AsyncConnection, prefix: str, now: float, *, include_posts: bool
    ) -> list[InterruptedSession]:
        """Read the sessions whose last run can continue and that are not driven, the longest idle first."""
        cursor = await connection.execute(_INTERRUPTED, (self._tenant, include_posts, now, prefix))
        return [
            InterruptedSession(session_id, _PROGRESS_NAMES[progress], *columns)
            for session_id, progress, *columns, holder in await cursor.fetchall()
            if holder is None or ((process := parse_holder(holder)) is not None and process.has_ended)
        ]

    async def list(self, connection: AsyncConnection, prefix: str, limit: int, offset: int) -> list[SessionInfo]:
        """Read a page of sessions whose id begins with `prefix`, the most recently used first."""
        cursor = await connection.execute(_LIST, (self._tenant, prefix, limit, offset))
        return [SessionInfo(*row) for row in await cursor.fetchall()]

    async def info(self, connection: AsyncConnection, session_id: str) -> SessionInfo | None:
        """Read title, times and entry count of a session; `None` if it does not exist."""
        row = await (await connection.execute(_INFO, (self._tenant, session_id))).fetchone()
        return SessionInfo(*row) if row else None
