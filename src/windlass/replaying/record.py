"""A log read as a recording: where its runs begin and break off, what was asked, what came back.

Above: `replay.py`. Below: `core`. Pure: entries in, values out.

A run that a crash cut off, and that was taken up again, is two *stretches*. What was told to the model from outside
(steering, follow-ups) belongs to the reply that it came after.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from windlass.core.error import StoreError
from windlass.core.event import (
    Entry,
    Event,
    InboxAdded,
    InboxResolved,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    QuestionAnswered,
    QuestionAsked,
    ReplyDiscarded,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
)
from windlass.core.fold import CRASHES, CUT_OFF, UNANSWERED
from windlass.core.message import Message, Status, ToolResult

Beginning: TypeAlias = Literal["run", "wake", "resume", "call"]
"""With a prompt; with what had come from outside; where it was cut off; or as a call that no model has asked for."""

CALL = "call"
"""The option of a run that is only a call."""
STEERING, FOLLOW_UP = "steering", "follow_up"
_OUTSIDE = frozenset({STEERING, FOLLOW_UP})
"""The origins of messages that somebody has sent. All others are made by code, and are made again."""
_INBOX = "inbox"

_CLOSED = frozenset({CUT_OFF[1], UNANSWERED[1]})
"""The reasons of endings that were written when the next run began."""
_PARKED = CRASHES[1]
"""The reason of an ending that was written instead of taking a run up once more."""


class Exchange(Struct):
    """A request, and what came of it."""

    request: ModelRequested
    discarded: list[ReplyDiscarded] = field(default_factory=list[ReplyDiscarded])
    reply: Message | None = None
    after: list[Message | InboxResolved] = field(default_factory=list[Message | InboxResolved])
    """What came from outside between this reply and the next request."""
    inbox: list[InboxAdded] = field(default_factory=list[InboxAdded])
    """What its calls have asked the outside world for."""
    added: tuple[str, ...] = ()
    """The tools that its calls have added."""
    started: set[str] = field(default_factory=set[str])
    """The calls that have begun."""


class Stretch(Struct):
    """A piece of a run that nothing interrupted."""

    begins: Beginning
    started: RunStarted
    entries: list[Entry]
    """All of it, its beginning included."""
    first: list[Message | InboxResolved] = field(default_factory=list[Message | InboxResolved])
    """What came from outside before the first request."""
    prompt: Message | None = None
    exchanges: dict[int, Exchange] = field(default_factory=dict[int, Exchange])
    """By the number of the request's entry."""
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """The results of calls, by their ids."""
    ended: RunEnded | None = None
    """How the run ended; `None` when it was cut off here."""

    @property
    def last_exchange(self) -> Exchange | None:
        """The last one of the stretch."""
        return next(reversed(self.exchanges.values()), None)

    @property
    def interrupted(self) -> bool:
        """Whether somebody cancelled it, or its time was up."""
        return self.ended is not None and (self.ended.status == "cancelled" or self.ended.reason == "timeout")

    def statuses(self, exchange: Exchange) -> set[Status]:
        """How the calls of a reply ended."""
        calls = exchange.reply.tool_calls if exchange.reply else ()
        return {self.results[call.call_id].status for call in calls if call.call_id in self.results}


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
    """The names of tools that came while a run was going."""


def read_record(entries: Sequence[Entry]) -> Record:
    """Read a log as a recording. Raises `StoreError` when it is damaged."""
    for place, entry in enumerate(entries, 1):
        if entry.seq != place:
            raise StoreError(f"the recording is damaged: entry {place} has the number {entry.seq}")
    own = [entry for entry in entries if not entry.event.path]
    events = [entry.event for entry in own]
    asks = {event.ask_id: event for event in events if isinstance(event, QuestionAsked)}
    decisions = {event.call_id: event for event in events if isinstance(event, PermissionDecided)}
    starts = [event for event in events if isinstance(event, ToolStarted)]
    replies = [event.message for event in events if isinstance(event, MessageAdded)]
    return Record(
        [_filled(stretch) for stretch in _stretches(own)],
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
        frozenset([event.name for event in starts]),
        frozenset([name for event in events if isinstance(event, ToolsChanged) for name in event.added]),
    )


