"""A piece of a run as a recording: how it began, what was asked, what came back, and what was stored beside it.

Above: `record.py`, which parts a log into stretches. Below: `core`. Pure: entries in, values out.

What the model was told from outside (steering, follow-ups, the inbox) belongs to the reply that it came after. What
calls have left in the log beside their results (values, slots, skills, questions, the runs of other agents) has its
place, so that it can be stored again there.
"""

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from perdure.core.event import (
    Compacted,
    CompactionStarted,
    Custom,
    Entry,
    Event,
    GrantRevoked,
    InboxAdded,
    InboxResolved,
    MessageAdded,
    ModelRequested,
    QuestionAnswered,
    QuestionAsked,
    ReplyDiscarded,
    RunEnded,
    RunStarted,
    RunWaiting,
    SessionConfigured,
    SkillLoaded,
    SlotClosed,
    SlotOpened,
    SlotUpdated,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    ValueKept,
    ViewChanged,
)
from perdure.core.message import Message, Status, ToolResult

Beginning: TypeAlias = Literal["run", "wake", "resume", "call"]
"""With a prompt; with what had come from outside; where it was cut off; or as a call that no model has asked for."""

COMPACTION, SUMMARIES = "compaction", "summaries"
"""Why the model is sent less than before, as logs say it."""
FOLLOW_UP = "follow_up"
_INBOX = "inbox"
_OUTSIDE = frozenset({"steering", FOLLOW_UP, _INBOX})
"""The origins of messages that somebody has sent. All others are made by code, and are made again."""

_BESIDE = (
    *(Custom, GrantRevoked, InboxAdded, InboxResolved, QuestionAnswered, QuestionAsked, SessionConfigured),
    *(SkillLoaded, SlotClosed, SlotOpened, SlotUpdated, SubagentFinished, SubagentStarted, ValueKept),
)
"""What calls may leave in the log beside their results."""


def is_compaction(event: Event) -> bool:
    """Whether it is about a summary that stands for the beginning of the conversation, or was to."""
    match event:
        case CompactionStarted() | Compacted():
            return True
        case ViewChanged(cause=cause):
            return cause == COMPACTION
        case ReplyDiscarded(reason=reason):
            return reason == COMPACTION
        case _:
            return False


def is_shortening(event: Event) -> bool:
    """Whether older results are sent in their short form from here on."""
    return isinstance(event, ViewChanged) and event.cause == SUMMARIES


class Exchange(Struct):
    """A request, and what came of it."""

    request: ModelRequested
    discarded: list[ReplyDiscarded] = field(default_factory=list[ReplyDiscarded])
    reply: Message | None = None
    after: list[Message | InboxResolved] = field(default_factory=list[Message | InboxResolved])
    """What came from outside between this reply and the next request."""
    started: set[str] = field(default_factory=set[str])
    """The calls that have begun."""
    overflowed: bool = False
    """Whether it was too long, and the conversation was summed up before it was sent once more."""


class Stretch(Struct):
    """A piece of a run that nothing interrupted."""

    begins: Beginning
    started: RunStarted
    entries: list[Entry]
    """All of it, its beginning included."""
    opening: list[Message] = field(default_factory=list[Message])
    """What was said first: the prompt, and in front of it the skills that it names."""
    skills: list[SkillLoaded] = field(default_factory=list[SkillLoaded])
    """The skills that came with that."""
    answer: Message | None = None
    """What a hook answered in the place of the model."""
    first: list[Message | InboxResolved] = field(default_factory=list[Message | InboxResolved])
    """What came from outside before the first request."""
    exchanges: dict[int, Exchange] = field(default_factory=dict[int, Exchange])
    """By the number of the request's entry."""
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """The results of calls, by their ids."""
    finished: dict[str, int] = field(default_factory=dict[str, int])
    """Where these results are."""
    intents: set[str] = field(default_factory=set[str])
    """The calls that have begun here."""
    beside: list[Entry] = field(default_factory=list[Entry])
    """What was stored beside requests, replies and results, and is not made again by the runtime."""
    ended: RunEnded | None = None
    """How the run ended; `None` when it was cut off here, or waits."""
    waits: bool = False
    """Whether it stands still at the end, until somebody answers."""

    @property
    def last_exchange(self) -> Exchange | None:
        """The last one of the stretch."""
        return next(reversed(self.exchanges.values()), None)

    @property
    def interrupted(self) -> bool:
        """Whether somebody cancelled it, or its time was up."""
        return self.ended is not None and (self.ended.status == "cancelled" or self.ended.reason == "timeout")

    @property
    def unwanted(self) -> bool:
        """Whether it was cancelled before it did anything."""
        cancelled = self.ended is not None and self.ended.status == "cancelled"
        return cancelled and not (self.exchanges or self.intents)

    def statuses(self, exchange: Exchange) -> set[Status]:
        """How the calls of a reply ended."""
        calls = exchange.reply.tool_calls if exchange.reply else ()
        return {self.results[call.call_id].status for call in calls if call.call_id in self.results}


