"""Counts how often the tasks of a run suspend, and strikes at chosen counts. For `test_cancellation.py`.

While a watch is on, every new task drives its coroutine through a `_Counted` one, which sees each suspension: the only
places where anything else can happen, a cancel above all. Tasks of the test itself are made with `own_task`.
"""

import asyncio
import gc
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, cast

IDLE_THREADS = ("perdure-tool", "perdure-sqlite", "perdure-search")
"""Threads that may be there after a run: they wait for the next one."""


class Suspensions:
    """Counts suspensions from 1, and calls `strike` at each of the counts `at`."""

    def __init__(self, at: Collection[int], strike: Callable[[], None]) -> None:
        self.count = 0
        self.struck = 0
        """How many of the counts were reached."""
        self._at = frozenset(at)
        self._strike = strike

    def passed(self) -> None:
        """A task has just suspended."""
        self.count += 1
        if self.count in self._at:
            self.struck += 1
            self._strike()

    def task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task:
        """A task whose suspensions count; what the event loop calls for every new task."""
        return asyncio.Task(_Counted(work, self.passed), loop=loop, **options)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count in all tasks that are made inside this block, for as long as they live."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(cast("Any", self.task))
        try:
            yield
        finally:
            loop.set_task_factory(None)
            self._at = frozenset()


class _Counted(Coroutine):
    """A coroutine around another one, which tells each suspension of it."""

    def __init__(self, inner: Coroutine[Any, Any, Any], passed: Callable[[], None]) -> None:
        self._inner = inner
        self._passed = passed

    def send(self, value):
        suspended_on = self._inner.send(value)
        self._passed()
        return suspended_on

    def throw(self, *error):
        suspended_on = self._inner.throw(*error)
        self._passed()
        return suspended_on

    def close(self):
        self._inner.close()

    def __await__(self):
        return self._inner.__await__()

    def __repr__(self):
        return f"counted {self._inner!r}"


def own_task(work: Coroutine[Any, Any, Any]) -> asyncio.Task:
    """A task of the test's own, whose suspensions do not count."""
    return asyncio.Task(work, loop=asyncio.get_running_loop())


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never suspends, without a task."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it suspends")


class Complaints:
    """What asyncio says when nobody listens: tasks destroyed while pending, errors never retrieved."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.heard.append(f"{context.get('message')}: {context.get('exception')!r} {context.get('task')!r}")

    @contextmanager
    def expected_none(self) -> Iterator[None]:
        """Fail if there was any, garbage included."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self)
        try:
            yield
            gc.collect()
        finally:
            loop.set_exception_handler(None)
        assert self.heard == []


def assert_nothing_is_left(threads_before: Collection[threading.Thread]) -> None:
    """No task but the current one, and no thread that has anything to do with a run that is over."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks are left: {left}"
    new = [thread.name for thread in threading.enumerate() if thread not in threads_before]
    assert all(name.startswith(IDLE_THREADS) for name in new), f"threads are left: {new}"
