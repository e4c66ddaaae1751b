"""Interrupted sessions in an SQLite store: which are listed, in which order, and with what."""

import io
from typing import Any

import msgspec
import pytest

from perdure._stores.sqlite.file_system import describe_lock_holder
from perdure.events import Custom, Entry, Event, RunEnded, RunStarted, RunWaiting
from perdure.stores import InterruptedSession, LeaseHolderProcess, Post, SqliteStore, describe_this_process
from tests.stores.material import another_connection

STARTED, ENDED = RunStarted("agent", run_id="r"), RunEnded("done", run_id="r")


async def keep(store: SqliteStore, session_id: str, *events: Event, at: float = 1.0) -> None:
    lease = await store.acquire(session_id)
    await store.append(lease, [Entry(seq, at, event, f"e-{seq}") for seq, event in enumerate(events, 1)], sync=False)
    await store.release(lease)


async def test_the_longest_idle_come_first_and_of_equals_the_first_by_name(store: SqliteStore) -> None:
    for name, at in (("c", 2.0), ("b", 1.0), ("a", 2.0), ("other", 0.5)):
        await keep(store, name, STARTED, at=at)
    await keep(store, "over", STARTED, ENDED)
    await keep(store, "w", STARTED, RunWaiting(("q",), 5.0, run_id="r"), at=1.5)
    assert await store.list_interrupted(now=5.0) == [
        InterruptedSession("other", "cut_off", 1, 0.5),
        InterruptedSession("b", "cut_off", 1, 1.0),
        InterruptedSession("w", "waiting", 2, 1.5, 0, 5.0),
        InterruptedSession("a", "cut_off", 1, 2.0),
        InterruptedSession("c", "cut_off", 1, 2.0),
    ]
    assert await store.list_interrupted(prefix="o", now=5.0) == [InterruptedSession("other", "cut_off", 1, 0.5)]
    assert await store.list_interrupted(prefix="w", now=4.9) == []


async def test_a_session_that_was_posted_to_is_as_old_as_its_first_post_until_it_has_entries(
    store: SqliteStore,
) -> None:
    for name, at in (("p", 7.0), ("q", 8.0)):
        await store.post("new", Post(name, "steer", None, at))
        await store.post("there", Post(name, "steer", None, at))
    await keep(store, "there", Custom("x"), at=3.0)
    assert await store.list_interrupted() == []
    assert await store.list_interrupted(include_posts=True) == [
        InterruptedSession("there", "over", 1, 3.0, 2),
        InterruptedSession("new", "over", 0, 7.0, 2),
    ]
    lease = await store.acquire("new")
    assert [each.session_id for each in await store.list_interrupted(include_posts=True)] == ["there"]
    await store.release(lease)
    assert [each.session_id for each in await store.list_interrupted(include_posts=True, prefix="n")] == ["new"]


@pytest.mark.parametrize(
    ("change", "is_listed"),
    [
        ({}, True),  # this process, which has no such lease
        ({"pid": 1, "started": "0"}, True),
        ({"machine": "elsewhere"}, True),
    ],
)
async def test_a_session_whose_holder_is_not_known_to_live_is_interrupted(
    path: Any, store: SqliteStore, change: dict[str, Any], is_listed: bool
) -> None:
    await keep(store, "s", STARTED)
    hold(path, msgspec.structs.replace(describe_this_process(0.0), **change))
    assert bool(await store.list_interrupted()) is is_listed


async def test_whether_a_holder_lives_is_looked_up_once_for_all_its_sessions(
    path: Any, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await keep(store, name, STARTED)
    hold(path, msgspec.structs.replace(describe_this_process(0.0), pid=4711))
    looked_up: list[int] = []

    def is_alive(holder: LeaseHolderProcess) -> bool:
        looked_up.append(holder.pid)
        return True

    monkeypatch.setattr(LeaseHolderProcess, "is_alive", property(is_alive))
    assert await store.list_interrupted() == []
    assert looked_up == [4711]


def hold(path: Any, holder: LeaseHolderProcess) -> None:
    """Let somebody hold all sessions."""
    with another_connection(path) as connection:
        connection.execute("UPDATE session SET holder = ?", (msgspec.json.encode(holder).decode(),))


# -- who has the file locked -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "state", "told"),
    [
        (["1: POSIX  ADVISORY  WRITE 4711 08:01:{inode} 120 120"], "S", "process 4711"),
        (["1: POSIX  ADVISORY  WRITE 4711 08:01:{inode} 120 120"], "T", "process 4711, which is stopped,"),
        (["1: POSIX  ADVISORY  WRITE 4711 08:01:{inode} 120 120"], "t", "process 4711, which is stopped,"),
        (
            [
                "1: POSIX  ADVISORY  READ  12 08:01:{inode} 120 120",
                "2: POSIX  ADVISORY  WRITE 13 08:01:{inode} 121 121",
                "3: POSIX  ADVISORY  WRITE 14 08:01:1{inode} 120 120",
                "4: -> POSIX ADVISORY  WRITE 15 08:01:{inode} 120 120",
                "5: POSIX  ADVISORY  WRITE 4711 08:01:{inode} 120 120",
            ],
            "S",
            "process 4711",
        ),
        (["1: POSIX  ADVISORY  READ  12 08:01:{inode} 120 120"], "S", "another process"),
        (["1: POSIX  ADVISORY  WRITE none 08:01:{inode} 120 120"], "S", "another process"),
        ([], "S", "another process"),
        (["1: POSIX  ADVISORY  WRITE 4711 08:01:{inode} 120 120"], "", "another process"),
    ],
)
def test_who_writes_to_a_file_is_read_from_the_locks_of_the_system(
    path: Any, monkeypatch: pytest.MonkeyPatch, lines: list[str], state: str, told: str
) -> None:
    shared = path.with_name("sessions.db-shm")
    shared.touch()
    inode = shared.stat().st_ino
    files = {"/proc/locks": "".join(line.format(inode=inode) + "\n" for line in lines)}
    files["/proc/4711/stat"] = f"4711 (odd) name) {state} 1 2 3" if state else "4711 (name)"
    opened = "perdure._stores.sqlite.file_system.open"
    monkeypatch.setattr(opened, lambda name, **_: io.StringIO(files[name]), raising=False)
    assert describe_lock_holder(str(path)) == told
