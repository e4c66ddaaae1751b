"""Parts of a store: their contract, what they keep to themselves, and where subagents have theirs."""

from typing import Any

import pytest

from perdure import ConfigError, SessionBusy, SessionExists, SessionNotFound, user
from perdure._core.log.store import get_process_wide_session_key
from perdure.events import MessageAdded
from perdure.stores import (
    Fenced,
    FileStore,
    Hit,
    InterruptedSession,
    Lease,
    MaintainableStore,
    MemoryStore,
    NonBlockingAppendStore,
    Post,
    PostgresStore,
    SearchableStore,
    SessionInfo,
    StoreSize,
    derive_subagent_session,
    listened,
    namespaced,
    open_store,
)
from perdure.testing import check_store
from tests.stores.material import entries
from tests.stores.noting_store import NotingStore


class Searched(MemoryStore):
    """A store that remembers what it was asked, and finds one thing."""

    asked: tuple[str, dict[str, Any]] | None = None

    async def search(self, query, **narrowed):
        self.asked = (query, narrowed)
        return [Hit("acme/s", 1, "user", "«x»", 1.0, 1.0)]


class Kept(MemoryStore):
    """A store that is looked after."""

    def __init__(self):
        super().__init__()
        self.done = []

    async def size(self):
        return StoreSize(100, 10, 0, {"acme/s": 40, "acme/deep/t": 7, "other/s": 50, "acmes": 3})

    async def vacuum(self):
        self.done.append("vacuum")

    async def backup(self, path):
        self.done.append(path)


async def keep(store, session_id, count=1):
    lease = await store.acquire(session_id)
    await store.append(lease, entries(1, count), sync=False)
    await store.release(lease)


async def test_a_part_keeps_the_contract_of_stores():
    store = MemoryStore()
    await check_store(lambda: namespaced(store, "acme"))


async def test_a_part_of_files_keeps_the_contract_of_stores(folder):
    made = []

    def make():
        made.append(FileStore(folder))
        return namespaced(made[-1], "acme")

    await check_store(make)
    for store in made:
        await store.aclose()


async def test_two_parts_know_nothing_of_each_other():
    store = MemoryStore()
    acme, acmes = namespaced(store, "acme"), namespaced(store, "acmes")
    await keep(acme, "s", 1)
    await keep(acmes, "s", 2)
    await acme.post("s", Post("p", "steer"))
    assert [info.session_id for info in await acme.list()] == ["s"]
    assert [len(await part.read("s")) for part in (acme, acmes)] == [1, 2]
    assert await acmes.posts("s") == []
    assert sorted(info.session_id for info in await store.list()) == ["acme/s", "acmes/s"]


async def test_a_part_of_a_part_lies_deeper():
    store = MemoryStore()
    await keep(namespaced(namespaced(store, "acme"), "support"), "s")
    assert [info.session_id for info in await store.list()] == ["acme/support/s"]
    assert [info.session_id for info in await namespaced(store, "acme").list()] == ["support/s"]


@pytest.mark.parametrize("prefix", ["", "/", "\0", "\ud800", None])
def test_a_part_without_a_name_is_refused(prefix):
    with pytest.raises(ConfigError):
        namespaced(MemoryStore(), prefix)


@pytest.mark.parametrize("prefix", ["ann/diary", "ann/", "/ann"])
def test_a_prefix_with_a_slash_is_refused_because_it_would_be_part_of_another(prefix):
    with pytest.raises(ConfigError, match=r"pass a name without slashes.*namespaced\(namespaced\("):
        namespaced(MemoryStore(), prefix)


async def test_errors_speak_of_the_id_that_the_caller_used():
    part = namespaced(MemoryStore(), "acme")
    lease = await part.acquire("s")
    await keep(part, "t")
    for error, work in (
        (SessionBusy, part.acquire("s")),
        (SessionBusy, part.delete("s")),
        (SessionNotFound, part.fork("missing", "new")),
        (SessionExists, part.fork("t", "t")),
        (ConfigError, part.fork("t", "new", at=9)),
        (Fenced, part.append(type(lease)("t", 99), entries(2), sync=False)),
    ):
        with pytest.raises(error) as caught:
            await work
        assert "acme" not in str(caught.value)
    assert isinstance(part, NonBlockingAppendStore)
    with pytest.raises(Fenced, match="session 't' has changed hands"):
        part.append_now(type(lease)("t", 99), entries(2), sync=False)


