"""The future of a queued database job, which resumes its task in the iteration of the event loop that resolves it.

A future of asyncio resumes its task in the next iteration. Each barrier of a run would pay for that iteration.
"""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

T = TypeVar("T")
DoneCallback = Callable[[Any], object]


class JobFuture(Generic[T]):
    """Future of a queued database job. Tasks can await it, and asyncio accepts it where it accepts its own futures.

    Use it on the thread of its event loop only.
    """

    __slots__ = ("_asyncio_future_blocking", "_callbacks", "_error", "_is_done", "_loop", "_result")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_done = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[tuple[DoneCallback, Context]] = []
        self._asyncio_future_blocking = False  # by this name, tasks know a future and agree with it who waits

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the future."""
        return self._loop

    def done(self) -> bool:
        """Return True if the future has a result or an error, or was cancelled."""
        return self._is_done

    def cancelled(self) -> bool:
        """Return True if the future was cancelled."""
        return isinstance(self._error, asyncio.CancelledError)

    def result(self) -> T:
        """Return the result of the job, or raise its error."""
        if not self._is_done:
            raise asyncio.InvalidStateError("the job is not done")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value] # it was set, and may be None

    def exception(self) -> BaseException | None:
        """Return the error of the job, or `None`."""
        if not self._is_done:
            raise asyncio.InvalidStateError("the job is not done")
        if self.cancelled():
            raise asyncio.CancelledError
        return self._error

    def add_done_callback(self, callback: DoneCallback, /, *, context: Context | None = None) -> None:
        """Call a function with this future once it is done, in the given context or a copy of the current one."""
        context = copy_context() if context is None else context
        if self._is_done:
            self._loop.call_soon(callback, self, context=context)
        else:
            self._callbacks.append((callback, context))

    def remove_done_callback(self, callback: DoneCallback, /) -> int:
        """Remove all callbacks that are equal to this function; return their number."""
        kept = [each for each in self._callbacks if each[0] != callback]
        removed, self._callbacks = len(self._callbacks) - len(kept), kept
        return removed

    def set_result(self, result: T) -> None:
        """Resolve the future, and resume the tasks that wait for it. Raises `InvalidStateError` if it is done."""
        self._check_pending()
        self._result = result
        self._finish()

    def set_exception(self, error: BaseException) -> None:
        """Resolve the future with an error, and resume the tasks that wait for it."""
        self._check_pending()
        self._error = error
        self._finish()

    def cancel(self, msg: object = None) -> bool:
        """Cancel the future, not the job; return False if it is done."""
        if self._is_done:
            return False
        self._error = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._is_done = True
        self._call_back_later()  # the caller is a task, inside of which no other one can be resumed
        return True

    def __await__(self) -> Generator["JobFuture[T]", None, T]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def _check_pending(self) -> None:
        if self._is_done:
            raise asyncio.InvalidStateError("the job is done")

    def _finish(self) -> None:
        self._is_done = True
        if asyncio.current_task(self._loop) is not None:
            self._call_back_later()
            return
        callbacks, self._callbacks = self._callbacks, []
        for callback, context in callbacks:
            context.run(callback, self)

    def _call_back_later(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback, context in callbacks:
            self._loop.call_soon(callback, self, context=context)
