"""Filter an imported session: only its conversation is kept, so that nothing in it can control later runs.

Others may have written the document.

A log has power over the runs that continue it: grants and approvals, settings and the options of runs, questions and
their answers, jobs and inbox items. Whoever can edit a document could forge them, so that only kinds of events that are
words are imported (`KEPT_EVENTS`), without the fields that have power. Everything else is dropped and counted.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NoReturn

from msgspec import Struct, structs
from msgspec.structs import replace

from .core.clock_and_ids import new_id
from .core.error import ConfigError
from .core.event import (
    AutoContinued,
    Compacted,
    CompactionStarted,
    Entry,
    Event,
    GuardrailTripped,
    LimitReached,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    ReplyDiscarded,
    RunEnded,
    RunStarted,
    SessionConfigured,
    SessionImported,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    Unknown,
    ValueKept,
    ViewChanged,
)
from .core.fold import State
from .core.interrupted_run_repair import build_repair_events
from .core.message import NO_USAGE, Message, ToolResult, Usage, merge_labels
from .core.provenance import IMPORTED_LABEL, KEPT_LABELS, list_kept_labels

ENDING_IMPORTED: Final = ("cancelled", "imported", "the session was imported, and its run is not continued")
"""Status, reason and error text of a run that was not over when its session was exported."""
MAX_NUMBER: Final = 2**53
"""Numbers above this one, or below zero, are not those of a log."""
MAX_DEPTH: Final = 32
"""Number of agents that can be below one another."""
MAX_PATH_LENGTH: Final = 2000
"""Maximum length of the path of an agent."""
KEPT_EVENTS: Final[frozenset[type[Event]]] = frozenset(
    {
        *(MessageAdded, ToolStarted, ToolFinished, Compacted, ViewChanged, CompactionStarted),
        *(RunStarted, RunEnded, ModelRequested, ModelReplied, ReplyDiscarded, SubagentStarted, SubagentFinished),
        *(GuardrailTripped, AutoContinued, LimitReached, SessionImported),
    }
)
"""Kinds of events that are words, or records of what happened. All others are dropped, new ones too."""
SHOWN_DIGEST: Final = 16
"""Characters of the digest in the sources of each message."""


class ImportReport(Struct, frozen=True, kw_only=True):
    """The report on an import: the new session, the digest of its document, and what was dropped from it."""

    session_id: str
    digest: str
    """SHA-256 of the document."""
    entries: int
    """Number of entries in the new log."""
    trusted: bool = False
    """True if everything was imported."""
    dropped: Mapping[str, int] = {}
    """Number of entries that were dropped, by kind: `permission_decided`, `session_configured`, …"""
    notes: tuple[str, ...] = ()
    """What else was changed, a sentence each."""


def reduce_to_conversation(
    entries: Sequence[Entry], digest: str, now: float
) -> tuple[list[Entry], dict[str, int], list[str]]:
    """Drop the log entries that could control later runs; return the rest, the number dropped by kind, and notes.

    Raises `ConfigError` for entries that contradict one another, as no log has them.
    """
    dropped: Counter[str] = Counter()
    notes: dict[str, None] = {}
    kept: list[Entry] = []
    state = State()
    finished = _list_finished_tasks(entries)
    source = f"import:{digest[:SHOWN_DIGEST]}"
    for entry in entries:
        event = entry.event
        if isinstance(event, SessionConfigured) and isinstance(title := event.changes.get("title"), str):
            dropped.update([_get_kind(event)] if len(event.changes) > 1 else [])
            event = SessionConfigured({"title": title}, run_id=event.run_id)
        elif isinstance(event, ValueKept) and (labels := list_kept_labels(event)[0]):
            event = ValueKept(KEPT_LABELS, dict.fromkeys(labels, source), run_id=event.run_id, path=event.path)
        elif type(event) not in KEPT_EVENTS or _is_unfinished(event, finished):
            dropped[_get_kind(event)] += 1
            continue
        event = _reduce_event(event, source)
        _check_consistency(entry.seq, event, state)
        state.apply(event)
        kept.append(Entry(0, entry.at if 0 <= entry.at <= now else now, event))
    for event in _end_runs(state):
        notes["a run that was not over is ended"] = None
        kept.append(Entry(0, now, event))
    return kept, dict(dropped), list(notes)


def renumber_entries(entries: Sequence[Entry]) -> list[Entry]:
    """Return imported log entries numbered from 1, and with new ids, since those in the document may be forged."""
    return [Entry(seq, each.at, each.event, new_id()) for seq, each in enumerate(entries, 1)]


def _is_unfinished(event: Event, finished: Collection[str]) -> bool:
    """Return True for an event about a task of another agent that has no end in the document, and is dropped."""
    return isinstance(event, SubagentStarted) and event.call_id not in finished


def _get_kind(event: Event) -> str:
    return f"unknown:{event.name}" if isinstance(event, Unknown) else str(event.__struct_config__.tag)


def _end_runs(state: State) -> list[Event]:
    """Build the events that end all unfinished runs, of subagents too, and give their open calls a result."""
    children = [event for child in state.children.values() for event in build_repair_events(child, ENDING_IMPORTED)]
    for event in children:
        state.apply(event)
    return [*children, *build_repair_events(state, ENDING_IMPORTED)]


def _list_finished_tasks(entries: Sequence[Entry]) -> set[str]:
    return {each.event.call_id for each in entries if isinstance(each.event, SubagentFinished)}


# -- one event ---------------------------------------------------------------------------------------------------------


def _reduce_event(event: Event, source: str) -> Event:
    """Return an event of the conversation without the fields that control later runs."""
    match event:
        case MessageAdded(message=message) | ModelReplied(message=message):
            return replace(event, message=_reduce_message(message, source))
        case ReplyDiscarded(partial=Message() as partial):
            return replace(event, partial=_reduce_message(partial, source))
        case Compacted(summary=summary, usage=usage):
            return replace(event, summary=_reduce_message(summary, source), usage=_check_usage(usage))
        case ToolFinished(result=result):
            return replace(event, result=_reduce_result(result))
        case _:
            return _reduce_record(event)


def _reduce_record(event: Event) -> Event:
    """Return an event about a run or a request without options, input ids and impossible numbers."""
    match event:
        case RunStarted():
            return replace(event, options={}, input_id="")
        case RunEnded(usage=usage, cost_usd=cost):
            return replace(event, usage=_check_usage(usage) or NO_USAGE, cost_usd=_check_cost(cost))
        case SubagentFinished(usage=usage, cost_usd=cost):
            return replace(event, usage=_check_usage(usage), cost_usd=_check_cost(cost))
        case ModelRequested():
            return replace(event, settings={}, price_usd=())
        case _:
            return event


def _reduce_message(message: Message, source: str) -> Message:
    """Return a message with a label that it was imported. Instructions become a user's message."""
    is_system = message.role == "system"
    return replace(
        message,
        role="user" if is_system else message.role,
        origin="import" if is_system else message.origin,
        parts=tuple([_reduce_result(part) if isinstance(part, ToolResult) else part for part in message.parts]),
        usage=_check_usage(message.usage),
        metadata={},
        author="",
        labels=merge_labels(message.labels, (IMPORTED_LABEL,)),
        sources=(*message.sources, source),
    )


