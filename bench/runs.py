"""A whole run in memory, as a program pays for each prompt: open the session, a call or none, the answer, close.

Each kind is measured in turns with the hand-written loop, and the best reading counts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

from perdure import Agent, ToolCall
from perdure.testing import ScriptedModel

from . import hand_loop
from .measure import Effort, Figure, best_async_us
from .turns import ADD, add

ROUNDS = 8
"""Readings of each kind for each unit of `Effort.repeats`, divided by two: a run has more to vary than a function."""


def answering() -> Agent[Any]:
    """An agent that answers each prompt at once."""
    return Agent(ScriptedModel("done", repeat_last=True), tools=[ADD])


def calling(runs: int) -> Agent[Any]:
    """An agent that calls its tool once for each prompt, and then answers."""
    replies = [reply for run in range(runs) for reply in (ToolCall(f"call_{run}", "add", f'{{"n":{run}}}'), "done")]
    return Agent(ScriptedModel(*replies), tools=[ADD])


def reused(agent: Agent[Any]) -> Callable[[], Awaitable[object]]:
    """Runs in one session, one after the other."""
    session = agent.session("reused")
    return lambda: session.run("add")


def opened(agent: Agent[Any]) -> Callable[[], Awaitable[object]]:
    """Runs in sessions that are opened for them, in one store."""
    numbers = count()
    return lambda: agent.session(f"new-{next(numbers)}").run("add")


def alone(agent: Agent[Any]) -> Callable[[], Awaitable[object]]:
    """Runs in sessions of their own, which nobody keeps."""
    return lambda: agent.run("add")


def kinds(runs: int) -> dict[str, Callable[[], Awaitable[object]]]:
    """The ways to have a run, by name."""
    return {
        "hand-written answer": lambda: hand_loop.run(0, {}),
        "hand-written tool turn": lambda: hand_loop.run(1, {"add": add}),
        "answer": reused(answering()),
        "answer, new session": opened(answering()),
        "tool turn": reused(calling(runs)),
        "tool turn, new session": opened(calling(runs)),
        "tool turn, agent.run": alone(calling(runs)),
    }


async def measured(effort: Effort) -> dict[str, float]:
    """Microseconds of CPU of a run of each kind."""
    calls, rounds = max(1, effort.calls // 20), max(1, effort.repeats * ROUNDS // 2)
    once = effort._replace(calls=calls, repeats=1)
    ways = kinds(calls * (rounds + 1))
    for way in ways.values():
        await best_async_us(way, once)  # the first runs are the slowest: Python still learns what is hot
    readings = [{name: await best_async_us(way, once) for name, way in ways.items()} for _ in range(rounds)]
    return {name: min(each[name] for each in readings) for name in ways}


def figures(effort: Effort) -> Iterator[Figure]:
    """What a run costs beyond its turns."""
    found = asyncio.run(measured(effort))
    answer, turn = found["hand-written answer"], found["hand-written tool turn"]
    rows = (
        ("run with one answer", "answer", answer, 150, "one prompt and one reply in a session that is used again"),
        ("run with one answer, new session", "answer, new session", answer, None, "the same in a new session"),
        ("run with one tool turn", "tool turn", turn, 230, "a prompt, a tool call and a reply in a session used again"),
        ("run with one tool turn, new session", "tool turn, new session", turn, 280, "the same in a new session"),
        ("`agent.run` with one tool turn", "tool turn, agent.run", turn, None, "a new session in a store of its own"),
    )
    for name, kind, by_hand, budget, explanation in rows:
        yield Figure(
            name,
            found[kind],
            "us",
            f"CPU of the whole run, best of many: {explanation}",
            budget=budget,
            ratio=found[kind] / by_hand,
            compared_to="the hand-written loop with the same replies",
            detail=f"by hand {by_hand:.1f}",
        )
