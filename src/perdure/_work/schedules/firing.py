"""Records in a schedule's journal, which is the log of a session: each firing of the schedule, and how it ended.

The journal of a schedule is a session of its own, `schedules/NAME`. Its state is the fold of its records.
"""

import math
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from perdure._core.values.event import Custom, Entry
from perdure._core.values.jsonable import convert

from .timing import Timing

RECORD_EVENT: Final = "perdure:schedule"
"""Name of the custom events that contain records."""

RecordKind: TypeAlias = Literal[
    "armed", "fired", "resumed", "retried", "skipped", "missed", "finished", "failed", "cancelled"
]
FiringStatus: TypeAlias = Literal["pending", "running", "finished", "failed", "cancelled", "skipped", "missed"]

END_KINDS: Final = frozenset({"finished", "failed", "cancelled"})
"""Kinds of records that end a firing."""


class ScheduleJournalRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record in a schedule's journal: the schedule was armed, or a firing began, was skipped or missed, or ended."""

    kind: RecordKind
    """`armed`: its times are counted from now. `fired`, `resumed`, `retried`: a run begins. `skipped`: the last run was
    not over. `missed`: no process served it in time. The others are ends."""
    schedule: str = ""
    """Name of the schedule."""
    firing_id: str = ""
    """Id of the firing: its due time, or the id of its trigger."""
    due: float | None = None
    """When it was due, in seconds since 1970; `None` for a trigger. Of several, the last one."""
    count: int = 1
    """Number of due times that were skipped or missed."""
    reason: str = ""
    """Why it was skipped, failed, was tried again, …"""
    session_id: str = ""
    """Session of the run."""
    run_id: str = ""
    """The run that ended."""
    prompt: str = ""
    """Prompt of a firing."""
    skill: str = ""
    """Skill of a firing."""
    input: Any = None
    """Input of the trigger."""
    labels: tuple[str, ...] = ()
    """Labels of the input, such as `untrusted`."""
    attempt: int = 1
    """Number of the run of this firing, from 1."""
    denied: tuple[str, ...] = ()
    """Tool calls and questions of the run that were denied because nobody is there to ask."""
    unknown_effects: tuple[str, ...] = ()
    """Tool calls of the run that may or may not have had their effect."""
    cost_usd: float | None = None
    """Cost of the run that ended, if it is known."""
    timing: Timing | None = None
    """Times of the schedule, for `armed`."""
    at: float = 0.0
    """Time of the record, in seconds since 1970."""

    def describe(self) -> str:
        """Return the record as one line of text."""
        times = f" x{self.count}" if self.count > 1 else ""
        facts = [f" ({self.reason})" if self.reason else ""]
        facts += [f"; denied: {', '.join(self.denied)}"] if self.denied else []
        facts += [f"; unknown: {', '.join(self.unknown_effects)}"] if self.unknown_effects else []
        return f"{self.schedule} {self.firing_id} {self.kind}{times}{''.join(facts)}".replace("  ", " ")


