"""Add, list, trigger and cancel the schedules of a store, from any process, without running them."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure._core.log.fold import State
from perdure._core.log.redaction import RelatedRunsRedaction
from perdure._core.log.store import Lease, Log, Post, Store, finish_before_cancel
from perdure._core.values import checks
from perdure._core.values.clock import Clock, new_id
from perdure._core.values.error import ConfigError, SessionBusy, StoreError, UsageError
from perdure._core.values.event import Custom, Entry
from perdure._core.values.jsonable import convert, to_jsonable
from perdure._core.values.message import check_labels
from perdure._core.values.provenance import UNTRUSTED_LABEL
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.redaction import add_agent_redactors
from perdure._stores import open_store

from .firing import Firing, build_input_id
from .journal import REGISTRY_SESSION, TRIGGER_POST, ScheduleJournal, has_session_been_deleted
from .schedule import Schedule
from .signing import SessionSigner
from .timing import At

ADDED_EVENT: Final = "perdure:schedule_added"
REMOVED_EVENT: Final = "perdure:schedule_removed"
_ATTEMPTS: Final = 50
"""Another process has the lease of the registry for a moment only."""
_ATTEMPT_SECONDS: Final = 0.1


class ScheduleRegistry:
    """The schedules that were added to a store, by name; they are stored in the log of one session."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.known: dict[str, Schedule] = {}
        """The schedules by name, as they were read last."""
        self._head = 0
        self._signer = SessionSigner(store, REGISTRY_SESSION, clock)

    async def load(self) -> dict[str, Schedule]:
        """Return the schedules that were added and not removed."""
        entries = await self._store.read(REGISTRY_SESSION, after=self._head)
        if not entries and await has_session_been_deleted(self._store, REGISTRY_SESSION, self._head):
            self._head, self.known = 0, {}
            entries = await self._store.read(REGISTRY_SESSION)
        for entry in entries:
            self._head = entry.seq
            opened = self._signer.open_entry(entry, refuse_foreign=False)
            if opened is not None:
                self._apply(opened)
        return dict(self.known)

    async def add(self, schedule: Schedule) -> None:
        """Store a schedule, in place of an older one of its name."""
        await self._append(Custom(ADDED_EVENT, msgspec.to_builtins(schedule)))

    async def remove(self, name: str) -> bool:
        """Remove a schedule; return False if there is none of that name."""
        if name not in await self.load():
            return False
        await self._append(Custom(REMOVED_EVENT, name))
        return True

    def _apply(self, entry: Entry) -> None:
        event = entry.event
        if not isinstance(event, Custom):
            return
        if event.name == REMOVED_EVENT:
            self.known.pop(str(event.data), None)
        elif event.name == ADDED_EVENT and (schedule := _decode_schedule(event.data)) is not None:
            self.known[schedule.name] = schedule

    async def _acquire(self) -> Lease:
        """Take the lease of the registry, once the process that has it is done."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._store.acquire(REGISTRY_SESSION)
            except SessionBusy:
                await self._clock.sleep(_ATTEMPT_SECONDS)
        return await self._store.acquire(REGISTRY_SESSION)

    async def _append(self, event: Custom) -> None:
        lease = await self._acquire()
        try:
            await self.load()
            log = Log(self._store, lease, self._head, self._clock)
            await log.append([self._signer.sign_event(event, log.head + 1)], sync=True, on_stored=lambda _: None)
        finally:
            await finish_before_cancel(lambda: self._store.release(lease))


def _decode_schedule(data: Any) -> Schedule | None:
    """Return a stored schedule; `None` for one that a newer version has written, or whose time zone is not there."""
    try:
        return convert(data, Schedule)
    except (msgspec.ValidationError, ValueError):
        return None


logger = logging.getLogger("perdure")

POLL_SECONDS: Final = 1.0
"""The default interval at which the store is asked for triggers and interrupted runs."""


class ScheduleStatus(Struct, frozen=True, kw_only=True):
    """The current status of a schedule: when it is due next, its running firing, and its last one."""

    schedule: Schedule
    is_stored: bool
    """True if it was added to the store; False if it is part of the program or its configuration."""
    next_due: float | None = None
    """Seconds since 1970; `None` if it is only triggered, is over, or was never served."""
    running: Firing | None = None
    """The firing whose run is not over."""
    last: Firing | None = None
    """The last firing that is over, also one that was skipped or missed."""
    pending: int = 0
    """Number of triggers that have not begun."""


class StoredSchedules:
    """Schedules of a program and of its store: add, list, trigger, cancel. The subclass `Scheduler` also runs them."""

    def __init__(
        self,
        agent: Agent[Any],
        schedules: Iterable[Schedule] = (),
        *,
        store: Store | str | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        checks.require_number("Scheduler", "poll_seconds", poll_seconds)
        if poll_seconds == 0:
            checks.raise_config_error("Scheduler", "poll_seconds", poll_seconds, "give more than 0")
        if not isinstance(agent, Agent):
            checks.raise_config_error("Scheduler", "agent", agent, "give an Agent(…)")
        if store is None and agent.has_default_store:
            raise ConfigError(
                "a Scheduler needs a store for its firings: give one, as in Agent(…, store='sqlite:a.db')"
            )
        self.agent: Agent[Any] = agent.replace(interactive=False)
        """The agent, which asks nobody."""
        self.store: Store = agent.store if store is None else open_store(store)
        """The store of the firings and of the sessions."""
        self.poll_seconds = poll_seconds
        self.clock = agent.clock
        self._own = _index_schedules(schedules)
        self._registry = ScheduleRegistry(self.store, self.clock)
        self._journals: dict[str, ScheduleJournal] = {}
        self._redaction = RelatedRunsRedaction()
        self._is_redaction_ready = False

    async def trigger(
        self,
        name: str,
        input: Any = None,  # noqa: A002 - the clearest name
        *,
        trigger_id: str = "",
        labels: Sequence[str] | None = None,
    ) -> str:
        """Fire a schedule, from any process, and return the id of the firing. It is stored when this returns.

        A process that serves the store runs it within `poll_seconds`, after the runs of the schedule that were
        triggered before. `input` is added to the prompt. `trigger_id` is your id: the same one fires once. The input
        counts as text that others wrote, and is labelled `untrusted`, unless you give other `labels`: `()` for words
        of your own.
        """
        schedule = await self.find_schedule(name)
        checks.require_text("trigger", "trigger_id", trigger_id)
        checks.require_one_line("trigger", "trigger_id", trigger_id)
        if input is None and not schedule.prompt.strip() and not schedule.skill:
            raise ConfigError(f"schedule {name!r} has no prompt: give the trigger an input")
        if labels and input is None:
            raise ConfigError(f"labels={labels!r}: they are for an input, and there is none")
        usual = () if input is None else (UNTRUSTED_LABEL,)
        checked = usual if labels is None else check_labels(labels)
        given: Any = await self._redact(to_jsonable(input))
        firing_id = f"trigger-{trigger_id or new_id()}"
        body = {"input": given, "labels": list(checked)}
        journal = self.get_journal(name)
        await journal.refresh()  # which says if another process serves it with another key
        await journal.post(Post(firing_id, TRIGGER_POST, body, self.clock.now()))
        return firing_id

    async def cancel(self, name: str) -> bool:
        """Cancel the run of a schedule, in whichever process it is; return False if there is none.

        A firing that waits for its session, or to be tried again, ends as well. The schedule may have been removed
        meanwhile. Raises `UsageError` if there is none of that name.
        """
        journal = self.get_journal(name)
        running = (await journal.refresh()).open
        if running is None:
            await self.find_schedule(name)
            return False
        session = self.agent.session(running.session_id, store=self.store)
        state, input_id = await session.read_state(), build_input_id(name, running.firing_id, journal.state.attempt)
        is_used_by_others = state.run is not None and state.is_interrupted and state.run.input_id != input_id
        if is_used_by_others or not await session.cancel():  # it waits for its session, or for a retry
            await journal.request_cancel(running.firing_id)
        return True

    async def add(self, schedule: Schedule) -> None:
        """Add a schedule to the store, in place of an older one of its name; processes that serve it notice.

        Raises `ConfigError` for a moment that has passed, and `UsageError` if the program has one of that name.
        """
        if not isinstance(schedule, Schedule):
            checks.raise_config_error("add", "schedule", schedule, "give a Schedule(…)")
        if schedule.name in self._own:
            raise UsageError(f"the program or its configuration has a schedule {schedule.name!r}: use another name")
        if isinstance(schedule.when, At) and schedule.when.moment <= self.clock.now():
            raise ConfigError(f"schedule {schedule.name!r} is due {schedule.when.describe()}, which has passed")
        await self._registry.add(schedule)

    async def remove(self, name: str) -> bool:
        """Remove a schedule that was added to the store; return False if there is none. Its history stays.

        A run in progress is not ended: see `cancel`.
        """
        if name in self._own:
            raise UsageError(f"schedule {name!r} is part of the program or its configuration: remove it there")
        return await self._registry.remove(name)

    async def list_schedules(self) -> list[Schedule]:
        """Return all schedules: those of the program, and those that were added to the store."""
        return [*self._own.values(), *[each for each in await self._load_stored() if each.name not in self._own]]

    async def list_status(self) -> list[ScheduleStatus]:
        """Return each schedule with its next due time and its last firing."""
        return [await self._find_status(each) for each in await self.list_schedules()]

    async def history(self, name: str = "", *, limit: int = 50) -> list[Firing]:
        """Return the latest firings of one schedule, or of all, the newest first."""
        checks.require_int("history", "limit", limit, 1)
        names = [name] if name else [each.name for each in await self.list_schedules()]
        found: list[Firing] = []
        for each in names:
            journal = self.get_journal(each)
            state = await journal.refresh()
            found += [*state.firings.values(), *await self._list_pending(each, journal)]
        return sorted(found, key=lambda firing: (firing.started_at, firing.firing_id), reverse=True)[:limit]

    async def find_firing(self, name: str, firing_id: str) -> Firing | None:
        """Return a firing of a schedule by its id; `None` if there is none."""
        journal = self.get_journal(name)
        found = (await journal.refresh()).firings.get(firing_id)
        if found is not None:
            return found
        return next((each for each in await self._list_pending(name, journal) if each.firing_id == firing_id), None)

    async def wait_for_firing(self, name: str, firing_id: str) -> Firing:
        """Wait until a firing is over, in whichever process it runs, and return it. Raises `UsageError` if unknown."""
        while True:
            firing = await self.find_firing(name, firing_id)
            if firing is None:
                raise UsageError(f"schedule {name!r} has no firing {firing_id!r}: see history()")
            if firing.is_over:
                return firing
            await self.clock.sleep(self.poll_seconds)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _load_stored(self) -> list[Schedule]:
        try:
            return [*(await self._registry.load()).values()]
        except StoreError as error:
            if not self._journals:  # it was never in reach: the caller should know
                raise
            logger.warning("the schedules of the store cannot be read, which will be tried again: %s", error)
            return [*self._registry.known.values()]

    async def find_schedule(self, name: str) -> Schedule:
        """Return the schedule of a name. Raises `UsageError` if there is none."""
        known = {each.name: each for each in await self.list_schedules()}
        if name not in known:
            near = checks.suggest_name(str(name), known)
            names = ", ".join(sorted(known)) or "none"
            raise UsageError(f"there is no schedule {name!r}: {near}there are: {names}")
        return known[name]

    async def _find_status(self, schedule: Schedule) -> ScheduleStatus:
        journal = self.get_journal(schedule.name)
        state = await journal.refresh()
        over = [each for each in state.firings.values() if each.is_over]
        is_armed = schedule.when is not None and state.timing == schedule.when
        return ScheduleStatus(
            schedule=schedule,
            is_stored=schedule.name not in self._own,
            next_due=state.next_due if is_armed else None,
            running=None if state.open is None else state.firings[state.open.firing_id],
            last=max(over, key=lambda each: each.ended_at, default=None),
            pending=len(await self._list_pending(schedule.name, journal)),
        )

    async def _list_pending(self, name: str, journal: ScheduleJournal) -> list[Firing]:
        """Return the triggers of a schedule that have not begun."""
        posts = [post for post in await journal.list_posts() if post.kind == TRIGGER_POST]
        return [Firing(schedule=name, firing_id=post.id, status="pending", started_at=post.at) for post in posts]

    def get_journal(self, name: str) -> ScheduleJournal:
        """Return the journal of a schedule."""
        journal = self._journals.get(name)
        if journal is None:
            journal = self._journals[name] = ScheduleJournal(self.store, name, self.clock, self._redaction)
        return journal

    async def prepare_redaction(self) -> None:
        """Look the secrets of the agent up, so that none is stored in a record."""
        if not self._is_redaction_ready:
            await add_agent_redactors(self.agent, State(), self._redaction)
            self._is_redaction_ready = True

    async def _redact(self, value: Any) -> Any:
        await self.prepare_redaction()
        return self._redaction.redact_value(value)


def _index_schedules(schedules: Iterable[Schedule]) -> dict[str, Schedule]:
    """Return schedules by name. Raises `ConfigError` for anything else, and for two of one name."""
    found: dict[str, Schedule] = {}
    for schedule in schedules:
        if not isinstance(schedule, Schedule):
            checks.raise_config_error("Scheduler", "schedules", schedule, "give Schedule(…) values")
        if schedule.name in found:
            raise ConfigError(f"there are two schedules {schedule.name!r}: rename one of them")
        found[schedule.name] = schedule
    return found
