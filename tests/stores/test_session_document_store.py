"""A store of three functions: it keeps the contract in one process, and its documents survive the process."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, ConfigError, Post, StoreError, UnsupportedByStore
from perdure.core.store import Store
from perdure.stores import SessionDocumentStore
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, check_store


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
