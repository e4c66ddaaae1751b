"""Files of an older format: they are brought to the present one, whole or not at all, and a copy is kept."""

from random import Random
from typing import Any

import pytest

from perdure.core.error import Conflict, StoreError
from perdure.core.event import Custom, Entry, Event, MessageAdded, RunEnded, RunStarted, RunWaiting, Unknown
from perdure.core.log_codec import encode_event
from perdure.core.message import user
from perdure.core.store import Post, Store
from perdure.stores.sqlite import database_file
from perdure.stores.sqlite import schema as sqlite_schema
from perdure.stores.sqlite.maintenance import restore, verify
from perdure.stores.sqlite.pack_rows import PackRow, decode_entry_metadata
from perdure.stores.sqlite.schema import APPLICATION_ID, FORMAT, UNCHECKED_FORMAT
from perdure.stores.sqlite.search_thread import SearchThread
from perdure.stores.sqlite.store import SqliteStore
from tests.stores.material import AS_FORMAT_4, another_connection

FORMAT_1 = f"""
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('fence', 7), ('repeated', 0);
CREATE TABLE session(
    key INTEGER PRIMARY KEY, tenant TEXT NOT NULL DEFAULT '', owner TEXT NOT NULL DEFAULT '', id TEXT NOT NULL,
    head INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL, holder TEXT, created_at REAL NOT NULL,
    updated_at REAL NOT NULL, title TEXT NOT NULL DEFAULT '', UNIQUE(tenant, id)
) STRICT;
CREATE TABLE entry(
    session INTEGER NOT NULL REFERENCES session(key) ON DELETE CASCADE, seq INTEGER NOT NULL, id TEXT,
    kind TEXT NOT NULL, critical INTEGER NOT NULL, version INTEGER NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY(session, seq)
) STRICT;
CREATE UNIQUE INDEX entry_id ON entry(session, id);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = 1;
"""

LOG = [
    Entry(1, 1.5, RunStarted(agent="a", run_id="r"), "w-1"),
    Entry(2, 1.5, MessageAdded(user("Hello"), run_id="r"), "w-2"),
    Entry(3, 2.5, Unknown("dreamt", {"kind": "dreamt", "of": 1}), ""),
    *[Entry(seq, 3.0, Custom("data", f"{seq} " + "x" * 500), f"w-{seq}") for seq in range(4, 400)],
    Entry(400, 4.0, Custom("long", "y" * 50_000), "post"),
]


def row(entry):
    event = entry.event
    kind = event.name if type(event) is Unknown else str(type(event).__struct_config__.tag)
    return (entry.seq, entry.id or None, kind, type(event).critical, 1, entry.at, encode_event(event))


@pytest.fixture
def old(path):
    """A file of format 1 with two sessions, one of them empty."""
    with another_connection(path) as connection:
        connection.pragma("journal_mode", "wal")
        connection.execute(FORMAT_1)
        connection.execute("INSERT INTO session VALUES(1, '', '', 's', 400, 3, NULL, 1.0, 4.0, 'Hello')")
        connection.execute("INSERT INTO session VALUES(2, '', '', 'empty', 0, 1, NULL, 1.0, 1.0, '')")
        connection.executemany("INSERT INTO entry VALUES(1, ?, ?, ?, ?, ?, ?, ?)", [row(entry) for entry in LOG])
    return path


