"""How the small rows that appends have added to a log become few large ones. Above: `writer.py`, when a log has
many, and `lease.py`, when it is given back. Below: `row.py`, `label.py`.

Rows are *loose* until they are merged into one that is large enough to stay; the ids in that are in the table `label`.

Everything here is done inside a transaction that somebody else has begun.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from perdure.core.error import UnreadableEntry

from .connection import Connection
from .label import add_labels
from .row import Row, merged
from .schema import ADD_ROW, MERGED

ROW_COST: Final = 512
"""A row counts for as many bytes more than it has, so that there are never very many of them."""
MOST_LOOSE: Final = 512 * 1024
"""A log with as many bytes in loose rows is due."""

_LOOSE: Final = """
SELECT first, last, version, heads, body, holes FROM pack
WHERE session = ?1 AND last > (SELECT sealed FROM session WHERE key = ?1) ORDER BY last"""
_DROP: Final = "DELETE FROM pack WHERE session = ? AND last BETWEEN ? AND ?"
_NOTE: Final = "UPDATE session SET sealed = coalesce(?2, sealed), loose = ?3 WHERE key = ?1"


def cost_of(row: Row) -> int:
    """What a row counts for."""
    return len(row.body) + ROW_COST


def merge_each(keys: Iterable[int], connection: Connection) -> None:
    """Merge the loose rows of several logs."""
    for key in keys:
        merge(connection, key)


def merge(connection: Connection, key: int) -> None:
    """Merge the loose rows of a log. What does not make a large row yet stays loose, in one piece."""
    sealed: int | None = None
    loose = 0
    groups = list(_groups([Row._make(row) for row in connection.execute(_LOOSE, (key,))]))
    for place, group in enumerate(groups, 1):
        rows = _merge(connection, key, group)
        if place < len(groups) or group[0].holes or sum(len(row.body) for row in group) >= MERGED:
            sealed = rows[-1].last
            for row in rows:
                add_labels(connection, key, row)
        else:
            loose = sum(map(cost_of, rows))
    connection.execute(_NOTE, (key, sealed, loose))


def _groups(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows that belong together: enough for a large one; one with long texts is by itself."""
    group: list[Row] = []
    size = 0
    for row in rows:
        if group and (row.holes or group[0].holes or size >= MERGED):
            yield group
            group, size = [], 0
        group.append(row)
        size += len(row.body)
    if group:
        yield group


def _merge(connection: Connection, key: int, rows: list[Row]) -> list[Row]:
    if len(rows) == 1:
        return rows
    try:
        whole = merged(rows)
    except (UnreadableEntry, msgspec.DecodeError):
        return rows  # for whoever can read them: a newer version, or somebody who repairs them
    connection.execute(_DROP, (key, whole.first, whole.last))
    connection.execute(ADD_ROW, (key, *whole))
    return [whole]
