"""The ids of entries: which entry has this one? Above: `log.py`. Below: the table `label`.

A driver numbers the ids that it gives, so a thousand of them in a row are one line of the table. The ids in rows that
are yet to be merged are not in the table: those rows are few, and are looked through.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from .connection import Connection
from .row import Row, heads_of

UNNUMBERED: Final = -1
_DIGITS: Final = 15  # as many are a number for SQLite too
_ADD: Final = "INSERT INTO label(session, stem, first, last, seq) VALUES(?, ?, ?, ?, ?)"
_FIND: Final = """
SELECT seq + ?3 - first FROM label WHERE session = ?1 AND stem = ?2 AND first <= ?3 AND last >= ?3"""
_TOP: Final = "SELECT max(last) FROM label WHERE session = ? AND stem = ?"
_LOOSE: Final = """
SELECT first, last, version, heads, x'', NULL FROM pack
WHERE session = ?1 AND last > (SELECT sealed FROM session WHERE key = ?1) ORDER BY last"""


class Run(NamedTuple):
    """Ids with one stem and rising numbers, of entries that follow one another."""

    stem: str
    first: int
    last: int
    seq: int
    """The entry of the first one."""


def split(entry_id: str) -> tuple[str, int]:
    """The stem of an id and its number; the whole id and `UNNUMBERED` when it does not end in one."""
    stem, dash, digits = entry_id.rpartition("-")
    if dash and digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS and str(int(digits)) == digits:
        return stem, int(digits)
    return entry_id, UNNUMBERED


def runs_of(first: int, ids: Sequence[str]) -> Iterator[Run]:
    """The ids of entries from number `first` on, as runs; entries without an id are passed over."""
    run: Run | None = None
    for seq, entry_id in enumerate(ids, first):
        stem, number = split(entry_id)
        if run is not None and (stem, number, seq) == (run.stem, run.last + 1, run.seq + number - run.first):
            run = run._replace(last=number)
            continue
        if run is not None:
            yield run
        run = Run(stem, number, number, seq) if entry_id else None
    if run is not None:
        yield run


def add_labels(connection: Connection, session: int, row: Row) -> None:
    """Enter the ids of a row that is complete."""
    connection.executemany(_ADD, [(session, *run) for run in runs_of(row.first, heads_of(row).ids)])


def number_of(connection: Connection, session: int, entry_id: str) -> int | None:
    """The entry of this id among a session's own; `None` when there is none."""
    stem, number = split(entry_id)
    found = connection.execute(_FIND, (session, stem, number)).get
    if found is not None:
        return int(found)
    for row in map(Row._make, connection.execute(_LOOSE, (session,))):
        ids = heads_of(row).ids
        if entry_id in ids:
            return row.first + ids.index(entry_id)
    return None


def top_of(connection: Connection, session: int, stem: str) -> int:
    """The highest number that follows this stem in the ids of a session's own entries; less than 0 for none."""
    top = connection.execute(_TOP, (session, stem)).get
    highest = UNNUMBERED if top is None else int(top)
    for row in map(Row._make, connection.execute(_LOOSE, (session,))):
        parts = map(split, heads_of(row).ids)
        highest = max([highest, *[number for other, number in parts if other == stem]])
    return highest
