"""Stores with a listener: their contract, what it is told, and what it cannot break."""

import asyncio
from functools import partial
from typing import Any

import pytest

from perdure import Agent, ConfigError
from perdure.stores import (
    Conflict,
    EventReadingStore,
    FileStore,
    Lease,
    MaintainableStore,
    MemoryStore,
    NonBlockingAppendStore,
    Post,
    SearchableStore,
    SqliteStore,
    listened,
)
from perdure.testing import ScriptedModel, check_store
from tests.doubles import SECONDS
from tests.stores.material import entries
from tests.stores.noting_store import NotingStore


@pytest.fixture
def told():
    return []


@pytest.fixture
def store(told):
    return listened(MemoryStore(), lambda session_id, added: told.append((session_id, [entry.seq for entry in added])))


async def test_it_keeps_the_contract_of_stores():
    store = listened(MemoryStore(), lambda _, __: None)
    await check_store(lambda: store)


async def test_the_events_of_a_session_are_those_of_the_store_below(tmp_path):
    inner = SqliteStore(tmp_path / "sessions.db")
    store = listened(inner, lambda _, __: None)
    assert isinstance(store, EventReadingStore)
    await store.append(await store.acquire("s"), entries(1, 3), sync=True)
    assert await store.events("s", after=1) == ([entry.event for entry in entries(2, 2)], 3)
    await store.aclose()


async def test_each_append_is_told_in_order(store, told):
    lease, other = await store.acquire("s"), await store.acquire("t")
    await store.append(lease, entries(1, 2), sync=True)
    assert store.append_now(other, entries(1), sync=False)
    assert store.append_now(lease, entries(3), sync=False)
    assert told == [("s", [1, 2]), ("t", [1]), ("s", [3])]


async def test_a_listener_hears_of_entries_that_are_stored_already(folder):
    seen = []
    inner = FileStore(folder)
    store = listened(inner, lambda _, __: seen.append((folder / "s.session").read_bytes().count(b'"seq"')))
    assert isinstance(store, NonBlockingAppendStore)
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 2), sync=True)
    assert store.append_now(lease, entries(3), sync=False)
    assert seen == [2, 3]
    await store.aclose()


async def test_an_append_that_adds_nothing_is_not_told(store, told):
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 2), sync=False)
    await store.append(lease, entries(1, 2), sync=True)
    await store.append(lease, [], sync=True)
    with pytest.raises(Conflict):
        await store.append(lease, entries(9), sync=True)
    assert told == [("s", [1, 2])]


async def test_an_append_that_has_to_wait_is_told_when_it_is_done(folder, told):
    store = listened(FileStore(folder), lambda _, added: told.append(len(added)))
    assert isinstance(store, NonBlockingAppendStore)
    lease = await store.acquire("s")
    assert not store.append_now(lease, entries(1), sync=True)
    assert told == []
    await store.append(lease, entries(1), sync=True)
    assert told == [1]
    await store.aclose()


async def test_a_listener_that_fails_hurts_nobody(caplog):
    def fail(session_id, added):
        raise ZeroDivisionError("the listener's own")

    store = listened(MemoryStore(), fail)
    assert isinstance(store, NonBlockingAppendStore)
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    assert store.append_now(lease, entries(2), sync=False)
    assert await store.read("s") == entries(1, 2)
    assert caplog.text.count("the listener of session 's' failed") == 2
    assert "the listener's own" in caplog.text


async def test_a_session_that_is_made_anew_is_told_from_its_beginning(store, told):
    for _ in range(2):
        lease = await store.acquire("s")
        await store.append(lease, entries(1), sync=False)
        await store.release(lease)
        await store.delete("s")
    assert told == [("s", [1]), ("s", [1])]


