"""Graceful shutdown: on SIGTERM or SIGHUP, stop the runs of a process so that the next process can resume them.

Supervisors send SIGTERM, wait, and then kill. In between, runs that wait for the model stop at once; tools get ten
seconds, then they are cancelled, and one that ignores even that, or has `abortable=False`, is abandoned: its result is
unknown, and a warning is logged. Finished work is stored, and the session is released. The run is not over: its outcome
is `waiting` with the reason `shutdown`, and `resume` or a worker continues it. A run that cannot be resumed, because
its session is not kept, ends as `cancelled` with that reason. No run begins any more: a prompt that comes later, or
that waits for its turn, raises `ShuttingDown` and is not stored.

    async with agent, Shutdown() as shutdown:
        outcome = await shutdown.wrap_agent(agent).session("s").run("…")
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import PROCESS_END_ATTRIBUTE, SHUTDOWN_REASON, Engine, call_engine, get_engine_name
from perdure._core.values.error import UsageError

if TYPE_CHECKING:
    from .agent.agent import Agent

D = TypeVar("D")

TOOL_SECONDS: Final = 10.0
"""Time that tools get to finish before they are cancelled."""
LAST_SECONDS: Final = 0.2
"""Time that a cancelled run gets to end before it is abandoned."""
SIGNALS: Final = tuple([getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)])
"""Signals that ask a process to end. Ctrl-C is not one of them: your program handles it."""


class SignalHandlers:
    """Signal handlers for the main thread: the first signal calls a function, the second ends the process.

    They are Python's own handlers, not the event loop's: the second signal works even while the loop is stuck.
    """

    def __init__(
        self,
        numbers: Sequence[int],
        first: Callable[[int], None],
        *,
        at_once: Callable[[int], None] | None = None,
        calls_previous: bool = False,
    ) -> None:
        """Create the handlers. `first` is called in the running event loop with the signal's number; `at_once` even if
        the loop is stuck. With `calls_previous`, so is a handler that was there before, such as a web server's.
        """
        self.number = 0
        """Number of the received signal; 0 until there is one."""
        self._numbers = numbers
        self._first = first
        self._at_once = at_once
        self._calls_previous = calls_previous
        self._loop = asyncio.get_running_loop()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        try:
            for number in self._numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as with nohup, and for jobs in the background
                    self._before[number] = signal.signal(number, self._handle)
        except ValueError as error:
            raise UsageError("signals reach the main thread alone: make the Shutdown there, or call begin()") from error
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            os._exit(128 + number)
        self.number = number
        if self._at_once is not None:
            self._at_once(number)
        self._loop.call_soon_threadsafe(self._first, number)
        before = self._before[number]
        if self._calls_previous and callable(before):
            before(number, frame)


class Shutdown:
    """Async context manager for graceful shutdown: stops runs on SIGTERM or SIGHUP, for the next process to resume.

    Nothing else is ended: other work of your program can use `requested` and `wait`. Handlers that were there before,
    such as a web server's, are called too. Once the process was asked to end, leaving the block waits for the runs.
    """

    def __init__(self, *, signals: Sequence[int] = SIGNALS, tool_seconds: float = TOOL_SECONDS) -> None:
        """Create the context manager. With `signals=()` none are handled: call `begin` yourself."""
        self.requested = False
        """True once the process was asked to end."""
        self.has_abandoned_runs = False
        """True if a run was abandoned whose tool may still be running: `asyncio.run` cancels an async one at its end,
        and waits for it if it ignores that."""
        self._tool_seconds = tool_seconds
        self._numbers = signals
        self._signals: SignalHandlers | None = None
        self._told = asyncio.Event()
        self._runs: dict[Run, asyncio.Task[Any]] = {}
        """The runs in progress, and the tasks that store how they end."""

    async def __aenter__(self) -> Self:
        self._signals = SignalHandlers(self._numbers, lambda _: self.begin(), calls_previous=True).__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self.requested:
                await self._wait_for_runs()
        finally:
            if self._signals is not None:
                self._signals.__exit__()

    async def _wait_for_runs(self) -> None:
        """Wait until the runs have stored how far they came; not for those that are abandoned."""
        while waited := [(task, run.abandoned) for run, task in self._runs.items() if not run.abandoned.done()]:
            for either in waited:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    def wrap_agent(self, agent: "Agent[D]") -> "Agent[D]":
        """Return a copy of the agent whose runs, and those of its subagents, stop on shutdown. Later ones do not begin:
        they raise `ShuttingDown`, also those that wait for their turn.
        """
        return agent.replace(engine=self.wrap_engine(agent.engine))

    def wrap_engine(self, engine: Engine) -> Engine:
        """Return a copy of the engine (the function that performs a run) whose runs end on shutdown."""

        async def stoppable(run: Run) -> Outcome[Any]:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a coroutine runs in one
            self._runs[run] = task
            task.add_done_callback(lambda _: self._runs.pop(run, None))
            if self.requested:
                run.interrupt_reason = SHUTDOWN_REASON  # which is how the loop ends a run before it has begun
                run.leaving_reason = SHUTDOWN_REASON if run.can_wait else ""
                raise asyncio.CancelledError
            outcome = await call_engine(engine, run)
            stopped = self.requested and outcome.status == "cancelled"
            return msgspec.structs.replace(outcome, reason=SHUTDOWN_REASON) if stopped else outcome

        stoppable.__name__ = get_engine_name(engine)  # which the log and errors show
        stoppable.__dict__[PROCESS_END_ATTRIBUTE] = self
        return stoppable

    async def wait(self) -> None:
        """Wait until the process receives a signal to end, or `begin` is called."""
        await self._told.wait()

    def begin(self) -> None:
        """Stop all runs, as a signal would. Call it in the event loop of the runs; a second call does nothing."""
        if self.requested:
            return
        self.requested = True
        self._told.set()
        for run in list(self._runs):
            _stop_run(run)
        asyncio.get_running_loop().call_later(self._tool_seconds, self._cancel_runs)

    def _cancel_runs(self) -> None:
        """Cancel the runs whose tool calls have not finished within `tool_seconds`."""
        for run in list(self._runs):
            run.interrupt(SHUTDOWN_REASON)
        asyncio.get_running_loop().call_later(LAST_SECONDS, self._abandon_runs)

    def _abandon_runs(self) -> None:
        """Abandon runs that ignore cancellation, or whose tool must not be aborted, so that the process can end."""
        for run in list(self._runs):
            self.has_abandoned_runs = run.abandon() or self.has_abandoned_runs


def _stop_run(run: Run) -> None:
    """Leave a run for another process after its running tool calls; end one that cannot be resumed."""
    if run.can_wait:
        run.leave(SHUTDOWN_REASON)
    elif run.state.started_calls:
        run.cancel("after_tools")
    else:
        run.interrupt(SHUTDOWN_REASON)
