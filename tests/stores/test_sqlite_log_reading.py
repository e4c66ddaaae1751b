"""The log of a session in an SQLite file, read by its ranges: what is its own, and what it shares with ancestors."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from perdure import SessionBusy, SessionExists, SessionNotFound, user
from perdure._stores.sqlite import log
from perdure._stores.sqlite.database import open_to_write, run_in_transaction
from perdure._stores.sqlite.driver import Connection
from perdure._stores.sqlite.format.merging import row_size
from perdure._stores.sqlite.log import EntryRange, StateBetweenAppends, append_entries, encode_append_row
from perdure._stores.sqlite.write import single_append
from perdure._stores.sqlite.write.erasure import ForkRequest, create_fork, delete_session, redact_entry
from perdure._stores.sqlite.write.leases import (
    acquire_free_lease,
    acquire_lease,
    add_post,
    encode_post_body,
    has_no_posts,
    is_lease_valid,
    read_pending_posts,
    release_lease,
)
from perdure._stores.sqlite.write.process_leases import ProcessLeases
from perdure._stores.sqlite.write.single_append import append_in_one_statement
from perdure.events import (
    Custom,
    Entry,
    Event,
    MessageAdded,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionConfigured,
)
from perdure.stores import Conflict, Fenced, Lease, Post
from perdure.tools import to_jsonable


class File:
    """An SQLite file whose sessions are written one after another, on the thread of the test."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.notes = StateBetweenAppends()
        self.leases = ProcessLeases(connection.filename)

    def append(self, session_id: str, *appends: list[Entry]) -> Lease:
        lease = acquire_lease(session_id, 1.0, self.leases, True, self.connection)
        for entries in appends:
            run_in_transaction(self.connection, partial(append_entries, encode_append_row(lease, entries), self.notes))
        self.leases.discard(lease)
        return lease

    def fork(self, session_id: str, new_id: str, at: int | None) -> None:
        create_fork(ForkRequest(session_id, new_id, at, 9.0), self.leases, self.connection)

    def key(self, session_id: str) -> int:
        return int(self.connection.execute("SELECT key FROM session WHERE id = ?", (session_id,)).get)

    def read(self, session_id: str, upto: int) -> list[Entry]:
        ranges = log.find_ranges(self.connection, self.key(session_id), upto)
        return [entry for each in ranges for entry in log.read_entries(self.connection, each, session_id)]


def made(stem: str, *numbers: int) -> list[Entry]:
    """Entries with ids of this stem, at times that tell whose they are."""
    offset = {"s": 0.1, "t": 0.2, "u": 0.3}.get(stem, 0.5)
    return [Entry(number, number + offset, Custom(stem, number), f"{stem}-{number}") for number in numbers]


@pytest.fixture
def file(path: Any) -> Iterator[File]:
    connection = open_to_write(str(path))
    yield File(connection)
    connection.close()


@pytest.fixture
def tree(file: File) -> File:
    """A session of five entries, a fork of its first three with two of its own, and a fork of four of those."""
    file.append("s", made("s", 1, 2), made("s", 3), made("s", 4, 5))
    file.fork("s", "t", 3)
    file.append("t", made("t", 4, 5))
    file.fork("t", "u", 4)
    file.append("u", made("u", 5), made("u", 6))
    return file


WHOLE = {
    "s": made("s", 1, 2, 3, 4, 5),
    "t": made("s", 1, 2, 3) + made("t", 4, 5),
    "u": made("s", 1, 2, 3) + made("t", 4) + made("u", 5, 6),
}


@pytest.mark.parametrize("name", ["s", "t", "u"])
def test_a_log_is_what_it_shares_and_then_its_own(tree: File, name: str) -> None:
    for upto in range(1, len(WHOLE[name]) + 1):
        assert tree.read(name, upto) == WHOLE[name][:upto]


