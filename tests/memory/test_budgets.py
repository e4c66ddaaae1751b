"""What shapes and recall may cost, in CPU time. `python -m bench --only memory` has the figures of 100,000 memories."""

import random
import time

import pytest

from bench.memory import SHAPE_US, TEXT_MS, VECTOR_MS, Corpus, DrawnEmbedder, conversation, fill
from perdure._work.memory.vectors import VectorIndex
from perdure.context import BufferMemory, LongTermMemory, WindowMemory

TRIES = 30
CALLS = 200
MEMORIES = 2_000


def best_us(action):
    readings = []
    for _ in range(TRIES):
        began = time.process_time_ns()
        for _ in range(CALLS):
            action()
        readings.append((time.process_time_ns() - began) / CALLS / 1000)
    return min(readings)


@pytest.mark.budget
def test_window_and_buffer_shapes_take_at_most_20_us_for_1000_messages():
    messages = conversation(1_000)
    for shape in (BufferMemory(20), WindowMemory(10, max_tokens=1_000), WindowMemory(50)):
        assert best_us(lambda shape=shape: shape(messages)) <= SHAPE_US


@pytest.mark.budget
async def test_recall_keeps_its_budget_with_words_and_with_vectors(tmp_path):
    corpus = Corpus()
    for embedder, budget in ((DrawnEmbedder(10), VECTOR_MS), (None, TEXT_MS)):
        async with LongTermMemory(tmp_path / "memory.db", embedder=embedder) as memory:
            if embedder is not None:
                await fill(memory, MEMORIES, corpus)
            readings = []
            for _ in range(10):
                query = corpus.draw(6)
                began = time.process_time_ns()
                await memory.recall(query)
                readings.append((time.process_time_ns() - began) / 1e6)
        assert sorted(readings)[len(readings) // 2] <= budget


@pytest.mark.budget
def test_the_nearest_of_100000_vectors_are_found_within_the_budget():
    chance, index = random.Random(7), VectorIndex(1, "any")
    index._rows = list(range(100_000))
    index._bits = [chance.getrandbits(384) for _ in index._rows]
    readings = []
    for _ in range(5):
        began = time.process_time_ns()
        assert len(index._find_nearest(chance.getrandbits(384), None)) == 500
        readings.append((time.process_time_ns() - began) / 1e6)
    assert min(readings) <= VECTOR_MS
