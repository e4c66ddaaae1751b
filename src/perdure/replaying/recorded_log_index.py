"""Index of a recorded log for a replay: its run segments, decisions, answers and tools. No I/O.

A run that was cut off by a crash, or waited for an answer, and was resumed, has two segments. What happened between two
runs (a manual compaction, another model, a revoked grant) belongs to none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from perdure.core.error import StoreError
from perdure.core.event import (
    LOADED_TOOLS_NAME,
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
    ValueKept,
)
from perdure.core.interrupted_run_repair import ENDING_CRASH_LOOP, ENDING_PROCESS_DIED, ENDING_UNANSWERED
from perdure.core.message import Status
from perdure.core.program_call_id import find_program_call_id

from .run_segment import RunSegment, fill_segment_fields

CALL = "call"
"""Option in `RunStarted` that marks a run as a direct tool call, without a model."""

_CLOSED = frozenset({ENDING_PROCESS_DIED[1], ENDING_UNANSWERED[1]})
"""Reasons of endings that were written when the next run began."""
_PARKED = frozenset({ENDING_CRASH_LOOP[1]})
"""Reason of an ending that was written instead of resuming a run once more."""
_GIVEN_UP = frozenset({ENDING_PROCESS_DIED[2], ENDING_UNANSWERED[2], ENDING_CRASH_LOOP[2]})
"""Messages for subagents whose run was ended in such a way."""


class RecordedLog(Struct):
    """The entries of a log, indexed for a replay: segments of runs, decisions, answers, arguments and tools."""

    segments: list[RunSegment]
    last: int
    """Number of the last entry."""
    decisions: Mapping[str, PermissionDecided]
    """Permission decisions, by call id."""
    asked: frozenset[str]
    """Ids of the calls that needed approval."""
    answers: Sequence[tuple[QuestionAsked, QuestionAnswered]]
    """Questions with their answers."""
    arguments: Mapping[str, str]
    """Arguments as the model wrote them, by call id."""
    hashes: Mapping[str, str]
    """Hashes of the final arguments of calls, where the log has them."""
    called: frozenset[str]
    """Names of the tools that were called."""
    added: frozenset[str]
    """Names of tools that other tools added during a run, without those of skills."""


def index_recorded_log(entries: Sequence[Entry]) -> RecordedLog:
    """Index the entries of a log for a replay. Raises `StoreError` if the log is damaged."""
    for place, entry in enumerate(entries, 1):
        if entry.seq != place:
            raise StoreError(f"the recording is damaged: entry {place} has the number {entry.seq}")
    events = [entry.event for entry in entries if not entry.event.path]
    asks = {event.ask_id: event for event in events if isinstance(event, QuestionAsked)}
    by_tools = frozenset([ask_id for ask_id, ask in asks.items() if ask.about == "slot" or _is_asked_by_program(ask)])
    decisions = {event.call_id: event for event in events if isinstance(event, PermissionDecided)}
    starts = [event for event in events if isinstance(event, ToolStarted)]
    replies = [event.message for event in events if isinstance(event, MessageAdded)]
    return RecordedLog(
        [fill_segment_fields(segment, by_tools) for segment in _split_segments(entries)],
        len(entries),
        decisions,
        frozenset(_asked_call_ids(asks.values())),
        [
            (asks[event.ask_id], event)
            for event in events
            if isinstance(event, QuestionAnswered) and event.ask_id in asks
        ],
        {call.call_id: call.arguments for reply in replies for call in reply.tool_calls},
        {call_id: known for call_id, known in _arguments_hashes(decisions.values(), starts) if known},
        frozenset([*[event.name for event in starts], *_successful_tools(events)]),
        frozenset(_added_tools(events)),
    )


def _asked_call_ids(asks: Iterable[QuestionAsked]) -> Iterator[str]:
    """Yield the ids of calls that a person was asked about, except those that a program made."""
    for ask in asks:
        if ask.about == "permission" and not _is_asked_by_program(ask):
            yield from [call["call_id"] for call in ask.calls]


def _is_asked_by_program(ask: QuestionAsked) -> bool:
    """Return True if a question is about calls that a program made: a replay does not run the program."""
    return any(find_program_call_id(str(call.get("call_id", ""))) for call in ask.calls)


def _arguments_hashes(
    decisions: Iterable[PermissionDecided], starts: Iterable[ToolStarted]
) -> Iterator[tuple[str, str]]:
    yield from [(decision.call_id, decision.arguments_hash) for decision in decisions]
    yield from [(start.call_id, start.arguments_hash) for start in starts]


def _successful_tools(events: Iterable[Event]) -> Iterator[str]:
    """Yield the names of tools with a successful call, including calls without a recorded start."""
    for event in events:
        if isinstance(event, ToolFinished) and event.result.status is Status.OK:
            yield event.name


def _added_tools(events: Iterable[Event]) -> Iterator[str]:
    """Yield the names of tools that were added during a run, except by a skill loaded in the same turn.

    Tools that the model has loaded are tools of the agent.
    """
    by_skill, loaded = False, set[str]()
    for event in events:
        if isinstance(event, ModelRequested):
            by_skill = False
        elif isinstance(event, ValueKept) and event.name == LOADED_TOOLS_NAME:
            loaded.update(event.value or ())  # nothing is left of names that were erased
        elif isinstance(event, SkillLoaded):
            by_skill = True
        elif isinstance(event, ToolsChanged) and not by_skill:
            yield from [name for name in event.added if name not in loaded]


# -- where runs begin and break off ------------------------------------------------------------------------------------


def _split_segments(entries: Iterable[Entry]) -> Iterator[RunSegment]:
    """Split a log where runs begin, and where they continue after a crash or an answer."""
    current: RunSegment | None = None
    is_over = True
    for entry in entries:
        event = entry.event
        if isinstance(event, RunStarted) and not event.path:
            repairs = _take_repairs(current, _CLOSED)
            if current is not None:
                yield current
            current = RunSegment("call" if CALL in event.options else "run", event, [*repairs, entry])
            is_over = False
        elif current is not None and isinstance(event, RunResumed) and not event.path:
            yield current
            current = RunSegment("resume", current.started, [entry])
            is_over = False  # also of one that was parked, and taken up again
        elif current is None or is_over:
            continue  # between two runs
        else:
            current.entries.append(entry)
            is_over = isinstance(event, RunEnded) and not event.path
            if repairs := _take_repairs(current, _PARKED):
                yield current
                current = RunSegment("resume", current.started, repairs)
    if current is not None:
        yield current


def _take_repairs(segment: RunSegment | None, reasons: Collection[str]) -> list[Entry]:
    """Remove and return the repair entries at the end of a segment, which were written when the session was resumed
    later.
    """
    if segment is None or not _is_closed(segment.entries[-1].event, "", reasons):
        return []
    place = len(segment.entries) - 1
    while _is_repair(segment.entries[place - 1].event):
        place -= 1
    repairs = segment.entries[place:]
    del segment.entries[place:]
    return repairs


def _is_closed(event: Event, path: str, reasons: Collection[str]) -> bool:
    return isinstance(event, RunEnded) and event.path == path and event.reason in reasons


def _is_repair(event: Event) -> bool:
    """Return True if the event may be part of a repair, of the session's own run or of a subagent's."""
    match event:
        case ToolFinished(result=result):
            return result.status in {Status.UNKNOWN, Status.CANCELLED_BEFORE_START}
        case RunEnded():
            return bool(event.path) and _is_closed(event, event.path, _CLOSED | _PARKED)
        case SubagentFinished(message=message):
            return message in _GIVEN_UP
        case _:
            return isinstance(event, QuestionWithdrawn)
