"""Merge the many small rows of a log into a few large ones, when there are many or the session's lease is released.

Rows are *loose* until they are merged into one that is large enough to stay; the ids in that are in the table `label`.

The functions here run inside a transaction that the caller has begun.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from perdure.core.error import UnreadableEntry

from .apsw_types import Connection
from .entry_id_index import add_ids
from .pack_rows import PackRow, merge_rows
from .schema import ADD_ROW, MERGED_ROW_BYTES

ROW_COST: Final = 512
"""The bytes that a row counts for in addition to its size, which limits the number of rows."""
MAX_LOOSE_BYTES: Final = 512 * 1024
"""A log with this many bytes in loose rows is due for a merge."""

_LOOSE: Final = """
SELECT first, last, version, heads, body, holes FROM pack
WHERE session = ?1 AND last > (SELECT sealed FROM session WHERE key = ?1) ORDER BY last"""
_DROP: Final = "DELETE FROM pack WHERE session = ? AND last BETWEEN ? AND ?"
_NOTE: Final = "UPDATE session SET sealed = coalesce(?2, sealed), loose = ?3 WHERE key = ?1"


def row_size(row: PackRow) -> int:
    """Return the size at which a row is counted when rows are merged: its bytes plus a fixed cost."""
    return len(row.body) + ROW_COST


def merge_logs(keys: Iterable[int], connection: Connection) -> None:
    """Merge the small rows of several logs, given by the keys of their sessions, into large ones."""
    for key in keys:
        merge_log(connection, key)


def merge_log(connection: Connection, key: int) -> None:
    """Merge the small rows of a log into large ones. A rest too small for a large row becomes one small row."""
    sealed: int | None = None
    loose = 0
    groups = list(_group_rows([PackRow._make(row) for row in connection.execute(_LOOSE, (key,))]))
    for place, group in enumerate(groups, 1):
        rows = _merge_group(connection, key, group)
        if place < len(groups) or group[0].holes or sum(len(row.body) for row in group) >= MERGED_ROW_BYTES:
            sealed = rows[-1].last
            for row in rows:
                add_ids(connection, key, row)
        else:
            loose = sum(map(row_size, rows))
    connection.execute(_NOTE, (key, sealed, loose))


def _group_rows(rows: Sequence[PackRow]) -> Iterator[list[PackRow]]:
    """Group rows so that each group makes one large row; a row with long texts is a group by itself."""
    group: list[PackRow] = []
    size = 0
    for row in rows:
        if group and (row.holes or group[0].holes or size >= MERGED_ROW_BYTES):
            yield group
            group, size = [], 0
        group.append(row)
        size += len(row.body)
    if group:
        yield group


def _merge_group(connection: Connection, key: int, rows: list[PackRow]) -> list[PackRow]:
    if len(rows) == 1:
        return rows
    try:
        whole = merge_rows(rows)
    except (UnreadableEntry, msgspec.DecodeError):
        return rows  # kept for a newer version, or for a repair
    connection.execute(_DROP, (key, whole.first, whole.last))
    connection.execute(ADD_ROW, (key, *whole))
    return [whole]
