"""The log of a session in an SQLite file: how it grows, and how it is read. Above: `store.py`, and whoever else wants
entries. Below: `row.py`, `label.py`.

Everything here is done inside a transaction that somebody else has begun.

An append adds one row, whatever is there already. They are merged later (see `merge.py`), so that a long log is
some large rows, without gaps, that are read at once.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.core import faults
from perdure.core.error import Conflict, Fenced
from perdure.core.event import Entry, Event
from perdure.core.store import Lease
from perdure.stores.listing import renamed_to, title_of

from .connection import Connection
from .label import UNNUMBERED, number_of, split, top_of
from .merge import MOST_LOOSE, cost_of
from .row import Row, TextOf, entries_in_row, events_in_row, heads_of, holes_of, new_row
from .schema import ADD_BLOB, ADD_ROW

_ADVANCE: Final = """
UPDATE session SET head = ?1, updated_at = ?2, loose = loose + ?3
WHERE tenant = '' AND id = ?4 AND fence = ?5 AND head = ?6
RETURNING key, loose, title"""
_FIND: Final = "SELECT key, head, fence FROM session WHERE tenant = '' AND id = ?"
_ROWS: Final = """
SELECT first, last, version, heads, body, holes FROM pack
WHERE session = ?1 AND last > ?2 AND first <= ?3 ORDER BY last"""


class Stretch(NamedTuple):
    """Some of the entries that a session has of its own: those above `after`, up to `upto`."""

    session: int
    after: int
    upto: int


class Addition(NamedTuple):
    """Entries that are to be appended, ready to be written."""

    lease: Lease
    entries: Sequence[Entry]
    ids: list[str]
    row: Row
    texts: dict[bytes, bytes]


class Notes:
    """What a process notes about the logs to which it appends. For jobs, of which one is done at a time."""

    def __init__(self) -> None:
        self.tops: dict[str, tuple[int, str, int]] = {}
        """By session: its fence, the stem of the id that was appended last, and the highest number that it had."""
        self.due: set[int] = set()
        """The keys of sessions whose loose rows should be merged."""


def addition(lease: Lease, entries: Sequence[Entry]) -> Addition:
    """Encode entries, before anybody has to wait for it. Raises `Conflict` when they are not numbered one by one."""
    first = entries[0].seq
    if len(entries) > 1 and [entry.seq for entry in entries] != [*range(first, first + len(entries))]:
        raise Conflict(f"entries for session {lease.session_id!r} must be numbered one by one, from {first} on")
    row, texts = new_row(entries)
    return Addition(lease, entries, [entry.id for entry in entries], row, texts)


def append(new: Addition, notes: Notes, connection: Connection) -> None:
    """Add entries to the end of a log, all or none. Raises `Conflict` or `Fenced`."""
    lease, row = new.lease, new.row
    change = (row.last, new.entries[-1].at, cost_of(row), lease.session_id, lease.fence, row.first - 1)
    found = connection.execute(_ADVANCE, change).get
    if found is None:
        _check_repeated(new, connection)
    else:
        key, loose, title = found
        _check_new(new, key, notes, connection)
        connection.execute(ADD_ROW, (key, *row))
        if new.texts:
            connection.executemany(ADD_BLOB, new.texts.items())
        if (called := renamed_to(new.entries) or title or title_of(new.entries)) != title:
            connection.execute("UPDATE session SET title = ? WHERE key = ?", (called, key))
        if loose >= MOST_LOOSE:
            notes.due.add(key)
    faults.point("store.append.before_commit")


def _check_repeated(new: Addition, connection: Connection) -> None:
    """Nothing to add when the log holds these very entries at these numbers; else say why they do not fit."""
    lease, row = new.lease, new.row
    key, head, fence = connection.execute(_FIND, (lease.session_id,)).get or (0, 0, 0)
    if fence != lease.fence:
        raise Fenced(
            f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again"
        )
    if row.last > head or not all(new.ids) or new.ids != ids_between(connection, key, row.first, row.last):
        raise Conflict(
            f"session {lease.session_id!r} ends at entry {head}, and entries from {row.first} on were to be added: "
            "read it again, and go on from its end"
        )
    # They may have been written without a sync, and this may be a barrier: a commit that changes nothing syncs nothing.
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'repeated'")


def _check_new(new: Addition, key: int, notes: Notes, connection: Connection) -> None:
    """Refuse an id that the log holds already. A driver numbers its ids, so mostly one look at the last is enough."""
    stem, number = split(new.ids[-1])
    if number == UNNUMBERED:
        _check_each(new, key, connection)
        return
    session_id, fence = new.lease.session_id, new.lease.fence
    known = notes.tops.get(session_id)
    if known is None or known[:2] != (fence, stem):
        top = max(top_of(connection, each.session, stem) for each in lineage(connection, key, new.row.first - 1))
    else:
        top = known[2]
    before = number - len(new.ids)
    if before < top or any(each != f"{stem}-{place}" for place, each in enumerate(new.ids, before + 1)):
        _check_each(new, key, connection)
    notes.tops[session_id] = (fence, stem, max(number, top))


def _check_each(new: Addition, key: int, connection: Connection) -> None:
    ids = [each for each in new.ids if each]
    for each in ids:
        if ids.count(each) > 1 or find(connection, key, new.row.first - 1, each) is not None:
            raise Conflict(
                f"session {new.lease.session_id!r} already holds an entry {each!r}, elsewhere in the log: read it again"
            )


# -- reading -----------------------------------------------------------------------------------------------------------


def lineage(connection: Connection, key: int, upto: int) -> list[Stretch]:
    """What the first `upto` entries of a session's log are made of: its own, and before them those of its parents."""
    stretches: list[Stretch] = []
    while True:
        parent, at = connection.execute("SELECT parent, at FROM session WHERE key = ?", (key,)).get
        stretches.append(Stretch(key, at, upto))
        if parent is None:
            return stretches[::-1]
        key, upto = parent, min(at, upto)


