"""Threads for plain functions: daemons, a limit, and places that are given back."""

import asyncio
import contextvars
import gc
import inspect
import os
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest

from perdure import Agent, ConfigError, Limits, tool
from perdure._core.tools.worker import threads as thread
from perdure._core.tools.worker.threads import THREAD_POOL, ThreadPool
from perdure.testing import ScriptedModel, call, calls

PATIENCE = 30.0
"""Seconds after which something that should happen at once has not happened."""


async def eventually(condition):
    """Let threads run until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - threads set no asyncio.Event
            await asyncio.sleep(0)


class Held:
    """A function that stands still until it is let go."""

    def __init__(self):
        self.began = threading.Event()
        self.release = threading.Event()
        self.thread = None

    def __call__(self):
        self.thread = threading.current_thread()
        self.began.set()
        assert self.release.wait(PATIENCE)
        return "released"


@pytest.fixture
def held():
    """A held function, which is let go at the end in any case."""
    function = Held()
    yield function
    function.release.set()


async def started(threads, function):
    """A task that runs the function, which has begun."""
    task = asyncio.ensure_future(threads.run(function, (), {}))
    await eventually(function.began.is_set)
    return task


async def cancel(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- one call ----------------------------------------------------------------------------------------------------------


async def test_a_function_is_called_with_its_arguments_on_a_thread_that_cannot_keep_the_process_alive():
    def function(*args, **kwargs):
        return args, kwargs, threading.current_thread()

    args, kwargs, on = await ThreadPool().run(function, (1, 2), {"three": 3})
    assert (args, kwargs) == ((1, 2), {"three": 3})
    assert on is not threading.current_thread()
    assert (on.daemon, on.name) == (True, "perdure-tool")


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException()]
)
async def test_whatever_the_function_raises_is_raised_to_the_one_who_waits(error):
    def function():
        raise error

    with pytest.raises(type(error)) as raised:
        await ThreadPool().run(function, (), {})
    assert raised.value is error


async def test_a_stop_iteration_becomes_an_error_and_does_not_hang():
    with pytest.raises(RuntimeError, match="StopIteration"):
        await ThreadPool().run(lambda: next(iter(())), (), {})


async def test_a_function_sees_the_context_variables_of_its_caller_and_cannot_change_them():
    variable = contextvars.ContextVar("variable", default="nothing")
    variable.set("caller")

    def function():
        seen = variable.get()
        variable.set("function")
        return seen

    assert await ThreadPool().run(function, (), {}) == "caller"
    assert variable.get() == "caller"


async def test_neither_results_nor_errors_live_on_in_an_idle_thread():
    class Mortal(Exception):
        pass

    def fail():
        raise Mortal

    threads = ThreadPool()
    gc.collect()
    gc.disable()
    try:
        result = weakref.ref(await threads.run(Mortal, (), {}))
        try:
            await threads.run(fail, (), {})
        except Mortal as caught:
            error = weakref.ref(caught)
        await eventually(lambda: threads._busy == 0)
        await eventually(lambda: (result(), error()) == (None, None))
    finally:
        gc.enable()


# -- several calls -----------------------------------------------------------------------------------------------------


async def test_functions_run_at_the_same_time_up_to_the_limit():
    threads, together = ThreadPool(4), threading.Barrier(4)
    places = await asyncio.gather(*[threads.run(together.wait, (PATIENCE,), {}) for _ in range(4)])
    assert sorted(places) == [0, 1, 2, 3]


async def test_beyond_the_limit_a_function_waits_for_a_place(held):
    threads = ThreadPool(1)
    first = await started(threads, held)
    second = asyncio.ensure_future(threads.run(threading.current_thread, (), {}))
    await eventually(lambda: threads.waiting_count)
    assert not second.done()
    held.release.set()
    assert await first == "released"
    assert await second is held.thread


async def test_an_idle_thread_takes_the_next_job():
    threads = ThreadPool()
    first = await threads.run(threading.current_thread, (), {})
    await eventually(lambda: threads._idle == 1)
    assert await threads.run(threading.current_thread, (), {}) is first


async def test_idle_threads_count_towards_the_limit():
    threads = ThreadPool(1)
    first = await threads.run(threading.current_thread, (), {})
    await eventually(lambda: threads._idle == 1)
    several = await asyncio.gather(*[threads.run(threading.current_thread, (), {}) for _ in range(20)])
    assert set(several) == {first}


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_the_limit_holds_in_a_crowd(limit):
    threads, lock = ThreadPool(limit), threading.Lock()
    running = most = 0

    def function():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1

    for _ in range(20):
        await asyncio.gather(*[threads.run(function, (), {}) for _ in range(20)])
    assert most <= limit


async def test_a_thread_that_has_had_nothing_to_do_for_a_while_ends():
    threads = ThreadPool(idle_seconds=0.0)
    on = await threads.run(threading.current_thread, (), {})
    on.join(PATIENCE)
    assert not on.is_alive()
    assert (threads._busy, threads._idle) == (0, 0)
    assert await threads.run(lambda: "another", (), {}) == "another"


async def test_a_job_that_comes_just_when_an_idle_thread_has_waited_long_enough_is_done(monkeypatch):
    threads, idle, has_job = ThreadPool(), threading.Event(), threading.Event()

    def wait_too_long(timeout):
        """The wait of a thread that is woken by its timeout, and not by the job that has come at the same moment."""
        threads._lock.release()
        try:
            idle.set()
            assert timeout
            assert has_job.wait(PATIENCE)
        finally:
            threads._lock.acquire()
        return False

    monkeypatch.setattr(threads._wake, "wait", wait_too_long)
    assert await threads.run(lambda: "first", (), {}) == "first"
    await eventually(idle.is_set)
    second = asyncio.ensure_future(threads.run(lambda: "second", (), {}))
    await eventually(lambda: threads.waiting_count)
    has_job.set()
    async with asyncio.timeout(PATIENCE):
        assert await second == "second"


# -- callers that go away ----------------------------------------------------------------------------------------------


async def test_a_call_that_is_left_gives_its_place_to_the_next(held):
    threads = ThreadPool(1)
    left = await started(threads, held)
    waiting = asyncio.ensure_future(threads.run(threading.current_thread, (), {}))
    await eventually(lambda: threads.waiting_count)
    await cancel(left)
    on = await waiting
    assert on is not held.thread
    held.release.set()
    held.thread.join(PATIENCE)
    assert not held.thread.is_alive()
    await eventually(lambda: (threads._busy, threads._idle) == (0, 1))


async def test_the_place_of_a_call_that_is_left_stays_free_for_later_ones(held):
    threads = ThreadPool(1)
    await cancel(await started(threads, held))
    assert await threads.run(lambda: "next", (), {}) == "next"


async def test_a_call_that_is_left_before_its_place_came_is_never_made(held):
    threads = ThreadPool(1)
    made: list[str] = []
    first = await started(threads, held)
    second = asyncio.ensure_future(threads.run(made.append, ("second",), {}))
    await eventually(lambda: threads.waiting_count)
    await cancel(second)
    held.release.set()
    await first
    await threads.run(made.append, ("third",), {})
    assert made == ["third"]


async def test_a_call_that_is_thrown_away_gives_its_place_back_too(held):
    threads = ThreadPool(1)
    coroutine = threads.run(held, (), {})
    coroutine.send(None)
    await eventually(held.began.is_set)
    coroutine.close()
    assert await threads.run(lambda: "next", (), {}) == "next"


async def test_a_call_that_ends_just_when_it_is_left_is_left(monkeypatch):
    told = threading.Event()
    deliver = thread._deliver_result

    def deliver_and_tell(job, outcome):
        deliver(job, outcome)
        told.set()

    monkeypatch.setattr(thread, "_deliver_result", deliver_and_tell)
    threads = ThreadPool()
    task = asyncio.ensure_future(threads.run(lambda: "done", (), {}))
    await asyncio.sleep(0)
    assert told.wait(PATIENCE)  # the loop has been told, and has not listened yet
    await cancel(task)
    await eventually(lambda: (threads._busy, threads._idle) == (0, 1))


# -- what may be in the way --------------------------------------------------------------------------------------------


async def test_a_thread_that_cannot_be_started_is_an_error_of_that_call_alone(monkeypatch):
    def refuse(self):
        message = "can't start new thread"
        raise RuntimeError(message)

    threads = ThreadPool()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await threads.run(lambda: None, (), {})
    assert (threads.waiting_count, threads._busy) == (0, 0)
    assert await threads.run(lambda: "next", (), {}) == "next"


async def test_when_no_thread_can_be_started_for_a_place_that_was_given_back_the_job_waits(held, monkeypatch):
    def refuse(self):
        raise RuntimeError

    threads, other = ThreadPool(2), Held()
    left, stays = await started(threads, held), await started(threads, other)
    waiting = asyncio.ensure_future(threads.run(lambda: "later", (), {}))
    await eventually(lambda: threads.waiting_count)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        await cancel(left)
    assert not waiting.done()
    other.release.set()
    assert [await stays, await waiting] == ["released", "later"]


def test_a_result_for_a_loop_that_is_closed_is_dropped():
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    thread._deliver_result(thread._Job(lambda: None, loop, future), (True, "late"))
    assert not future.done()


async def test_a_result_for_a_caller_that_has_gone_is_dropped():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    thread._set_result(future, (True, "late"))
    assert future.cancelled()


async def answer_late():
    """A coroutine that a plain function returned; when no caller awaits it, it has to be closed."""


async def test_a_coroutine_that_is_returned_after_the_caller_has_gone_is_closed(held):
    threads, late = ThreadPool(1), answer_late()

    def function():
        held()
        return late

    task = asyncio.ensure_future(threads.run(function, (), {}))
    await eventually(held.began.is_set)
    await cancel(task)
    held.release.set()
    held.thread.join(PATIENCE)
    assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED


async def test_a_coroutine_whose_caller_is_cancelled_as_it_arrives_is_closed(monkeypatch):
    late, set_result = answer_late(), thread._set_result

    def set_result_and_cancel(future, outcome):
        set_result(future, outcome)
        task.cancel()

    monkeypatch.setattr(thread, "_set_result", set_result_and_cancel)
    task = asyncio.ensure_future(ThreadPool(1).run(lambda: late, (), {}))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED


def test_a_coroutine_for_a_loop_that_is_closed_is_closed():
    loop, late = asyncio.new_event_loop(), answer_late()
    future = loop.create_future()
    loop.close()
    thread._deliver_result(thread._Job(lambda: None, loop, future), (True, late))
    assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED


def program(text):
    """Run a program, and return what it printed. It has to end by itself."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 3, check=True).stdout