async def test_a_fork_of_something_outside_does_not_tell_where_it_is_from():
    store = MemoryStore()
    await keep(store, "outside", 2)
    await store.fork("outside", "acme/s")
    part = namespaced(store, "acme")
    await part.fork("s", "t", at=1)
    infos = [await part.info(session_id) for session_id in ("s", "t")]
    assert [info and info.parent for info in infos] == ["", "s"]


async def test_closing_a_part_gives_its_leases_back_and_no_others():
    store = MemoryStore()
    ours, theirs = namespaced(store, "ours"), namespaced(store, "theirs")
    await ours.acquire("s")
    lease = await theirs.acquire("s")
    await ours.aclose()
    await ours.acquire("s")
    await theirs.append(lease, entries(1), sync=False)
    with pytest.raises(SessionBusy):
        await theirs.acquire("s")


@pytest.mark.parametrize(
    ("store", "can"),
    [
        (MemoryStore(), {NonBlockingAppendStore}),
        (Searched(), {NonBlockingAppendStore, SearchableStore}),
        (Kept(), {NonBlockingAppendStore, MaintainableStore}),
    ],
)
def test_a_part_can_do_what_its_store_can_and_nothing_else(store, can):
    part = namespaced(store, "acme")
    assert {
        kind for kind in (NonBlockingAppendStore, SearchableStore, MaintainableStore) if isinstance(part, kind)
    } == can
    assert type(part) is type(namespaced(store, "other"))
    assert repr(part).startswith("namespaced(<")


def test_a_part_of_a_store_that_can_do_nothing_else_can_do_nothing_else():
    class Bare:
        pass

    part = namespaced(Bare(), "acme")  # type: ignore[arg-type] # it cannot even do what every store can
    assert not any(isinstance(part, kind) for kind in (NonBlockingAppendStore, SearchableStore, MaintainableStore))


async def test_a_search_stays_within_its_part():
    store = Searched()
    part = namespaced(store, "acme")
    assert isinstance(part, SearchableStore)
    assert [hit.session_id for hit in await part.search("x", prefix="de", role="user", limit=5)] == ["s"]
    assert store.asked is not None
    query, narrowed = store.asked
    assert (query, narrowed["prefix"], narrowed["session_id"]) == ("x", "acme/de", "")
    assert (narrowed["role"], narrowed["limit"]) == ("user", 5)
    await part.search("x", session_id="s")
    assert (store.asked[1]["prefix"], store.asked[1]["session_id"]) == ("acme/", "acme/s")


async def test_the_size_of_a_part_has_its_own_sessions():
    store = Kept()
    part = namespaced(store, "acme")
    assert isinstance(part, MaintainableStore)
    assert await part.size() == StoreSize(100, 10, 0, {"s": 40, "deep/t": 7})
    await part.vacuum()
    await part.backup("there")
    assert store.done == ["vacuum", "there"]


# -- subagents ---------------------------------------------------------------------------------------------------------


async def test_a_durable_subagent_finds_its_session_again():
    store = MemoryStore()
    for count in (1, 2):
        part, session_id = derive_subagent_session(store, "parent", "reviewer", durable=True)
        lease = await part.acquire(session_id)
        await part.append(lease, entries(count), sync=False)
        await part.release(lease)
    assert await store.read("parent/reviewer") == entries(1, 2)


async def test_a_fresh_subagent_has_a_new_session_each_time():
    store = MemoryStore()
    for _ in range(2):
        part, session_id = derive_subagent_session(store, "parent", "reviewer", durable=False)
        await keep(part, session_id)
    found = [info.session_id for info in await store.list()]
    assert len(set(found)) == 2
    assert all(session_id.startswith("parent/reviewer-") for session_id in found)


async def test_the_subagent_of_a_subagent_lies_under_it():
    store = MemoryStore()
    part, session_id = derive_subagent_session(store, "parent", "reviewer", durable=True)
    inner, inner_id = derive_subagent_session(part, session_id, "reader", durable=True)
    lease = await inner.acquire(inner_id)
    await inner.append(lease, entries(1), sync=False)
    assert [info.session_id for info in await store.list()] == ["parent/reviewer/reader"]


