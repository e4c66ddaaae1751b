"""The future of a database job: as tasks and asyncio see it, and when those that wait are resumed."""

import asyncio
import contextvars

import pytest

from perdure.core.store import run_to_completion
from perdure.stores.sqlite.job_future import JobFuture
from tests.doubles import SECONDS


@pytest.fixture
async def future():
    return JobFuture(asyncio.get_running_loop())


def resolve_soon(future, result="stored"):
    asyncio.get_running_loop().call_soon(future.set_result, result)


async def test_a_task_is_resumed_in_the_iteration_that_resolves_its_future(future):
    seen = []

    async def wait():
        seen.append(await future)

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)  # the task waits now
    loop = asyncio.get_running_loop()
    loop.call_soon(future.set_result, "stored")
    loop.call_soon(seen.append, "the same iteration")
    async with asyncio.timeout(SECONDS):
        await task
    assert seen == ["stored", "the same iteration"]


async def test_a_future_that_a_task_resolves_resumes_no_task_inside_of_it(future):
    seen = []

    async def wait():
        seen.append(await future)

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    future.set_result("stored")
    assert seen == []
    async with asyncio.timeout(SECONDS):
        await task
    assert seen == ["stored"]


async def test_a_future_that_is_done_can_be_awaited_again(future):
    future.set_result("stored")
    assert (await future, await future, future.result(), future.exception()) == ("stored", "stored", "stored", None)
    assert future.done()
    assert not future.cancelled()


async def test_the_error_of_a_job_is_raised_to_all_that_wait(future):
    waits = [asyncio.ensure_future(asyncio.wait_for(future, SECONDS)) for _ in range(2)]
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(future.set_exception, ValueError("full"))
    async with asyncio.timeout(SECONDS):
        errors = await asyncio.gather(*waits, return_exceptions=True)
    assert [str(error) for error in errors] == ["full", "full"]
    assert isinstance(future.exception(), ValueError)


async def test_a_cancelled_task_cancels_its_future_and_a_late_result_is_refused(future):
    task = asyncio.ensure_future(asyncio.wait_for(future, SECONDS))
    await asyncio.sleep(0)
    task.cancel("enough")
    async with asyncio.timeout(SECONDS):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert future.cancelled()
    assert not future.cancel()
    with pytest.raises(asyncio.InvalidStateError):
        future.set_result("late")
    with pytest.raises(asyncio.InvalidStateError):
        future.set_exception(ValueError("late"))
    with pytest.raises(asyncio.CancelledError):
        future.exception()


async def test_a_future_that_is_not_done_has_neither_result_nor_exception(future):
    for ask in (future.result, future.exception):
        with pytest.raises(asyncio.InvalidStateError):
            ask()


async def test_work_is_waited_for_although_its_caller_is_cancelled(future):
    waiting = asyncio.ensure_future(run_to_completion(future))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    resolve_soon(future)
    async with asyncio.timeout(SECONDS):
        assert await waiting == ("stored", True)


async def test_asyncio_takes_it_for_a_future(future):
    resolve_soon(future)
    async with asyncio.timeout(SECONDS):
        assert [*await asyncio.gather(future, asyncio.shield(future))] == ["stored", "stored"]
    assert asyncio.isfuture(future)
    assert asyncio.ensure_future(future) is future


async def test_callbacks_are_called_in_their_context_once_and_not_after_they_were_removed(future):
    name = contextvars.ContextVar("name", default="")
    seen = []

    def note(done):
        seen.append((done is future, name.get()))

    def removed(_done):
        seen.append((False, "removed"))

    name.set("given")
    future.add_done_callback(note)
    future.add_done_callback(removed)
    assert future.remove_done_callback(removed) == 1
    name.set("later")
    resolve_soon(future)
    async with asyncio.timeout(SECONDS):
        await future
    future.add_done_callback(note)
    await asyncio.sleep(0)
    assert seen == [(True, "given"), (True, "later")]