def entries_in(connection: Connection, stretch: Stretch, session_id: str) -> list[Entry]:
    """The entries of a stretch, in order. The id of the session is for the message when one is damaged."""
    text_of = text_from(connection)
    entries: list[Entry] = []
    for row in rows_in(connection, stretch):
        entries += entries_in_row(row, stretch.after + 1, stretch.upto, text_of, session_id)
    return entries


def events_in(connection: Connection, stretch: Stretch, session_id: str) -> list[Event]:
    """As `entries_in`, without their ids and times."""
    text_of = text_from(connection)
    events: list[Event] = []
    for row in rows_in(connection, stretch):
        events += events_in_row(row, stretch.after + 1, stretch.upto, text_of, session_id)
    return events


def rows_in(connection: Connection, stretch: Stretch) -> list[Row]:
    """The rows that hold the entries of a stretch, and perhaps some before and after them."""
    return [Row._make(row) for row in connection.execute(_ROWS, stretch)]


def text_from(connection: Connection) -> TextOf:
    """What finds the long texts of rows."""

    def text_of(digest: bytes) -> bytes:
        text = connection.execute("SELECT data FROM blob WHERE digest = ?", (digest,)).get
        if text is None:
            raise ValueError("a long text is missing")
        return bytes(text)

    return text_of


def ids_between(connection: Connection, key: int, first: int, last: int) -> list[str]:
    """The ids of the entries of a log from number `first` to `last`."""
    ids: list[str] = []
    for each in lineage(connection, key, last):
        stretch = each._replace(after=max(each.after, first - 1))
        for row in rows_in(connection, stretch):
            numbered = enumerate(heads_of(row).ids, row.first)
            ids += [entry_id for seq, entry_id in numbered if stretch.after < seq <= stretch.upto]
    return ids


def find(connection: Connection, key: int, upto: int, entry_id: str) -> int | None:
    """The number of the entry with this id among the first `upto` of a log."""
    for stretch in lineage(connection, key, upto):
        seq = number_of(connection, stretch.session, entry_id)
        if seq is not None and stretch.after < seq <= stretch.upto:
            return seq
    return None


# -- what goes with rows -----------------------------------------------------------------------------------------------


def drop_blobs(connection: Connection, rows: Sequence[Row]) -> None:
    """Rows are gone, and with them the uses of their long texts."""
    digests = [(digest,) for row in rows for digest in {hole.digest for hole in holes_of(row)}]
    connection.executemany("UPDATE blob SET uses = uses - 1 WHERE digest = ?", digests)
    connection.executemany("DELETE FROM blob WHERE digest = ? AND uses <= 0", digests)


def titled(connection: Connection, key: int, upto: int, session_id: str) -> str:
    """What the first `upto` entries of a log call their session."""
    entries = [entry for each in lineage(connection, key, upto) for entry in entries_in(connection, each, session_id)]
    return renamed_to(entries) or title_of(entries)


def time_of(connection: Connection, key: int, seq: int) -> float:
    """When an entry of a log was added."""
    owner = next(each for each in lineage(connection, key, seq) if each.after < seq <= each.upto)
    (row,) = rows_in(connection, Stretch(owner.session, seq - 1, seq))
    return heads_of(row).ats[seq - row.first]