@pytest.mark.parametrize(("parent", "name"), [("", "a"), ("p", ""), ("p", "a/b"), ("p", "\0"), ("\0", "a")])
def test_a_subagent_without_a_name_is_refused(parent, name):
    with pytest.raises(ConfigError):
        derive_subagent_session(MemoryStore(), parent, name, durable=True)


async def test_what_was_said_in_a_part_titles_its_session():
    part = namespaced(MemoryStore(), "acme")
    lease = await part.acquire("s")
    (entry,) = entries(1)
    said = type(entry)(1, 1.0, MessageAdded(user("hello")), "e-1")
    assert isinstance(part, NonBlockingAppendStore)
    assert part.append_now(lease, [said], sync=False)
    info = await part.info("s")
    assert info is not None
    assert info.title == "hello"


# -- where a session is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_objects_for_the_same_files_and_parts_of_them_have_their_sessions_in_the_same_place(kind, tmp_path):
    one, other = (open_store(f"{kind}:{tmp_path}/{name}") for name in ("a", "./a"))
    place = get_process_wide_session_key(one, "acme/support/s")
    part = namespaced(listened(namespaced(other, "acme"), lambda *_: None), "support")
    assert get_process_wide_session_key(other, "acme/support/s") == get_process_wide_session_key(part, "s") == place
    assert get_process_wide_session_key(open_store(f"{kind}:{tmp_path}/b"), "acme/support/s") != place
    assert get_process_wide_session_key(namespaced(one, "other"), "s") != place


def test_databases_are_told_apart_by_all_of_their_address_and_the_tenant():
    place = get_process_wide_session_key(PostgresStore("postgresql://ann@host/db"), "s")
    assert get_process_wide_session_key(PostgresStore("postgresql://ann@host/db"), "s") == place
    for other in ("postgresql://ann@host/other", "postgresql://ann@host:5433/db", "postgresql://ben@host/db"):
        assert get_process_wide_session_key(PostgresStore(other), "s") != place
    assert get_process_wide_session_key(PostgresStore("postgresql://ann@host/db", tenant="acme"), "s") != place


# -- what is passed on -------------------------------------------------------------------------------------------------


LEASE, OUTER = Lease("s", 3), Lease("acme/s", 3)


@pytest.mark.parametrize(
    ("name", "given", "named", "outer", "passed"),
    [
        ("holds", (LEASE,), {}, (OUTER,), {}),
        ("append", (LEASE, entries(1)), {"sync": True}, (OUTER, entries(1)), {"sync": True}),
        ("append", (LEASE, entries(1)), {"sync": False}, (OUTER, entries(1)), {"sync": False}),
        ("redact", (LEASE, entries(1)[0]), {}, (OUTER, entries(1)[0]), {}),
        ("read", ("s",), {}, ("acme/s",), {"after": 0}),
        ("read", ("s",), {"after": 4}, ("acme/s",), {"after": 4}),
        ("post", ("s", Post("p", "steer")), {}, ("acme/s", Post("p", "steer")), {}),
        ("posts", ("s",), {}, ("acme/s",), {}),
        ("delete", ("s",), {}, ("acme/s",), {}),
        ("fork", ("s", "t"), {}, ("acme/s", "acme/t"), {"at": None}),
        ("fork", ("s", "t"), {"at": 2}, ("acme/s", "acme/t"), {"at": 2}),
        ("events", ("s",), {}, ("acme/s",), {"after": 0}),
        ("events", ("s",), {"after": 4}, ("acme/s",), {"after": 4}),
        ("vacuum", (), {}, (), {}),
        ("backup", ("there",), {}, ("there",), {}),
    ],
)
async def test_each_operation_is_passed_on_with_the_whole_id_and_its_answer_is_returned(
    name: str, given: tuple[Any, ...], named: dict[str, Any], outer: tuple[Any, ...], passed: dict[str, Any]
) -> None:
    store: Any = NotingStore()
    store.answer = ["the answer"]
    returned = await getattr(namespaced(store, "acme"), name)(*given, **named)
    assert store.calls == [(name, outer, passed)]
    silent = {"append", "redact", "delete", "fork", "vacuum", "backup"}
    assert returned == (None if name in silent else ["the answer"])


