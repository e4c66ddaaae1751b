"""How a log lies in an SQLite file: rows that are merged, ids that are found, long texts that are kept once."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Sequence
from typing import Any

import apsw
import pytest

from perdure import Image, SessionExists, StoreError, Text, ToolResult, user
from perdure._stores.sqlite import log as sqlite_log
from perdure._stores.sqlite.file_system import describe_lock_holder
from perdure._stores.sqlite.format import merging as sqlite_merge
from perdure._stores.sqlite.format.merging import merge_log_rows, plan_row_merge
from perdure._stores.sqlite.format.rows import LONG_TEXT_BYTES
from perdure._stores.sqlite.format.schema import UNNUMBERED, IdRange, group_ids, split_id
from perdure._stores.sqlite.write import single_append
from perdure.events import Custom, Entry, MessageAdded, SessionConfigured, ToolFinished, Unknown
from perdure.stores import Conflict, Fenced, Lease, Post, SqliteStore
from tests.stores.material import another_connection, entries


def value(path, statement, *values):
    with another_connection(path) as connection:
        return connection.execute(statement, values).get


async def grow(store, lease, first, count, size=10):
    """Entries one by one, as a driver appends them."""
    new = [Entry(seq, float(seq), Custom("data", "x" * size), f"w-{seq}") for seq in range(first, first + count)]
    for entry in new:
        if not store.append_now(lease, [entry], sync=False):
            await store.append(lease, [entry], sync=False)
    return new


# -- rows --------------------------------------------------------------------------------------------------------------


async def test_a_session_that_is_given_back_is_one_row_once_its_rows_fill_it(path, store, monkeypatch):
    monkeypatch.setattr(sqlite_merge, "MERGED_ROW_BYTES", 22 * sqlite_merge.ROW_COST)
    lease = await store.acquire("s")
    first = await grow(store, lease, 1, 15)
    await store.release(lease)
    assert value(path, "SELECT count(*) FROM pack") == 15
    assert await store.read("s") == first
    lease = await store.acquire("s")
    more = await grow(store, lease, 16, 8)
    assert await store.read("s") == first + more
    assert await store.read("s", after=14) == (first + more)[14:]
    await store.release(lease)
    assert value(path, "SELECT count(*) FROM pack") == 1
    assert await store.read("s", after=7) == (first + more)[7:]


async def test_a_long_log_is_some_large_rows_while_it_is_driven(path, store, monkeypatch):
    monkeypatch.setattr(sqlite_log, "MAX_LOOSE_BYTES", 40_000)
    monkeypatch.setattr(single_append, "MAX_LOOSE_BYTES", 40_000)
    monkeypatch.setattr(sqlite_merge, "MERGED_ROW_BYTES", 10_000)
    lease = await store.acquire("s")
    log = await grow(store, lease, 1, 200, size=500)
    await store.append(lease, entries(201), sync=True)  # after what was due
    assert 10 < value(path, "SELECT count(*) FROM pack") < 70
    assert 10 <= value(path, "SELECT max(last + 1 - first) FROM pack") < 20
    assert await store.read("s") == [*log, *entries(201)]
    assert await store.read("s", after=95) == [*log[95:], *entries(201)]


async def test_whatever_is_in_an_entry_is_the_same_after_its_row_was_merged(path, store, monkeypatch):
    monkeypatch.setattr(sqlite_merge, "MERGED_ROW_BYTES", sqlite_merge.ROW_COST)
    unknown = Unknown("dreamt", {"kind": "dreamt", "of": [1, {"sheep": 2.5}]})
    events = [
        Custom("data", {"big": 10**30, "float": -0.0, "none": None}),
        MessageAdded(user([Text("é\0\U0001f600"), Image(data=b"\xff\x00", media_type="image/png")])),
        unknown,
        SessionConfigured({"title": "T"}),
        Custom("data", [2**63, -(2**63), True]),
    ]
    log = [Entry(seq, seq / 3, event, f"e-{seq}") for seq, event in enumerate(events, 1)]
    lease = await store.acquire("s")
    for entry in log:
        await store.append(lease, [entry], sync=False)
    await store.release(lease)
    assert value(path, "SELECT count(*) FROM pack") < 5
    assert await store.read("s") == log
    assert [await store.read("s", after=after) for after in range(5)] == [log[after:] for after in range(5)]


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry_id", "parts"),
    [
        ("w-1", ("w", 1)),
        ("a-b-0", ("a-b", 0)),
        ("-7", ("", 7)),
        ("w-01", ("w-01", UNNUMBERED)),
        ("w-", ("w-", UNNUMBERED)),
        ("w", ("w", UNNUMBERED)),
        ("w-²", ("w-²", UNNUMBERED)),
        ("w-1234567890123456", ("w-1234567890123456", UNNUMBERED)),
    ],
)
def test_an_id_is_a_stem_and_a_number_if_the_two_make_it_again(entry_id, parts):
    assert split_id(entry_id) == parts


def test_ids_that_are_numbered_like_their_entries_are_one_run():
    ids = ["w-5", "w-6", "post", "w-8", "w-9", "", "w-10", "w-12", "v-13"]
    runs = [("w", 5, 6, 1), ("post", -1, -1, 3), ("w", 8, 9, 4), ("w", 10, 10, 7), ("w", 12, 12, 8), ("v", 13, 13, 9)]
    assert list(group_ids(1, ids)) == [IdRange(*run) for run in runs]


@pytest.mark.parametrize("is_merged", [False, True])
async def test_an_id_is_known_wherever_it_is_in_the_log(path, store, monkeypatch, is_merged):
    monkeypatch.setattr(sqlite_merge, "MERGED_ROW_BYTES", 200 if is_merged else 10**9)
    lease = await store.acquire("s")
    log = [Entry(seq, 1.0, Custom("d"), f"{'w' if seq % 4 else 'post'}-{seq}") for seq in range(1, 30)]
    for entry in log:
        await store.append(lease, [entry], sync=False)
    await store.release(lease)
    assert bool(value(path, "SELECT count(*) FROM label")) is is_merged
    await store.fork("s", "fork", at=20)
    lease, fork = await store.acquire("s"), await store.acquire("fork")
    for known in ("w-1", "w-15", "post-4", "w-29"):
        with pytest.raises(Conflict, match=f"already holds an entry '{known}', elsewhere in the log"):
            await store.append(lease, [Entry(30, 1.0, Custom("d"), known)], sync=False)
        assert not await store.post("s", Post(known, "steer"))
    with pytest.raises(Conflict, match="elsewhere"):
        await store.append(fork, [Entry(21, 1.0, Custom("d"), "w-15")], sync=False)
    await store.append(fork, [Entry(21, 1.0, Custom("d"), "w-29")], sync=False)  # of which the fork knows nothing
    await store.append(lease, [Entry(30, 1.0, Custom("d"), "w-31")], sync=False)
    await store.append(lease, [Entry(31, 1.0, Custom("d"), "w-30")], sync=False)
    assert await store.post("fork", Post("w-30", "steer"))
    assert not await store.post("fork", Post("w-15", "steer"))


async def test_two_entries_of_one_id_are_not_appended_together(store):
    lease = await store.acquire("s")
    with pytest.raises(Conflict, match="elsewhere"):
        await store.append(lease, [Entry(1, 1.0, Custom("d"), "e"), Entry(2, 1.0, Custom("d"), "e")], sync=False)
    assert await store.read("s") == []


# -- long texts --------------------------------------------------------------------------------------------------------


def long_entry(seq, text):
    result = ToolResult(f"c{seq}", "read", (Text("before"), Text(text), Text("after")))
    return Entry(seq, 1.0, ToolFinished(f"c{seq}", "read", result, run_id=f"r{seq}"), f"w-{seq}")


async def test_the_same_long_text_is_kept_once_and_compressed(path, store):
    text = 'a "quoted" line\\ with é and \U0001f600\n' * 5000
    for session_id in ("a", "b"):
        lease = await store.acquire(session_id)
        log = [long_entry(1, text), long_entry(2, text), *entries(3, 2)]
        await store.append(lease, log[:1], sync=False)
        await store.append(lease, log[1:], sync=False)
        await store.release(lease)
        assert await store.read(session_id) == log
    assert value(path, "SELECT count(*), sum(uses) FROM blob") == (1, 4)
    assert value(path, "SELECT sum(length(data)) FROM blob") < len(text) // 50
    assert value(path, "SELECT sum(length(body)) FROM pack") < 5000
    await store.delete("a")
    assert (await store.read("b"))[:2] == [long_entry(1, text), long_entry(2, text)]
    await store.delete("b")
    assert value(path, "SELECT count(*) FROM blob") == 0


@pytest.mark.parametrize("size", [LONG_TEXT_BYTES - 1, LONG_TEXT_BYTES, LONG_TEXT_BYTES + 1])
async def test_texts_around_the_limit_come_back_as_they_were(path, store, size):
    text = os.urandom(LONG_TEXT_BYTES).hex()[:size]
    lease = await store.acquire("s")
    await store.append(lease, [long_entry(1, text)], sync=False)
    assert await store.read("s") == [long_entry(1, text)]
    assert value(path, "SELECT count(*) FROM blob") == (size >= LONG_TEXT_BYTES)


# -- short transactions ------------------------------------------------------------------------------------------------


@pytest.fixture
async def traced(store):
    """What a store does to its file, statement by statement, once there are three sessions that have begun."""
    leases = [await store.acquire(name) for name in "abc"]
    for lease in leases:
        await store.append(lease, [Entry(1, 1.0, Custom("x"), f"{lease.session_id}-1")], sync=True)
    statements: list[str] = []

    def note(_cursor, sql, _values) -> bool:
        statements.append(sql)
        return True

    store._writer._access.connection.exec_trace = note
    return leases, statements


async def test_appends_are_one_statement_however_many_come_at_once(store, traced):
    leases, statements = traced
    first, *_ = leases

    def more(lease, seq, count=1):
        return [Entry(each, 1.0, Custom("x"), f"{lease.session_id}-{each}") for each in range(seq, seq + count)]

    assert store.append_now(first, more(first, 2, 3), sync=False)
    await store.append(first, more(first, 5), sync=True)
    ends = {"a": 6, "b": 2, "c": 2}
    await asyncio.gather(*[store.append(each, more(each, ends[each.session_id]), sync=False) for each in leases])
    assert [sql for sql in statements if sql.startswith(("BEGIN", "UPDATE", "COMMIT"))] == []
    assert len([sql for sql in statements if sql.startswith("INSERT")]) == 3
    assert [len(await store.read(name)) for name in "abc"] == [6, 2, 2]


async def test_an_append_that_is_one_statement_is_refused_like_any_other(store, traced):
    (first, second, _), _ = traced
    gap = [Entry(3, 1.0, Custom("x"), "a-3")]
    assert not store.append_now(first, gap, sync=False)  # that needs a second statement, and so the thread
    with pytest.raises(Conflict, match="ends at entry 1"):
        await store.append(first, gap, sync=False)
    with pytest.raises(Conflict, match="already holds an entry 'a-1'"):
        await store.append(first, [Entry(2, 1.0, Custom("x"), "a-1")], sync=False)
    await store.append(first, [Entry(2, 1.0, Custom("x"), "a-2")], sync=False)
    await store.append(first, [Entry(2, 1.0, Custom("x"), "a-2")], sync=True)  # repeated, it adds nothing
    results = await asyncio.gather(
        store.append(first, [Entry(9, 1.0, Custom("x"), "a-9")], sync=False),
        store.append(second, [Entry(2, 1.0, Custom("x"), "b-2")], sync=False),
        return_exceptions=True,
    )
    assert [type(each) for each in results] == [Conflict, type(None)]  # it fails alone
    await store.acquire("a", take_over=True)
    assert not store.append_now(first, gap, sync=False)
    with pytest.raises(Fenced):
        await store.append(first, gap, sync=False)
    assert [len(await store.read(name)) for name in "abc"] == [2, 2, 1]


async def test_a_merge_that_was_planned_before_another_process_changed_the_file_is_planned_anew(path, store):
    lease = await store.acquire("s")
    await grow(store, lease, 1, 20, size=10)
    plan = await store._get_writer().run_alone(lambda connection: plan_row_merge(connection, 1))
    with another_connection(path) as connection:
        connection.execute("DELETE FROM pack WHERE first > 10; UPDATE session SET head = 10")
    await store._get_writer().write(lambda connection: merge_log_rows(connection, 1, plan))
    assert len(await store.read("s")) == 10


async def test_who_has_the_file_locked_is_named(path, store):
    await store.acquire("s")
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        if sys.platform == "linux":
            assert describe_lock_holder(str(path)) == f"process {os.getpid()}"
        connection.execute("COMMIT")
    assert describe_lock_holder(str(path)) == describe_lock_holder("/no/such/file") == "another process"


async def test_ids_with_gaps_and_other_stems_are_compared_with_all_before_them_in_one_turn(store: SqliteStore) -> None:
    lease = await store.acquire("s")
    await store.append(lease, [Entry(1, 1.0, Custom("x"), "x-30"), Entry(2, 1.0, Custom("x"), "b-9")], sync=False)

    def add(seq: int, entry_id: str) -> Awaitable[None]:
        return store.append_soon(lease, [Entry(seq, 1.0, Custom("x"), entry_id)], sync=False)

    results: Sequence[object] = await asyncio.gather(add(3, "b-10"), add(4, "x-30"), return_exceptions=True)
    assert [type(each) for each in results] == [type(None), Conflict]
    results = await asyncio.gather(add(4, "b-11"), add(5, "b-15"), add(6, "b-15"), return_exceptions=True)
    assert [type(each) for each in results] == [type(None), type(None), Conflict]
    await asyncio.gather(add(6, "b-16"), add(7, "b-18"), add(8, "b-17"))
    ids = [entry.id for entry in await store.read("s")]
    assert ids == ["x-30", "b-9", "b-10", "b-11", "b-15", "b-16", "b-18", "b-17"]


async def test_a_row_that_stands_where_an_append_would_go_is_a_conflict(path: Any, store: SqliteStore) -> None:
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=False)
    await store.append(lease, entries(2), sync=False)
    with another_connection(path) as connection:
        connection.execute("UPDATE session SET head = 1")
    with pytest.raises(Conflict, match="already holds one of these entries, elsewhere in the log: read it again"):
        await store.append(lease, [Entry(2, 1.0, Custom("x"), "e-3")], sync=False)


async def test_a_fork_to_an_id_that_is_being_driven_is_refused(store: SqliteStore) -> None:
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=False)
    taken = await store.acquire("new")
    with pytest.raises(SessionExists) as refused:
        await store.fork("s", "new")
    assert str(refused.value) == "there is a session 'new' already: fork 's' to another id"
    await store.release(taken)
    await store.fork("s", "new")
    assert await store.read("new") == entries(1)


async def test_a_release_that_the_disk_refuses_leaves_a_session_that_can_be_acquired_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise apsw.IOError("the disk is on fire")

    lease = await store.acquire("s")
    monkeypatch.setattr("perdure._stores.sqlite.store.try_release_lease", fail)
    with pytest.raises(StoreError, match="the disk reported an error"):
        await store.release(lease)
    monkeypatch.undo()
    assert await store.acquire("s") == Lease("s", lease.fence + 1)


async def test_rows_of_appends_that_share_transactions_are_merged_too(
    path: Any, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "MAX_LOOSE_BYTES", 4_000)
    monkeypatch.setattr(single_append, "MAX_LOOSE_BYTES", 4_000)
    monkeypatch.setattr(sqlite_merge, "MERGED_ROW_BYTES", 1_000)
    lease = await store.acquire("s")
    log = [Entry(seq, float(seq), Custom("data", "x" * 200), f"w-{seq}") for seq in range(1, 31)]
    for entry in log:
        await store.append(lease, [entry], sync=False)
    await store.append(lease, entries(31), sync=True)  # after what was due
    assert value(path, "SELECT count(*) FROM pack") < 25
    assert await store.read("s") == [*log, *entries(31)]