async def test_a_file_of_format_1_is_brought_up_to_date(old, store):
    assert await store.read("s") == LOG
    assert await store.read("s", after=250) == LOG[250:]
    (info,) = await store.list()
    assert (info.session_id, info.entries, info.created_at, info.updated_at, info.title) == (
        "s",
        400,
        1.0,
        4.0,
        "Hello",
    )
    assert [(each.session_id, each.progress) for each in await store.list_interrupted()] == [("s", "cut_off")]
    lease = await store.acquire("s")
    assert lease.fence == 4
    with pytest.raises(Conflict, match="elsewhere"):
        await store.append(lease, [Entry(401, 5.0, Custom("d"), "w-77")], sync=False)
    assert not await store.post("s", Post("post", "steer"))
    await store.append(lease, [Entry(401, 5.0, Custom("d"), "w-401")], sync=True)
    assert len(await store.read("s")) == 401
    assert (await store.acquire("new")).fence == 8
    with another_connection(old) as connection:
        assert connection.pragma("user_version") == UNCHECKED_FORMAT
        assert connection.execute("SELECT count(*) FROM pack").get < 6
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        assert names == {"meta", "session", "pack", "label", "blob", "post"}


async def test_what_there_was_is_kept_beside_it(old, store):
    await store.read("s")
    with another_connection(old.with_name("sessions.db.format-1")) as connection:
        assert connection.pragma("user_version") == 1
        assert connection.execute("SELECT count(*) FROM entry").get == 400
    assert not [place for place in old.parent.iterdir() if "unfinished" in place.name]


async def test_a_file_that_could_not_be_brought_up_is_as_it_was(old, store, monkeypatch):
    def fail(*_):
        raise StoreError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_schema, "add_ids", fail)
        with pytest.raises(StoreError, match="the power went"):
            await store.read("s")
    with another_connection(old) as connection:
        assert connection.pragma("user_version") == 1
        assert connection.execute("SELECT count(*) FROM entry").get == 400
    assert await store.read("s") == LOG


AS_FORMAT_2 = f"""
{AS_FORMAT_4}
DROP INDEX session_unfinished;
ALTER TABLE session DROP COLUMN progress;
ALTER TABLE session DROP COLUMN due_at;
PRAGMA user_version = 2;
"""


async def fill_with_runs(store: Store) -> None:
    child = [RunStarted("b", run_id="r/1", path="b"), RunEnded("done", run_id="r/1", path="b")]
    long = [Custom("data", f"{seq} " + "x" * 20_000) for seq in range(30)]
    logs: dict[str, list[Event]] = {
        "cut": [RunStarted(run_id="r"), *child, *long],
        "waiting": [RunStarted(run_id="r"), RunWaiting(("q",), 50.0, run_id="r")],
        "over": [RunStarted(run_id="r"), *child, RunEnded("done", run_id="r"), Custom("later")],
        "none": [Custom("note")],
    }
    for session_id, events in logs.items():
        lease = await store.acquire(session_id)
        for seq, event in enumerate(events, 1):
            await store.append(lease, [Entry(seq, 1.0, event, f"e-{seq}")], sync=False)
        await store.release(lease)
    await store.fork("cut", "fork")


async def test_interrupted_sessions_of_a_file_of_format_2_are_found(path, store):
    await fill_with_runs(store)
    before = await store.list_interrupted(now=50.0)
    await store.aclose()
    with another_connection(path) as connection:
        connection.execute(AS_FORMAT_2)
    assert await store.list_interrupted(now=50.0) == before
    assert [(each.session_id, each.progress, each.due_at) for each in before] == [
        ("cut", "cut_off", None),
        ("waiting", "waiting", 50.0),
    ]
    assert path.with_name("sessions.db.format-2").exists()


async def test_a_damaged_session_does_not_stop_the_file_from_being_brought_up(path, store):
    await fill_with_runs(store)
    await store.aclose()
    with another_connection(path) as connection:
        connection.execute(AS_FORMAT_2)
        connection.execute("UPDATE pack SET body = CAST('run_ damaged' AS BLOB) WHERE session = 2")
    assert [each.session_id for each in await store.list_interrupted()] == ["cut"]


def said(seq: int, text: str) -> Entry:
    return Entry(seq, 1.0, MessageAdded(user(text)), f"e-{seq}")


async def say(store: Store, session_id: str, *entries: Entry) -> None:
    lease = await store.acquire(session_id)
    await store.append(lease, entries, sync=False)
    await store.release(lease)


