"""Enforce the timeouts of all HTTP requests and responses of an event loop with a single timer.

A timer for each request and another for its response would take as long as several events of the response. One timer
checks all of them instead, at least every second and whenever one of them is due.
"""

import asyncio
import math
from types import TracebackType
from typing import Protocol, cast

MAX_CHECK_SECONDS = 1.0
"""Longest interval between two checks."""


class TimeLimitedOperation(Protocol):
    """Protocol for an HTTP operation with a time limit, which a `SharedTimeoutTimer` enforces."""

    def check_time(self, now: float) -> float:
        """End the operation if it has taken too long; return the seconds within which it has to be checked again."""
        ...


class SharedTimeoutTimer:
    """Enforces the time limits of the HTTP operations of one event loop, with one timer for all of them."""

    __slots__ = ("_interval", "_loop", "_operations", "_timer", "time")

    def __init__(self, loop: asyncio.AbstractEventLoop, shortest_seconds: float) -> None:
        """Make a watch for operations of which none has less time than `shortest_seconds`."""
        self._loop = loop
        self._interval = min(shortest_seconds, MAX_CHECK_SECONDS)
        self._operations: dict[TimeLimitedOperation, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        """The timer, which goes on for one interval after the last operation: the next one usually comes soon."""
        self.time = loop.time
        """The clock of the time limits."""

    def add(self, operation: TimeLimitedOperation) -> None:
        """Check an operation at intervals until it is removed."""
        self._operations[operation] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval, self._check_all)

    def remove(self, operation: TimeLimitedOperation) -> None:
        """Stop checking an operation."""
        self._operations.pop(operation, None)

    def close(self) -> None:
        """Cancel the timer, unless operations are in progress: each keeps its time limit until it is removed."""
        if self._timer is not None and not self._operations:
            self._timer.cancel()
            self._timer = None

    def _check_all(self) -> None:
        self._timer = None
        if self._operations:
            now, seconds = self.time(), self._interval
            for operation in tuple(self._operations):
                seconds = min(seconds, operation.check_time(now))
            self._timer = self._loop.call_later(seconds, self._check_all)


class FirstByteTimer:
    """Context manager that cancels its block, the wait for a response, after `seconds`, as `asyncio.timeout` does.

    Raises `TimeoutError` then.
    """

    __slots__ = ("_cancel_requests", "_due", "_is_expired", "_task", "_watch")

    def __init__(self, watch: SharedTimeoutTimer, seconds: float) -> None:
        self._watch = watch
        self._due = watch.time() + seconds
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancel_requests = self._task.cancelling()
        """Number of cancels of the task that have nothing to do with this timeout."""
        self._is_expired = False

    def __enter__(self) -> None:
        self._watch.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.remove(self)
        if (
            self._is_expired
            and self._task.uncancel() <= self._cancel_requests
            and isinstance(error, asyncio.CancelledError)
        ):
            raise TimeoutError from error

    def check_time(self, now: float) -> float:
        """Cancel the block if its time is up; return the seconds that it has left."""
        if self._is_expired:
            return math.inf
        if now < self._due:
            return self._due - now
        self._is_expired = True
        self._task.cancel()
        return math.inf
