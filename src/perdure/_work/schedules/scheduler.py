"""`Scheduler`: fires schedules when they are due or triggered, and runs them with an agent, unattended.

Several processes may serve the same store. The journal of each schedule decides which of them fires it: a firing is
stored before its run begins, and the lease of the journal belongs to the process that runs it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from perdure._core.log.store import Store, cancel_and_await_tasks
from perdure._core.run.spec import find_shutdown_signal
from perdure._core.values import checks
from perdure._core.values.clock import get_steady_time
from perdure._core.values.error import Fenced, StoreError, UsageError
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.overrides import Overrides, add_output, check_overrides
from perdure._runtime.tasks import mark_exception_retrieved

from .firing import Firing, ScheduleJournalRecord
from .journal import ScheduleClaim
from .plan import plan_records, plan_skipped
from .runner import FiringRunner
from .schedule import Schedule
from .stored import POLL_SECONDS, StoredSchedules

logger = logging.getLogger("perdure")

MOST_AT_ONCE: Final = 4
"""The default number of schedules that run at the same time."""
_LONGEST_PAUSE_SECONDS: Final = 60.0
_FIRST_REARM_SECONDS: Final = 60.0
_LONGEST_REARM_SECONDS: Final = 3_600.0

RecordWatcher = Callable[[ScheduleJournalRecord], object]
"""Function that is called with each record that this process stores."""
_BegunRuns: TypeAlias = "dict[asyncio.Task[None], ScheduleClaim]"
"""The runs that one call of `serve` or `run_now` has begun, and their claims. It ends them, and no others."""


class Scheduler(StoredSchedules):
    """Runs an agent by schedules: at an interval, at a moment, by a cron expression, or when it is triggered.

    Nobody is asked in these runs: calls that need approval are denied, and the records of the firing list them.
    """

    def __init__(
        self,
        agent: Agent[Any],
        schedules: Iterable[Schedule] = (),
        *,
        store: Store | str | None = None,
        most_at_once: int = MOST_AT_ONCE,
        poll_seconds: float = POLL_SECONDS,
        watchers: Sequence[RecordWatcher] = (),
        overrides: Overrides[Any] | None = None,
    ) -> None:
        """Make a scheduler. Nothing is opened or begun before it is used.

        Args:
            agent: The agent that runs the schedules. One that a `Shutdown` has wrapped stops with the process.
            schedules: Schedules of the program; those that were added to the store are served as well.
            store: The store of the firings and of the sessions; by default the agent's.
            most_at_once: The number of schedules that run at the same time in this process. The others wait.
            poll_seconds: The interval at which the store is asked for triggers and interrupted runs.
            watchers: Functions that are called with each record that this process stores.
            overrides: Options of all runs, as for `Session.run`, such as `{"deps": …}`.
        """
        checks.require_int("Scheduler", "most_at_once", most_at_once, 1)
        checks.require_callables("Scheduler", "watchers", watchers)
        super().__init__(agent, schedules, store=store, poll_seconds=poll_seconds)
        check_overrides(add_output(overrides or {}, None))
        self._overrides: Overrides[Any] = overrides or {}
        self._most_at_once = most_at_once
        self._watchers = tuple(watchers)
        self._process_end = find_shutdown_signal(agent.engine)
        self._tasks: set[asyncio.Task[None]] = set()
        """The runs in progress in this process."""
        self._claims: dict[str, ScheduleClaim] = {}
        """Their claims, by the name of their schedule."""
        self._not_before: dict[str, tuple[float, float]] = {}
        """Schedules that failed because of the store: the time of the next attempt, and the pause before it."""
        self._rearmed: dict[str, tuple[float, float]] = {}
        """Schedules whose journal was in the future: when that may be mended again, and the pause before it."""
        self._records: list[ScheduleJournalRecord] = []
        """Records that were stored and not yielded yet, while `serve` is iterated."""
        self._iterations = 0
        """Number of iterations of `serve`."""

    # -- serving -------------------------------------------------------------------------------------------------------

    async def serve(self, *, once: bool = False) -> AsyncGenerator[ScheduleJournalRecord]:
        """Fire the schedules when they are due or triggered, and yield each record that this process stores.

        It runs until the caller stops it, which cancels the runs in progress, or until a `Shutdown` that has wrapped
        the agent begins: then the runs are left for the next process. With `once`, it ends when nothing is left to do
        now. A store that is out of reach does not end it: that is logged, and tried again.
        """
        begun: _BegunRuns = {}
        self._iterations += 1
        try:
            while True:
                if not self._is_stopping:
                    await self._look_at_schedules(await self.list_schedules(), begun)
                for record in self._take_records():
                    yield record
                if (once or self._is_stopping) and not begun:
                    return
                await self._wait(begun)
        finally:
            self._iterations -= 1
            await self._end_runs(begun)

    async def run_now(self, name: str, input: Any = None, *, labels: Sequence[str] | None = None) -> Firing:  # noqa: A002
        """Trigger a schedule, and return its firing when it is over. The input is untrusted, as in `trigger`.

        This process runs it, unless another one that serves the store is quicker. No due time is fired here, and those
        that come while it runs are skipped.
        """
        firing_id = await self.trigger(name, input, labels=labels)
        schedule = await self.find_schedule(name)
        untimed = msgspec.structs.replace(schedule, when=None)
        begun: _BegunRuns = {}
        try:
            while True:
                firing = await self.find_firing(name, firing_id)
                if firing is not None and firing.is_over:
                    return firing
                if self._is_stopping and not begun:
                    raise UsageError(f"the process was asked to end: firing {firing_id!r} is left for the next one")
                await self._look_at_schedules([schedule if name in self._claims else untimed], begun)
                await self._wait(begun)
        finally:
            await self._end_runs(begun)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _end_runs(self, begun: _BegunRuns) -> None:
        """Cancel the runs that a call has begun, and wait until they have ended."""
        try:
            await cancel_and_await_tasks([*begun])
        finally:
            for task in begun:
                mark_exception_retrieved(task)
            for name, claim in [*self._claims.items()]:
                if claim in begun.values():  # its task was cancelled before the first step
                    del self._claims[name]
                    await self._release(name, claim)

    @property
    def _is_stopping(self) -> bool:
        return self._process_end is not None and self._process_end.requested

    async def _look_at_schedules(self, schedules: Sequence[Schedule], begun: _BegunRuns) -> None:
        """Begin what is due, triggered or interrupted, the longest due first, as far as there is room."""
        waiting: list[tuple[float, Schedule]] = []
        for schedule in schedules:
            try:
                due = await self._look_at(schedule)
            except StoreError as error:
                self._pause(schedule.name, error)
                continue
            if due is not None:
                waiting.append((due, schedule))
        for _, schedule in sorted(waiting, key=lambda each: each[0]):
            if len(self._claims) >= self._most_at_once:
                return
            try:
                await self._take_up(schedule, begun)
            except StoreError as error:
                self._pause(schedule.name, error)

    async def _look_at(self, schedule: Schedule) -> float | None:
        """Return since when there is something to do for a schedule; `None` if there is nothing.

        Due times of a schedule that runs in this process are recorded as skipped.
        """
        now = get_steady_time(self.clock)
        if (claim := self._claims.get(schedule.name)) is not None:
            if skipped := plan_skipped(schedule, claim.state, now):
                await self._store_records(claim, skipped)
            return None
        if self.clock.monotonic() < self._not_before.get(schedule.name, (0.0, 0.0))[0]:
            return None
        journal = self.get_journal(schedule.name)
        state = await journal.refresh()
        posts, can_rearm = await journal.list_posts(), self._can_rearm(schedule.name)
        if not plan_records(schedule, state, posts, now, can_rearm=can_rearm):
            return None
        return state.next_due or now

    async def _take_up(self, schedule: Schedule, begun: _BegunRuns) -> None:
        """Claim a schedule, store what has to be recorded, and begin its run if there is one."""
        await self.prepare_redaction()
        claim = await self.get_journal(schedule.name).claim()
        if claim is None:  # another process runs it
            return
        try:
            while records := plan_records(
                schedule,
                claim.state,
                await claim.journal.list_posts(),
                get_steady_time(self.clock),
                can_rearm=self._can_rearm(schedule.name),
            ):
                stored = await self._store_records(claim, records)
                self._note_rearming(schedule.name, stored)
                if any(each.kind in {"fired", "resumed"} for each in stored):
                    begun[self._begin(schedule, claim)] = claim
                    return
        except BaseException:
            await claim.release()
            raise
        await claim.release()

    def _can_rearm(self, name: str) -> bool:
        return self.clock.monotonic() >= self._rearmed.get(name, (0.0, 0.0))[0]

    def _note_rearming(self, name: str, stored: Sequence[ScheduleJournalRecord]) -> None:
        """Warn if the times of a schedule are counted anew because of a clock; the next time that waits for longer.

        Another machine whose clock is ahead would otherwise make this one do so again and again.
        """
        for record in stored:
            if record.kind == "armed" and record.reason:
                seconds = min(self._rearmed.get(name, (0.0, _FIRST_REARM_SECONDS / 2))[1] * 2, _LONGEST_REARM_SECONDS)
                self._rearmed[name] = (self.clock.monotonic() + seconds, seconds)
                logger.warning(
                    "schedule %s: %s, or that of another machine which serves the store is ahead: its times are "
                    "counted from now",
                    name,
                    record.reason,
                )

    def _begin(self, schedule: Schedule, claim: ScheduleClaim) -> asyncio.Task[None]:
        self._claims[schedule.name] = claim
        task = asyncio.ensure_future(self._perform(schedule, claim))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _perform(self, schedule: Schedule, claim: ScheduleClaim) -> None:
        """Run the open firing of a schedule, and release its journal."""
        fired = claim.state.open
        assert fired is not None  # noqa: S101 - it was stored before
        run = FiringRunner(
            schedule,
            self.agent,
            self.store,
            overrides=self._overrides,
            poll_seconds=self.poll_seconds,
            process_end=self._process_end,
            publish=self._publish,
        )
        try:
            if await run.perform(fired, claim):
                self._not_before.pop(schedule.name, None)
        except Fenced:
            logger.warning("schedule %s was taken over by another process", schedule.name)
        except Exception as error:  # noqa: BLE001 - whatever it is: the firing is not over, and is continued later
            self._pause(schedule.name, error)
        finally:
            del self._claims[schedule.name]
            await self._release(schedule.name, claim)

    async def _release(self, name: str, claim: ScheduleClaim) -> None:
        """Give up a claim; a store that fails meanwhile is logged, and ends nothing."""
        try:
            await claim.release()
        except StoreError as error:
            self._pause(name, error)

    async def _store_records(
        self, claim: ScheduleClaim, records: Sequence[ScheduleJournalRecord]
    ) -> list[ScheduleJournalRecord]:
        stored = await claim.append(records)
        for record in stored:
            self._publish(record)
        return stored

    def _publish(self, record: ScheduleJournalRecord) -> None:
        """Pass a record to the watchers, and to the iteration of `serve`."""
        if self._iterations:
            self._records.append(record)
        for watch in self._watchers:
            try:
                watch(record)
            except Exception:
                logger.exception("a watcher of schedules failed")

    def _take_records(self) -> list[ScheduleJournalRecord]:
        taken, self._records = self._records, []
        return taken

    async def _wait(self, begun: _BegunRuns) -> None:
        """Wait until a run ends, a schedule is due, or it is time to ask the store again."""
        now = get_steady_time(self.clock)
        dues = [
            due - now
            for name, journal in self._journals.items()
            if name not in self._claims and (due := journal.state.next_due) is not None
        ]
        seconds = max(0.001, min([self.poll_seconds, *[each for each in dues if each > 0]]))
        timers = [asyncio.ensure_future(self.clock.sleep(seconds))]
        if self._process_end is not None and not self._is_stopping:
            timers.append(asyncio.ensure_future(self._process_end.wait()))
        try:
            await asyncio.wait({*self._tasks, *begun, *timers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_await_tasks(timers)
        for task in [task for task in begun if task.done()]:
            del begun[task]
            task.result()

    def _pause(self, name: str, error: Exception) -> None:
        """Leave a schedule alone for a while, twice as long each time."""
        before = self._not_before.get(name, (0.0, self.poll_seconds / 2))[1]
        seconds = min(before * 2, _LONGEST_PAUSE_SECONDS)
        self._not_before[name] = (self.clock.monotonic() + seconds, seconds)
        logger.warning(
            "schedule %s cannot be served, which will be tried again in %.1f s: %s: %s",
            name,
            seconds,
            type(error).__name__,
            error,
        )
