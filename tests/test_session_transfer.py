"""Sessions as documents: written, read, refused."""

import hashlib
import json
from collections.abc import Sequence

import pytest

from perdure import Agent, ConfigError, Image, PromptPrefix, SessionBusy, SessionExists, SessionNotFound, tool, user
from perdure._core.log.codec import UPCASTERS
from perdure._runtime.transfer import FORMAT
from perdure.events import Entry, MessageAdded, RunStarted, SessionImported
from perdure.stores import EntryTooNew, ImportReport, Lease, MemoryStore, export_session, import_session, read_document
from perdure.testing import FakeClock, ScriptedModel, call

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def depth(harbour: str) -> int:
    """The depth of a harbour in metres."""
    return 12


async def kept_session(store, name="log"):
    agent = Agent(ScriptedModel(call("depth", harbour="Bergen"), "12 metres."), tools=[depth], store=store)
    await agent.session(name).run("How deep is Bergen?")


async def exported(name="log"):
    store = MemoryStore()
    await kept_session(store, name)
    return await export_session(store, name), await store.read(name)


async def test_a_session_survives_the_way_through_a_document():
    document, entries = await exported()
    store = MemoryStore()
    report = await import_session(store, json.loads(json.dumps(document)), trusted=True, by="ann")
    assert (report.session_id, report.trusted, report.dropped) == ("log", True, {})
    *copied, last = await store.read("log")
    assert copied == entries
    assert isinstance(last.event, SessionImported)
    assert (last.event.digest, last.event.session_id, last.event.by) == (report.digest, "log", "ann")
    info = await store.info("log")
    assert info is not None
    assert info.title == "How deep is Bergen?"


async def test_a_document_can_be_given_as_text_or_bytes():
    document, entries = await exported()
    for given in (json.dumps(document), json.dumps(document).encode()):
        assert list(read_document(given).entries) == entries


async def test_bytes_of_a_picture_survive():
    store = MemoryStore()
    agent = Agent(ScriptedModel("A boat."), store=store)
    await agent.session("s").run(["What is this?", Image(data=b"\x00\xff\x89PNG", media_type="image/png")])
    document = json.loads(json.dumps(await export_session(store, "s")))
    assert list(read_document(document).entries) == await store.read("s")


async def test_an_imported_session_goes_on_under_another_name():
    document, _ = await exported()
    store = MemoryStore()
    assert (await import_session(store, document, session_id="copy")).session_id == "copy"
    outcome = await Agent(ScriptedModel("As I said."), store=store).session("copy").run("Again?")
    assert [message.text for message in outcome.messages if message.role == "user"] == ["How deep is Bergen?", "Again?"]


async def test_a_session_of_that_name_is_left_as_it_is():
    document, _ = await exported()
    store = MemoryStore()
    await Agent(ScriptedModel("Hello."), store=store).session("log").run("Hi")
    before = await store.read("log")
    with pytest.raises(SessionExists, match="there is a session 'log' already"):
        await import_session(store, document)
    assert await store.read("log") == before


async def test_a_session_that_somebody_is_about_to_begin_is_not_touched():
    document, _ = await exported()
    store = MemoryStore()
    lease = await store.acquire("log")
    with pytest.raises(SessionBusy):
        await import_session(store, document)
    await store.append(lease, [Entry(1, 0.0, RunStarted(run_id="r"), "a")], sync=False)
    await store.release(lease)
    assert len(await store.read("log")) == 1


async def test_a_session_that_began_since_we_looked_is_told():
    class Hasty(MemoryStore):
        async def info(self, session_id):
            return None

    document, _ = await exported()
    store = Hasty()
    await kept_session(store)
    with pytest.raises(SessionExists):
        await import_session(store, document)
    await store.release(await store.acquire("log"))  # the lease was given back


async def test_a_session_that_is_not_there_cannot_be_exported():
    with pytest.raises(SessionNotFound, match="there is no session 'nobody'"):
        await export_session(MemoryStore(), "nobody")


async def test_a_fork_tells_where_it_comes_from():
    store = MemoryStore()
    await kept_session(store)
    await store.fork("log", "fork", at=2)
    document = await export_session(store, "fork")
    assert (document["parent"], document["at"], len(document["entries"])) == ("log", 2, 2)