def test_the_ranges_of_a_log_begin_with_its_oldest_ancestor(tree: File) -> None:
    s, t, u = (tree.key(name) for name in "stu")
    assert log.find_ranges(tree.connection, u, 6) == [EntryRange(s, 0, 3), EntryRange(t, 3, 4), EntryRange(u, 4, 6)]
    assert log.find_ranges(tree.connection, u, 2) == [EntryRange(s, 0, 2), EntryRange(t, 3, 2), EntryRange(u, 4, 2)]
    assert log.find_ranges(tree.connection, s, 5) == [EntryRange(s, 0, 5)]


@pytest.mark.parametrize(("after", "upto"), [(0, 5), (0, 2), (1, 2), (1, 3), (2, 3), (3, 5), (4, 5), (5, 5)])
def test_a_range_of_entries_is_read_from_rows_that_hold_more(tree: File, after: int, upto: int) -> None:
    wanted = EntryRange(tree.key("s"), after, upto)
    entries = WHOLE["s"][after:upto]
    assert log.read_entries(tree.connection, wanted, "s") == entries
    assert log.read_events(tree.connection, wanted, "s") == [entry.event for entry in entries]


@pytest.mark.parametrize("name", ["s", "t", "u"])
def test_ids_and_times_are_those_of_the_entries(tree: File, name: str) -> None:
    entries, key = WHOLE[name], tree.key(name)
    for first in range(1, len(entries) + 1):
        assert log.read_entry_time(tree.connection, key, first) == entries[first - 1].at
        for last in range(first, len(entries) + 1):
            ids = [entry.id for entry in entries[first - 1 : last]]
            assert log.read_ids(tree.connection, key, first, last) == ids


@pytest.mark.parametrize("name", ["s", "t", "u"])
def test_an_entry_is_found_by_its_id_only_where_the_log_has_it(tree: File, name: str) -> None:
    entries, key = WHOLE[name], tree.key(name)
    numbers = {entry.id: entry.seq for entry in entries}
    for each in {entry.id for log_of in WHOLE.values() for entry in log_of} | {"s-9", "none"}:
        for upto in range(len(entries) + 1):
            seq = numbers.get(each)
            found = seq if seq is not None and seq <= upto else None
            assert log.find_seq(tree.connection, key, upto, each) == found


# -- ids that are known ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "fence", "first", "highest"),
    [
        (None, 3, 5, None),
        (None, 3, 1, -1),  # nothing is before the first entry
        ((3, "w", 4), 3, 5, 4),
        ((2, "w", 4), 3, 5, 4),  # the lease before this one: nobody came between
        ((1, "w", 4), 3, 5, None),
        ((4, "w", 4), 3, 5, None),
        ((3, "v", 4), 3, 5, None),
    ],
)
def test_the_highest_id_is_known_while_nobody_else_has_appended(
    known: Any, fence: int, first: int, highest: int | None
) -> None:
    notes = StateBetweenAppends()
    if known is not None:
        notes.highest_ids["s"] = known
    new = encode_append_row(Lease("s", fence), made("w", first))
    assert notes.find_highest_id(new, "w") == highest


