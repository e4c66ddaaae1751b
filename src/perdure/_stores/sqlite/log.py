"""Append to and read the log of a session in an SQLite file.

The functions here run inside a transaction that the caller has begun.

An append adds one row. Rows are merged later (see `format/merging.py`), so that a long log is a few large rows,
without gaps, that are quick to read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from perdure._core.log.status import RunProgress, find_last_run_progress
from perdure._core.log.store import Lease
from perdure._core.values import faults
from perdure._core.values.error import Conflict, Fenced, StoreError
from perdure._core.values.event import Entry
from perdure._core.values.event_class import Event
from perdure._stores.texts import find_given_title, find_message_title

from .driver import Connection
from .format.merging import MAX_LOOSE_BYTES, row_size
from .format.rows import (
    PackRow,
    ReadText,
    decode_entry_metadata,
    decode_long_text_references,
    decode_row_entries,
    decode_row_events,
    encode_row,
)
from .format.schema import ADD_BLOB, ADD_ROW, UNNUMBERED, find_seq_by_id, highest_id_number, split_id

_ADVANCE: Final = """
UPDATE session SET head = ?1, updated_at = ?2, loose = loose + ?3
WHERE tenant = '' AND id = ?4 AND fence = ?5 AND head = ?6
RETURNING key, loose, title"""
_SET_UNINDEXED: Final = "UPDATE session SET unindexed = 1 WHERE key = ? AND unindexed = 0"
_SET_PROGRESS: Final = "UPDATE session SET progress = ?, due_at = ? WHERE key = ?"
PROGRESS_NUMBERS: Final[Mapping[RunProgress, int]] = {"over": 0, "cut_off": 1, "waiting": 2}
"""The progress of a session's last run, as its column has it."""
_FIND: Final = "SELECT key, head, fence FROM session WHERE tenant = '' AND id = ?"
_ROWS: Final = """
SELECT first, last, version, heads, body, holes FROM pack
WHERE session = ?1 AND last > ?2 AND first <= ?3 ORDER BY last"""


MAX_NOTED_SESSIONS: Final = 1000
"""The sessions without a lease of which a process remembers the last id."""


class EntryRange(NamedTuple):
    """A range of entries that a session itself owns: those numbered above `after`, up to `upto`."""

    session: int
    after: int
    upto: int


class EncodedAppend(msgspec.Struct, frozen=True):
    """Entries encoded as a database row, ready to be appended to a session's log."""

    lease: Lease
    entries: Sequence[Entry]
    ids: list[str]
    row: PackRow
    texts: dict[bytes, bytes]


class StateBetweenAppends:
    """State that a process keeps between appends: last entry ids of each log, and the logs with small rows to merge."""

    def __init__(self) -> None:
        self.highest_ids: dict[str, tuple[int, str, int]] = {}
        """By session id: its fence, the stem of the last appended id, and the highest number with that stem.

        Kept when the lease is released, since the next run of the session in this process goes on numbering.
        """
        self.loose_bytes: dict[str, int] = {}
        """By session id: the size of the rows appended since it was last compared with `MAX_LOOSE_BYTES`."""
        self.merge_due: set[int] = set()
        """The keys of sessions whose loose rows should be merged."""

    def find_highest_id(self, new: "EncodedAppend", stem: str) -> int | None:
        """Return the highest number that follows this stem in the session's ids; `None` if it has to be looked up.

        Each lease has the next fence. So if the last append was made under this lease or the one before it, no other
        process has appended anything since.
        """
        if new.row.first == 1:
            return UNNUMBERED
        lease = new.lease
        known = self.highest_ids.get(lease.session_id)
        if known is None or known[1] != stem or not 0 <= lease.fence - known[0] <= 1:
            return None
        return known[2]

    def forget_lease(self, session_id: str) -> None:
        """Forget what is not needed after a lease was released."""
        self.loose_bytes.pop(session_id, None)
        while len(self.highest_ids) > MAX_NOTED_SESSIONS:
            del self.highest_ids[next(iter(self.highest_ids))]


def encode_append_row(lease: Lease, entries: Sequence[Entry]) -> EncodedAppend:
    """Encode the entries of one append as a database row. Raises `Conflict` unless they are numbered consecutively."""
    first = entries[0].seq
    if len(entries) > 1 and [entry.seq for entry in entries] != [*range(first, first + len(entries))]:
        raise Conflict(f"entries for session {lease.session_id!r} must be numbered one by one, from {first} on")
    ids = [entry.id for entry in entries]
    row, texts = encode_row(entries, ids)
    return EncodedAppend(lease, entries, ids, row, texts)


