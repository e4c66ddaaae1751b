"""The seed of a run of the tests: a new one each time, told at the end of the run, and taken back by PERDURE_SEED.

A search with a fixed seed looks at one path for ever. Every search for faults draws its random numbers from here, and
so do the processes that it starts: they inherit the variable.
"""

import os
from random import Random
from typing import Final

SEED: Final = int(os.environ.get("PERDURE_SEED") or int.from_bytes(os.urandom(4)))
"""The seed of this run."""

os.environ["PERDURE_SEED"] = str(SEED)


def chance(*of_what: object) -> Random:
    """Random numbers of this run for one search, whatever other searches draw."""
    return Random(f"{SEED} {of_what}")
