"""Memory: recall over 100,000 memories by words and by vectors, and the shapes of a long conversation."""

import asyncio
import itertools
import random
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from perdure import Message, Text, ToolCall, ToolResult, assistant, tool_message, user
from perdure._core.model.transcript import MessagesSnapshot
from perdure.context import BufferMemory, LongTermMemory, WindowMemory

from .measure import Effort, Figure, best_us

MEMORIES = 100_000
DIMENSIONS = 384
TOPICS = 500
QUERIES = 40
QUICK_QUERIES = 4
WORDS = 30_000
TEXT_MS = 10.0
VECTOR_MS = 50.0
SHAPE_US = 20.0
MESSAGES = 1_000


class DrawnEmbedder:
    """Vectors far from zero, around some hundred topics, like those of real models; chosen by the text."""

    name = "drawn"

    def __init__(self, topics: int = TOPICS) -> None:
        chance = random.Random(5)
        shared = [chance.gauss(0, 1) for _ in range(DIMENSIONS)]
        centres = [[each + chance.gauss(0, 1) for each in shared] for _ in range(topics)]
        self._vectors = [[each + chance.gauss(0, 1) for each in centres[n % topics]] for n in range(topics * 4)]

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text."""
        return [self._vectors[zlib.crc32(text.encode()) % len(self._vectors)] for text in texts]


class Corpus:
    """Sentences of words that are as unevenly common as those of a language."""

    def __init__(self) -> None:
        self._chance = random.Random(1)
        self._words = [f"w{number}x" for number in range(WORDS)]
        self._shares = list(itertools.accumulate(1 / (rank + 1) for rank in range(WORDS)))

    def draw(self, count: int) -> str:
        """Return that many words."""
        return " ".join(self._chance.choices(self._words, cum_weights=self._shares, k=count))


async def fill(memory: LongTermMemory, count: int, corpus: Corpus) -> None:
    """Store that many memories."""
    lines = (
        msgspec.json.encode({"id": f"mem_{number}", "text": corpus.draw(25), "created_at": 1.7e9 + number})
        for number in range(count)
    )
    await memory.import_lines(lines, trusted=True)
    await memory.embed_missing(count)


async def middle_ms(actions: Sequence[Callable[[], Awaitable[object]]]) -> tuple[float, float]:
    """Milliseconds of CPU of the middle one, and of the slowest, of several actions."""
    readings: list[int] = []
    for action in actions:
        began = time.process_time_ns()
        await action()
        readings.append(time.process_time_ns() - began)
    readings.sort()
    return readings[len(readings) // 2] / 1e6, readings[-1] / 1e6


async def recall_ms(folder: Path, count: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Milliseconds to recall by words, and by words and vectors: the middle and the slowest query."""
    path, corpus = folder / "memory.db", Corpus()
    embedder = DrawnEmbedder(max(TOPICS * count // MEMORIES, 1))
    async with LongTermMemory(path, embedder=embedder) as memory:
        await fill(memory, count, corpus)
        queries = [corpus.draw(6) for _ in range(QUERIES if count == MEMORIES else QUICK_QUERIES)]
        await memory.recall(queries[0])
        vectors = await middle_ms([lambda query=query: memory.recall(query) for query in queries])  # type: ignore[misc]
    async with LongTermMemory(path) as memory:
        await memory.recall(queries[0])
        words = await middle_ms([lambda query=query: memory.recall(query) for query in queries])  # type: ignore[misc]
    return words, vectors


def conversation(count: int = MESSAGES) -> MessagesSnapshot:
    """A conversation of turns with a tool call each."""
    messages: list[Message] = []
    for number in range(count // 4):
        call = ToolCall(f"call_{number}", "look", '{"at": "the shelf"}')
        messages += (
            user(f"What is on shelf {number}?"),
            assistant([call]),
            tool_message([ToolResult(call.call_id, "look", (Text("Three jars of honey and a spoon."),))]),
            assistant("Three jars of honey, and a spoon."),
        )
    return MessagesSnapshot(messages)


def figures(effort: Effort) -> Iterator[Figure]:
    """Measure shapes, then recall: with `--quick` over a few hundred memories."""
    messages = conversation()
    buffer, window = BufferMemory(20), WindowMemory(10, max_tokens=1_000)
    for name, shape in (("buffer of 20 messages", buffer), ("window of 10 turns", window)):
        shape(messages)
        yield Figure(
            name,
            best_us(lambda shape=shape: shape(messages), effort),  # type: ignore[misc]
            "us",
            f"what a shape takes to choose what is sent of {MESSAGES:,} messages",
            budget=SHAPE_US,
        )
    count = MEMORIES if effort.calls >= 1_000 else MEMORIES // 400
    with tempfile.TemporaryDirectory() as folder:
        words, vectors = asyncio.run(recall_ms(Path(folder), count))
    for name, (middle, slowest), budget in (
        ("recall by words", words, TEXT_MS),
        ("recall by words and vectors", vectors, VECTOR_MS),
    ):
        yield Figure(
            name,
            middle,
            "ms",
            f"CPU of a query of six words, the middle of {QUERIES}; vectors have {DIMENSIONS} dimensions",
            budget=budget,
            detail=f"over {count:,} memories; slowest query {slowest:.1f}",
        )
