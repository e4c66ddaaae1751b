"""Index of entry ids in an SQLite file, to find an entry by its id (table `label`).

A driver numbers the ids that it gives, so a thousand consecutive ones are one row of the table. The ids in rows that
are not merged yet are not in the table: those rows are few, and are searched directly.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from .apsw_types import Connection
from .pack_rows import PackRow, decode_entry_metadata

UNNUMBERED: Final = -1
_DIGITS: Final = 15  # as many are a number for SQLite too
_ADD: Final = "INSERT INTO label(session, stem, first, last, seq) VALUES(?, ?, ?, ?, ?)"
_FIND: Final = """
SELECT seq + ?3 - first FROM label WHERE session = ?1 AND stem = ?2 AND first <= ?3 AND last >= ?3"""
_TOP: Final = "SELECT max(last) FROM label WHERE session = ? AND stem = ?"
_LOOSE: Final = """
SELECT first, last, version, heads, x'', NULL FROM pack
WHERE session = ?1 AND last > (SELECT sealed FROM session WHERE key = ?1) ORDER BY last"""


class IdRange(NamedTuple):
    """A range of entry ids with the same stem and consecutive numbers, stored as one row of the index."""

    stem: str
    first: int
    last: int
    seq: int
    """The number of the entry with the first id."""


def split_id(entry_id: str) -> tuple[str, int]:
    """Split an id into its stem and number; return the whole id and `UNNUMBERED` if it does not end in a number."""
    stem, dash, digits = entry_id.rpartition("-")
    if dash and digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS and str(int(digits)) == digits:
        return stem, int(digits)
    return entry_id, UNNUMBERED


def group_ids(first: int, ids: Sequence[str]) -> Iterator[IdRange]:
    """Group the ids of consecutive entries into ranges; `first` is the number of the first entry.

    Entries without an id are skipped.
    """
    run: IdRange | None = None
    for seq, entry_id in enumerate(ids, first):
        stem, number = split_id(entry_id)
        if run is not None and (stem, number, seq) == (run.stem, run.last + 1, run.seq + number - run.first):
            run = run._replace(last=number)
            continue
        if run is not None:
            yield run
        run = IdRange(stem, number, number, seq) if entry_id else None
    if run is not None:
        yield run


def add_ids(connection: Connection, session: int, row: PackRow) -> None:
    """Add the entry ids of a row that several appends were merged into to the index."""
    connection.executemany(_ADD, [(session, *run) for run in group_ids(row.first, decode_entry_metadata(row).ids)])


def find_seq_by_id(connection: Connection, session: int, entry_id: str) -> int | None:
    """Return the number of the entry with this id among a session's own entries; `None` if there is none."""
    stem, number = split_id(entry_id)
    found = connection.execute(_FIND, (session, stem, number)).get
    if found is not None:
        return int(found)
    for row in map(PackRow._make, connection.execute(_LOOSE, (session,))):
        ids = decode_entry_metadata(row).ids
        if entry_id in ids:
            return row.first + ids.index(entry_id)
    return None


def highest_id_number(connection: Connection, session: int, stem: str) -> int:
    """Return the highest number that follows this stem in the ids of a session's own entries; negative if there is
    none.
    """
    top = connection.execute(_TOP, (session, stem)).get
    highest = UNNUMBERED if top is None else int(top)
    for row in map(PackRow._make, connection.execute(_LOOSE, (session,))):
        parts = map(split_id, decode_entry_metadata(row).ids)
        highest = max([highest, *[number for other, number in parts if other == stem]])
    return highest
