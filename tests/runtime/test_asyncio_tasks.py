"""A run is performed in a task of its own, which takes no turn of the event loop that it does not need."""

import asyncio
import sys
import traceback
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import Agent, tool
from perdure._runtime import tasks
from perdure._runtime.tasks import MAX_READY_HANDLES, start_task_eagerly
from perdure.testing import ScriptedModel, call

OLDER = SimpleNamespace(version_info=(3, 11))


@pytest.fixture(autouse=True, params=["this Python", "Python 3.11"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to begin a task; what is done on Python 3.11 works on later ones as well."""
    if request.param == "Python 3.11":
        monkeypatch.setattr(tasks, "sys", OLDER)
    return str(request.param)


async def count_loop_turns(work: asyncio.Future[object]) -> int:
    """Return how often the event loop comes round until the work is done."""
    turns = 0
    while not work.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_a_run_that_waits_for_nothing_takes_one_turn_of_the_event_loop() -> None:
    session = Agent(ScriptedModel("done", repeat_last=True)).session("s")
    await session.run("first")
    assert await count_loop_turns(asyncio.ensure_future(session.run("second"))) == 1


def list_awaiting(task: "asyncio.Task[Any]") -> list[str]:
    """Return the names of the coroutines of a task, each of which waits for the next."""
    names: list[str] = []
    coroutine: Any = task.get_coro()
    while hasattr(coroutine, "cr_code"):
        names.append(coroutine.cr_code.co_qualname)
        coroutine = coroutine.cr_await
    return names


async def test_from_the_agent_to_its_engine_there_are_eight_calls_and_one_task() -> None:
    found: list[list[str]] = []

    @tool
    async def look() -> str:
        """Look around."""
        await asyncio.sleep(0)  # the caller's part is seen only when it waits
        me = asyncio.current_task()
        assert me is not None
        inside = [name for name in names_of_frames() if name in {"react", "execute", "SessionDriver._execute_run"}]
        found.extend([list_awaiting(each) for each in asyncio.all_tasks() if each not in {me, testing}])
        found.append(inside[::-1])
        return "done"

    testing = asyncio.current_task()
    running = asyncio.ensure_future(Agent(ScriptedModel(call("look"), "done"), tools=[look]).run("go"))
    await running
    outside, inside = found
    assert outside[0] == "Agent.run"
    names = [name for name in outside if not name.startswith(("wait", "_wait"))]
    assert inside == ["SessionDriver._execute_run", "execute", "react"]
    assert len([*names, *inside]) <= 8, [*names, *inside]


def names_of_frames() -> list[str]:
    """Return the names of the functions that are being called, the innermost first."""
    return [frame.f_code.co_qualname for frame, _ in traceback.walk_stack(sys._getframe(1))]


async def test_a_task_is_its_own_from_the_first_step_on() -> None:
    async def work() -> asyncio.Task[object] | None:
        began = asyncio.current_task()
        await asyncio.sleep(0)
        assert asyncio.current_task() is began
        return began

    task = start_task_eagerly(work())
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
        assert await start_task_eagerly(work()) == "done"
    finally:
        loop.set_task_factory(None)
    assert made == ["work"]


async def test_an_error_of_a_task_that_ends_at_once_is_raised_where_it_is_awaited() -> None:
    async def work() -> None:
        raise ValueError("no")

    task = start_task_eagerly(work())
    with pytest.raises(ValueError, match="no"):
        await task


async def test_what_a_task_need_not_wait_for_is_done_before_it_is_awaited() -> None:
    done: list[str] = []

    async def work() -> str:
        done.append("begun")
        await asyncio.sleep(0)
        done.append("ended")
        return "result"

    task = start_task_eagerly(work())
    assert (done, task.done()) == (["begun"], False)
    assert asyncio.current_task() is not task
    assert await task == "result"
    assert done == ["begun", "ended"]


async def test_a_task_that_begins_at_once_can_begin_others() -> None:
    async def inner() -> asyncio.Task[object] | None:
        return asyncio.current_task()

    async def outer() -> tuple[object, object, object]:
        return asyncio.current_task(), await start_task_eagerly(inner()), asyncio.current_task()

    task = start_task_eagerly(outer())
    before, inside, after = await task
    assert before is after is task
    assert inside is not task


async def test_a_timeout_in_the_first_step_ends_what_it_is_around_and_nothing_else() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "not timed out"

    assert await start_task_eagerly(work()) == "timed out"


async def test_a_task_changes_no_context_but_its_own() -> None:
    name: ContextVar[str] = ContextVar("name", default="caller")

    async def work() -> str:
        name.set("task")
        return name.get()

    assert await start_task_eagerly(work()) == "task"
    assert name.get() == "caller"


async def test_a_task_begins_at_once() -> None:
    async def work() -> None:
        begun.append("task")

    begun: list[str] = []
    task = start_task_eagerly(work())
    assert begun == ["task"]
    await task
    await asyncio.sleep(0)
    assert begun == ["task"]


@pytest.mark.parametrize(("waiting", "at_once"), [(MAX_READY_HANDLES - 1, True), (MAX_READY_HANDLES, False)])
async def test_a_task_begins_with_the_next_turn_of_a_loop_that_has_much_to_do(
    monkeypatch: pytest.MonkeyPatch, waiting: int, at_once: bool
) -> None:
    async def work() -> str:
        begun.append("task")
        return "done"

    monkeypatch.setattr(tasks, "sys", OLDER)
    loop, called, begun = asyncio.get_running_loop(), list[int](), list[str]()
    for number in range(waiting):
        loop.call_soon(called.append, number)
    task = start_task_eagerly(work())
    assert begun == (["task"] if at_once else [])
    assert await task == "done"
    await asyncio.sleep(0)
    assert called == list(range(waiting))
    assert begun == ["task"]


async def test_a_callback_of_another_thread_that_comes_between_delays_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    class DelayedTask(asyncio.Task[str]):
        def __init__(self, *arguments: object, loop: asyncio.AbstractEventLoop) -> None:
            super().__init__(*arguments, loop=loop)  # type: ignore[arg-type]
            loop.call_soon(begun.append, "callback")

    async def work() -> str:
        begun.append("task")
        return "done"

    begun: list[str] = []
    monkeypatch.setattr(tasks, "sys", OLDER)  # from Python 3.12 on, asyncio itself begins tasks at once
    monkeypatch.setattr(asyncio, "Task", DelayedTask)
    task = start_task_eagerly(work())
    assert begun == []
    assert await task == "done"
    assert begun == ["task", "callback"]
