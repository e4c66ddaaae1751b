"""The `Embedder` protocol of objects that turn texts into vectors; and encoding and comparing vectors."""

import math
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from operator import gt, mul
from typing import Final, Protocol, runtime_checkable

from perdure._core.values.error import ConfigError, ModelError

MAX_DIMENSIONS: Final = 16_384
_sum_products: Callable[[Iterable[float], Iterable[float]], float] | None = getattr(math, "sumprod", None)
"""Quicker than a sum, and there from Python 3.12 on."""
_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


@runtime_checkable
class Embedder(Protocol):
    """Protocol of an object that turns texts into vectors, such as a model in this process or behind HTTP."""

    async def embed(self, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """Return one vector for each text; all vectors of an embedder have the same length."""
        ...


def get_embedder_name(embedder: Embedder) -> str:
    """Return the name under which an embedder's vectors are stored: its attribute `name`, or else its class."""
    name = getattr(embedder, "name", None)
    return name if isinstance(name, str) and name else f"{type(embedder).__module__}.{type(embedder).__qualname__}"


def check_embedder(owner: str, embedder: object) -> None:
    """Raise `ConfigError` unless the object has a method `embed`."""
    if not isinstance(embedder, Embedder):
        raise ConfigError(f"{owner}(embedder={embedder!r}): give an object with `async def embed(texts)`")


async def embed_texts(embedder: Embedder, texts: Sequence[str]) -> list["array[float]"]:
    """Return a vector of length 1 for each text. Raises `ModelError` if the embedder returns anything else."""
    if not texts:
        return []
    found = [_normalize(each) for each in await embedder.embed(texts)]
    name = get_embedder_name(embedder)
    if len(found) != len(texts):
        raise ModelError(f"the embedder {name} returned {len(found)} vectors for {len(texts)} texts")
    if len({len(each) for each in found}) != 1 or not 0 < len(found[0]) <= MAX_DIMENSIONS:
        raise ModelError(f"the embedder {name} returned vectors of {sorted({len(each) for each in found})} numbers")
    return found


def _normalize(vector: Sequence[float]) -> "array[float]":
    numbers = array("f", vector)
    length = math.sqrt(compute_similarity(numbers, numbers))
    if not math.isfinite(length):
        raise ModelError("the embedder returned a vector with numbers that are not finite")
    return array("f", [each / length for each in numbers]) if length else numbers


def pack_vector(vector: "array[float]") -> bytes:
    """Return a vector as bytes: 32-bit floats, little-endian on every machine."""
    return struct.pack(f"<{len(vector)}f", *vector)


def unpack_vector(data: bytes) -> tuple[float, ...]:
    """Decode a vector from the bytes that `pack_vector` returns."""
    return struct.unpack(f"<{len(data) // 4}f", data)


def compute_similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine similarity of two vectors of length 1; 0 if they have different dimensions."""
    if len(one) != len(other):
        return 0.0
    return sum(map(mul, one, other)) if _sum_products is None else _sum_products(one, other)


def compute_centre(vectors: Sequence[Sequence[float]]) -> "array[float]":
    """Return the mean of vectors, with which `compute_bits` compares each dimension of a vector."""
    return array("f", [math.fsum(column) / len(vectors) for column in zip(*vectors, strict=True)])


def compute_bits(vector: Sequence[float], centre: Sequence[float]) -> int:
    """Return one bit for each dimension of a vector, set if it is above `centre` there; all bits as one number."""
    return int(bytes(map(gt, vector, centre)).translate(_DIGITS), 2)
