"""The end of a process in good order, when it is told to end. Above: servers, workers, the command line. Below: runs.

Supervisors send SIGTERM, wait, and then kill. In between, runs that wait for the model end at once; tools get ten
seconds, then they are cancelled, and one that ignores even that is left behind. What was finished is stored, every run
ends as `cancelled` with the reason `shutdown`, and its lease is given back, so that another process can go on.

    async with Shutdown() as shutdown:
        agent = shutdown.covering(agent)
        outcome = await agent.session("s").run("…")
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from .core.error import UsageError
from .core.outcome import Outcome
from .core.run import Engine, Run

if TYPE_CHECKING:
    from .agent import Agent

D = TypeVar("D")

REASON: Final = "shutdown"
"""Why a run has ended, in its outcome and in the log."""
TOOL_SECONDS: Final = 10.0
"""How long tools may take to end before they are cancelled."""
LAST_SECONDS: Final = 0.2
"""How long a cancelled run may take to end before it is left behind."""
SIGNALS: Final = tuple([getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)])
"""By which a process is told to end. Ctrl-C is not among them: that is between you and your program."""


class Signals:
    """Catches signals, in the main thread: the first is passed on, the second ends the process at once.

    The handlers are Python's own, not the event loop's: the second signal works even while the loop is stuck.
    """

    def __init__(
        self, numbers: Sequence[int], first: Callable[[int], None], *, at_once: Callable[[int], None] | None = None
    ) -> None:
        """`first` is called in the running event loop, with the number of the signal; `at_once` also if it is stuck."""
        self.number = 0
        """The signal that came; 0 as long as none did."""
        self._numbers = numbers
        self._first = first
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        try:
            for number in self._numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as with nohup, and for jobs in the background
                    self._before[number] = signal.signal(number, self._caught)
        except ValueError as error:
            raise UsageError("signals reach the main thread alone: make the Shutdown there, or call begin()") from error
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _caught(self, number: int, _: FrameType | None) -> None:
        if self.number:
            os._exit(128 + number)
        self.number = number
        if self._at_once is not None:
            self._at_once(number)
        self._loop.call_soon_threadsafe(self._first, number)


class Shutdown:
    """Ends the runs of agents in good order when the process is told to end. An async context manager.

    Nothing else is ended: what your program does beside its runs is told by `requested` and `wait`.
    """

    def __init__(self, *, signals: Sequence[int] = SIGNALS, tool_seconds: float = TOOL_SECONDS) -> None:
        """With `signals=()` none are caught: call `begin` yourself."""
        self.requested = False
        """Whether the process was told to end."""
        self.left_behind = False
        """Whether a run had to be left behind, whose tool may still be running: `asyncio.run` would wait for it."""
        self._tool_seconds = tool_seconds
        self._numbers = signals
        self._signals: Signals | None = None
        self._told = asyncio.Event()
        self._runs: set[Run] = set()

    async def __aenter__(self) -> Self:
        self._signals = Signals(self._numbers, lambda _: self.begin()).__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._signals is not None:
            self._signals.__exit__()

    def covering(self, agent: "Agent[D]") -> "Agent[D]":
        """The same agent, whose runs end when the process is told to end. Those that begin later end at once."""
        return agent.replace(engine=self.over(agent.engine))

    def over(self, engine: Engine) -> Engine:
        """The same engine, for an agent that is put together by hand."""

        async def stoppable(run: Run) -> Outcome[Any]:
            self._runs.add(run)
            try:
                if self.requested:
                    run.interrupted_by = REASON  # which is how the loop ends a run before it has begun
                    raise asyncio.CancelledError
                outcome = await engine(run)
            finally:
                self._runs.discard(run)
            stopped = self.requested and outcome.status == "cancelled"
            return msgspec.structs.replace(outcome, reason=REASON) if stopped else outcome

        return stoppable

    async def wait(self) -> None:
        """Until the process is told to end."""
        await self._told.wait()

    def begin(self) -> None:
        """End all runs, as if a signal had come. In the event loop of the runs; the second call changes nothing."""
        if self.requested:
            return
        self.requested = True
        self._told.set()
        for run in list(self._runs):
            _stop(run)
        asyncio.get_running_loop().call_later(self._tool_seconds, self._insist)

    def _insist(self) -> None:
        """Tools have had their time."""
        for run in list(self._runs):
            run.interrupt(REASON)
        asyncio.get_running_loop().call_later(LAST_SECONDS, self._leave_behind)

    def _leave_behind(self) -> None:
        """What ignores its cancel must not keep the others from being stored."""
        for run in self._runs:
            self.left_behind = run.leave_behind() or self.left_behind


def _stop(run: Run) -> None:
    """Let the calls that run now come to their ends; if there are none, the run ends now.

    One that waits for an answer goes on waiting, without us: the question stays open, and another process resumes it.
    """
    if run.state.started:
        run.cancel("after_tools")
    elif run.state.questions and run.may_wait:
        run.mailbox.leave()
    else:
        run.interrupt(REASON)