def test_what_cannot_listen_is_refused():
    deaf: list[Any] = ["nobody", None, 5]
    for listener in deaf:
        with pytest.raises(ConfigError, match=r"listened\(on_append="):
            listened(MemoryStore(), listener)
    with pytest.raises(ConfigError, match=r"listened\(on_read='x'\): give a function"):
        listened(MemoryStore(), on_read="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_every_operation_is_told_when_it_is_done(kind):
    told: list[Any] = []

    def note(what):
        def plain(*given):
            told.append((what, *given))

        async def later(*given):
            await asyncio.sleep(0)
            told.append((what, *given))

        return plain if kind == "plain" else later

    names = ("on_append", "on_read", "on_delete", "on_fork", "on_redact")
    store = listened(MemoryStore(), **{name: note(name) for name in names})
    lease = await store.acquire("s")
    (one,) = entries(1)
    await store.append(lease, [one], sync=True)
    assert await store.read("s") == [one]
    await store.redact(lease, one)
    await store.release(lease)
    await store.fork("s", "t")
    await store.delete("s")
    assert told == [
        ("on_append", "s", [one]),
        ("on_read", "s", [one]),
        ("on_redact", "s", one),
        ("on_fork", "s", "t"),
        ("on_delete", "s"),
    ]


async def test_reading_is_told_also_when_an_agent_opens_a_session():
    loaded: list[tuple[str, int]] = []
    store = listened(MemoryStore(), on_read=lambda session_id, read: loaded.append((session_id, len(read))))
    agent = Agent(ScriptedModel("One.", "Two."), store=store)
    await agent.session("s").run("Go")
    await agent.session("s").run("Again")
    assert ("s", 5) in loaded


class Later:
    """A listener that is an object, and async."""

    def __init__(self) -> None:
        self.told: list[int] = []

    async def __call__(self, _: str, added: Any) -> None:
        await asyncio.sleep(0)
        self.told += [entry.seq for entry in added]


@pytest.mark.parametrize("hidden", [False, True])
async def test_an_async_listener_has_been_told_when_a_run_is_over(hidden):
    listener = Later()
    store = listened(MemoryStore(), partial(listener) if hidden else listener)
    outcome = await Agent(ScriptedModel("One."), store=store).session("s").run("Go")
    assert outcome.status == "done"
    assert listener.told == [1, 2, 3, 4, 5]
    await store.aclose()


async def test_an_async_listener_that_fails_hurts_nobody(caplog):
    async def fail(session_id, added):
        raise ZeroDivisionError("the listener's own")

    store = listened(MemoryStore(), fail)
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    assert await store.read("s") == entries(1)
    assert "the listener of session 's' failed" in caplog.text


async def test_what_turns_out_to_be_async_is_waited_for_at_the_end():
    released, told = asyncio.Event(), []

    async def wait(added):
        await released.wait()
        told.append(len(added))

    store = listened(MemoryStore(), lambda _, added: wait(added))
    assert isinstance(store, NonBlockingAppendStore)
    lease = await store.acquire("s")
    assert store.append_now(lease, entries(1), sync=False)
    assert not store.append_now(lease, entries(2), sync=False)
    asyncio.get_running_loop().call_soon(released.set)
    async with asyncio.timeout(SECONDS):
        await store.aclose()
    assert told == [1]


def test_it_can_do_what_its_store_can(folder, path):
    for inner in (MemoryStore(), FileStore(folder), SqliteStore(path)):
        store = listened(inner, print)
        for kind in (NonBlockingAppendStore, SearchableStore, MaintainableStore):
            assert isinstance(store, kind) == isinstance(inner, kind)
        assert repr(store).startswith("listened(")


async def test_a_store_that_is_maintained_is_maintained_below(store_at, path, tmp_path):
    store = store_at(path)
    heard: Any = listened(store, lambda *_: None)
    await heard.append(await heard.acquire("s"), entries(1, 3), sync=True)
    assert await heard.size() == await store.size()
    await heard.backup(tmp_path / "backup.db")
    assert (tmp_path / "backup.db").exists()
    await heard.vacuum()
    assert [entry.seq for entry in await heard.read("s")] == [1, 2, 3]


LEASE = Lease("s", 3)
PAGE = {"prefix": "", "limit": 50, "offset": 0}


@pytest.mark.parametrize(
    ("name", "given", "named", "passed"),
    [
        ("acquire", ("s",), {}, {"take_over": False}),
        ("acquire", ("s",), {"take_over": True}, {"take_over": True}),
        ("release", (LEASE,), {}, {}),
        ("holds", (LEASE,), {}, {}),
        ("append", (LEASE, entries(1)), {"sync": True}, {"sync": True}),
        ("append", (LEASE, entries(1)), {"sync": False}, {"sync": False}),
        ("redact", (LEASE, entries(1)[0]), {}, {}),
        ("read", ("s",), {}, {"after": 0}),
        ("read", ("s",), {"after": 4}, {"after": 4}),
        ("post", ("s", Post("p", "steer")), {}, {}),
        ("posts", ("s",), {}, {}),
        ("list_interrupted", (), {}, {"prefix": "", "include_posts": False, "now": None}),
        ("list_interrupted", (), interrupted := {"prefix": "a", "include_posts": True, "now": 7.0}, interrupted),
        ("list", (), {}, PAGE),
        ("list", (), {"prefix": "a", "limit": 2, "offset": 1}, {"prefix": "a", "limit": 2, "offset": 1}),
        ("info", ("s",), {}, {}),
        ("delete", ("s",), {}, {}),
        ("fork", ("s", "t"), {}, {"at": None}),
        ("fork", ("s", "t"), {"at": 2}, {"at": 2}),
        ("forks", ("s",), {}, {}),
        ("events", ("s",), {}, {"after": 0}),
        ("events", ("s",), {"after": 4}, {"after": 4}),
        ("search", ("boat",), {"role": "user", "limit": 2}, {"role": "user", "limit": 2}),
        ("size", (), {}, {}),
        ("vacuum", (), {}, {}),
        ("backup", ("there",), {}, {}),
        ("aclose", (), {}, {}),
    ],
)
async def test_each_operation_is_passed_on_with_what_it_was_given_and_its_answer_is_returned(
    name: str, given: tuple[Any, ...], named: dict[str, Any], passed: dict[str, Any]
) -> None:
    inner: Any = NotingStore()
    inner.answer = ["the answer"]
    store = listened(inner, lambda _, __: None)
    returned = await getattr(store, name)(*given, **named)
    assert inner.calls == [(name, given, passed)]
    silent = {"release", "append", "redact", "delete", "fork", "vacuum", "backup", "aclose"}
    assert returned == (None if name in silent else ["the answer"])


@pytest.mark.parametrize(("answer", "heard"), [(True, [1]), (False, [])])
def test_an_immediate_append_is_told_if_the_store_below_has_stored_it(answer: bool, heard: list[int]) -> None:
    told: list[int] = []
    inner: Any = NotingStore()
    inner.answer = answer
    store = listened(inner, lambda _, added: told.extend(entry.seq for entry in added))
    assert isinstance(store, NonBlockingAppendStore)
    assert store.append_now(LEASE, entries(1), sync=False) is answer
    assert inner.calls == [("append_now", (LEASE, entries(1)), {"sync": False})]
    assert told == heard


@pytest.mark.parametrize("listener", [{"on_append": lambda *_: None}, {"on_read": lambda *_: None}])
def test_a_store_that_tells_of_reading_has_no_way_to_read_only_the_events(listener: dict[str, Any]) -> None:
    store = listened(NotingStore(), **listener)  # type: ignore[arg-type] # its methods are made by a loop
    assert isinstance(store, EventReadingStore) is ("on_append" in listener)
    assert isinstance(store, SearchableStore)


@pytest.mark.parametrize("kind", ["function", "object"])
async def test_with_an_async_listener_no_append_is_immediate(kind: str) -> None:
    async def hear(session_id: str, added: Any) -> None:
        await asyncio.sleep(0)

    store = listened(MemoryStore(), hear if kind == "function" else Later())
    assert isinstance(store, NonBlockingAppendStore)
    assert not store.append_now(await store.acquire("s"), entries(1), sync=False)
    assert await store.read("s") == []


async def test_a_session_that_is_acquired_again_is_told_again_what_is_appended_again(
    store: Any, told: list[tuple[str, list[int]]]
) -> None:
    for _ in range(2):
        lease = await store.acquire("s")
        await store.append(lease, entries(1, 2), sync=False)
        await store.release(lease)
    assert told == [("s", [1, 2]), ("s", [1, 2])]


async def test_a_session_that_was_deleted_under_its_lease_is_told_from_its_beginning() -> None:
    told: list[int] = []
    inner: Any = NotingStore()
    store = listened(inner, lambda _, added: told.extend(entry.seq for entry in added))
    await store.append(LEASE, entries(1, 2), sync=False)
    await store.delete("s")
    await store.append(LEASE, entries(1), sync=False)
    assert told == [1, 2, 1]


def test_a_wrapped_store_is_named_like_the_one_below() -> None:
    inner = MemoryStore()
    store: Any = listened(inner, lambda _, __: None)
    assert repr(store) == f"listened({inner!r})"
    assert listened(NotingStore(), print).identity == "noting"  # type: ignore[arg-type, attr-defined]
