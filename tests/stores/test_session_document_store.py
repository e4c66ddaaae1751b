"""A store of three functions: it keeps the contract in one process, and its documents survive the process."""

import asyncio
from typing import Any

import msgspec
import pytest

from perdure import Agent, ConfigError, SessionBusy, StoreError
from perdure.stores import MemoryStore, Post, SessionDocumentStore, SessionInfo, Store, UnsupportedByStore, encode_entry
from perdure.testing import FakeClock, ScriptedModel, check_store
from tests.doubles import SECONDS
from tests.stores.material import entries


class Bucket:
    """Documents in a dict; the next change fails with this error, if there is one."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.error: Exception | None = None

    async def load(self, session_id: str) -> bytes | None:
        return self.documents.get(session_id)

    async def save(self, session_id: str, document: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.documents[session_id] = document

    async def delete(self, session_id: str) -> None:
        self.documents.pop(session_id, None)


class ListedBucket(Bucket):
    async def list(self) -> list[str]:
        return list(self.documents)


class PlainBucket:
    """The same with plain functions."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}

    def load(self, session_id: str) -> bytes | None:
        return self.documents.get(session_id)

    def save(self, session_id: str, document: bytes) -> None:
        self.documents[session_id] = document

    def delete(self, session_id: str) -> None:
        self.documents.pop(session_id, None)


def agent_of(*replies: Any, store: Store) -> Agent[Any]:
    return Agent(ScriptedModel(*replies), store=store)


async def test_it_keeps_the_contract_of_a_store():
    shared = SessionDocumentStore(ListedBucket())
    left_out = await check_store(lambda: shared)
    memory = MemoryStore()
    assert left_out.keys() <= (await check_store(lambda: memory)).keys() | {"an append that need not wait does not"}


@pytest.mark.parametrize("bucket", [Bucket, ListedBucket, PlainBucket])
async def test_sessions_survive_the_process(bucket):
    documents: Any = bucket()
    session = agent_of("Hello, Ada.", store=SessionDocumentStore(documents)).session("s")
    await session.run("I am Ada.")
    await session.steer("A word more.")
    again = agent_of("You are Ada.", store=SessionDocumentStore(documents)).session("s")
    assert [post.kind for post in await again.store.posts("s")] == ["steer"]
    outcome = await again.run("Who am I?")
    assert [message.text for message in outcome.messages][:3] == ["I am Ada.", "Hello, Ada.", "Who am I?"]
    await again.delete()
    assert documents.documents == {}


async def test_a_fork_is_a_document_of_its_own_and_an_interrupted_run_is_found():
    documents = ListedBucket()
    session = agent_of("One.", store=SessionDocumentStore(documents)).session("s")
    await session.run("First.")
    await session.fork("f")
    store = SessionDocumentStore(documents)
    assert {(info.session_id, info.parent) for info in await store.list()} == {("s", ""), ("f", "s")}
    await agent_of("Two.", store=store).session("f").run("More.")
    assert len(await store.read("s")) == 5
    assert await store.list_interrupted() == []
    await store.delete("s")
    assert [info.parent for info in await SessionDocumentStore(documents).list()] == [""]


async def test_a_fork_to_an_id_that_no_store_can_keep_is_refused_before_anything_is_loaded():
    class Unreachable(Bucket):
        async def load(self, session_id: str) -> bytes | None:
            raise OSError(session_id)

    with pytest.raises(ConfigError, match="a session id must be text"):
        await SessionDocumentStore(Unreachable()).fork("s", "f\0")


async def test_an_entry_is_redacted_in_forks_that_this_process_has_not_used():
    documents = ListedBucket()
    session = agent_of("One.", store=SessionDocumentStore(documents)).session("s")
    await session.run("My secret is 4711.")
    await session.fork("f")
    await agent_of(store=SessionDocumentStore(documents)).session("s").redact(2)
    assert all(b"4711" not in document for document in documents.documents.values())
    with pytest.raises(UnsupportedByStore, match="give the documents a list method"):
        await agent_of("One.", store=SessionDocumentStore(Bucket())).store.redact(None, None)  # type: ignore[arg-type]


async def test_without_a_list_the_sessions_of_this_process_are_listed():
    documents = Bucket()
    await agent_of("One.", store=SessionDocumentStore(documents)).session("s").run("First.")
    store = SessionDocumentStore(documents)
    assert await store.list() == []
    assert await store.info("s") is not None
    assert [info.session_id for info in await store.list()] == ["s"]


async def test_a_change_that_cannot_be_saved_has_not_happened():
    documents = Bucket()
    store = SessionDocumentStore(documents)
    session = agent_of("One.", "Two.", store=store).session("s")
    await session.run("First.")
    entries = await store.read("s")
    documents.error = OSError("no space")
    with pytest.raises(StoreError, match="the documents failed: OSError: no space"):
        await session.run("Second.")
    with pytest.raises(StoreError):
        await store.post("new", Post("p", "steer"))
    documents.error = None
    assert await store.read("s") == entries
    assert await store.posts("new") == []
    assert (await session.run("Second.")).text == "Two."


