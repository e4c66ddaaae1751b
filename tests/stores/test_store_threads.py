"""The threads of a store."""

import subprocess
import sys
import threading

import pytest

from perdure._stores.threads import StoreThreads

PROGRAM = """
import threading
from perdure._stores.threads import StoreThreads

may_go_on = threading.Event()
thread = StoreThreads("writer")
thread.call(lambda: may_go_on.wait(10))
thread.call(lambda: print("written", flush=True))
threading.Timer(0.0, may_go_on.set).start()
"""


@pytest.fixture
def thread():
    started = StoreThreads("writer")
    yield started
    started.end()


def test_functions_are_called_in_order_on_one_thread(thread):
    called = []
    for number in range(3):
        thread.call(lambda number=number: called.append((number, threading.current_thread().name)))
    assert thread.submit(lambda: len(called)).result(10) == 3
    assert called == [(0, "writer"), (1, "writer"), (2, "writer")]


def test_an_error_is_raised_to_whoever_waits_and_the_thread_goes_on(thread):
    with pytest.raises(ZeroDivisionError):
        thread.submit(lambda: 1 // 0).result(10)
    assert thread.submit(lambda: "on").result(10) == "on"


def test_a_call_that_was_cancelled_before_its_turn_is_not_made(thread):
    may_go_on, called = threading.Event(), []
    thread.call(lambda: may_go_on.wait(10))
    cancelled = thread.submit(lambda: called.append("cancelled"))
    assert cancelled.cancel()
    may_go_on.set()
    assert thread.submit(lambda: called).result(10) == []


def test_what_was_queued_before_the_end_is_called():
    thread, called = StoreThreads("writer"), []
    last = thread.submit(lambda: called.append("last"))
    thread.end()
    last.result(10)
    thread._threads[0].join(10)
    assert (called, thread._threads[0].is_alive()) == (["last"], False)


def test_what_is_queued_when_the_program_ends_is_called():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("written\n", "")