def test_what_is_known_of_ids_is_kept_after_an_append_and_their_number_limited(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = file.append("s", made("w", 1, 2), [Entry(3, 1.0, Custom("x"), "other")], made("w", 4))
    assert file.notes.highest_ids == {"s": (lease.fence, "w", 4)}
    monkeypatch.setattr(log, "MAX_NOTED_SESSIONS", 2)
    file.notes.highest_ids = dict.fromkeys("abc", (1, "w", 1))
    file.notes.loose_bytes = {"a": 1, "b": 2}
    file.notes.forget_lease("a")
    file.notes.forget_lease("a")
    assert (list(file.notes.highest_ids), file.notes.loose_bytes) == (["b", "c"], {"b": 2})


@pytest.mark.parametrize(
    ("ids", "conflict"),
    [
        (["w-4", "w-5"], None),
        (["w-9", "w-7"], None),
        (["", ""], None),
        (["new", "newer"], None),
        (["w-2", "w-9"], "w-2"),
        (["w-3", "w-4"], "w-3"),
        (["w-9", "w-1"], "w-1"),
        (["new", "w-1"], "w-1"),
        (["w-1", "new"], "w-1"),
        (["new", "new"], "new"),
        (["w-9", "w-9"], "w-9"),
    ],
)
def test_an_id_that_the_log_has_is_refused_whatever_stands_beside_it(
    file: File, ids: list[str], conflict: str | None
) -> None:
    file.append("s", made("w", 1, 2, 3))
    more = [Entry(seq, 1.0, Custom("x"), each) for seq, each in enumerate(ids, 4)]
    if conflict is None:
        file.append("s", more)
        return
    with pytest.raises(Conflict) as refused:
        file.append("s", more)
    text = f"session 's' already holds an entry {conflict!r}, elsewhere in the log: read it again"
    assert str(refused.value) == text


def test_a_fork_refuses_the_ids_that_it_shares_and_takes_those_that_it_does_not(tree: File) -> None:
    with pytest.raises(Conflict, match="already holds an entry 's-3'"):
        tree.append("t", [Entry(6, 1.0, Custom("x"), "s-3")])
    tree.append("t", [Entry(6, 1.0, Custom("x"), "s-4")])


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_entries_that_do_not_follow_the_last_are_refused(file: File) -> None:
    lease = file.append("s", made("w", 1, 2, 3))
    for entries in (made("w", 5), made("v", 3), made("w", 3, 4), [Entry(3, 1.0, Custom("x"), "")]):
        with pytest.raises(Conflict) as refused:
            append_entries(encode_append_row(lease, entries), file.notes, file.connection)
        assert str(refused.value) == (
            f"session 's' ends at entry 3, and entries from {entries[0].seq} on were to be added: read it again, and "
            "go on from its end"
        )
    with pytest.raises(Conflict, match=r"^entries for session 's' must be numbered one by one, from 4 on$"):
        encode_append_row(lease, made("w", 4, 6))
    repeated = "SELECT value FROM meta WHERE name = 'repeated'"
    assert file.connection.execute(repeated).get == 0
    append_entries(encode_append_row(lease, made("w", 2, 3)), file.notes, file.connection)
    assert file.connection.execute(repeated).get == 1
    assert file.read("s", 3) == made("w", 1, 2, 3)


@pytest.mark.parametrize("lease", [Lease("s", 99), Lease("nobody", 1)])
def test_who_has_no_lease_neither_appends_nor_redacts(file: File, lease: Lease) -> None:
    file.append("s", made("w", 1))
    text = f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again"
    with pytest.raises(Fenced) as fenced:
        append_entries(encode_append_row(lease, made("w", 2)), file.notes, file.connection)
    assert str(fenced.value) == text
    with pytest.raises(Fenced) as fenced:
        redact_entry(lease, made("w", 1)[0], file.connection)
    assert str(fenced.value) == text


@pytest.mark.parametrize("seq", [0, 4, -1])
def test_only_an_entry_that_is_there_is_redacted(file: File, seq: int) -> None:
    lease = file.append("s", made("w", 1, 2, 3))
    with pytest.raises(Conflict) as refused:
        redact_entry(lease, made("w", seq)[0], file.connection)
    text = f"session 's' has 3 entries and none numbered {seq}: read it again, and redact one that it has"
    assert str(refused.value) == text


@pytest.mark.parametrize("seq", [1, 2, 3, 4, 5])
def test_a_redacted_entry_is_replaced_wherever_it_is_shared(tree: File, seq: int) -> None:
    lease = tree.append("s")
    clean = Entry(seq, 7.0, Custom("clean"), f"clean-{seq}")
    redact_entry(lease, clean, tree.connection)
    for name, entries in WHOLE.items():
        shared = [clean if entry.id == f"s-{seq}" else entry for entry in entries]
        assert tree.read(name, len(entries)) == shared


def test_a_fork_is_refused_where_it_cannot_be_made(tree: File) -> None:
    with pytest.raises(SessionNotFound) as missing:
        tree.fork("nobody", "new", None)
    assert str(missing.value) == "there is no session 'nobody' to fork: list() shows which there are"
    empty = acquire_free_lease("empty", 1.0, tree.leases, tree.connection)
    for taken in ("t", "empty"):  # with entries, or driven
        with pytest.raises(SessionExists) as refused:
            tree.fork("s", taken, None)
        assert str(refused.value) == f"there is a session {taken!r} already: fork 's' to another id"
    assert empty is not None
    release_lease(empty, tree.notes, None, tree.connection)
    tree.fork("s", "empty", None)
    assert tree.read("empty", 5) == WHOLE["s"]


def test_a_fork_has_the_title_and_the_time_of_what_it_shares(file: File) -> None:
    said = [MessageAdded(user("Hello")), SessionConfigured({"title": "Named"}), MessageAdded(user("More"))]
    file.append("s", [Entry(seq, float(seq), event, f"w-{seq}") for seq, event in enumerate(said, 1)])
    titles = []
    for at in (1, 2, 3, None):
        file.fork("s", f"fork-{at}", at)
        columns = "SELECT title, updated_at, created_at, head, at FROM session WHERE id = ?"
        titles.append(file.connection.execute(columns, (f"fork-{at}",)).get)
    assert titles == [
        ("Hello", 1.0, 9.0, 1, 1),
        ("Named", 2.0, 9.0, 2, 2),
        ("Named", 3.0, 9.0, 3, 3),
        ("Named", 3.0, 9.0, 3, 3),
    ]


# -- leases and deletion -----------------------------------------------------------------------------------------------


def test_a_lease_is_valid_until_it_is_released_or_another_is_acquired(file: File) -> None:
    first = acquire_free_lease("s", 1.0, file.leases, file.connection)
    assert first == Lease("s", 1)
    assert acquire_free_lease("s", 1.0, file.leases, file.connection) is None
    with pytest.raises(SessionBusy, match=r"^session 's' is being driven by process \d+ on .*: end that run, take it"):
        acquire_lease("s", 1.0, file.leases, False, file.connection)
    assert is_lease_valid(first, file.connection)
    second = acquire_lease("s", 1.0, file.leases, True, file.connection)
    assert file.leases == {first, second}
    assert [is_lease_valid(each, file.connection) for each in (first, second)] == [False, True]
    release_lease(first, file.notes, None, file.connection)
    assert is_lease_valid(second, file.connection)
    release_lease(second, file.notes, None, file.connection)
    assert not is_lease_valid(second, file.connection)
    assert acquire_free_lease("s", 1.0, file.leases, file.connection) == Lease("s", 3)


def test_a_deleted_session_leaves_to_its_forks_what_they_share_until_the_last_is_gone(tree: File) -> None:
    def left() -> list[tuple[Any, ...]]:
        return tree.connection.execute("SELECT id, at, head FROM session ORDER BY key").fetchall()

    def numbers() -> list[tuple[int, int]]:
        return tree.connection.execute("SELECT first, last FROM pack ORDER BY session, last").fetchall()

    delete_session("s", tree.leases, tree.connection)
    assert left() == [(None, 0, 3), ("t", 3, 5), ("u", 4, 6)]
    assert numbers() == [(1, 2), (3, 3), (4, 5), (5, 5), (6, 6)]
    delete_session("t", tree.leases, tree.connection)
    assert left() == [(None, 0, 3), (None, 3, 4), ("u", 4, 6)]
    assert numbers() == [(1, 2), (3, 3), (4, 4), (5, 5), (6, 6)]
    assert tree.read("u", 6) == WHOLE["u"]
    delete_session("u", tree.leases, tree.connection)
    assert (left(), numbers()) == ([], [])
    delete_session("u", tree.leases, tree.connection)
    fences = tree.connection.execute("SELECT value FROM meta WHERE name = 'fence'").get
    assert acquire_free_lease("s", 1.0, tree.leases, tree.connection) == Lease("s", fences + 1)


def test_the_fences_of_deleted_sessions_are_not_given_again(file: File) -> None:
    last = [file.append("s") for _ in range(5)][-1]
    file.append("t")
    for name in ("s", "t"):
        delete_session(name, file.leases, file.connection)
    assert acquire_free_lease("t", 1.0, file.leases, file.connection) == Lease("t", last.fence + 1)


def test_a_long_text_is_kept_as_long_as_some_row_has_it(file: File) -> None:
    def uses() -> list[int]:
        return [count for (count,) in file.connection.execute("SELECT uses FROM blob ORDER BY uses").fetchall()]

    def said(seq: int, text: str) -> Entry:
        return Entry(seq, 1.0, MessageAdded(user(text)), f"w-{seq}")

    long, longer = "long " * 9_000, "longer " * 9_000
    first = [said(1, long), said(2, "short"), said(3, long), said(4, longer)]
    lease = file.append("s", first, [said(5, long)])
    assert uses() == [1, 2]
    file.fork("s", "t", 2)
    redact_entry(lease, said(2, "clean"), file.connection)  # its row is cut in three
    assert file.read("s", 5) == [first[0], said(2, "clean"), *first[2:], said(5, long)]
    assert uses() == [1, 3]
    redact_entry(lease, said(4, "clean"), file.connection)
    assert uses() == [3]
    delete_session("s", file.leases, file.connection)
    assert file.read("t", 2) == [first[0], said(2, "clean")]
    assert uses() == [1]
    delete_session("t", file.leases, file.connection)
    assert uses() == []


# -- in one statement --------------------------------------------------------------------------------------------------


def numbered(seq: int, *ids: str, text: str = "x") -> list[Entry]:
    return [Entry(number, 1.0, MessageAdded(user(text)), each) for number, each in enumerate(ids, seq)]


@pytest.mark.parametrize(
    ("appends", "is_done"),
    [
        ([numbered(4, "w-4")], True),
        ([numbered(4, "w-4", "w-5")], True),
        ([numbered(4, "w-9")], True),
        ([numbered(4, "w-9", "w-10")], True),
        ([numbered(4, "w-4"), numbered(5, "w-5"), numbered(6, "w-8")], True),
        ([numbered(4, "w-3")], False),
        ([numbered(4, "w-9", "w-11")], False),
        ([numbered(4, "w-3", "w-4")], False),
        ([numbered(4, "v-4")], False),  # nobody knows whether there are more of them
        ([numbered(4, "w")], False),
        ([numbered(4, "")], False),
        ([numbered(4, "w-4"), numbered(5, "w-4")], False),
        ([numbered(4, "w-4"), numbered(5, "v-5")], False),
        ([numbered(5, "w-5")], False),
        ([numbered(4, "w-4", text="long " * 9_000)], False),
    ],
)
def test_what_follows_the_ids_that_are_known_is_appended_in_one_statement_and_nothing_else(
    file: File, appends: list[list[Entry]], is_done: bool
) -> None:
    lease = file.append("s", made("w", 1, 2, 3))
    encoded = [encode_append_row(lease, entries) for entries in appends]
    assert append_in_one_statement(encoded, file.notes, file.connection) is is_done
    added = [entry for entries in appends for entry in entries] if is_done else []
    head = 3 + len(added)
    assert file.read("s", head) == made("w", 1, 2, 3) + added
    assert file.connection.execute("SELECT head, unindexed FROM session").get == (head, 1)
    last = int(added[-1].id.rpartition("-")[2]) if added else 3
    assert file.notes.highest_ids == {"s": (lease.fence, "w", last)}


def test_in_a_new_session_the_first_append_is_one_statement_and_a_title_is_that_of_the_first_message(
    file: File,
) -> None:
    lease = acquire_free_lease("s", 1.0, file.leases, file.connection)
    assert lease is not None
    first = encode_append_row(lease, numbered(1, "w-7", text="Hello"))
    assert append_in_one_statement([first], file.notes, file.connection)
    assert append_in_one_statement([encode_append_row(lease, numbered(2, "w-8"))], file.notes, file.connection)
    assert file.connection.execute("SELECT title FROM session").get == "Hello"
    renamed = [Entry(3, 1.0, SessionConfigured({"title": "Named"}), "w-9")]
    assert append_in_one_statement([encode_append_row(lease, renamed)], file.notes, file.connection)
    assert file.connection.execute("SELECT title FROM session").get == "Named"


@pytest.mark.parametrize(("count", "is_done"), [(64, True), (65, False)])
def test_one_statement_has_sixty_four_appends_at_most(file: File, count: int, is_done: bool) -> None:
    lease = file.append("s", made("w", 1))
    encoded = [encode_append_row(lease, made("w", seq)) for seq in range(2, count + 2)]
    assert append_in_one_statement(encoded, file.notes, file.connection) is is_done


@pytest.mark.parametrize(("spare", "is_due"), [(0, True), (1, False)])
def test_a_log_is_due_for_a_merge_when_its_loose_rows_have_reached_the_limit(
    file: File, monkeypatch: pytest.MonkeyPatch, spare: int, is_due: bool
) -> None:
    lease = acquire_free_lease("s", 1.0, file.leases, file.connection)
    assert lease is not None
    encoded = [encode_append_row(lease, made("w", seq)) for seq in (1, 2, 3)]
    size = row_size(encoded[0].row)
    monkeypatch.setattr(single_append, "MAX_LOOSE_BYTES", 2 * size + spare)
    for number, new in enumerate(encoded[:2], 1):
        assert file.notes.merge_due == set()
        assert append_in_one_statement([new], file.notes, file.connection)
        assert file.notes.loose_bytes == {"s": 0 if is_due and number == 2 else number * size}
    assert file.notes.merge_due == ({file.key("s")} if is_due else set())


STEPS: list[tuple[Event, tuple[Any, ...]]] = [
    (Custom("x"), ("", 0, None)),
    (RunStarted("a", run_id="r"), ("", 1, None)),
    (MessageAdded(user("Hello")), ("Hello", 1, None)),
    (RunWaiting(("q",), 7.0, run_id="r"), ("Hello", 2, 7.0)),
    (MessageAdded(user("More")), ("Hello", 2, 7.0)),
    (RunResumed(run_id="r"), ("Hello", 1, None)),
    (SessionConfigured({"title": "Named"}), ("Named", 1, None)),
    (RunEnded("done", run_id="r"), ("Named", 0, None)),
    (MessageAdded(user("After")), ("Named", 0, None)),
]


@pytest.mark.parametrize("at_once", [True, False], ids=["in one statement", "in a transaction"])
def test_each_append_keeps_the_row_of_its_session_up_to_date(file: File, at_once: bool) -> None:
    lease = acquire_free_lease("s", 1.0, file.leases, file.connection)
    assert lease is not None
    loose = 0
    for seq, (event, columns) in enumerate(STEPS, 1):
        new = encode_append_row(lease, [Entry(seq, seq / 2, event, f"w-{seq}")])
        loose += row_size(new.row)
        if at_once:
            assert append_in_one_statement([new], file.notes, file.connection)
        else:
            append_entries(new, file.notes, file.connection)
        kept = "SELECT title, progress, due_at, head, updated_at, loose, unindexed FROM session"
        assert file.connection.execute(kept).get == (*columns, seq, seq / 2, loose, 1)


@pytest.mark.parametrize(("spare", "is_due"), [(0, True), (1, False)])
def test_a_log_is_due_for_a_merge_after_a_transaction_too(
    file: File, monkeypatch: pytest.MonkeyPatch, spare: int, is_due: bool
) -> None:
    size = row_size(encode_append_row(Lease("s", 1), made("w", 1)).row)
    monkeypatch.setattr(log, "MAX_LOOSE_BYTES", 2 * size + spare)
    file.append("s", made("w", 1))
    assert file.notes.merge_due == set()
    file.append("s", made("w", 2))
    assert file.notes.merge_due == ({file.key("s")} if is_due else set())


def test_a_redaction_reaches_titles_and_posts_of_all_who_share_the_entry_and_is_noted_for_the_search(
    file: File,
) -> None:
    said = [MessageAdded(user("Secret")), MessageAdded(user("Second"))]
    lease = file.append("s", [Entry(seq, 1.0, event, f"p-{seq}") for seq, event in enumerate(said, 1)])
    file.fork("s", "t", 1)
    file.fork("s", "u", 2)
    file.append("other", [Entry(1, 1.0, said[0], "p-1")])
    file.connection.execute("INSERT INTO meta VALUES('search', 5)")
    for name in ("s", "t", "u", "other"):
        for post in ("p-1", "p-2"):
            values = (name, post)
            file.connection.execute(
                "INSERT INTO post(session, id, kind, at, body) VALUES(?, ?, 'steer', 1.0, x'6E756C6C')",
                values,
            )
    redact_entry(lease, Entry(1, 1.0, Custom("clean"), "clean"), file.connection)
    titles = dict(file.connection.execute("SELECT id, title FROM session").fetchall())
    assert titles == {"s": "Second", "t": "", "u": "Second", "other": "Secret"}
    posts = file.connection.execute("SELECT session, id FROM post ORDER BY session, id").fetchall()
    assert posts == [("other", "p-1"), ("other", "p-2"), ("s", "p-2"), ("t", "p-2"), ("u", "p-2")]
    noted = "SELECT value FROM meta WHERE name = 'search'"
    assert file.connection.execute(noted).get == 6
    delete_session("other", file.leases, file.connection)
    assert file.connection.execute(noted).get == 7
    delete_session("other", file.leases, file.connection)
    assert file.connection.execute(noted).get == 7
    assert file.connection.execute("SELECT count(*) FROM post WHERE session = 'other'").get == 0


def test_a_post_is_pending_until_an_entry_has_its_id(file: File) -> None:
    assert has_no_posts("s", file.connection)
    lease = file.append("s", [Entry(1, 1.0, Custom("x"), "taken")])
    for name, is_new in (("taken", False), ("p", True), ("p", False), ("q", True)):
        assert add_post("s", Post(name, "steer", name, 2.0), encode_post_body(name), file.connection) is is_new
    assert read_pending_posts("s", file.connection) == [Post("p", "steer", "p", 2.0), Post("q", "steer", "q", 2.0)]
    append_entries(encode_append_row(lease, [Entry(2, 1.0, Custom("x"), "p")]), file.notes, file.connection)
    assert read_pending_posts("s", file.connection) == [Post("q", "steer", "q", 2.0)]
    assert not has_no_posts("s", file.connection)
    release_lease(lease, file.notes, None, file.connection)
    assert file.connection.execute("SELECT id FROM post").fetchall() == [("q",)]
    assert read_pending_posts("t", file.connection) == []


def test_a_body_that_json_cannot_hold_is_marked() -> None:
    assert encode_post_body({"a": [1, None]}) == b'{"a":[1,null]}'
    odd = {"a": object()}
    assert msgspec.json.decode(encode_post_body(odd)) == to_jsonable(odd)
