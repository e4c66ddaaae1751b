"""Sessions whose work is done at the same moment are woken a few at a time, so that timers and sockets are served."""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure._stores.sqlite.write.jobs import SLICE_LENGTH, WriterJob, get_future_resolver, resolve_futures
from perdure.events import Custom, Entry
from perdure.stores import SqliteStore
from tests.doubles import SECONDS

SESSIONS = 5 * SLICE_LENGTH + 3


@pytest.fixture
async def store(tmp_path):
    made = SqliteStore(str(tmp_path / "store.db"))
    yield made
    await made.aclose()


class Iterations:
    """Counts the iterations of the event loop, and what was woken in each."""

    def __init__(self):
        self.number = 0
        self.woken: Counter[int] = Counter()
        self.order: list[int] = []
        self._count()

    def _count(self):
        self.number += 1
        self._handle = asyncio.get_running_loop().call_soon(self._count)

    async def wait_for(self, name, work):
        await work
        self.woken[self.number] += 1
        self.order.append(name)

    def stop(self):
        self._handle.cancel()
        return max(self.woken.values())


def make_job(loop):
    return WriterJob(lambda _: None, sync=False, joins=True, loop=loop)


async def test_sessions_that_are_written_together_are_woken_a_few_at_a_time_and_in_order(store):
    leases = [await store.acquire(f"s{number}") for number in range(SESSIONS)]
    iterations = Iterations()
    work = [
        iterations.wait_for(number, store.append(lease, [Entry(1, 1.0, Custom("x", number), "id")], sync=False))
        for number, lease in enumerate(leases)
    ]
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*work)
    assert iterations.stop() <= SLICE_LENGTH
    assert iterations.order == list(range(SESSIONS))


async def test_sessions_whose_reads_are_done_together_are_woken_a_few_at_a_time(store):
    await store.acquire("s")
    iterations = Iterations()
    held = threading.Event()
    blocked = asyncio.ensure_future(store._writer.read(lambda _: held.wait(SECONDS)))
    work = [asyncio.ensure_future(iterations.wait_for(number, store.read("s"))) for number in range(SESSIONS)]
    await asyncio.sleep(0)  # all reads are queued behind the one that waits
    held.set()
    store._writer._reader.submit(lambda _: None).result(SECONDS)  # the loop waits here until all are done
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(blocked, *work)
    assert iterations.stop() <= SLICE_LENGTH


async def test_a_timer_is_served_between_sessions_that_are_woken():
    loop = asyncio.get_running_loop()
    works = [make_job(loop) for _ in range(SESSIONS)]
    waiting = asyncio.gather(*[work.future for work in works])
    with ThreadPoolExecutor(1) as thread:
        thread.submit(resolve_futures, works).result(SECONDS)
    done_at_timer = loop.create_future()
    loop.call_later(0, lambda: done_at_timer.set_result(sum(work.future.done() for work in works)))
    async with asyncio.timeout(SECONDS):
        assert await done_at_timer < SESSIONS
        await waiting


async def test_what_is_done_while_others_wait_comes_after_them():
    loop = asyncio.get_running_loop()
    first, second, last = ([make_job(loop) for _ in range(SLICE_LENGTH)] for _ in range(3))
    slices, order = get_future_resolver(loop), []
    for number, work in enumerate([*first, *second, *last]):
        work.future.add_done_callback(lambda _, number=number: order.append(number))
    slices.add([*first, *second], loop)
    slices.add_on_loop(last, loop)
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*[work.future for work in last])
    assert order == list(range(3 * SLICE_LENGTH))


async def test_a_read_that_nobody_waits_for_any_more_is_not_begun(store):
    await store.acquire("s")
    held, begun = threading.Event(), []
    blocked = asyncio.ensure_future(store._writer.read(lambda _: held.wait(SECONDS)))
    dropped = asyncio.ensure_future(store._writer.read(lambda _: begun.append("dropped")))
    await asyncio.sleep(0)
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    held.set()
    async with asyncio.timeout(SECONDS):
        await blocked
        await store._writer.read(lambda _: begun.append("next"))
    assert begun == ["next"]


async def test_the_error_of_a_read_reaches_its_caller(store):
    await store.acquire("s")
    with pytest.raises(ZeroDivisionError):
        await store._writer.read(lambda _: 1 / 0)


def test_a_job_that_is_done_when_its_event_loop_is_closed_is_forgotten():
    loop = asyncio.new_event_loop()
    work = make_job(loop)
    loop.close()
    resolve_futures([work, work])
    assert not work.future.done()


async def test_the_first_of_what_is_done_on_the_loop_are_woken_at_once_and_so_many_in_each_turn_after_it() -> None:
    loop = asyncio.get_running_loop()
    works = [make_job(loop) for _ in range(2 * SLICE_LENGTH + 1)]
    later = [make_job(loop) for _ in range(SLICE_LENGTH)]
    slices = get_future_resolver(loop)

    def count_done() -> int:
        return sum(work.future.done() for work in [*works, *later])

    slices.add_on_loop(works, loop)
    assert count_done() == SLICE_LENGTH
    slices.add_on_loop(later[:4], loop)
    slices.add(later[4:], loop)
    assert count_done() == SLICE_LENGTH
    counts: list[int] = []
    for _ in range(4):
        await asyncio.sleep(0)
        counts.append(count_done())
    assert counts == [2 * SLICE_LENGTH, 3 * SLICE_LENGTH, 3 * SLICE_LENGTH + 1, 3 * SLICE_LENGTH + 1]
    again = [make_job(loop)]
    slices.add_on_loop(again, loop)  # nothing waits any more
    assert again[0].future.done()


async def test_the_jobs_of_several_event_loops_and_of_threads_are_told_each_where_they_are_waited_for() -> None:
    here, other = asyncio.get_running_loop(), asyncio.new_event_loop()
    try:
        works = [make_job(loop) for loop in (here, None, other, here)]
        for number, work in enumerate(works):
            work.result = number
        resolve_futures(works)
        assert [work.future.done() for work in works] == [False, True, False, False]
        await asyncio.sleep(0)
        assert [work.future.done() for work in works] == [True, True, False, True]
        other.call_soon(other.stop)
        await asyncio.to_thread(other.run_forever)
        assert [work.future.result() for work in works] == [0, 1, 2, 3]
        assert get_future_resolver(here) is get_future_resolver(here) is not get_future_resolver(other)
    finally:
        other.close()