def test_a_function_that_never_returns_does_not_keep_the_process_from_ending():
    printed = program("""
import asyncio, threading
from perdure._core.tools.worker.threads import THREAD_POOL

async def main():
    task = asyncio.ensure_future(THREAD_POOL.run(threading.Event().wait, (), {}))
    await asyncio.sleep(0)
    task.cancel()
    print("ended")

asyncio.run(main())
""")
    assert printed == "ended\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_starts_threads_of_its_own():
    printed = program("""
import asyncio, os
from perdure._core.tools.worker.threads import THREAD_POOL

async def call(text):
    async with asyncio.timeout(30):
        return await THREAD_POOL.run(lambda: text, (), {})

print(asyncio.run(call("parent")), flush=True)
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(asyncio.run(call("child")), flush=True)
""")
    assert printed == "parent\nchild\n"


def test_all_tools_share_one_pool():
    assert isinstance(THREAD_POOL, ThreadPool)


# -- sessions ----------------------------------------------------------------------------------------------------------


async def test_one_session_cannot_take_all_threads(held):
    threads = ThreadPool(4, session_limit=2)
    greedy = [asyncio.ensure_future(threads.run(held, (), {}, session_id="greedy")) for _ in range(10)]
    await eventually(lambda: threads._busy == 2)
    assert await threads.run(lambda: "quick", (), {}, session_id="other") == "quick"
    await eventually(lambda: threads.waiting_count == 8)  # a thread counts as busy a moment before it takes its call
    held.release.set()
    assert await asyncio.gather(*greedy) == ["released"] * 10
    assert not threads._queues