def _hashes(decisions: Iterable[PermissionDecided], starts: Iterable[ToolStarted]) -> Iterator[tuple[str, str]]:
    yield from [(decision.call_id, decision.arguments_hash) for decision in decisions]
    yield from [(start.call_id, start.arguments_hash) for start in starts]


def _stretches(entries: Iterable[Entry]) -> Iterator[Stretch]:
    """Part a log where runs begin, and where they go on after a crash."""
    current: Stretch | None = None
    waiting = False
    for entry in entries:
        event = entry.event
        if isinstance(event, RunStarted):
            repairs = _taken_off(current)
            if current is not None:
                yield current
            current, waiting = Stretch("call" if CALL in event.options else "run", event, [*repairs, entry]), False
        elif isinstance(event, RunEnded) and event.reason == _PARKED and current is not None:
            current.entries.append(entry)
            repairs = _taken_off(current)
            yield current
            current = Stretch("resume", current.started, repairs)
        elif isinstance(event, RunResumed) and current is not None and not waiting:
            yield current
            current = Stretch("resume", current.started, [entry])
        elif current is not None:
            current.entries.append(entry)
        waiting = isinstance(event, RunWaiting) or (waiting and not isinstance(event, RunResumed))
    if current is not None:
        yield current


def _taken_off(stretch: Stretch | None) -> list[Entry]:
    """The repairs at the end of a stretch: they were written when the next run began, and belong to that."""
    if stretch is None or not _is_repair(stretch.entries[-1].event):
        return []
    place = len(stretch.entries) - 1
    while _settles_afterwards(stretch.entries[place - 1].event):
        place -= 1
    repairs = stretch.entries[place:]
    del stretch.entries[place:]
    return repairs


def _is_repair(event: Event) -> bool:
    return isinstance(event, RunEnded) and event.reason in _CLOSED | {_PARKED}


def _settles_afterwards(event: Event) -> bool:
    unsettled = {Status.UNKNOWN, Status.CANCELLED_BEFORE_START}
    return isinstance(event, ToolFinished) and event.result.status in unsettled


def _filled(stretch: Stretch) -> Stretch:
    """Note what a stretch says about its prompt, its requests and its calls."""
    begun = stretch.begins == "resume"
    exchange: Exchange | None = None
    for entry in stretch.entries:
        event = entry.event
        if isinstance(event, RunStarted):
            begun = True
        elif not begun:
            continue  # repairs of the run before
        elif isinstance(event, ModelRequested):
            exchange = stretch.exchanges[entry.seq] = Exchange(event)
        elif isinstance(event, ToolFinished):
            stretch.results[event.call_id] = event.result
        elif isinstance(event, RunEnded):
            stretch.ended = event
        elif isinstance(event, MessageAdded):
            _place(stretch, exchange, event.message)
        elif isinstance(event, InboxResolved):
            (stretch.first if exchange is None else exchange.after).append(event)
        elif exchange is not None:
            _note(exchange, event)
    return stretch


def _note(exchange: Exchange, event: Event) -> None:
    """What else happened between a request and the next."""
    match event:
        case ReplyDiscarded():
            exchange.discarded.append(event)
        case ToolStarted():
            exchange.started.add(event.call_id)
        case ToolsChanged():
            exchange.added += event.added
        case InboxAdded():
            exchange.inbox.append(event)
        case _:
            return


def _place(stretch: Stretch, exchange: Exchange | None, message: Message) -> None:
    if message.role == "assistant":
        if exchange is not None:
            exchange.reply = message
    elif stretch.begins == "run" and stretch.prompt is None:
        if message.origin in _OUTSIDE or message.origin == _INBOX:
            stretch.begins = "wake"
            _place(stretch, exchange, message)
        else:
            stretch.prompt = message
    elif message.origin in _OUTSIDE:
        (stretch.first if exchange is None else exchange.after).append(message)
