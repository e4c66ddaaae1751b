"""Search by vectors: exact while there are few, and by bits first when there are many."""

import random
from pathlib import Path
from typing import Any

import pytest

from perdure._work.memory import vectors as vector_index
from perdure._work.memory.database import find_or_add_scope, open_memory_file
from perdure._work.memory.embedder import compute_bits, compute_similarity, embed_texts, pack_vector, unpack_vector
from perdure._work.memory.record import build_record
from perdure._work.memory.rows import delete_memory, insert_memory
from perdure._work.memory.vectors import VectorIndex, read_centre, store_vectors
from perdure.context import MemoryScope

DIMENSIONS = 128
COUNT = 600
CLUSTERS = 20


class Clusters:
    """Vectors around a few topics, and all far from zero: as those of real models are."""

    def __init__(self):
        self.chance = random.Random(3)
        self.shared = self.draw(2.0)
        self.topics = [self.draw(1.0) for _ in range(CLUSTERS)]

    def draw(self, size):
        return [self.chance.gauss(0, size) for _ in range(DIMENSIONS)]

    def near(self, topic):
        return [sum(each) for each in zip(self.shared, self.topics[topic % CLUSTERS], self.draw(0.7), strict=True)]

    async def embed(self, texts):
        return [self.near(int(text)) for text in texts]


@pytest.fixture
def small(monkeypatch):
    """Limits under which six hundred vectors are many."""
    monkeypatch.setattr(vector_index, "EXACT_VECTORS", 100)
    monkeypatch.setattr(vector_index, "COMPARED_VECTORS", 60)
    monkeypatch.setattr(vector_index, "NEWEST_COMPARED", 5)


@pytest.fixture
async def filled(tmp_path, small):
    connection = open_memory_file(str(tmp_path / "memory.db"))
    scope = find_or_add_scope(connection, MemoryScope())
    clusters = Clusters()
    vectors = await embed_texts(clusters, [str(number) for number in range(COUNT)])
    connection.execute("BEGIN")
    for number in range(COUNT):
        insert_memory(connection, scope, build_record({"id": f"m{number}", "text": f"{number}", "created_at": number}))
    for begin in range(0, COUNT, 100):
        store_vectors(connection, scope, "e", [(f"m{n}", vectors[n]) for n in range(begin, begin + 100)])
    connection.execute("COMMIT")
    yield connection, scope, clusters, vectors
    connection.close()


async def test_the_nearest_are_found_by_their_bits(filled):
    connection, scope, clusters, vectors = filled
    assert read_centre(connection, scope, "e") is not None
    index, found, wanted = VectorIndex(scope, "e"), 0, 0
    for topic in range(CLUSTERS):
        (query,) = await embed_texts(clusters, [str(topic)])
        scores = {number + 1: compute_similarity(query, vector) for number, vector in enumerate(vectors)}
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:10]
        near = index.search(connection, query, None, ())
        assert len(near) < COUNT / 4
        assert all(near[row] == pytest.approx(scores[row], abs=1e-5) for row in near)
        found += len(set(best) & set(near))
        wanted += len(best)
    assert found / wanted >= 0.97


async def test_the_newest_and_those_found_otherwise_are_compared_too(filled):
    connection, scope, clusters, _ = filled
    (query,) = await embed_texts(clusters, ["0"])
    near = VectorIndex(scope, "e").search(connection, query, None, {7})
    assert {7, *range(COUNT - 4, COUNT + 1)} <= set(near)


async def test_only_rows_of_a_filter_are_compared(filled):
    connection, scope, clusters, _ = filled
    (query,) = await embed_texts(clusters, ["0"])
    index = VectorIndex(scope, "e")
    few, many = set(range(1, 50)), set(range(1, 400))
    assert set(index.search(connection, query, few, ())) == few
    assert set(index.search(connection, query, many, ())) <= many
    assert len(index.search(connection, query, many, ())) == 60


async def test_added_and_deleted_vectors_are_noticed(filled):
    connection, scope, clusters, vectors = filled
    index = VectorIndex(scope, "e")
    (query,) = await embed_texts(clusters, ["0"])
    assert COUNT + 1 not in index.search(connection, query, None, ())
    insert_memory(connection, scope, build_record({"id": "new", "text": "x", "created_at": 1}))
    store_vectors(connection, scope, "e", [("new", query), ("unknown", vectors[0])])
    assert index.search(connection, query, None, ())[COUNT + 1] == pytest.approx(1, abs=1e-5)
    delete_memory(connection, scope, "new")
    assert COUNT + 1 not in index.search(connection, query, None, ())


async def test_vectors_of_another_length_are_not_similar(filled):
    connection, scope, _, _ = filled
    found = VectorIndex(scope, "e").search(connection, [1.0, 0.0], None, ())
    assert set(found.values()) == {0.0}


def test_vectors_and_bits_are_stored_in_the_same_way_everywhere():
    from array import array

    assert pack_vector(array("f", [1.0, -2.0])) == b"\0\0\x80?\0\0\0\xc0"
    assert unpack_vector(b"\0\0\x80?\0\0\0\xc0") == (1.0, -2.0)
    assert compute_bits([1.0, 0.0, 3.0], [0.5, 0.5, 0.5]) == 0b101


async def test_as_many_vectors_are_compared_after_others_were_deleted(filled: Any) -> None:
    connection, scope, clusters, _ = filled
    index = VectorIndex(scope, "e")
    (query,) = await embed_texts(clusters, ["0"])
    index.search(connection, query, None, ())
    for number in range(0, COUNT, 2):  # half of them, and of those that are near
        delete_memory(connection, scope, f"m{number}")
    found = index.search(connection, query, None, ())
    assert len(set(found) - set(range(COUNT - 8, COUNT + 1))) >= 55
    assert found == VectorIndex(scope, "e").search(connection, query, None, ())


@pytest.mark.parametrize(("count", "compared"), [(100, 100), (101, 60)])
async def test_all_vectors_are_compared_up_to_a_number_and_then_the_nearest(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch, count: int, compared: int
) -> None:
    monkeypatch.setattr(vector_index, "NEWEST_COMPARED", 1)
    connection = open_memory_file(str(tmp_path / "memory.db"))
    scope = find_or_add_scope(connection, MemoryScope())
    clusters = Clusters()
    vectors = await embed_texts(clusters, [str(number) for number in range(count)])
    for number in range(count):
        insert_memory(connection, scope, build_record({"id": f"m{number}", "text": "x", "created_at": number}))
    stored = [(f"m{number}", vectors[number]) for number in range(count)]
    assert store_vectors(connection, scope, "e", [*stored, ("gone", vectors[0])]) == count
    assert (read_centre(connection, scope, "e") is None) is (count == 100)
    found = VectorIndex(scope, "e").search(connection, vectors[0], None, ())
    assert len(set(found) - {count}) in {compared, compared - 1}  # the newest is among them, or compared as well
    assert VectorIndex(scope, "other").search(connection, vectors[0], None, ()) == {}
    assert VectorIndex(scope + 1, "e").search(connection, vectors[0], None, ()) == {}
    connection.close()


async def test_a_filter_of_as_many_rows_as_are_compared_is_exact(filled: Any) -> None:
    connection, scope, clusters, _ = filled
    (query,) = await embed_texts(clusters, ["0"])
    index = VectorIndex(scope, "e")
    assert set(index.search(connection, query, set(range(1, 101)), {500})) == {*range(1, 101), 500}
    found = set(index.search(connection, query, set(range(1, 102)), {500}))
    assert len(found) == 61
    assert 500 in found
