"""A recorded log: its runs in segments, with requests and replies, and an index of decisions, answers and tools."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from perdure._core.log.repair import ENDING_CRASH_LOOP, ENDING_PROCESS_DIED, ENDING_UNANSWERED
from perdure._core.values.clock import find_program_call_id
from perdure._core.values.error import StoreError
from perdure._core.values.event import (
    LOADED_TOOLS_NAME,
    Compacted,
    CompactionStarted,
    Entry,
    InboxResolved,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    PermissionDecided,
    ReplyDiscarded,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SkillLoaded,
    SubagentFinished,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
    ValueKept,
    ViewChanged,
)
from perdure._core.values.event_class import Event, QuestionAnswered, QuestionAsked, QuestionWithdrawn
from perdure._core.values.message import Message, Status, ToolResult

Beginning: TypeAlias = Literal["run", "wake", "resume", "call"]
"""The way a segment begins: with a prompt, with inbox items, where a run was cut off, or as a direct tool call."""

COMPACTION, SUMMARIES = "compaction", "summaries"
"""Why the model is sent less than before, as logs say it."""
FOLLOW_UP = "follow_up"
_INBOX = "inbox"
_ENGINE = "engine"
"""Origin of messages that an engine writes, in the place of the model."""
_OUTSIDE = frozenset({"steering", FOLLOW_UP, _INBOX})
"""Origins of messages sent from outside. All others are made by code, and are made again."""


def is_compaction(event: Event) -> bool:
    """Return True if the event was written by a compaction (replacing old messages by a summary), finished or not."""
    match event:
        case CompactionStarted() | Compacted():
            return True
        case ViewChanged(cause=cause):
            return cause == COMPACTION
        case ReplyDiscarded(reason=reason):
            return reason == COMPACTION
        case _:
            return False


def is_result_shortening(event: Event) -> bool:
    """Return True if the event marks that older tool results are sent to the model in short form from here on."""
    return isinstance(event, ViewChanged) and event.cause == SUMMARIES


class RecordedExchange(Struct):
    """A recorded model request, the reply to it, and the messages and calls up to the next request."""

    request: ModelRequested
    discarded: list[ReplyDiscarded] = field(default_factory=list[ReplyDiscarded])
    reply: Message | None = None
    later_messages: list[Message | InboxResolved] = field(default_factory=list[Message | InboxResolved])
    """Messages from outside between this reply and the next request."""
    started: set[str] = field(default_factory=set[str])
    """Ids of the calls that were started."""
    is_overflowed: bool = False
    """True if the request was too long for the model, and was sent again after a compaction."""


class RunSegment(Struct):
    """A recorded run, or the part of one before or after an interruption (a crash, or waiting for an answer)."""

    begins: Beginning
    started: RunStarted
    entries: list[Entry]
    """All its entries, including the one that begins it."""
    opening: list[Message] = field(default_factory=list[Message])
    """The prompt, preceded by messages of the skills that it names."""
    skills: list[SkillLoaded] = field(default_factory=list[SkillLoaded])
    """Skills loaded with the prompt."""
    answer: Message | None = None
    """Answer of a `/name` handler, instead of the model's."""
    early_messages: list[Message | InboxResolved] = field(default_factory=list[Message | InboxResolved])
    """Messages from outside before the first request."""
    exchanges: dict[int, RecordedExchange] = field(default_factory=dict[int, RecordedExchange])
    """Model requests and their replies, by the entry number of the request."""
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """Results of calls, by call id."""
    result_entries: dict[str, int] = field(default_factory=dict[str, int])
    """Entry numbers of these results, by call id."""
    started_calls: set[str] = field(default_factory=set[str])
    """Ids of the calls that were started in this segment."""
    other_entries: list[Entry] = field(default_factory=list[Entry])
    """Other stored entries that the runtime does not create again."""
    ended: RunEnded | None = None
    """End of the run; `None` if the segment ends with a crash or a wait."""
    is_waiting: bool = False
    """True if the segment ends waiting for an answer."""

    @property
    def last_exchange(self) -> RecordedExchange | None:
        """Last model request of the segment with its reply; `None` if it has none."""
        return next(reversed(self.exchanges.values()), None)

    @property
    def is_interrupted(self) -> bool:
        """True if the run was cancelled or timed out."""
        return self.ended is not None and (self.ended.status == "cancelled" or self.ended.reason == "timeout")

    @property
    def is_cancelled_at_start(self) -> bool:
        """True if the run was cancelled before it did anything."""
        cancelled = self.ended is not None and self.ended.status == "cancelled"
        asked = any(isinstance(entry.event, ModelRequested) for entry in self.entries)  # also by a private run
        return cancelled and not (asked or self.started_calls)

    def call_statuses(self, exchange: RecordedExchange) -> set[Status]:
        """Return the result statuses of the tool calls in the reply of `exchange`."""
        calls = exchange.reply.tool_calls if exchange.reply else ()
        return {self.results[call.call_id].status for call in calls if call.call_id in self.results}