def append_entries(new: EncodedAppend, notes: StateBetweenAppends, connection: Connection) -> None:
    """Append encoded entries to a session's log, all or none. Raises `Conflict` or `Fenced`."""
    lease, row = new.lease, new.row
    change = (row.last, new.entries[-1].at, row_size(row), lease.session_id, lease.fence, row.first - 1)
    found = connection.execute(_ADVANCE, change).get
    if found is None:
        _check_repeated(new, connection)
    else:
        key, loose, title = found
        _check_new_ids(new, key, notes, connection)
        connection.execute(ADD_ROW, (key, *row))
        connection.execute(_SET_UNINDEXED, (key,))
        if new.texts:
            connection.executemany(ADD_BLOB, new.texts.items())
        if (called := find_given_title(new.entries) or title or find_message_title(new.entries)) != title:
            connection.execute("UPDATE session SET title = ? WHERE key = ?", (called, key))
        if (run := find_last_run_progress(new.entries)) is not None:
            connection.execute(_SET_PROGRESS, (PROGRESS_NUMBERS[run.progress], run.due_at, key))
        if loose >= MAX_LOOSE_BYTES:
            notes.merge_due.add(key)
    faults.fault_point("store.append.before_commit")


def _check_repeated(new: EncodedAppend, connection: Connection) -> None:
    """Accept entries that the log already has, with the same numbers and ids; raise `Conflict` or `Fenced`
    otherwise.
    """
    lease, row = new.lease, new.row
    key, head, fence = connection.execute(_FIND, (lease.session_id,)).get or (0, 0, 0)
    if fence != lease.fence:
        raise Fenced(
            f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again"
        )
    if row.last > head or not all(new.ids) or new.ids != read_ids(connection, key, row.first, row.last):
        raise Conflict(
            f"session {lease.session_id!r} ends at entry {head}, and entries from {row.first} on were to be added: "
            "read it again, and go on from its end"
        )
    # They may have been written without a sync, and this may be a barrier: a commit that changes nothing syncs nothing.
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'repeated'")


def _check_new_ids(new: EncodedAppend, key: int, notes: StateBetweenAppends, connection: Connection) -> None:
    """Raise `Conflict` for an entry id that the log already has. Ids are usually numbered, so only the last is
    compared.
    """
    stem, number = split_id(new.ids[-1])
    if number == UNNUMBERED:
        _check_each_id(new, key, connection)
        return
    top = notes.find_highest_id(new, stem)
    if top is None:
        top = max(
            highest_id_number(connection, each.session, stem)
            for each in find_ranges(connection, key, new.row.first - 1)
        )
    before = number - len(new.ids)
    if before < top or any(each != f"{stem}-{place}" for place, each in enumerate(new.ids, before + 1)):
        _check_each_id(new, key, connection)
    notes.highest_ids[new.lease.session_id] = (new.lease.fence, stem, max(number, top))


def _check_each_id(new: EncodedAppend, key: int, connection: Connection) -> None:
    ids = [each for each in new.ids if each]
    for each in ids:
        if ids.count(each) > 1 or find_seq(connection, key, new.row.first - 1, each) is not None:
            raise Conflict(
                f"session {new.lease.session_id!r} already holds an entry {each!r}, elsewhere in the log: read it again"
            )


# -- reading -----------------------------------------------------------------------------------------------------------


def find_ranges(connection: Connection, key: int, upto: int) -> list[EntryRange]:
    """Return the ranges of entries that make up the first `upto` entries of a log: those shared with ancestors, then
    its own.
    """
    entry_ranges: list[EntryRange] = []
    while True:
        parent, at = connection.execute("SELECT parent, at FROM session WHERE key = ?", (key,)).get
        entry_ranges.append(EntryRange(key, at, upto))
        if parent is None:
            return entry_ranges[::-1]
        key, upto = parent, min(at, upto)


