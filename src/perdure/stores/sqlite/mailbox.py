"""Posts (durable messages to a session) in an SQLite file, in the table `post`.

A post has been taken when the log has an entry with its id; there is no other mark. Taken posts are deleted when the
lease is released.

The functions here run inside a transaction that the caller has begun.
"""

from typing import Final

import msgspec

from perdure.core.jsonable import to_jsonable
from perdure.core.store import Post

from .apsw_types import Connection
from .log import find_seq

_ADD: Final = "INSERT OR IGNORE INTO post(session, id, kind, at, body) VALUES(?, ?, ?, ?, ?) RETURNING key"
_WAITING: Final = "SELECT id, kind, body, at FROM post WHERE tenant = '' AND session = ? ORDER BY key"
_ANY: Final = "SELECT 1 FROM post WHERE tenant = '' AND session = ? LIMIT 1"
_FORGET: Final = "DELETE FROM post WHERE tenant = '' AND session = ? AND id = ?"
_LOG: Final = "SELECT key, head FROM session WHERE tenant = '' AND id = ? AND head > 0"


def encode_post_body(body: object) -> bytes:
    """Encode the body of a post (a message to a session) as JSON; values that JSON cannot represent are marked."""
    try:
        return msgspec.json.encode(body)
    except Exception:  # noqa: BLE001 - whatever is in it may raise whatever it likes
        return msgspec.json.encode(to_jsonable(body))


def add_post(session_id: str, post: Post, body: bytes, connection: Connection) -> bool:
    """Store a post (a message to a session); return False if a post with its id was stored before."""
    if _is_taken(session_id, post.id, connection):
        return False
    return connection.execute(_ADD, (session_id, post.id, post.kind, post.at, body)).get is not None


def read_pending_posts(session_id: str, connection: Connection) -> list[Post]:
    """Return the posts (messages to a session) that the process running it has not taken yet, oldest first."""
    return [
        Post(post_id, kind, msgspec.json.decode(body), at)
        for post_id, kind, body, at in connection.execute(_WAITING, (session_id,)).fetchall()
        if not _is_taken(session_id, post_id, connection)
    ]


def has_no_posts(session_id: str, connection: Connection) -> bool:
    """Return True if no posts are stored for a session, not even taken ones."""
    return not connection.execute(_ANY, (session_id,)).get


def delete_taken_posts(session_id: str, connection: Connection) -> None:
    """Delete the posts that the session has taken: those whose ids are in its log."""
    for post_id, *_ in connection.execute(_WAITING, (session_id,)).fetchall():
        if _is_taken(session_id, post_id, connection):
            connection.execute(_FORGET, (session_id, post_id))


def _is_taken(session_id: str, post_id: str, connection: Connection) -> bool:
    key, head = connection.execute(_LOG, (session_id,)).get or (0, 0)
    return head > 0 and find_seq(connection, key, head, post_id) is not None
