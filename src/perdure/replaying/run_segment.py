"""Segments of a recorded log: a run, or its part between two interruptions, with the model requests and replies.

A run that was never interrupted is one segment; one that crashed, or waited for an answer, and was resumed has more.
No I/O.

Messages from outside (steering, follow-ups, the inbox) belong to the reply that precedes them. Other entries that calls
have stored (values, slots, skills, questions, subagent runs) keep their position, so that they can be stored again
there.
"""

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from perdure.core.event import (
    Compacted,
    CompactionStarted,
    Entry,
    Event,
    InboxResolved,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    QuestionAnswered,
    QuestionAsked,
    ReplyDiscarded,
    RunEnded,
    RunStarted,
    RunWaiting,
    SkillLoaded,
    ToolFinished,
    ToolStarted,
    ViewChanged,
)
from perdure.core.message import Message, Status, ToolResult
from perdure.core.program_call_id import find_program_call_id

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
