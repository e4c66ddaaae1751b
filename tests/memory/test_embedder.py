"""Embedders: their names, what is refused of their vectors, and how vectors are compared and packed."""

import math
from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import ConfigError, ModelError
from perdure._work.memory.embedder import (
    MAX_DIMENSIONS,
    check_embedder,
    compute_bits,
    compute_centre,
    compute_similarity,
    embed_texts,
    get_embedder_name,
    pack_vector,
    unpack_vector,
)


class Fixed:
    """An embedder that returns these vectors, whatever it is asked."""

    def __init__(self, *vectors: Sequence[float], name: Any = "fixed") -> None:
        self.vectors = vectors
        self.name = name
        self.asked: list[Sequence[str]] = []

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.asked.append(texts)
        return self.vectors


@pytest.mark.parametrize("name", ["", None, 3])
def test_an_embedder_without_a_name_has_that_of_its_class(name: Any) -> None:
    assert get_embedder_name(Fixed(name="mine")) == "mine"
    assert get_embedder_name(Fixed(name=name)) == f"{__name__}.Fixed"


def test_what_cannot_embed_is_refused() -> None:
    check_embedder("LongTermMemory", Fixed())
    with pytest.raises(ConfigError) as raised:
        check_embedder("VectorMemory", 5)
    assert str(raised.value) == "VectorMemory(embedder=5): give an object with `async def embed(texts)`"


async def test_vectors_have_the_length_one_unless_they_are_zero() -> None:
    found = await embed_texts(Fixed([3.0, 4.0], [0.0, 0.0]), ["a", "b"])
    assert [list(each) for each in found] == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0]]


async def test_no_text_is_not_embedded() -> None:
    embedder = Fixed([1.0])
    assert await embed_texts(embedder, []) == []
    assert embedder.asked == []


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0]], "the embedder fixed returned 1 vectors for 2 texts"),
        ([[1.0]] * 3, "the embedder fixed returned 3 vectors for 2 texts"),
        ([[1.0], [1.0, 2.0]], "the embedder fixed returned vectors of [1, 2] numbers"),
        ([[], []], "the embedder fixed returned vectors of [0] numbers"),
        ([[1.0] * (MAX_DIMENSIONS + 1)] * 2, "the embedder fixed returned vectors of [16385] numbers"),
        ([[math.nan], [1.0]], "the embedder returned a vector with numbers that are not finite"),
        ([[math.inf], [1.0]], "the embedder returned a vector with numbers that are not finite"),
    ],
)
async def test_vectors_that_cannot_be_used_are_refused(vectors: list[list[float]], message: str) -> None:
    with pytest.raises(ModelError) as raised:
        await embed_texts(Fixed(*vectors), ["a", "b"])
    assert str(raised.value) == message


@pytest.mark.parametrize("dimensions", [1, MAX_DIMENSIONS])
async def test_a_vector_may_have_from_one_number_to_as_many_as_the_limit(dimensions: int) -> None:
    (found,) = await embed_texts(Fixed([1.0] * dimensions), ["a"])
    assert len(found) == dimensions


def test_vectors_are_compared_by_their_angle_and_those_of_other_lengths_are_not_similar() -> None:
    assert compute_similarity([0.6, 0.8], [0.8, 0.6]) == pytest.approx(0.96)
    assert compute_similarity([1.0, 0.0], [1.0]) == 0.0


def test_the_centre_is_the_mean_of_each_dimension_and_bits_say_what_is_above_it() -> None:
    centre = compute_centre([[1.0, 0.0, 4.0], [3.0, 2.0, 0.0]])
    assert list(centre) == [2.0, 1.0, 2.0]
    assert compute_bits([2.5, 1.0, 3.0], centre) == 0b101
    assert unpack_vector(pack_vector(array("f", [0.5, -2.0, 3.0]))) == (0.5, -2.0, 3.0)
