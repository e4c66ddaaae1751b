"""A run is performed in a task of its own, which takes no turn of the event loop that it does not need."""

import asyncio
import sys

import pytest

from perdure import Agent
from perdure.runtime.run_task import begin_task
from perdure.testing import ScriptedModel

needs_eager_tasks = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 cannot start a task at once")


async def count_loop_turns(work: asyncio.Future[object]) -> int:
    """Return how often the event loop comes round until the work is done."""
    turns = 0
    while not work.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


@needs_eager_tasks
async def test_a_run_that_waits_for_nothing_takes_one_turn_of_the_event_loop() -> None:
    session = Agent(ScriptedModel("done", repeat_last=True)).session("s")
    await session.run("first")
    assert await count_loop_turns(asyncio.ensure_future(session.run("second"))) == 1


async def test_a_task_is_its_own_from_the_first_step_on() -> None:
    async def work() -> asyncio.Task[object] | None:
        began = asyncio.current_task()
        await asyncio.sleep(0)
        assert asyncio.current_task() is began
        return began

    task = begin_task(work())
    assert await task is task
    assert task is not asyncio.current_task()


async def test_a_program_that_makes_all_tasks_of_its_loop_makes_those_of_runs_too() -> None:
    made: list[str] = []

    def make(loop: asyncio.AbstractEventLoop, work: object, **options: object) -> asyncio.Task[object]:
        made.append(getattr(work, "__name__", ""))
        return asyncio.Task(work, loop=loop, **options)  # type: ignore[arg-type]

    async def work() -> str:
        return "done"

    loop = asyncio.get_running_loop()
    loop.set_task_factory(make)  # type: ignore[arg-type]
    try:
        assert await begin_task(work()) == "done"
    finally:
        loop.set_task_factory(None)
    assert made == ["work"]


async def test_an_error_of_a_task_that_ends_at_once_is_raised_where_it_is_awaited() -> None:
    async def work() -> None:
        raise ValueError("no")

    task = begin_task(work())
    with pytest.raises(ValueError, match="no"):
        await task
