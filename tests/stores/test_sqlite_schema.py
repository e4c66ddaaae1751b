"""Files of an older format: they are brought to the present one, whole or not at all, and a copy is kept."""

import pytest

from perdure.core.codec import encode_event
from perdure.core.error import Conflict, StoreError
from perdure.core.event import Custom, Entry, Event, MessageAdded, RunEnded, RunStarted, RunWaiting, Unknown
from perdure.core.message import user
from perdure.core.store import Post, Store
from perdure.stores.sqlite import schema as sqlite_schema
from perdure.stores.sqlite.schema import APPLICATION_ID, UNCHECKED_FORMAT
from tests.stores.material import another_connection

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


AS_FORMAT_2 = """
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