def filled(stretch: Stretch, asked_by_tools: Collection[str]) -> Stretch:
    """Note what the entries of a stretch say. `asked_by_tools` are the questions that the runtime does not ask."""
    rest = stretch.entries
    if stretch.begins != "resume":
        begun = next(place for place, entry in enumerate(rest, 1) if entry.event is stretch.started)
        rest = rest[begun:]  # before it are repairs of the run before
    if stretch.begins == "run":
        rest = _opened(stretch, rest)
    exchange: Exchange | None = None
    for place, entry in enumerate(rest):
        event = entry.event
        if isinstance(event, ModelRequested) and not event.path:
            exchange = stretch.exchanges[entry.seq] = Exchange(event)
        elif _is_asked_again(event, asked_by_tools):
            continue
        else:
            _note(stretch, exchange, entry, rest[place + 1 :] if isinstance(event, InboxResolved) else ())
    return stretch


def _opened(stretch: Stretch, entries: list[Entry]) -> list[Entry]:
    """Take what was said first, and return the rest. Each skill that the prompt names has a message before it."""
    rest = list(entries)
    while rest and isinstance(skill := rest[0].event, SkillLoaded):
        stretch.skills.append(skill)
        del rest[0]
    messages = 1 + sum(skill.source == "user" for skill in stretch.skills)
    while rest and len(stretch.opening) < messages and (said := _told(rest[0].event, "user")) is not None:
        stretch.opening.append(said)
        del rest[0]
    if stretch.opening and rest and (answer := _told(rest[0].event, "assistant")) is not None:
        stretch.answer = answer
        del rest[0]
    if rest and not stretch.opening:
        stretch.begins = "wake"
    return rest


def _is_asked_again(event: Event, asked_by_tools: Collection[str]) -> bool:
    """Whether it is about a question of the runtime itself."""
    if not isinstance(event, QuestionAsked | QuestionAnswered):
        return False
    return not event.path and event.ask_id not in asked_by_tools


def _told(event: Event, role: str) -> Message | None:
    """A message that opens a run, of whoever speaks in this role."""
    if not isinstance(event, MessageAdded) or event.path or event.message.origin in _OUTSIDE:
        return None
    return event.message if event.message.role == role else None


def _note(stretch: Stretch, exchange: Exchange | None, entry: Entry, following: Sequence[Entry]) -> None:
    """What happened beside requests."""
    event = entry.event
    if event.path:
        stretch.beside.append(entry)
    elif isinstance(event, MessageAdded):
        _place(stretch, exchange, event.message)
    elif isinstance(event, InboxResolved) and _is_delivered(following):
        (stretch.first if exchange is None else exchange.after).append(event)
    elif isinstance(event, _BESIDE):
        stretch.beside.append(entry)
    elif is_compaction(event):
        stretch.beside.append(entry)
        if exchange is not None and exchange.reply is None:
            exchange.overflowed = True
    elif isinstance(event, ReplyDiscarded) and exchange is not None:
        exchange.discarded.append(event)
    else:
        _note_progress(stretch, exchange, entry)


def _note_progress(stretch: Stretch, exchange: Exchange | None, entry: Entry) -> None:
    """How far its calls and the run are."""
    match entry.event:
        case ToolStarted(call_id=call_id):
            stretch.intents.add(call_id)
            if exchange is not None:
                exchange.started.add(call_id)
        case ToolFinished(call_id=call_id, result=result):
            stretch.results[call_id], stretch.finished[call_id] = result, entry.seq
        case RunEnded() as ended:
            stretch.ended = ended
        case RunWaiting():
            stretch.waits = True
        case _:
            return


def _is_delivered(following: Sequence[Entry]) -> bool:
    """Whether the model is told what has come: the message follows. Otherwise a call has taken it."""
    event = next((entry.event for entry in following if not isinstance(entry.event, InboxResolved)), None)
    return isinstance(event, MessageAdded) and event.message.origin == _INBOX


def _place(stretch: Stretch, exchange: Exchange | None, message: Message) -> None:
    if message.role == "assistant":
        if exchange is not None:
            exchange.reply = message
    elif message.origin in _OUTSIDE and message.origin != _INBOX:
        (stretch.first if exchange is None else exchange.after).append(message)
