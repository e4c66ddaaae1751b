"""Time limits of many operations with one timer, and a block that is cancelled when its time is up."""

import asyncio
import math

import pytest

from perdure._io.http.timeouts import MAX_CHECK_SECONDS, FirstByteTimer, SharedTimeoutTimer
from tests.doubles import SECONDS, until


class Operation:
    """An operation that counts its checks, and names the time until the next one."""

    def __init__(self, left: float = math.inf) -> None:
        self.left = left
        self.checked = asyncio.Event()
        self.checks = 0

    def check_time(self, now: float) -> float:
        assert now <= asyncio.get_running_loop().time()
        self.checks += 1
        self.checked.set()
        return self.left


def count_timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    timers: list[float] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def count_timer(delay: float, *rest: object) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_later", count_timer)
    return timers


def begin(watch: SharedTimeoutTimer, seconds: float, block: "asyncio.Future[None]") -> "asyncio.Task[None]":
    async def wait() -> None:
        with FirstByteTimer(watch, seconds):
            await block

    return asyncio.ensure_future(wait())


async def test_operations_share_a_timer_which_ends_with_the_last_of_them(monkeypatch):
    timers = count_timers(monkeypatch)
    watch, operations = SharedTimeoutTimer(asyncio.get_running_loop(), 0.001), [Operation() for _ in range(20)]
    for operation in operations:
        watch.add(operation)
    assert timers == [0.001]
    async with asyncio.timeout(SECONDS):
        for operation in operations:
            await operation.checked.wait()
            watch.remove(operation)
        await until(lambda: watch._timer is None)
    checks = [operation.checks for operation in operations]
    watch.add(operations[0])
    operations[0].checked.clear()
    async with asyncio.timeout(SECONDS):
        await operations[0].checked.wait()
    assert [operation.checks for operation in operations[1:]] == checks[1:]
    watch.close()


async def test_the_next_check_is_when_the_first_operation_is_due(monkeypatch):
    timers = count_timers(monkeypatch)
    watch, soon = SharedTimeoutTimer(asyncio.get_running_loop(), 0.002), Operation(0.001)
    for operation in (Operation(), soon, Operation(0.5)):
        watch.add(operation)
    async with asyncio.timeout(SECONDS):
        await soon.checked.wait()
    assert timers[:2] == [0.002, 0.001]
    watch.close()


async def test_long_limits_are_checked_every_second(monkeypatch):
    timers = count_timers(monkeypatch)
    watch = SharedTimeoutTimer(asyncio.get_running_loop(), 300.0)
    watch.add(Operation())
    assert timers == [MAX_CHECK_SECONDS]
    watch.close()


async def test_a_watch_that_is_closed_has_no_timer_unless_operations_go_on():
    watch, operation = SharedTimeoutTimer(asyncio.get_running_loop(), 0.001), Operation()
    watch.add(operation)
    watch.close()
    async with asyncio.timeout(SECONDS):
        await operation.checked.wait()
    watch.remove(operation)
    watch.close()
    assert watch._timer is None
    watch.close()


async def test_a_block_whose_time_is_up_raises_a_timeout_and_leaves_its_task_as_it_was():
    watch, never = SharedTimeoutTimer(asyncio.get_running_loop(), 0.001), asyncio.get_running_loop().create_future()
    async with asyncio.timeout(SECONDS):
        with pytest.raises(TimeoutError), FirstByteTimer(watch, 0.001):
            await never
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0)  # which a cancel that was left over would end
    watch.close()


async def test_a_block_that_ends_in_time_is_left_alone():
    watch, came = SharedTimeoutTimer(asyncio.get_running_loop(), 0.001), asyncio.get_running_loop().create_future()
    task = begin(watch, SECONDS, came)
    asyncio.get_running_loop().call_later(0.005, came.set_result, None)  # after a few checks
    async with asyncio.timeout(SECONDS):
        await task
    watch.close()


async def test_a_block_that_is_cancelled_from_outside_raises_that():
    watch = SharedTimeoutTimer(asyncio.get_running_loop(), SECONDS)
    task = begin(watch, SECONDS, asyncio.get_running_loop().create_future())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(SECONDS):
        with pytest.raises(asyncio.CancelledError):
            await task
    watch.close()


async def test_a_cancel_from_outside_counts_even_if_the_time_is_up_as_well():
    watch = SharedTimeoutTimer(asyncio.get_running_loop(), 0.0)
    task = begin(watch, 0.0, asyncio.get_running_loop().create_future())
    await asyncio.sleep(0)
    task.cancel()
    watch._check_all()
    async with asyncio.timeout(SECONDS):
        with pytest.raises(asyncio.CancelledError):
            await task
    watch.close()


async def test_a_block_that_ignores_its_cancel_is_cancelled_once():
    loop = asyncio.get_running_loop()
    watch, cancels, done = SharedTimeoutTimer(loop, 0.0), list[None](), loop.create_future()

    async def ignore() -> str:
        with FirstByteTimer(watch, 0.0):
            try:
                await loop.create_future()
            except asyncio.CancelledError:
                cancels.append(None)
            watch._check_all()
            await done
            return "done"

    task = asyncio.ensure_future(ignore())
    async with asyncio.timeout(SECONDS):
        await until(lambda: cancels)
        done.set_result(None)
        assert await task == "done"
    assert len(cancels) == 1
    watch.close()


async def test_a_watch_that_is_closed_cancels_its_timer() -> None:
    watch, operation = SharedTimeoutTimer(asyncio.get_running_loop(), SECONDS), Operation()
    watch.add(operation)
    watch.remove(operation)
    timer = watch._timer
    assert timer is not None
    watch.close()
    assert timer.cancelled()
