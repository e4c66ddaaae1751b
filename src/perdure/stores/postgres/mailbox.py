"""Posts (durable messages to a session) in a PostgreSQL database.

A post is taken when the log has an entry with its id; there is no other mark. The row is deleted when the lease is
released.
"""

from typing import Any, Final

from psycopg import AsyncConnection

from perdure.core.event import Custom
from perdure.core.log_codec import VERSION, decode_event, encode_event
from perdure.core.store import Post

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
