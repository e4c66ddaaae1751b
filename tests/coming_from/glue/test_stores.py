"""Glue's stores, lists and searches, with our names."""

from typing import Any

import pytest

from perdure import Agent, ConfigError, tool
from perdure.engines import fold_entries
from perdure.events import Custom, Entry
from perdure.stores import (
    Fenced,
    FileStore,
    Hit,
    MemoryStore,
    SearchableStore,
    SessionDocumentStore,
    SqliteStore,
    UnsupportedByStore,
    open_store,
)
from perdure.testing import FakeClock, ScriptedModel, call
from tests.coming_from.shows import shows


class Folder:
    """A store as Glue has them: load, save and delete."""

    def __init__(self):
        self.saved: dict[str, bytes] = {}

    def load(self, session_id):
        return self.saved.get(session_id)

    def save(self, session_id, document):
        self.saved[session_id] = document

    def delete(self, session_id):
        self.saved.pop(session_id, None)


@shows("glue", "Store", "Store.Load", "Store.Save", "Store.Delete")
async def test_a_store_is_made_of_load_save_and_delete():
    folder = Folder()
    await Agent(ScriptedModel("Rain."), store=SessionDocumentStore(folder)).session("oslo").run("Weather?")
    assert set(folder.saved) == {"oslo"}
    store = SessionDocumentStore(folder)  # as in the next process
    session = Agent(ScriptedModel("Snow."), store=store).session("oslo")
    outcome = await session.run("And now?")
    assert [each.text for each in outcome.messages] == ["Weather?", "Rain.", "And now?", "Snow."]
    assert await store.read("bergen") == []
    await store.delete("oslo")
    await store.delete("oslo")
    assert folder.saved == {}


@shows("glue", "Store", "Store.Load", "Store.Save", "Store.Delete")
async def test_a_log_is_appended_to_under_a_lease_and_deleted_without_a_trace(sqlite):
    first, second = sqlite(), sqlite()
    await Agent(ScriptedModel("Rain."), store=first).session("oslo").run("Weather?")
    entries = await second.read("oslo")
    assert [each.text for each in fold_entries(entries).messages] == ["Weather?", "Rain."]
    assert await second.read("bergen") == []
    lease = await first.acquire("oslo")
    taken = await second.acquire("oslo", take_over=True)
    with pytest.raises(Fenced):
        await first.append(lease, [Entry(len(entries) + 1, 0.0, Custom("late"), "a")], sync=True)
    assert await second.read("oslo") == entries
    await second.release(taken)
    await second.delete("oslo")
    await second.delete("oslo")
    assert await first.read("oslo") == []


@shows(
    "glue",
    "SessionLister",
    "SessionLister.ListSessions",
    "ListSessionsOptions",
    "ListSessionsOptions.Prefix",
    "ListSessionsOptions.Limit",
    "ListSessionsOptions.Offset",
    "package stores",
    "package stores/file",
    "package stores/sqlite",
)
@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
async def test_every_store_lists_its_sessions_in_pages(kind, tmp_path):
    store = open_store({"memory": "memory:", "file": f"file:{tmp_path}", "sqlite": f"sqlite:{tmp_path / 'a.db'}"}[kind])
    assert isinstance(store, {"memory": MemoryStore, "file": FileStore, "sqlite": SqliteStore}[kind])
    clock = FakeClock()
    agent = Agent(ScriptedModel("Yes.", repeat_last=True), store=store, clock=clock)
    for name in ("trip/a", "trip/b", "other", "trip/c"):
        await agent.session(name).run("Hi")
        await clock.advance(1)
    listed = [each.session_id for each in await store.list(prefix="trip/")]
    assert listed == ["trip/c", "trip/b", "trip/a"]
    assert [each.session_id for each in await store.list(prefix="trip/", limit=1, offset=1)] == ["trip/b"]
    await store.aclose()


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}, with heavy fog."


@shows(
    "glue",
    "Searcher",
    "Searcher.Search",
    "ErrSearchNotSupported",
    "SearchOptions",
    "SearchOptions.SessionID",
    "WithSessionID",
    "SearchOptions.Limit",
    "WithLimit",
    "SearchOptions.Offset",
    "WithOffset",
    "SearchOptions.Since",
    "WithSince",
    "SearchOptions.Until",
    "WithUntil",
    "DefaultSearchLimit",
    "MaxSearchLimit",
)
async def test_a_search_is_narrowed_and_paged(sqlite):
    clock = FakeClock(1_000_000.0)
    agent = Agent(ScriptedModel("Yes.", repeat_last=True), store=sqlite(), clock=clock)
    for number in range(25):
        await agent.session(f"s{number}").run(f"Is there fog {number}?")
        await clock.advance(10)

    async def found(**options):
        return [int(hit.session_id[1:]) for hit in await agent.search("fog", **options)]

    assert len(await found()) == 20
    assert len(await found(limit=100)) == 25
    assert await found(session_id="s7") == [7]
    pages = [*await found(limit=10), *await found(limit=10, offset=10), *await found(limit=10, offset=20)]
    assert sorted(pages) == list(range(25))
    assert sorted(await found(since=1_000_230.0)) == [23, 24]
    assert sorted(await found(until=1_000_010.0)) == [0, 1]
    assert await found(since=1_000_100.0, until=1_000_100.0) == [10]
    wrong_ones: list[dict[str, Any]] = [{"limit": 101}, {"limit": 0}, {"offset": -1}]
    for wrong in wrong_ones:
        with pytest.raises(ConfigError):
            await agent.search("fog", **wrong)
    assert isinstance(agent.store, SearchableStore)
    assert [hit.session_id for hit in await agent.store.search("fog", session_id="s3")] == ["s3"]
    assert not isinstance(open_store("memory:"), SearchableStore)
    for search in (Agent(ScriptedModel()).search, Agent(ScriptedModel()).session("oslo").search):
        with pytest.raises(UnsupportedByStore):
            await search("fog")


@shows(
    "glue",
    "SearchHit",
    "SearchHit.SessionID",
    "SearchHit.Index",
    "SearchHit.Role",
    "SearchHit.Snippet",
    "SearchHit.Score",
    "SearchHit.Timestamp",
)
async def test_a_hit_says_where_what_and_when(sqlite):
    clock = FakeClock(1_000_000.0)
    model = ScriptedModel("Hello.", call("weather", city="Oslo"), "It rains, and there is fog. Fog!")
    session = Agent(model, tools=[weather], store=sqlite(), clock=clock).session("oslo")
    await session.run("Hi")
    await clock.advance(60)
    await session.run("Weather?")
    hits = await session.search("fog")
    assert all(isinstance(hit, Hit) for hit in hits)
    assert {(hit.session_id, hit.at) for hit in hits} == {("oslo", 1_000_060.0)}
    by_role = {hit.role: hit for hit in hits}
    assert set(by_role) == {"tool", "assistant"}
    assert "«fog»" in by_role["assistant"].snippet
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    messages = await session.messages()
    for role, index in (("tool", 4), ("assistant", 5)):
        found = await session.find_message(by_role[role])
        assert found is not None
        assert (found.index, found.at) == (index, 1_000_060.0)
        assert messages[index] == found.message
