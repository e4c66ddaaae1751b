"""The stored conversation, as AgentLIB's reference describes `MemoryProvider` and its entries."""

import time

from perdure import Agent, Text, ToolCall, ToolResult, Usage, assistant, tool_message, user
from perdure.events import MessageAdded, RunStarted
from perdure.testing import Reply, ScriptedModel
from tests.coming_from.outcomes import present
from tests.coming_from.shows import shows


def replying(*texts: str) -> ScriptedModel:
    return ScriptedModel(*[Reply(text, usage=Usage(100, 10)) for text in texts])


@shows(
    "agentlib",
    "MemoryProvider.read",
    "MemoryProvider.entries",
    "MemoryProvider.clear",
    "MemoryEntry",
    "MemoryEntry.id",
    "MemoryEntry.sessionId",
    "MemoryEntry.messages",
    "MemoryEntry.metadata",
    "MemoryMetadata",
    "MemoryMetadata.createdAt",
    "MemoryMetadata.agentName",
    "MemoryMetadata.tokenCount",
)
async def test_what_a_run_stored_is_read_listed_inspected_and_cleared(disk_store):
    begun = time.time()
    agent = Agent(replying("Hi, Ada."), name="host", store=disk_store)
    await agent.session("ada").run("I am Ada.")
    session = Agent(replying(), store=agent.store).session("ada")
    assert [each.text for each in await session.messages()] == ["I am Ada.", "Hi, Ada."]
    entries = await agent.store.read("ada")
    assert len({entry.id for entry in entries}) == len(entries)
    said = [entry.event.message.text for entry in entries if isinstance(entry.event, MessageAdded)]
    assert said == ["I am Ada.", "Hi, Ada."]
    assert [entry.event.agent for entry in entries if isinstance(entry.event, RunStarted)] == ["host"]
    info = present(await session.info())
    assert (info.session_id, info.entries, info.title) == ("ada", len(entries), "I am Ada.")
    assert begun <= info.created_at <= time.time()
    assert (await session.usage()).last_input_tokens == 100
    await session.delete()
    assert await session.messages() == []
    assert await agent.store.read("ada") == []


@shows(
    "agentlib",
    "MemoryProvider.write",
    "MemoryWriteOptions",
    "MemoryWriteOptions.sessionId",
    "MemoryWriteOptions.agentName",
)
async def test_a_run_writes_its_messages_and_others_are_added_by_hand():
    agent = Agent(replying("Hello again.", "Bye."), name="host")
    session = agent.session("ada")
    looked = ToolCall("a", "weather", "{}")
    told = ToolResult("a", "weather", content=(Text("Rain."),))
    brought = [user("Umbrella?"), assistant([looked]), tool_message([told]), assistant("Yes.")]
    assert await session.import_messages(brought) == 4
    await session.keep("city", "Oslo")
    await session.run("Hello")
    await agent.session("bob").run("Bye")
    roles = [each.role for each in await session.messages()]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert await session.kept("city") == "Oslo"
    assert len(await agent.session("bob").messages()) == 2
    [started] = [entry.event for entry in await agent.store.read("ada") if isinstance(entry.event, RunStarted)]
    assert started.agent == "host"


@shows("agentlib", "MemoryReadOptions", "MemoryReadOptions.limit", "MemoryReadOptions.sessionId")
async def test_reading_is_limited_to_some_messages_or_one_session(disk_store):
    agent = Agent(replying("Rain in Oslo.", "Rain in Bergen."), store=disk_store)
    await agent.session("ada").run("Rain in Oslo?")
    await agent.session("bob").run("Rain in Bergen?")
    assert {hit.session_id for hit in await agent.search("rain")} == {"ada", "bob"}
    assert len(await agent.search("rain")) == 4
    assert len(await agent.search("rain", limit=3)) == 3
    assert {hit.session_id for hit in await agent.search("rain", session_id="bob")} == {"bob"}
    session = agent.session("ada")
    hits = await session.search("oslo", limit=1)
    assert present(await session.find_message(hits[0])).message.text.startswith("Rain in Oslo")
    assert [each.text for each in (await session.messages())[-1:]] == ["Rain in Oslo."]