def read_entries(connection: Connection, entry_range: EntryRange, session_id: str) -> list[Entry]:
    """Read the log entries in an `EntryRange` from an SQLite file, in order.

    The session id is for error messages.
    """
    text_of = make_long_text_reader(connection)
    entries: list[Entry] = []
    for row in read_rows(connection, entry_range):
        entries += decode_row_entries(row, entry_range.after + 1, entry_range.upto, text_of, session_id)
    return entries


def read_events(connection: Connection, entry_range: EntryRange, session_id: str) -> list[Event]:
    """Read only the events of a range of entries, without the entries' ids and times."""
    text_of = make_long_text_reader(connection)
    events: list[Event] = []
    for row in read_rows(connection, entry_range):
        events += decode_row_events(row, entry_range.after + 1, entry_range.upto, text_of, session_id)
    return events


def read_rows(connection: Connection, entry_range: EntryRange) -> Iterator[PackRow]:
    """Yield the database rows that contain a range of entries; they may contain more entries before and after it.

    One after the other: a row is decoded while it is in the processor's caches, and before the next one takes memory.
    """
    return map(PackRow._make, connection.execute(_ROWS, entry_range))


def verify_every_row(connection: Connection) -> None:
    """Decode every entry and post in a file, to verify it. Raises `StoreError` for the first that cannot be decoded."""
    text_of = make_long_text_reader(connection)
    for key, session_id, at, head in connection.execute("SELECT key, id, at, head FROM session").fetchall():
        reached = at
        for row in read_rows(connection, EntryRange(key, at, head)):
            decode_row_entries(row, row.first, row.last, text_of, str(session_id))
            reached = row.last if row.first == reached + 1 else reached
        if reached != head:
            raise StoreError(f"entries of session {session_id!r} above {reached} are missing: use another backup")
    for post_id, body in connection.execute("SELECT id, body FROM post"):
        try:
            msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise StoreError(f"the post {post_id!r} is damaged ({error}): use another backup") from error


def make_long_text_reader(connection: Connection) -> ReadText:
    """Return a function that reads long texts, which are stored in a separate table, by their digest."""

    def text_of(digest: bytes) -> bytes:
        text = connection.execute("SELECT data FROM blob WHERE digest = ?", (digest,)).get
        if text is None:
            raise ValueError("a long text is missing")
        return bytes(text)

    return text_of


def read_ids(connection: Connection, key: int, first: int, last: int) -> list[str]:
    """Return the ids of the entries of a log from number `first` to `last`."""
    ids: list[str] = []
    for each in find_ranges(connection, key, last):
        entry_range = each._replace(after=max(each.after, first - 1))
        for row in read_rows(connection, entry_range):
            numbered = enumerate(decode_entry_metadata(row).ids, row.first)
            ids += [entry_id for seq, entry_id in numbered if entry_range.after < seq <= entry_range.upto]
    return ids


def find_seq(connection: Connection, key: int, upto: int, entry_id: str) -> int | None:
    """Return the number of the entry with this id among the first `upto` of a log; `None` if there is none."""
    for entry_range in find_ranges(connection, key, upto):
        seq = find_seq_by_id(connection, entry_range.session, entry_id)
        if seq is not None and entry_range.after < seq <= entry_range.upto:
            return seq
    return None


# -- what goes with rows -----------------------------------------------------------------------------------------------


def release_long_texts(connection: Connection, rows: Sequence[PackRow]) -> None:
    """Decrease the use counts of the long texts of deleted rows, and delete long texts that no other row uses."""
    digests = [(digest,) for row in rows for digest in {hole.digest for hole in decode_long_text_references(row)}]
    connection.executemany("UPDATE blob SET uses = uses - 1 WHERE digest = ?", digests)
    connection.executemany("DELETE FROM blob WHERE digest = ? AND uses <= 0", digests)


def read_title(connection: Connection, key: int, upto: int, session_id: str) -> str:
    """Return the title of a session, computed from the first `upto` entries of its log."""
    entries = [
        entry for each in find_ranges(connection, key, upto) for entry in read_entries(connection, each, session_id)
    ]
    return find_given_title(entries) or find_message_title(entries)


def read_entry_time(connection: Connection, key: int, seq: int) -> float:
    """Return the time of an entry of a log."""
    owner = next(each for each in find_ranges(connection, key, seq) if each.after < seq <= each.upto)
    (row,) = read_rows(connection, EntryRange(owner.session, seq - 1, seq))
    return decode_entry_metadata(row).ats[seq - row.first]
