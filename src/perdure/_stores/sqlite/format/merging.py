"""Merge the many small rows of a log into few large ones, when there are many or the session's lease is released.

Rows are *loose* until they are merged into one that is large enough to stay; the ids in that are in the table `label`.

Decoding and encoding entries takes long, so a merge is planned before the transaction in which it is made.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from perdure._core.values.error import EntryTooNew
from perdure._stores.sqlite.driver import Connection

from .rows import PackRow, merge_rows
from .schema import ADD_ROW, add_ids

MERGED_ROW_BYTES: Final = 96 * 1024
"""The bytes that are put into one row. Memory for more than 128 KiB is mapped, and cleared, each time it is read."""
ROW_COST: Final = 512
"""The bytes that a row counts for in addition to its size, which limits the number of rows."""
MAX_LOOSE_BYTES: Final = 320 * 1024
"""A log with this many bytes in loose rows is due for a merge. With more, it leaves more free pages in the file."""

_LOOSE: Final = """
SELECT first, last, version, heads, body, holes FROM pack
WHERE session = ?1 AND last > (SELECT sealed FROM session WHERE key = ?1) ORDER BY last"""
_DROP: Final = "DELETE FROM pack WHERE session = ? AND last BETWEEN ? AND ?"
_NOTE: Final = "UPDATE session SET sealed = coalesce(?2, sealed), loose = ?3 WHERE key = ?1"


def row_size(row: PackRow) -> int:
    """Return the size by which the merging of small rows is decided: the bytes of a row plus a fixed cost."""
    return len(row.body) + ROW_COST


class PlannedRowGroup(NamedTuple):
    """A group of rows in a merge plan: they are replaced by one merged row, or stay as they are."""

    rows: list[PackRow]
    """What the log has there afterwards."""
    is_merged: bool
    is_sealed: bool
    """True if they are large enough to stay: their ids go into the index."""


class RowMergePlan(NamedTuple):
    """The plan for merging the small rows of a log, made before the transaction that carries it out."""

    key: int
    """Of the session."""
    data_version: int
    """Number by which changes of other processes since then are noticed."""
    groups: list[PlannedRowGroup]


def prepare_merges(keys: Iterable[int], connection: Connection) -> Callable[[Connection], None]:
    """Plan the merging of small rows in several logs, outside of any transaction; return the job that merges them."""
    return partial(_merge_logs, [plan_row_merge(connection, key) for key in keys])


def _merge_logs(plans: Sequence[RowMergePlan], connection: Connection) -> None:
    for plan in plans:
        merge_log_rows(connection, plan.key, plan)


def plan_row_merge(connection: Connection, key: int) -> RowMergePlan:
    """Plan how the small rows of a log are merged into large ones; rows left over become one small row."""
    version = int(connection.pragma("data_version"))
    groups = list(_group_rows([PackRow._make(row) for row in connection.execute(_LOOSE, (key,))]))
    planned: list[PlannedRowGroup] = []
    for place, group in enumerate(groups, 1):
        whole = _merge_group(group)
        is_large = sum(len(row.body) for row in group) >= MERGED_ROW_BYTES
        is_sealed = place < len(groups) or bool(group[0].holes) or is_large
        planned.append(PlannedRowGroup(group if whole is None else [whole], whole is not None, is_sealed))
    return RowMergePlan(key, version, planned)


def merge_log_rows(connection: Connection, key: int, plan: RowMergePlan | None = None) -> None:
    """Merge the small rows of a log into large ones, as planned by `plan_row_merge`.

    Without a plan, or if another process has changed the file since, a new one is made.

    Runs inside a transaction that the caller has begun.
    """
    if plan is None or plan.key != key or plan.data_version != connection.pragma("data_version"):
        plan = plan_row_merge(connection, key)
    sealed: int | None = None
    loose = 0
    for group in plan.groups:
        if group.is_merged:
            (whole,) = group.rows
            connection.execute(_DROP, (key, whole.first, whole.last))
            connection.execute(ADD_ROW, (key, *whole))
        if group.is_sealed:
            sealed = group.rows[-1].last
            for row in group.rows:
                add_ids(connection, key, row)
        else:
            loose = sum(map(row_size, group.rows))
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


def _merge_group(rows: list[PackRow]) -> PackRow | None:
    """Merge rows into one; return `None` if they stay as they are."""
    if len(rows) == 1:
        return None
    try:
        return merge_rows(rows)
    except (EntryTooNew, msgspec.DecodeError):
        return None  # kept for a newer version, or for a repair