async def test_sessions_that_wait_take_turns(held):
    threads = ThreadPool(1)
    made: list[tuple[str, int]] = []
    first = await started(threads, held)
    submitted = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1), ("b", 2)]
    waiting = [
        asyncio.ensure_future(threads.run(made.append, ((name, number),), {}, session_id=name))
        for name, number in submitted
    ]
    await eventually(lambda: threads.waiting_count == 6)
    held.release.set()
    await asyncio.gather(first, *waiting)
    assert made == [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), ("a", 3)]


async def test_a_waiting_call_that_is_left_takes_no_turn(held):
    threads = ThreadPool(1, session_limit=1)
    made: list[Any] = []
    first = await started(threads, held)
    left = [asyncio.ensure_future(threads.run(made.append, (n,), {}, session_id="left")) for n in range(1_000)]
    stays = asyncio.ensure_future(threads.run(made.append, ("stays",), {}, session_id="other"))
    await eventually(lambda: threads.waiting_count == 1_001)
    for task in left:
        task.cancel()
    await asyncio.wait(left)
    assert (threads.waiting_count, threads._startable, list(threads._turns)) == (1, 1, ["other"])
    held.release.set()
    await asyncio.gather(first, stays)
    assert made == ["stays"]


async def test_the_place_of_a_call_that_is_left_goes_to_the_next_of_its_session(held):
    threads = ThreadPool(4, session_limit=1)
    left = asyncio.ensure_future(threads.run(held, (), {}, session_id="a"))
    await eventually(held.began.is_set)
    following = asyncio.ensure_future(threads.run(lambda: "next", (), {}, session_id="a"))
    await eventually(lambda: threads.waiting_count == 1)
    await cancel(left)
    assert await following == "next"


