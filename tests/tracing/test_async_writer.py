import asyncio
import queue
import threading

import pytest

from perdure import ConfigError
from perdure.tracing import AsyncWriter, WriterStats

SECONDS = 30


def test_items_are_written_in_order_in_batches():
    written: list[list[int]] = []
    writer: AsyncWriter[int] = AsyncWriter(lambda batch: written.append(list(batch)), batch_size=10)
    for number in range(35):
        assert writer.add(number)
    assert writer.close(SECONDS)
    assert [each for batch in written for each in batch] == list(range(35))
    assert max(map(len, written)) <= 10
    assert (writer.stats.added, writer.stats.written, writer.stats.queued) == (35, 35, 0)


def test_a_full_queue_drops_new_items_and_counts_them():
    gate, begun = threading.Event(), threading.Event()

    def write(batch):
        begun.set()
        assert gate.wait(SECONDS)

    writer = AsyncWriter(write, batch_size=1, max_queue=2)
    assert writer.add(0)
    assert begun.wait(SECONDS)
    assert [writer.add(number) for number in range(4)] == [True, True, False, False]
    assert writer.is_full
    assert not writer.flush(0.01)
    gate.set()
    assert writer.flush(SECONDS)
    assert (writer.stats.written, writer.stats.dropped, writer.stats.added) == (3, 2, 5)
    assert writer.close(SECONDS)
    assert not writer.add(9)


def test_an_error_of_write_is_counted_and_the_next_batch_is_tried(caplog):
    fails = [True]

    def write(batch):
        if fails:
            fails.pop()
            raise OSError("disk full")

    writer = AsyncWriter(write)
    writer.add(1)
    assert writer.flush(SECONDS)
    writer.add(2)
    assert writer.close(SECONDS)
    assert (writer.stats.failed, writer.stats.written) == (1, 1)
    assert "disk full" in caplog.text


async def test_a_producer_that_can_wait_waits_for_room():
    written: list[int] = []
    writer = AsyncWriter(written.extend, batch_size=2, max_queue=4)
    for number in range(20):
        if writer.is_full:
            await asyncio.wait_for(writer.wait_for_room(), SECONDS)
        assert writer.add(number)
    assert await writer.flush_async(SECONDS)
    assert written == list(range(20))
    assert writer.close(SECONDS)


def test_threads_can_add_at_the_same_time_and_nothing_is_lost():
    written: list[int] = []
    writer = AsyncWriter(written.extend, batch_size=7, max_queue=100_000)
    threads = [threading.Thread(target=lambda: [writer.add(number) for number in range(500)]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(SECONDS)
    assert writer.close(SECONDS)
    assert len(written) == 2_000


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"max_queue": "x"}])
def test_options_that_cannot_be_used_are_named(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        AsyncWriter(print, **options)


def find_threads(name: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == name]


def test_items_are_written_soon_also_when_nobody_waits_for_them():
    written: queue.Queue[list[int]] = queue.Queue()
    writer: AsyncWriter[int] = AsyncWriter(lambda batch: written.put(list(batch)))
    for number in (1, 2, 3):
        assert writer.add(number)
        assert written.get(timeout=SECONDS) == [number]
        assert writer.flush(SECONDS)
    assert writer.close(SECONDS)


def test_the_thread_of_a_writer_ends_with_it_and_keeps_no_process_alive():
    before = find_threads("perdure trace writer")
    writer: AsyncWriter[int] = AsyncWriter(list)
    assert find_threads("perdure trace writer") == before
    writer.add(1)
    (thread,) = [each for each in find_threads("perdure trace writer") if each not in before]
    assert thread.daemon
    assert writer.flush(SECONDS)
    assert writer.close(SECONDS)
    thread.join(5)
    assert not thread.is_alive()


def test_a_writer_counts_what_it_was_given_from_nothing_on():
    writer: AsyncWriter[int] = AsyncWriter(list, batch_size=1, max_queue=1)
    assert writer.stats == WriterStats(added=0, written=0, dropped=0, failed=0, queued=0)
    assert (writer.is_full, writer.flush(0)) == (False, True)
    assert writer.close(SECONDS)
    assert not writer.add(1)
    assert writer.stats == WriterStats(added=1, written=0, dropped=1, failed=0, queued=0)


def test_what_is_being_written_is_counted_as_queued():
    gate, begun = threading.Event(), threading.Event()

    def write(_: object) -> None:
        begun.set()
        assert gate.wait(SECONDS)

    writer: AsyncWriter[int] = AsyncWriter(write, batch_size=1)
    writer.add(1)
    assert begun.wait(SECONDS)
    writer.add(2)
    assert writer.stats == WriterStats(added=2, written=0, dropped=0, failed=0, queued=2)
    gate.set()
    assert writer.close(SECONDS)
    assert writer.stats == WriterStats(added=2, written=2, dropped=0, failed=0, queued=0)


def test_errors_of_write_are_logged_once(caplog: pytest.LogCaptureFixture):
    def write(_: object) -> None:
        raise OSError("disk full")

    writer: AsyncWriter[int] = AsyncWriter(write)
    for number in (1, 2, 3):
        writer.add(number)
        assert writer.flush(SECONDS)
    assert writer.close(SECONDS)
    assert writer.stats.failed == 3
    assert [each.getMessage() for each in caplog.records] == [
        "a trace cannot be written (OSError: disk full); it is tried again"
    ]
