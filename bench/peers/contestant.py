"""The agent that each library is used to write: one tool, a stream that is watched, conversations that are kept.

Every `with_*.py` has a function `prepare(base_url, folder)` that returns a `Contestant`. Each is written as the
documentation of its library says, streamed, with telemetry off where that is a switch. An agent that its documentation
calls reusable is built once for each model; HTTP clients are always shared.
"""

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

PROMPT = "go"
MOST = 10_000
"""Turns that are allowed, where a library counts them."""

stamps: list[int] = []
"""CPU time of this process when the tool was called, in nanoseconds."""
heard = [0]
"""Number of streamed pieces that have reached the handler."""


async def add(n: int) -> str:
    """Add a number.

    Args:
        n: the number to add.
    """
    stamps.append(time.process_time_ns())
    return "ok" if n >= 0 else "below zero"


def hear() -> None:
    """Count a streamed piece."""
    heard[0] += 1


async def close_nothing() -> None:
    """Close a contestant that has nothing to close."""


class Contestant(NamedTuple):
    """The ways to run the same agent with one library. The name of the model says what the server answers."""

    ask: Callable[[str], Awaitable[object]]
    """A run of (model) whose conversation is not kept."""
    keep: Callable[[str, str], Awaitable[object]]
    """A run of (model, session) whose conversation stays in memory for the next run."""
    store: Callable[[str, str], Awaitable[object]] | None = None
    """A run of (model, session) whose conversation is on the disk afterwards; `None` without such a part."""
    store_kind: str = ""
    """What keeps it there."""
    close: Callable[[], Awaitable[object]] = close_nothing
