"""The seed of a run of the tests: a new one each time, told at the end of the run, and taken back by PERDURE_SEED.

A search with a fixed seed looks at one path for ever. Every search for faults draws its random numbers from here, and
so do the processes that it starts: they inherit the variable.
"""

import os
from collections.abc import Sequence
from random import Random
from typing import Final, TypeVar

SEED: Final = int(os.environ.get("PERDURE_SEED") or int.from_bytes(os.urandom(4)))
"""The seed of this run."""

os.environ["PERDURE_SEED"] = str(SEED)

IS_SECOND_RUN: Final = os.environ.get("PERDURE_SECOND_RUN") == "1"
"""True where root has run all of these tests, and another user runs them once more (scripts/as_another_user.py)."""

T = TypeVar("T")


def one_part(things: Sequence[T], parts: int) -> Sequence[T]:
    """Return all of them, but in a second run only one of so many parts, and another one each time."""
    return things[SEED % parts :: parts] if IS_SECOND_RUN else things


def some_of_each_kind(names: Sequence[str], parts: int) -> Sequence[str]:
    """Return all names, but in a second run one of so many parts of each kind, and at least one: `kind-of-thing`."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        kinds.setdefault(name.partition("-")[0], []).append(name)
    return [name for each in kinds.values() for name in one_part(each, min(parts, len(each)))]


def chance(*of_what: object) -> Random:
    """Random numbers of this run for one search, whatever other searches draw."""
    return Random(f"{SEED} {of_what}")