@pytest.mark.parametrize("answer", [True, False])
def test_an_immediate_append_is_passed_on_and_what_became_of_it_is_returned(answer: bool) -> None:
    store: Any = NotingStore()
    store.answer = answer
    part: Any = namespaced(store, "acme")
    assert part.append_now(LEASE, entries(1), sync=False) is answer
    assert store.calls == [("append_now", (OUTER, entries(1)), {"sync": False})]


async def test_sessions_are_told_by_the_ids_of_the_part() -> None:
    store: Any = NotingStore()
    part: Any = namespaced(store, "acme")
    fork = SessionInfo("acme/s", 5, 1.0, 2.0, "Title", "acme/root", 3)
    store.answer = fork
    assert await part.info("s") == SessionInfo("s", 5, 1.0, 2.0, "Title", "root", 3)
    store.answer = [fork, SessionInfo("acme/t", 1, 1.0, 2.0, parent="other/s")]
    inner = [SessionInfo("s", 5, 1.0, 2.0, "Title", "root", 3), SessionInfo("t", 1, 1.0, 2.0)]
    assert await part.list() == inner
    assert await part.list(prefix="d", limit=2, offset=1) == inner
    store.answer.append(SessionInfo("acmes", 1, 1.0, 2.0, parent="acme/s"))
    assert await part.forks("s") == inner
    assert store.calls == [
        ("info", ("acme/s",), {}),
        ("list", (), {"prefix": "acme/", "limit": 50, "offset": 0}),
        ("list", (), {"prefix": "acme/d", "limit": 2, "offset": 1}),
        ("forks", ("acme/s",), {}),
    ]


async def test_interrupted_sessions_are_told_by_the_ids_of_the_part() -> None:
    store: Any = NotingStore()
    store.answer = [InterruptedSession("acme/s", "waiting", 3, 2.0, 1, 9.0)]
    part: Any = namespaced(store, "acme")
    inner = [InterruptedSession("s", "waiting", 3, 2.0, 1, 9.0)]
    assert await part.list_interrupted() == inner
    assert await part.list_interrupted(prefix="d", include_posts=True, now=7.0) == inner
    assert store.calls == [
        ("list_interrupted", (), {"prefix": "acme/", "include_posts": False, "now": None}),
        ("list_interrupted", (), {"prefix": "acme/d", "include_posts": True, "now": 7.0}),
    ]


async def test_leases_of_the_part_are_leases_of_the_store() -> None:
    store: Any = NotingStore()
    part: Any = namespaced(store, "acme")
    for name, fence in (("s", 3), ("t", 4)):
        store.answer = Lease(f"acme/{name}", fence)
        assert await part.acquire(name) == Lease(name, fence)
    await part.acquire("t", take_over=True)
    await part.release(LEASE)
    await part.release(Lease("t", 1))  # one that was lost to the other
    store.calls, acquired = [], store.calls
    assert acquired == [
        ("acquire", ("acme/s",), {"take_over": False}),
        ("acquire", ("acme/t",), {"take_over": False}),
        ("acquire", ("acme/t",), {"take_over": True}),
        ("release", (OUTER,), {}),
        ("release", (Lease("acme/t", 1),), {}),
    ]
    await part.aclose()
    await part.aclose()
    assert store.calls == [("release", (Lease("acme/t", 4),), {})]


def test_a_part_is_named_by_its_store_and_prefix() -> None:
    store = MemoryStore()
    assert repr(namespaced(namespaced(store, "a"), "b")) == f"namespaced(namespaced({store!r}, 'a'), 'b')"
    assert namespaced(NotingStore(), "a").identity == "noting/a/"  # type: ignore[arg-type, attr-defined]


@pytest.mark.parametrize("prefix", ["\0", None, 5])
async def test_a_prefix_to_list_that_can_be_none_is_refused(prefix: Any) -> None:
    part = namespaced(MemoryStore(), "acme")
    with pytest.raises(ConfigError, match="a prefix"):
        await part.list_interrupted(prefix=prefix)
    with pytest.raises(ConfigError):
        await part.list(prefix=prefix)