def fill_segment_fields(segment: RunSegment, asked_by_tools: Collection[str]) -> RunSegment:
    """Compute the fields of a run segment that are derived from its log entries, set them, and return the segment.

    `asked_by_tools` are the ids of questions that tools asked, not the runtime.
    """
    rest = segment.entries
    if segment.begins != "resume":
        begun = next(place for place, entry in enumerate(rest, 1) if entry.event is segment.started)
        rest = rest[begun:]  # before it are repairs of the run before
    if segment.begins == "run":
        rest = _take_opening(segment, rest)
    exchange: RecordedExchange | None = None
    for place, entry in enumerate(rest):
        event = entry.event
        if isinstance(event, ModelRequested) and not event.path:
            exchange = segment.exchanges[entry.seq] = RecordedExchange(event)
        elif _is_runtime_question(event, asked_by_tools):
            continue
        else:
            _add_entry(segment, exchange, entry, rest[place + 1 :] if isinstance(event, InboxResolved) else ())
    return segment


def _take_opening(segment: RunSegment, entries: list[Entry]) -> list[Entry]:
    """Move the opening messages from the entries to the segment, and return the rest.

    Each skill of the prompt has a message.
    """
    rest = list(entries)
    while rest and isinstance(skill := rest[0].event, SkillLoaded):
        segment.skills.append(skill)
        del rest[0]
    messages = 1 + sum(skill.source == "user" for skill in segment.skills)
    while rest and len(segment.opening) < messages and (said := _opening_message(rest[0].event, "user")) is not None:
        segment.opening.append(said)
        del rest[0]
    if segment.opening and rest and (answer := _opening_message(rest[0].event, "assistant")) is not None:
        segment.answer = answer
        del rest[0]
    if rest and not segment.opening:
        segment.begins = "wake"
    return rest


def _is_runtime_question(event: Event, asked_by_tools: Collection[str]) -> bool:
    """Return True if the event is about a question that the runtime, not a tool, asked: a replay asks it again."""
    if not isinstance(event, QuestionAsked | QuestionAnswered):
        return False
    return not event.path and event.ask_id not in asked_by_tools


def _opening_message(event: Event, role: str) -> Message | None:
    """Return the message of an event that opens a run in this role; `None` for other events."""
    if not isinstance(event, MessageAdded) or event.path or event.message.origin in _OUTSIDE:
        return None
    return event.message if event.message.role == role else None


def _add_entry(
    segment: RunSegment, exchange: RecordedExchange | None, entry: Entry, following: Sequence[Entry]
) -> None:
    """Add an entry that is not a model request to the segment."""
    event = entry.event
    if event.path or _is_of_program(segment, event):
        segment.other_entries.append(entry)
    elif isinstance(event, MessageAdded):
        _add_message(segment, exchange, event.message)
    elif isinstance(event, InboxResolved) and _is_delivered(following):
        (segment.early_messages if exchange is None else exchange.later_messages).append(event)
    elif event.replay == "copied":
        segment.other_entries.append(entry)
    elif is_compaction(event):
        segment.other_entries.append(entry)
        if exchange is not None and exchange.reply is None:
            exchange.is_overflowed = True
    elif isinstance(event, ReplyDiscarded | ModelReplied) and _is_aside(event):
        _add_aside_reply(segment, event)
    elif isinstance(event, ReplyDiscarded) and exchange is not None:
        exchange.discarded.append(event)
    else:
        _add_progress(segment, exchange, entry)


def _is_of_program(segment: RunSegment, event: Event) -> bool:
    """Return True if the event is about a call that a program made: a replay does not run the program."""
    program = find_program_call_id(getattr(event, "call_id", ""))
    return bool(program) and program in segment.started_calls


def _is_aside(event: ReplyDiscarded | ModelReplied) -> bool:
    """Return True if a reply belongs to a request aside from the conversation."""
    return isinstance(event, ModelReplied) or event.aside


def _add_aside_reply(segment: RunSegment, event: ReplyDiscarded | ModelReplied) -> None:
    """Add a reply to its request aside from the conversation; several may be in progress at once."""
    for exchange in segment.exchanges.values():
        if exchange.request.aside and exchange.request.turn == event.turn:
            if isinstance(event, ModelReplied):
                exchange.reply = event.message
            else:
                exchange.discarded.append(event)


def _add_progress(segment: RunSegment, exchange: RecordedExchange | None, entry: Entry) -> None:
    """Update the calls and the state of the run from an entry."""
    match entry.event:
        case ToolStarted(call_id=call_id):
            segment.started_calls.add(call_id)
            if exchange is not None:
                exchange.started.add(call_id)
        case ToolFinished(call_id=call_id, result=result):
            segment.results[call_id], segment.result_entries[call_id] = result, entry.seq
        case RunEnded() as ended:
            segment.ended = ended
        case RunWaiting():
            segment.is_waiting = True
        case _:
            return


def _is_delivered(following: Sequence[Entry]) -> bool:
    """Return True if a message with the inbox result follows; otherwise a tool call has consumed it."""
    event = next((entry.event for entry in following if not isinstance(entry.event, InboxResolved)), None)
    return isinstance(event, MessageAdded) and event.message.origin == _INBOX


def _add_message(segment: RunSegment, exchange: RecordedExchange | None, message: Message) -> None:
    if message.origin in _OUTSIDE:
        if message.origin != _INBOX:
            (segment.early_messages if exchange is None else exchange.later_messages).append(message)
    elif message.role == "assistant" and exchange is not None and message.origin != _ENGINE:
        exchange.reply = message


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
