"""A log read as a recording: where its runs begin and break off, who decided what, which tools there were.

Above: `drive.py`, `check.py`. Below: `stretch.py`. Pure: entries in, values out.

A run that was cut off by a crash, or waited for an answer, and was taken up again, is two *stretches*. What happened
between two runs (a summary made by hand, another model, a grant that was taken back) belongs to none of them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from perdure.core.error import StoreError
from perdure.core.event import (
    Entry,
    Event,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    RunEnded,
    RunResumed,
    RunStarted,
    SkillLoaded,
    SubagentFinished,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
)
from perdure.core.message import Status
from perdure.core.repair import CRASHES, CUT_OFF, UNANSWERED

from .stretch import Stretch, filled

CALL = "call"
"""The option of a run that is only a call."""

_CLOSED = frozenset({CUT_OFF[1], UNANSWERED[1]})
"""The reasons of endings that were written when the next run began."""
_PARKED = frozenset({CRASHES[1]})
"""The reason of an ending that was written instead of taking a run up once more."""
_GIVEN_UP = frozenset({CUT_OFF[2], UNANSWERED[2], CRASHES[2]})
"""What is said then of agents that had been given a task."""


class Record(Struct):
    """A log, read as a recording."""

    stretches: list[Stretch]
    last: int
    """The number of its last entry."""
    decisions: Mapping[str, PermissionDecided]
    """What was decided about calls, by their ids."""
    asked: frozenset[str]
    """The calls that somebody was asked about."""
    answers: Sequence[tuple[QuestionAsked, QuestionAnswered]]
    """The questions that were answered."""
    arguments: Mapping[str, str]
    """What the model wrote as the arguments of its calls, by their ids."""
    hashes: Mapping[str, str]
    """The hashes of the arguments with which calls were made, where the log has them."""
    called: frozenset[str]
    """The names of tools that were called."""
    added: frozenset[str]
    """The names of tools that other tools have added while a run was going. Those of skills are not among them."""


def read_record(entries: Sequence[Entry]) -> Record:
    """Read a log as a recording. Raises `StoreError` when it is damaged."""
    for place, entry in enumerate(entries, 1):
        if entry.seq != place:
            raise StoreError(f"the recording is damaged: entry {place} has the number {entry.seq}")
    events = [entry.event for entry in entries if not entry.event.path]
    asks = {event.ask_id: event for event in events if isinstance(event, QuestionAsked)}
    by_tools = frozenset([ask_id for ask_id, ask in asks.items() if ask.about == "slot"])
    decisions = {event.call_id: event for event in events if isinstance(event, PermissionDecided)}
    starts = [event for event in events if isinstance(event, ToolStarted)]
    replies = [event.message for event in events if isinstance(event, MessageAdded)]
    return Record(
        [filled(stretch, by_tools) for stretch in _stretches(entries)],
        len(entries),
        decisions,
        frozenset([call["call_id"] for ask in asks.values() if ask.about == "permission" for call in ask.calls]),
        [
            (asks[event.ask_id], event)
            for event in events
            if isinstance(event, QuestionAnswered) and event.ask_id in asks
        ],
        {call.call_id: call.arguments for reply in replies for call in reply.tool_calls},
        {call_id: known for call_id, known in _hashes(decisions.values(), starts) if known},
        frozenset([*[event.name for event in starts], *_done(events)]),
        frozenset(_added(events)),
    )


def _hashes(decisions: Iterable[PermissionDecided], starts: Iterable[ToolStarted]) -> Iterator[tuple[str, str]]:
    yield from [(decision.call_id, decision.arguments_hash) for decision in decisions]
    yield from [(start.call_id, start.arguments_hash) for start in starts]


def _done(events: Iterable[Event]) -> Iterator[str]:
    """The tools whose calls went well: some have no intent."""
    for event in events:
        if isinstance(event, ToolFinished) and event.result.status is Status.OK:
            yield event.name


def _added(events: Iterable[Event]) -> Iterator[str]:
    """The tools that were added, unless a skill that was loaded in the same turn has brought them."""
    by_skill = False
    for event in events:
        if isinstance(event, ModelRequested):
            by_skill = False
        elif isinstance(event, SkillLoaded):
            by_skill = True
        elif isinstance(event, ToolsChanged) and not by_skill:
            yield from event.added


# -- where runs begin and break off ------------------------------------------------------------------------------------


def _stretches(entries: Iterable[Entry]) -> Iterator[Stretch]:
    """Part a log where runs begin, and where they go on after a crash or an answer."""
    current: Stretch | None = None
    is_over = True
    for entry in entries:
        event = entry.event
        if isinstance(event, RunStarted) and not event.path:
            repairs = _taken_off(current, _CLOSED)
            if current is not None:
                yield current
            current = Stretch("call" if CALL in event.options else "run", event, [*repairs, entry])
            is_over = False
        elif current is None or is_over:
            continue  # between two runs
        elif isinstance(event, RunResumed) and not event.path:
            yield current
            current = Stretch("resume", current.started, [entry])
        else:
            current.entries.append(entry)
            is_over = isinstance(event, RunEnded) and not event.path
            if repairs := _taken_off(current, _PARKED):
                yield current
                current = Stretch("resume", current.started, repairs)
    if current is not None:
        yield current


def _taken_off(stretch: Stretch | None, reasons: Collection[str]) -> list[Entry]:
    """The repairs at the end of a stretch: they were written when somebody came back to it, and belong to that."""
    if stretch is None or not _is_closed(stretch.entries[-1].event, "", reasons):
        return []
    place = len(stretch.entries) - 1
    while _settles_afterwards(stretch.entries[place - 1].event):
        place -= 1
    repairs = stretch.entries[place:]
    del stretch.entries[place:]
    return repairs


def _is_closed(event: Event, path: str, reasons: Collection[str]) -> bool:
    return isinstance(event, RunEnded) and event.path == path and event.reason in reasons


def _settles_afterwards(event: Event) -> bool:
    """Whether this may be a part of a repair, of the session's own run or of one below it."""
    match event:
        case ToolFinished(result=result):
            return result.status in {Status.UNKNOWN, Status.CANCELLED_BEFORE_START}
        case RunEnded():
            return bool(event.path) and _is_closed(event, event.path, _CLOSED | _PARKED)
        case SubagentFinished(message=message):
            return message in _GIVEN_UP
        case _:
            return isinstance(event, QuestionWithdrawn)