class Firing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A firing of a schedule: when it was due, its run, and how it ended."""

    schedule: str
    """Name of the schedule."""
    firing_id: str
    """Id of the firing: its due time, or the id of its trigger."""
    status: FiringStatus
    """`pending`: triggered, and not begun. `running`: begun, and not over; perhaps interrupted. `skipped` and `missed`
    firings had no run."""
    due: float | None = None
    """When it was due, in seconds since 1970; `None` for a trigger."""
    count: int = 1
    """Number of due times in a row that were skipped or missed."""
    started_at: float = 0.0
    ended_at: float = 0.0
    """When its run was over; 0 before."""
    session_id: str = ""
    run_id: str = ""
    attempts: int = 0
    """Number of runs that were begun."""
    resumed: int = 0
    """Number of times that a run was continued after its process had died or left."""
    reason: str = ""
    """Why it was skipped, or failed."""
    denied: tuple[str, ...] = ()
    """Tool calls and questions that were denied because nobody is there to ask."""
    unknown_effects: tuple[str, ...] = ()
    """Tool calls that may or may not have had their effect."""
    cost_usd: float | None = None
    """Cost of all its runs, as far as it is known."""

    @property
    def is_over(self) -> bool:
        """True if nothing more happens with this firing."""
        return self.status not in {"pending", "running"}


class JournalState:
    """State of a schedule as computed from its journal: its timing, its firings, and the firing in progress."""

    def __init__(self) -> None:
        self.timing: Timing | None = None
        """Times that the schedule is armed with; `None` if it is not."""
        self.anchor = 0.0
        """The moment from which its times are counted."""
        self.handled_until = 0.0
        """The last due time that was fired, skipped or missed."""
        self.open: ScheduleJournalRecord | None = None
        """The firing whose run is not over."""
        self.firings: dict[str, Firing] = {}

    @property
    def attempt(self) -> int:
        """Number of the run of the open firing, from 1."""
        return 0 if self.open is None else self.firings[self.open.firing_id].attempts

    @property
    def next_due(self) -> float | None:
        """The next due time; `None` if it is not armed, or not due any more."""
        return None if self.timing is None else self.timing.find_next(max(self.anchor, self.handled_until), self.anchor)

    def apply(self, entry: Entry) -> None:
        """Apply an entry of the log; entries that are no records change nothing."""
        record = read_record(entry)
        if record is None:
            return
        if record.kind == "armed":
            self.timing, self.anchor = record.timing, float(math.floor(record.at))
            self.handled_until = min(self.handled_until, record.at)  # what lies beyond it was due by a wrong clock
        elif record.kind in ("skipped", "missed"):
            self._count_due(record)
            self.firings[record.firing_id] = _start_firing(record, record.kind)
        elif record.kind == "fired":
            self._count_due(record)
            self.open = record
            self.firings[record.firing_id] = _start_firing(record, "running", attempts=1)
        elif (before := self.firings.get(record.firing_id)) is not None:
            self._change_firing(before, record)

    def _count_due(self, record: ScheduleJournalRecord) -> None:
        if record.due is not None:
            self.handled_until = max(self.handled_until, record.due)

    def _change_firing(self, before: Firing, record: ScheduleJournalRecord) -> None:
        replace = msgspec.structs.replace
        if record.kind == "resumed":
            changed = replace(before, resumed=before.resumed + 1)
        elif record.kind == "retried":
            cost = _add_costs(before.cost_usd, record.cost_usd)
            changed = replace(before, attempts=record.attempt, reason=record.reason, cost_usd=cost)
        else:
            self.open = None
            changed = replace(
                before,
                status=record.kind,
                ended_at=record.at,
                run_id=record.run_id,
                reason=record.reason,
                denied=record.denied,
                unknown_effects=record.unknown_effects,
                cost_usd=_add_costs(before.cost_usd, record.cost_usd),
            )
        self.firings[record.firing_id] = changed


def _add_costs(before: float | None, cost: float | None) -> float | None:
    return cost if before is None else before + (cost or 0.0)


def _start_firing(record: ScheduleJournalRecord, status: FiringStatus, attempts: int = 0) -> Firing:
    return Firing(
        schedule=record.schedule,
        firing_id=record.firing_id,
        status=status,
        due=record.due,
        count=record.count,
        started_at=record.at,
        ended_at=0.0 if attempts else record.at,
        session_id=record.session_id,
        attempts=attempts,
        reason=record.reason,
    )


def build_input_id(schedule: str, firing_id: str, attempt: int) -> str:
    """Return the `input_id` for the prompt of one attempt of a firing: the same attempt never runs twice."""
    return f"schedule:{schedule}:{firing_id}#{attempt}"


def build_record_event(record: ScheduleJournalRecord) -> Custom:
    """Return the event that stores a record in a schedule's journal."""
    return Custom(RECORD_EVENT, msgspec.to_builtins(record))


def read_record(entry: Entry) -> ScheduleJournalRecord | None:
    """Return the record that a log entry of a schedule's journal contains; `None` for any other entry."""
    event = entry.event
    if not isinstance(event, Custom) or event.name != RECORD_EVENT:
        return None
    try:
        return msgspec.structs.replace(convert(event.data, ScheduleJournalRecord), at=entry.at)
    except msgspec.ValidationError:  # written by a newer version
        return None