def _reduce_result(result: ToolResult) -> ToolResult:
    labels = merge_labels(result.labels, (IMPORTED_LABEL,))
    return replace(result, render=None, terminate=False, labels=labels)


def _check_usage(usage: Usage | None) -> Usage | None:
    """Return token counts if they are plausible; negative ones would enlarge the budget of a later run."""
    if usage is None:
        return None
    numbers = [value for value in structs.astuple(usage) if isinstance(value, (int, float))]
    return usage if all(0 <= number <= MAX_NUMBER for number in numbers) else None


def _check_cost(cost: float | None) -> float | None:
    return cost if cost is not None and 0 <= cost <= MAX_NUMBER else None


# -- what no log has ---------------------------------------------------------------------------------------------------


def _check_consistency(seq: int, event: Event, state: State) -> None:
    """Raise `ConfigError` for an event that cannot follow the ones before it."""
    if event.path.count("/") >= MAX_DEPTH or len(event.path) > MAX_PATH_LENGTH:
        _fail(seq, "is of an agent below too many others")
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, int) and not 0 <= value <= MAX_NUMBER:
            _fail(seq, f"has a {name} that cannot be: {value}")
    here = state if event.path == state.path else state.get_child(event.path)
    match event:
        case MessageAdded(message=message):
            _check_message(seq, message, here)
        case ToolFinished(result=result) if (result.call_id, result.name) != (event.call_id, event.name):
            _fail(seq, "has the result of another call")
        case Compacted(upto=upto) | ViewChanged(upto=upto) if upto > len(here.messages):
            _fail(seq, f"replaces {upto} messages, and there are {len(here.messages)}")
        case _:
            pass


def _check_message(seq: int, message: Message, state: State) -> None:
    calls = [call.call_id for call in message.tool_calls]
    if message.role == "tool" or message.tool_results:
        _fail(seq, "has results that no call of a tool led to")
    if message.role != "assistant":
        return _fail(seq, "has calls of tools that no model made") if calls else None
    if state.unsettled_reply is not None:
        _fail(seq, "is a reply, and calls of the one before have no results")
    if len({*calls}) < len(calls) or not state.call_ids.isdisjoint(calls):
        _fail(seq, "has a call twice")
    return None


def _fail(seq: int, problem: str) -> NoReturn:
    raise ConfigError(f"entry {seq} of the document {problem}: it was not exported so; export the session again")
