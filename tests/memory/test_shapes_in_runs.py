"""Shapes in runs with parallel calls, images, compaction and pinned memories: what the model is really sent."""

import base64
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Agent, Image, tool
from perdure._context.history.tokens import SUMMARY_ORIGIN
from perdure._work.memory.tools import PINNED_NOTE
from perdure.context import BufferMemory, Compaction, CompositeMemory, LongTermMemory, VectorMemory, WindowMemory
from perdure.testing import Reply, ScriptedModel, call
from perdure.tools import memory as memory_extension
from tests.memory.embedders import WordEmbedder
from tests.memory.transcripts import has_whole_pairs

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")
TURNS = 5
SHAPES: dict[str, Callable[[], Any]] = {
    "one message": lambda: BufferMemory(1),
    "few tokens": lambda: BufferMemory(5, max_tokens=100),
    "one turn": lambda: WindowMemory(1),
    "a short window": lambda: WindowMemory(2, max_tokens=60),
    "vectors": lambda: VectorMemory(WordEmbedder(), 2),
    "merged": lambda: CompositeMemory(VectorMemory(WordEmbedder(), 1), BufferMemory(2), strategy="merge"),
}


@tool(effect="read")
async def look(number: int) -> str:
    """Look."""
    return f"seen {number} " * 30


@pytest.mark.parametrize("compacts", [False, True], ids=["whole", "compacted"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_requests_have_whole_pairs_the_question_first_and_pinned_memories_last(tmp_path, shape, compacts):
    replies: list[Any] = []
    for turn in range(TURNS):
        replies += [Reply(calls=[call("look", number=turn), call("look", number=turn + 100)])]
        replies += [call("look", number=turn), f"answer {turn}"]
    model = ScriptedModel(*replies)
    summarizing = Compaction(at_messages=8, keep_recent_messages=3, model=ScriptedModel(*["The summary."] * 20))
    async with LongTermMemory(tmp_path / "memory.db") as memory:
        await memory.pin((await memory.remember("Answer in French.")).id)
        agent = Agent(
            model,
            instructions="RULES",
            tools=[look],
            extensions=[memory_extension(memory)],
            history_processor=SHAPES[shape](),
            compaction=summarizing if compacts else None,
        )
        session = agent.session("watch")
        for turn in range(TURNS):
            outcome = await session.run([f"question {turn}", Image(PNG, "image/png")])
            assert outcome.status == "done"
    assert len(model.requests) == TURNS * 3
    for number, request in enumerate(model.requests):
        *sent, reminder = request.messages
        assert reminder.text == f"{PINNED_NOTE}\n- Answer in French."
        assert PINNED_NOTE not in repr(sent)
        assert "RULES" in str(request.instructions)
        assert has_whole_pairs(sent)
        assert sent[0].role == "user"
        assert f"question {number // 3}" in [each.text for each in sent] or sent[0].origin == SUMMARY_ORIGIN
        assert [each for each in sent if each.origin == SUMMARY_ORIGIN] in ([], sent[:1])
    assert (model.requests[-1].messages[0].origin == SUMMARY_ORIGIN) == compacts
