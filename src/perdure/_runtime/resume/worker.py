"""A worker that resumes the sessions of a store after a crash, an answer or a new message.

It asks the store which sessions no process drives, and wakes them as `Session.attend` does for one session. Several
workers may serve one store: a lease decides which of them drives a session.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from perdure._core.log.reserved_ids import is_listed
from perdure._core.log.store import InterruptedSession, Store, cancel_and_await_tasks, get_namespaced_session_id
from perdure._core.run.outcome import Outcome
from perdure._core.run.spec import ShutdownSignal
from perdure._core.values import checks
from perdure._core.values.clock import Clock, get_steady_time
from perdure._core.values.error import Fenced, SessionBusy, StoreError, UnsupportedByStore

logger = logging.getLogger("perdure")

MOST_AT_ONCE = 8
"""The default number of sessions that a worker continues at the same time."""
POLL_SECONDS = 1.0
"""The default interval at which a worker looks for sessions."""
MAX_DELAY_SECONDS = 60.0
"""The longest time for which a session that fails, or has nothing to do, is left alone."""

_MAX_DOUBLINGS: int = 16

AttendSession: TypeAlias = Callable[[str], Awaitable[Outcome[Any] | None]]
"""Function that continues a session if there is a reason to, and returns the outcome; `None` if there is none."""


class _Pause(Struct):
    """The back-off of a session that failed or had nothing to do."""

    attempts: int
    until: float
    """By the monotonic clock."""
    row: InterruptedSession
    """What the store said of the session then: a change ends a pause that is not due to a failure."""
    has_failed: bool


class ResumeWorker:
    """A worker that continues the sessions of a store, several at a time, until it is stopped.

    The session that has waited longest for its turn is next.
    """

    def __init__(
        self,
        store: Store,
        attend: AttendSession,
        clock: Clock,
        *,
        prefix: str = "",
        most_at_once: int = MOST_AT_ONCE,
        seconds: float = POLL_SECONDS,
        jitter: Callable[[], float] = random.random,
        process_end: ShutdownSignal | None = None,
    ) -> None:
        checks.require_int("attend_all", "most_at_once", most_at_once, 1)
        checks.require_number("attend_all", "seconds", seconds)
        checks.require_text("attend_all", "prefix", prefix)
        if not hasattr(store, "list_interrupted"):
            raise UnsupportedByStore(
                f"a {type(store).__name__} cannot list its interrupted sessions: give it a method list_interrupted(…)"
            )
        self._store = store
        self._attend = attend
        self._clock = clock
        self._prefix = prefix
        self._most_at_once = most_at_once
        self._seconds = seconds
        self._jitter = jitter
        self._tasks: dict[asyncio.Task[Outcome[Any] | None], InterruptedSession] = {}
        """The sessions that are being continued."""
        self._pauses: dict[str, _Pause] = {}
        self._turns: dict[str, int] = {}
        """The number of the turn in which each session was last continued: who had none for longest is next."""
        self._turn = 0
        self._is_stopping = False
        self._process_end = process_end

    @property
    def is_stopping(self) -> bool:
        """True if no more sessions are taken up: `stop` was called, or the process was asked to end."""
        return self._is_stopping or (self._process_end is not None and self._process_end.requested)

    def stop(self) -> None:
        """Begin no more sessions; `run` ends once those in progress are done."""
        self._is_stopping = True

    async def run(self, *, once: bool = False) -> AsyncGenerator[Outcome[Any]]:
        """Continue sessions, and yield the outcome of each run. A session that fails yields a `failed` outcome with its
        error.

        Runs until the caller stops it; with `once`, until no session is left that can be continued now. When it is
        stopped, the runs in progress are cancelled, and ended properly, first.
        """
        try:
            while True:
                free = 0 if self.is_stopping else self._most_at_once - len(self._tasks)
                for row in (await self._find_next())[:free] if free else ():
                    self._begin(row)
                if (once or self.is_stopping) and not self._tasks:
                    return
                for outcome in await self._wait():
                    yield outcome
        finally:
            try:
                await cancel_and_await_tasks(self._tasks)
            finally:
                for task in self._tasks:
                    _ = task.cancelled() or task.exception()  # retrieved, so that asyncio does not log it

    async def _find_next(self) -> list[InterruptedSession]:
        """Return the sessions that can be continued now, those that have waited for their turn longest first."""
        try:
            now = get_steady_time(self._clock)
            rows = await self._store.list_interrupted(prefix=self._prefix, include_posts=True, now=now)
        except StoreError as error:
            logger.warning("interrupted sessions cannot be listed, which will be tried again: %s", error)
            return []
        rows = [row for row in rows if is_listed(self._store, row.session_id)]
        listed = {row.session_id for row in rows}
        busy = {row.session_id for row in self._tasks.values()}
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in listed}
        self._turns = {name: turn for name, turn in self._turns.items() if name in listed or name in busy}
        free = [row for row in rows if row.session_id not in busy and not self._is_paused(row)]
        # Other workers get the same list: each begins at another place among those that had no turn yet.
        return sorted(free, key=lambda row: (self._turns.get(row.session_id, 0), self._jitter()))

    def _is_paused(self, row: InterruptedSession) -> bool:
        pause = self._pauses.get(row.session_id)
        if pause is None or self._clock.monotonic() >= pause.until:
            return False
        return pause.has_failed or pause.row == row

    def _begin(self, row: InterruptedSession) -> None:
        """Start the task that continues a session."""
        self._turn += 1
        self._turns[row.session_id] = self._turn
        self._tasks[asyncio.ensure_future(self._attend(row.session_id))] = row

    async def _wait(self) -> Sequence[Outcome[Any]]:
        """Wait until a session is done, or it is time to look for others; return the outcomes."""
        timers = [asyncio.ensure_future(self._clock.sleep(self._seconds))]
        if self._process_end is not None and not self.is_stopping:
            timers.append(asyncio.ensure_future(self._process_end.wait()))
        try:
            await asyncio.wait((*self._tasks, *timers), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_await_tasks(timers)
        done = [task for task in self._tasks if task.done()]
        found = [self._finish(task, self._tasks.pop(task)) for task in done]
        return [outcome for outcome in found if outcome is not None]

    def _finish(self, task: "asyncio.Task[Outcome[Any] | None]", row: InterruptedSession) -> Outcome[Any] | None:
        """Return the outcome of a finished session task; back off from the session if it failed or had nothing to
        do.
        """
        session_id = row.session_id
        if task.cancelled():  # by something other than this worker
            error: BaseException | None = asyncio.CancelledError()
        else:
            error = task.exception()
        if error is None:
            outcome = task.result()
            if outcome is None:
                self._pause(row, has_failed=False)
            else:
                self._pauses.pop(session_id, None)
            return outcome
        if isinstance(error, (SessionBusy, Fenced)):  # another process was quicker, or has taken it over
            self._pause(row, has_failed=False)
            return None
        seconds = self._pause(row, has_failed=True)
        full_id = get_namespaced_session_id(self._store, session_id)
        logger.warning(
            "session %s cannot be continued, which will be tried again in %.1f s: %s: %s",
            full_id,
            seconds,
            type(error).__name__,
            error,
            extra={"session_id": full_id},
        )
        if not isinstance(error, Exception):
            return Outcome(status="cancelled", reason="cancelled", session_id=session_id)
        return Outcome(status="failed", reason=type(error).__name__, error=error, session_id=session_id)

    def _pause(self, row: InterruptedSession, *, has_failed: bool) -> float:
        """Back off from a session, twice as long each time; return the number of seconds."""
        before = self._pauses.get(row.session_id)
        repeated = before is not None and before.has_failed == has_failed and (has_failed or before.row == row)
        attempts = before.attempts + 1 if before is not None and repeated else 1
        # Between half and all of it, so that several workers do not try at the same moment.
        longest = min(self._seconds * 2.0 ** min(attempts, _MAX_DOUBLINGS), MAX_DELAY_SECONDS)
        seconds: float = longest * (0.5 + self._jitter() / 2)
        self._pauses[row.session_id] = _Pause(attempts, self._clock.monotonic() + seconds, row, has_failed)
        return seconds