async def test_a_session_never_has_more_threads_than_its_limit():
    threads, lock = ThreadPool(8, session_limit=2), threading.Lock()
    running: dict[str, int] = {}
    most = 0

    def function(name):
        nonlocal most
        with lock:
            running[name] = running.get(name, 0) + 1
            most = max(most, running[name])
        with lock:
            running[name] -= 1

    for _ in range(20):
        await asyncio.gather(*[threads.run(function, (name,), {}, session_id=name) for name in "abcab" * 4])
    assert most <= 2
    assert (threads._startable, threads._queues, list(threads._turns)) == (0, {}, [])


async def test_blocking_tools_of_one_session_do_not_delay_a_tool_of_another(held):
    @tool(effect="read")
    def block() -> str:
        """Blocks."""
        return held()

    @tool(effect="read")
    def quick() -> str:
        """Returns at once."""
        return "quick"

    many = ScriptedModel(calls(*[call("block") for _ in range(100)]), "Done.")
    blocking = asyncio.ensure_future(Agent(many, tools=[block], limits=Limits(max_parallel_tools=100)).run("Go"))
    await eventually(lambda: THREAD_POOL.waiting_count == 100 - thread.MAX_SESSION_THREADS)
    other = ScriptedModel(calls(call("quick")), "Done.")
    async with asyncio.timeout(PATIENCE):
        outcome = await Agent(other, tools=[quick]).run("Go")
    assert outcome.messages[2].tool_results[0].text == "quick"
    assert not blocking.done()
    held.release.set()
    assert (await blocking).status == "done"


def test_the_numbers_of_threads_may_be_set(monkeypatch):
    pool = ThreadPool()
    monkeypatch.setattr(thread, "THREAD_POOL", pool)
    thread.set_tool_threads(3, per_session=2)
    assert (pool._limit, pool._session_limit) == (3, 2)
    wrong: list[dict[str, Any]] = [{"total": 0}, {"per_session": "2"}]
    for bad in wrong:
        with pytest.raises(ConfigError, match="set_tool_threads"):
            thread.set_tool_threads(**bad)
