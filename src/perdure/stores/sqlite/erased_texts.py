"""The texts that leave an SQLite file when a session is deleted or an entry redacted, to look for copies of them."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from perdure.core.error import StoreError

from .apsw_types import Connection
from .log import find_ranges, read_entries

_FIND_TEXT = "SELECT key, head, title FROM session WHERE tenant = '' AND id = ?"
_POSTS = "SELECT id, body FROM post WHERE tenant = '' AND session = ?"

_NAMES_OF_KINDS = frozenset({"kind", "role", "status"})
"""Fields of events whose values are words of ours, which are everywhere."""


def list_texts(session_id: str, seq: int | None, connection: Connection) -> set[str]:
    """Return all texts of a session, or of its entry `seq`: those of events, of posts, and ids."""
    texts: set[str] = set()
    for key, head, title in connection.execute(_FIND_TEXT, (session_id,)).fetchall():
        texts.add(str(title))
        try:
            for entry_range in find_ranges(connection, key, head):
                first = entry_range.after if seq is None else max(entry_range.after, seq - 1)
                last = entry_range.upto if seq is None else min(entry_range.upto, seq)
                for entry in read_entries(connection, entry_range._replace(after=first, upto=last), session_id):
                    texts.update((entry.id, *_find_texts(msgspec.to_builtins(entry.event))))
        except StoreError:  # damaged: it can be deleted all the same
            continue
    if seq is None:
        texts.add(session_id)
        for post_id, body in connection.execute(_POSTS, (session_id,)).fetchall():
            texts.update((str(post_id), bytes(body).decode(errors="replace")))
    return texts


def _find_texts(value: Any) -> Iterator[str]:
    """Yield the texts in JSON values, without the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in cast("dict[str, Any]", value).items():
            if name not in _NAMES_OF_KINDS:
                yield from _find_texts(each)
    elif isinstance(value, list | tuple):
        for each in cast("Sequence[Any]", value):
            yield from _find_texts(each)
