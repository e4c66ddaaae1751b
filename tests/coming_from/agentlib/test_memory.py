"""The stored conversation and its shapes, as AgentLIB's reference describes `MemoryProvider` and its entries."""

import time

from perdure import Agent, Text, ToolCall, ToolContext, ToolResult, Usage, assistant, tool, tool_message, user
from perdure.context import BufferMemory, Compaction, CompositeMemory, LongTermMemory, VectorMemory, WindowMemory
from perdure.engines import HistoryProcessor
from perdure.events import MessageAdded, RunStarted
from perdure.testing import Reply, ScriptedModel, call
from perdure.tools import memory as memory_extension
from tests.coming_from.outcomes import present
from tests.coming_from.shows import shows
from tests.memory.embedders import WordEmbedder


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


@shows("agentlib", "MemoryProvider", "MemoryProvider.type", "MemoryReadOptions.query")
async def test_a_memory_provider_is_a_shape_of_what_is_sent():
    shapes: dict[str, HistoryProcessor] = {
        "BufferMemory": BufferMemory(3),
        "WindowMemory": WindowMemory(2, max_tokens=4_000),
        "VectorMemory": VectorMemory(WordEmbedder(), 1),
        "CompositeMemory": CompositeMemory(VectorMemory(WordEmbedder(), 1), WindowMemory(2), strategy="merge"),
    }
    for name, shape in shapes.items():
        model = replying("Red ones.", "Blue.", "It is.")
        session = Agent(model, history_processor=shape, instructions="Be brief.").session(name)
        for text in ("Which apples do I like?", "What colour is the sky?", "Is an apple red?"):
            await session.run(text)
        sent = [each.text for each in model.requests[-1].messages]
        assert type(shape).__name__ == name
        assert sent[-1] == "Is an apple red?"
        assert model.requests[-1].instructions.startswith("Be brief.")  # and not after the history
        assert len(sent) < 5 or name == "CompositeMemory"
        if name in {"VectorMemory", "CompositeMemory"}:
            assert "Red ones." in sent
        assert len(await session.messages()) == 6  # nothing is lost, and nothing is stored twice


@shows("agentlib", "MemoryProvider")
async def test_a_summary_is_made_with_the_one_before_it_and_stored():
    summaries = ScriptedModel("Summary one.", "Summary two, with one.")
    compaction = Compaction(model=summaries, at_tokens=300, keep_recent_tokens=80)
    model = ScriptedModel(*["word " * 120] * 6)
    session = Agent(model, compaction=compaction, history_processor=BufferMemory(20)).session("long")
    for number in range(6):
        await session.run(f"question {number}")
    assert len(summaries.requests) == 2
    assert "Summary one." in summaries.requests[1].messages[0].text
    assert "Summary two" in model.requests[-1].messages[0].text
    assert len(await session.messages()) == 12


@shows(
    "agentlib",
    "ExecutionContext.memory",
    "MemoryMetadata.tags",
    "MemoryReadOptions.tags",
    "MemoryWriteOptions.tags",
)
async def test_memories_have_tags_and_tools_reach_the_memory(tmp_path):
    @tool(effect="read")
    async def count_memories(context: ToolContext[LongTermMemory]) -> int:
        """Count."""
        return len(await context.deps.list_memories())

    async with LongTermMemory(tmp_path / "memory.db", user="ada") as memory:
        await memory.remember("Ada likes tea.", tags=["drinks"])
        model = ScriptedModel(
            call("remember", content="Ada likes figs.", tags=["food"]),
            call("recall", query="ada", tags=["food"]),
            call("count_memories"),
            "Done.",
        )
        agent = Agent(model, tools=[count_memories], extensions=[memory_extension(memory)], deps=memory)
        outcome = await agent.run("Remember it.")
        results = [each.text for message in outcome.new_messages for each in message.tool_results]
        assert "figs" in results[1]
        assert "tea" not in results[1]
        assert results[2] == "2"
        assert [each.tags for each in await memory.list_memories(tags=["food"])] == [("food",)]
