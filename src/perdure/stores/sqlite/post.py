"""Posts for the sessions of an SQLite file. Above: `store.py`. Below: `log.py` and the table `post`.

A post has been taken when the log holds an entry of its id; nothing marks it. Those that were taken are forgotten when
the session is given back.

Everything here is done inside a transaction that somebody else has begun.
"""

from typing import Final

import msgspec

from perdure.core.plain import to_jsonable
from perdure.core.store import Post

from .connection import Connection
from .log import find

_ADD: Final = "INSERT OR IGNORE INTO post(session, id, kind, at, body) VALUES(?, ?, ?, ?, ?) RETURNING key"
_WAITING: Final = "SELECT id, kind, body, at FROM post WHERE tenant = '' AND session = ? ORDER BY key"
_FORGET: Final = "DELETE FROM post WHERE tenant = '' AND session = ? AND id = ?"
_LOG: Final = "SELECT key, head FROM session WHERE tenant = '' AND id = ? AND head > 0"


def encoded(body: object) -> bytes:
    """What a post says, as JSON; what JSON cannot hold is marked."""
    try:
        return msgspec.json.encode(body)
    except Exception:  # noqa: BLE001 - whatever is in it may raise whatever it likes
        return msgspec.json.encode(to_jsonable(body))


def add_post(session_id: str, post: Post, body: bytes, connection: Connection) -> bool:
    """Keep a post, unless one of its id is waiting or was taken."""
    if _is_taken(session_id, post.id, connection):
        return False
    return connection.execute(_ADD, (session_id, post.id, post.kind, post.at, body)).get is not None


def waiting(session_id: str, connection: Connection) -> list[Post]:
    """The posts that nobody has taken, in the order in which they came."""
    return [
        Post(post_id, kind, msgspec.json.decode(body), at)
        for post_id, kind, body, at in connection.execute(_WAITING, (session_id,)).fetchall()
        if not _is_taken(session_id, post_id, connection)
    ]


def forget_taken(session_id: str, connection: Connection) -> None:
    """Forget the posts that were taken: the log knows their ids."""
    for post_id, *_ in connection.execute(_WAITING, (session_id,)).fetchall():
        if _is_taken(session_id, post_id, connection):
            connection.execute(_FORGET, (session_id, post_id))


def _is_taken(session_id: str, post_id: str, connection: Connection) -> bool:
    key, head = connection.execute(_LOG, (session_id,)).get or (0, 0)
    return head > 0 and find(connection, key, head, post_id) is not None