async def test_a_document_can_tell_what_hashes_stand_for():
    store = MemoryStore()
    await kept_session(store)
    document = await export_session(store, "log", prefixes={"abc": PromptPrefix("Be brief.", (depth.spec,))})
    assert read_document(json.dumps(document)).prefixes == {"abc": PromptPrefix("Be brief.", (depth.spec,))}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"format": "song"}, ConfigError, "format 'song' is no session"),
        ({"version": 2}, EntryTooNew, "of version 2, and this is version 1: upgrade perdure"),
        ({"version": "1"}, ConfigError, "this is no session"),
        ({"entries": []}, ConfigError, "has no entries"),
        ({"entries": [{"seq": 2, "at": 0, "event": {"kind": "run_started"}}]}, ConfigError, "has the number 2"),
        ({"entries": [{"seq": 1, "at": 0, "event": {"kind": "run_ended"}}]}, ConfigError, "entry 1 of the document"),
        ({"entries": [{"seq": 1, "at": 0, "event": 3}]}, ConfigError, "entry 1 of the document cannot be read"),
        (
            {"entries": [{"seq": 1, "at": 0, "event": {"kind": "unheard_of"}, "critical": True}]},
            EntryTooNew,
            "upgrade perdure",
        ),
        (
            {"entries": [{"seq": seq, "at": 0, "id": "a", "event": {"kind": "run_resumed"}} for seq in (1, 2)]},
            ConfigError,
            "has an entry twice",
        ),
    ],
)
async def test_what_is_no_such_document_is_refused_and_nothing_is_written(change, error, words):
    store = MemoryStore()
    document, _ = await exported()
    with pytest.raises(error, match=words):
        await import_session(store, {**document, **change})
    assert await store.info("log") is None


@pytest.mark.parametrize("given", [b"\xff", "{", "[]", b"null", {"entries": object()}])
def test_what_is_no_json_is_refused(given):
    with pytest.raises(ConfigError, match="this is no session"):
        read_document(given)


async def test_entries_of_an_older_version_are_understood(monkeypatch):
    monkeypatch.setitem(UPCASTERS, 0, lambda body: {**body, "kind": body["kind"].removeprefix("old_")})
    message = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
    old = {"seq": 1, "at": 1.5, "v": 0, "id": "a", "event": {"kind": "old_message_added", "message": message}}
    document = {"format": FORMAT, "version": 1, "session_id": "s", "entries": [old]}
    assert read_document(document).entries == [Entry(1, 1.5, MessageAdded(user("hi")), "a")]


async def test_a_session_that_is_deleted_while_it_is_exported_is_not_found() -> None:
    class Emptied(MemoryStore):
        is_empty = False

        async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
            return [] if self.is_empty else [*await super().read(session_id, after=after)]

    store = Emptied()
    await kept_session(store)
    store.is_empty = True
    with pytest.raises(SessionNotFound) as missing:
        await export_session(store, "log")
    assert str(missing.value) == "there is no session 'log' to export: store.list() lists them"


async def test_an_import_is_on_disk_when_it_is_reported() -> None:
    synced: list[bool] = []

    class Noting(MemoryStore):
        async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
            synced.append(sync)
            await super().append(lease, entries, sync=sync)

    document, _ = await exported()
    await import_session(Noting(), document)
    assert synced == [True]


async def test_an_import_reports_all_that_was_done() -> None:
    document, entries = await exported()
    text = json.dumps(document)
    digest = hashlib.sha256(text.encode()).hexdigest()
    trusted = await import_session(MemoryStore(), text.encode(), trusted=True)
    assert trusted == ImportReport(session_id="log", digest=digest, entries=len(entries) + 1, trusted=True)
    clock = FakeClock()
    store = MemoryStore()
    report = await import_session(store, text, session_id="copy", by="ann", clock=clock)
    first, *others = await store.read("copy")
    assert report == ImportReport(session_id="copy", digest=digest, entries=len(others) + 1, trusted=False)
    assert (first.seq, first.at) == (1, clock.now())
    assert first.event == SessionImported(digest, "log", "ann", False, {})
    assert [entry.seq for entry in others] == [*range(2, len(others) + 2)]