@pytest.fixture
async def format_4(path, store):
    """A file of format 4 with a session that is indexed, one that is indexed up to its first message, and one that is
    not.
    """
    await say(store, "all", said(1, "apples"))
    await say(store, "some", said(1, "pears"))
    assert len(await store.search("apples OR pears", syntax="query")) == 2
    await say(store, "some", said(2, "plums"))
    await say(store, "none", said(1, "cherries"))
    await store.aclose()
    with another_connection(path) as connection:
        connection.execute(AS_FORMAT_4)
    return path


async def find_words(store: SqliteStore) -> list[str]:
    return [word for word in ("apples", "pears", "plums", "cherries", "figs") if await store.search(word)]


async def test_in_a_file_of_format_4_everything_is_found_and_the_checksums_stay(format_4, store):
    assert await find_words(store) == ["apples", "pears", "plums", "cherries"]
    await say(store, "all", said(2, "figs"))
    assert await find_words(store) == ["apples", "pears", "plums", "cherries", "figs"]
    await store.aclose()
    verify(format_4)
    with another_connection(format_4) as connection:
        assert connection.pragma("user_version") == FORMAT
        assert connection.execute("SELECT count(*) FROM session WHERE unindexed > 0").get == 0
    with another_connection(format_4.with_name("sessions.db.format-4")) as connection:
        assert connection.pragma("user_version") == 4


async def test_the_copy_of_a_large_file_of_format_4_can_be_opened(path, store):
    noise = Random(1)
    said_long = [said(seq, noise.randbytes(5_000).hex()) for seq in range(1, 401)]
    await say(store, "s", *said_long)
    await store.aclose()
    with another_connection(path) as connection:
        connection.execute(AS_FORMAT_4)
    assert len(await store.read("s")) == len(said_long)
    await store.aclose()
    copy = path.with_name("sessions.db.format-4")
    verify(copy)
    kept = SqliteStore(copy)
    assert await kept.read("s") == said_long
    await kept.aclose()


async def test_a_copy_of_the_old_file_is_not_replaced_by_one_of_a_file_that_another_process_has_brought_up(
    format_4, store, monkeypatch
):
    enable_wal, opened = database_file._enable_wal, []

    def let_another_process_in(connection, path):
        enable_wal(connection, path)
        opened.append(path)
        if len(opened) == 1:
            database_file.open_to_write(path).close()

    monkeypatch.setattr(database_file, "_enable_wal", let_another_process_in)
    assert await find_words(store) == ["apples", "pears", "plums", "cherries"]
    assert len(opened) == 2
    copy = format_4.with_name("sessions.db.format-4")
    verify(copy)
    with another_connection(copy) as connection:
        assert connection.pragma("user_version") == 4
        assert "unindexed" not in [name for _, name, *_ in connection.execute("PRAGMA table_info(session)")]
    assert not [place for place in format_4.parent.iterdir() if "unfinished" in place.name]


async def read_marks(path) -> list[tuple[str, int, int, int]]:
    with another_connection(path) as connection:
        return connection.execute("SELECT id, head, indexed, unindexed FROM session ORDER BY key").fetchall()


async def test_what_an_older_version_appends_to_a_file_that_was_brought_up_is_found_by_the_next_process(
    format_4, store
):
    assert await find_words(store) == ["apples", "pears", "plums", "cherries"]
    await say(store, "all", said(2, "figs"))
    await store.aclose()
    with another_connection(format_4) as connection:
        connection.execute("UPDATE session SET unindexed = 0")  # as an older version leaves it
        connection.execute("UPDATE session SET unindexed = 1 WHERE id = 'some'")  # and as when it has indexed something
    assert await find_words(store) == ["apples", "pears", "plums", "cherries", "figs"]
    assert await read_marks(format_4) == [("all", 2, 2, 0), ("some", 2, 2, 0), ("none", 1, 1, 0)]