async def test_changes_of_one_session_are_saved_one_after_another():
    documents = Bucket()
    store = SessionDocumentStore(documents)
    await asyncio.gather(*[store.post("s", Post(f"p{number}", "steer")) for number in range(20)])
    assert len(await SessionDocumentStore(documents).posts("s")) == 20


@pytest.mark.parametrize(
    "document", [b"not json", b"{}", b'{"perdure":9,"session_id":"s","created_at":0,"fence":1}', 5]
)
async def test_a_document_that_cannot_be_read_is_an_error(document):
    documents = Bucket()
    documents.documents["s"] = document
    with pytest.raises(StoreError, match="the document of session 's'"):
        await SessionDocumentStore(documents).read("s")


@pytest.mark.parametrize("documents", [None, object(), Bucket])
def test_documents_need_three_functions(documents):
    with pytest.raises(ConfigError, match="give an object with load, save and delete"):
        SessionDocumentStore(documents)


async def test_an_error_of_the_project_that_the_documents_raise_is_raised_as_it_is() -> None:
    documents = Bucket()
    store = SessionDocumentStore(documents)
    documents.error = ConfigError("no such bucket: make it")
    with pytest.raises(ConfigError, match=r"^no such bucket: make it$"):
        await store.acquire("s")
    documents.error = None
    assert (await store.acquire("s")).fence > 0  # it is not driven


async def test_a_session_that_could_not_be_taken_over_is_still_driven() -> None:
    documents = Bucket()
    store = SessionDocumentStore(documents)
    lease = await store.acquire("s")
    documents.error = OSError("no space")
    with pytest.raises(StoreError):
        await store.acquire("s", take_over=True)
    documents.error = None
    assert await store.holds(lease)
    with pytest.raises(SessionBusy):
        await store.acquire("s")
    await store.release(lease)
    documents.error = OSError("no space")
    with pytest.raises(StoreError):
        await store.acquire("s")
    documents.error = None
    assert (await store.acquire("s")).fence == lease.fence + 1


async def test_a_document_has_all_that_is_stored_of_a_session() -> None:
    documents = ListedBucket()
    clock = FakeClock()
    store = SessionDocumentStore(documents, clock=clock)
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 2), sync=True)
    await store.post("s", Post("e-1", "steer", "taken", 3.0))
    assert await store.post("s", Post("p", "steer", {"a": (1, 2)}, 4.0))
    assert not await store.post("s", Post("p", "steer", "again", 5.0))
    await store.fork("s", "f", at=1)
    again = SessionDocumentStore(documents)
    assert await again.list() == await store.list()
    assert await again.info("f") == SessionInfo("f", 1, clock.now(), 1.0, "", "s", 1)
    assert [await again.read("s"), await again.read("s", after=1)] == [entries(1, 2), entries(2)]
    assert await again.posts("s") == [Post("p", "steer", {"a": [1, 2]}, 4.0)]
    assert (await again.acquire("s")).fence == lease.fence + 1
    assert msgspec.json.decode(documents.documents["f"]) == {
        "perdure": 1,
        "session_id": "f",
        "created_at": clock.now(),
        "fence": 1,
        "parent": "s",
        "at": 1,
        "entries": [msgspec.json.decode(encode_entry(entry)) for entry in entries(1)],
    }


async def test_the_document_of_another_session_or_a_newer_version_is_refused_with_both_names() -> None:
    documents = Bucket()
    store = SessionDocumentStore(documents)
    for version, session_id in ((2, "s"), (1, "t")):
        content = {"perdure": version, "session_id": session_id, "created_at": 0, "fence": 1}
        documents.documents["s"] = msgspec.json.encode(content)
        with pytest.raises(StoreError) as refused:
            await store.read("s")
        found = f"is of session {session_id!r}, in format {version}"
        assert str(refused.value) == f"the document of session 's' {found}; this version reads format 1"


async def test_a_session_that_was_loaded_is_not_loaded_again() -> None:
    loads: list[str] = []

    class Counted(Bucket):
        async def load(self, session_id: str) -> bytes | None:
            loads.append(session_id)
            return await super().load(session_id)

    store = SessionDocumentStore(Counted())
    for _ in range(2):
        assert await store.read("s") == []
        assert await store.info("t") is None
    assert loads == ["s", "t"]


def test_one_store_serves_one_event_loop_after_another() -> None:
    store = SessionDocumentStore(Bucket())

    async def post_at_once(first: int) -> None:
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*[store.post("s", Post(f"p{first + number}", "steer")) for number in range(3)])

    for first in (0, 3):
        asyncio.run(post_at_once(first))
    assert len(asyncio.run(store.posts("s"))) == 6


async def test_a_plain_function_may_return_something_to_wait_for() -> None:
    class Mixed(PlainBucket):
        def load(self, session_id: str) -> Any:
            return asyncio.sleep(0, super().load(session_id))

    documents = Mixed()
    store = SessionDocumentStore(documents)
    await store.append(await store.acquire("s"), entries(1), sync=True)
    assert await SessionDocumentStore(documents).read("s") == entries(1)


async def test_no_append_to_documents_is_immediate() -> None:
    store = SessionDocumentStore(Bucket())
    lease = await store.acquire("s")
    assert store.append_now(lease, entries(1), sync=False) is False
    assert await store.read("s") == []