async def test_what_an_older_version_has_indexed_is_not_looked_for_again(format_4, store):
    assert await find_words(store) == ["apples", "pears", "plums", "cherries"]
    with another_connection(format_4) as connection:
        connection.execute("UPDATE session SET unindexed = 1")
    await say(store, "all", said(2, "figs"))
    assert await store.search("figs")
    assert await read_marks(format_4) == [("all", 2, 2, 0), ("some", 2, 2, 0), ("none", 1, 1, 0)]


async def test_a_backup_of_format_4_is_restored_with_its_checksums(format_4, tmp_path):
    restore(format_4, tmp_path / "restored.db")
    verify(tmp_path / "restored.db")
    restored = SqliteStore(tmp_path / "restored.db")
    assert await find_words(restored) == ["apples", "pears", "plums", "cherries"]
    await restored.aclose()


async def test_an_append_writes_no_page_of_the_index_of_what_is_to_be_indexed_but_the_first(path, store, monkeypatch):
    monkeypatch.setattr(SearchThread, "signal_append", lambda _: None)  # nothing else writes, however slow this is
    lease = await store.acquire("s")
    await store.append(lease, [said(1, "apples")], sync=False)
    grown = []
    for seq in range(2, 5):
        before = path.with_name("sessions.db-wal").stat().st_size
        await store.append(lease, [said(seq, "pears")], sync=False)
        grown.append((path.with_name("sessions.db-wal").stat().st_size - before) // (4096 + 24))
    assert grown == [3, 3, 3]  # the session, the new row, and where to find it


OldEntry = tuple[int, int, str, bool, int, int]
"""Session, number, kind, whether it is critical, version, and how long the body is."""


def old_rows(path: Any, *given: OldEntry) -> list[tuple[int, PackRow]]:
    """Rows that are made of entries of a file of format 1."""
    with another_connection(path) as connection:
        connection.execute(FORMAT_1)
        connection.execute("ALTER TABLE entry RENAME TO old_entry")
        for session, seq, kind, critical, version, length in given:
            values = (
                session,
                seq,
                f"w-{seq}",
                kind,
                critical,
                version,
                float(seq),
                str(seq).rjust(length, "1").encode(),
            )
            connection.execute("INSERT INTO old_entry VALUES(?, ?, ?, ?, ?, ?, ?, ?)", values)
        return [(session, row) for session, row, _ in sqlite_schema._read_old_rows(connection)]


def test_old_entries_are_gathered_by_session_and_version_until_a_row_is_full(
    path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_schema, "MERGED_ROW_BYTES", 10)
    entries: list[OldEntry] = [
        *[(1, seq, "x", False, 1, length) for seq, length in ((1, 5), (2, 4), (3, 1), (4, 10), (5, 9))],
        *[(1, 6, "x", False, 2, 1), (3, 1, "x", False, 2, 1), (3, 2, "x", False, 2, 1)],
    ]
    rows = old_rows(path, *entries)
    assert [(session, row.first, row.last, row.version) for session, row in rows] == [
        (1, 1, 3, 1),
        (1, 4, 4, 1),
        (1, 5, 5, 1),
        (1, 6, 6, 2),
        (3, 1, 2, 2),
    ]
    assert [row.body for _, row in rows] == [b"[11111,1112,3]", b"[1111111114]", b"[111111115]", b"[6]", b"[1,2]"]
    heads = decode_entry_metadata(rows[0][1])
    assert (heads.ats, heads.ids, heads.critical) == ([1.0, 2.0, 3.0], ["w-1", "w-2", "w-3"], [])
    assert old_rows(path.with_name("empty.db")) == []


def test_the_critical_kinds_of_old_entries_are_noted_once(path: Any) -> None:
    kinds = (("dreamt", True), ("slept", False), ("dreamt", True), ("woke", True))
    ((_, row),) = old_rows(path, *[(1, seq, kind, critical, 1, 1) for seq, (kind, critical) in enumerate(kinds, 1)])
    assert decode_entry_metadata(row).critical == ["dreamt", "woke"]
