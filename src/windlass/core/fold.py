"""From events to what they amount to. Above: the loop and whoever opens a session. Below: `event.py`, `message.py`.

The same fold makes the state of a running session, event by event, and of one that is read from its log, so the two
cannot differ. Nothing here asks for time, chance or the outside world.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast, overload

from msgspec import Struct

from .event import (
    Entry,
    Event,
    InboxAdded,
    InboxResolved,
    LimitReached,
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
    ToolStarted,
)
from .message import NO_USAGE, Message, Status, Text, ToolCall, ToolResult, Usage


class View(Sequence[Message]):
    """The first messages of a transcript. A transcript only grows, so a view never changes, and costs nothing."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._length = len(messages)

    def continues(self, other: "View") -> bool:
        """Whether it is the same transcript, at least as long."""
        return self._messages is other._messages and self._length >= len(other)  # noqa: SLF001 - of its own kind

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        messages = self._messages
        return map(messages.__getitem__, range(self._length))

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        if isinstance(place, slice):
            return [self._messages[each] for each in range(*place.indices(self._length))]
        return self._messages[range(self._length)[place]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (View, list, tuple)):
            return NotImplemented
        return list(self) == list(cast("Sequence[Any]", other))

    __hash__ = None  # type: ignore[assignment] # equal to lists, which have none either

    def __repr__(self) -> str:
        return f"View({list(self)!r})"


class Past(Struct, frozen=True):
    """A run that had a name of the caller's, so that its outcome can be told again."""

    run_id: str
    first: int
    """Where in the transcript it begins."""
    last: int = 0
    """Where in the transcript it ends."""
    ended: RunEnded | None = None
    """How; `None` while it has not."""


class State:
    """What the log of a session amounts to."""

    __slots__ = (
        "_messages",
        "_unsummed",
        "_usage",
        "answers",
        "asks",
        "attempts",
        "call_ids",
        "decided",
        "ended",
        "first",
        "inbox",
        "inputs",
        "latest",
        "latest_results",
        "limit",
        "open_calls",
        "recoveries",
        "remembered",
        "reply",
        "results",
        "run",
        "started",
        "tool_calls",
        "turns",
        "waiting",
    )

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self.call_ids: set[str] = set()
        """Every call id there has been."""
        self.run: RunStarted | None = None
        """The run that is going on, or the last one."""
        self.ended: RunEnded | None = None
        """How that run ended; `None` while it has not."""
        self.first = 0
        """Where in the transcript that run begins."""
        self.turns = 0
        """Turns of that run."""
        self.attempts = 0
        """Requests sent for the turn that has no reply yet."""
        self.tool_calls = 0
        """Calls that were started in that run."""
        self._usage = NO_USAGE
        self._unsummed: list[Usage] = []
        self.reply: Message | None = None
        """The reply whose calls are not all settled."""
        self.open_calls: dict[str, ToolCall] = {}
        """All the calls of that reply, in order."""
        self.results: dict[str, ToolResult] = {}
        """The results that there are, for those calls."""
        self.started: dict[str, ToolStarted] = {}
        """The calls that have an intent and no result."""
        self.latest: ToolResult | None = None
        """The result that came last."""
        self.latest_results: tuple[ToolResult, ...] = ()
        """The results of the last reply whose calls were all settled."""
        self.decided: dict[str, PermissionDecided] = {}
        """What was decided about those calls."""
        self.remembered: list[PermissionDecided] = []
        """What was decided for longer than one call."""
        self.asks: dict[str, QuestionAsked] = {}
        """The questions of that run."""
        self.answers: dict[str, QuestionAnswered] = {}
        """The answers to them that there are."""
        self.waiting = False
        """Whether that run cannot go on before somebody answers."""
        self.recoveries = 0
        """How often that run was taken up again since it last got anywhere."""
        self.limit = ""
        """The limit that keeps that run from going on, if one does."""
        self.inbox: dict[str, InboxAdded] = {}
        """What the agent waits for from outside."""
        self.inputs: dict[str, Past] = {}
        """The runs whose input has a name, by that name."""

    @property
    def messages(self) -> View:
        """The transcript: valid at any time, for calls enter it together with their results."""
        return View(self._messages)

    @property
    def usage(self) -> Usage:
        """What that run has used. Summed up when it is asked for, since most turns do not ask."""
        for each in self._unsummed:
            self._usage += each
        self._unsummed.clear()
        return self._usage

    @property
    def answer(self) -> Message | None:
        """The reply without calls that came last in that run, when nothing has followed it."""
        last = self._messages[-1] if len(self._messages) > self.first else None
        return last if last is not None and last.role == "assistant" else None

    @property
    def unfollowed(self) -> Message | None:
        """The last reply of that run, when nothing has followed it but the results of its calls."""
        if self.reply is not None or self.attempts:
            return self.reply
        messages = self._messages
        if len(messages) > self.first + 1 and messages[-1].role == "tool":
            return messages[-2]
        return self.answer

    @property
    def steered(self) -> bool:
        """Whether the last thing that the model was told is steering, and it has not answered yet."""
        return bool(self._messages) and self._messages[-1].origin == "steering"

    @property
    def questions(self) -> list[QuestionAsked]:
        """The questions that nobody has answered."""
        return [each for ask_id, each in self.asks.items() if ask_id not in self.answers]

    @property
    def interrupted(self) -> bool:
        """Whether a run was begun and not ended."""
        return self.run is not None and self.ended is None

    @property
    def unsettled(self) -> list[ToolCall]:
        """The calls of the last reply that have no result."""
        return [call for call_id, call in self.open_calls.items() if call_id not in self.results]

    def apply(self, event: Event) -> None:
        """Take one more event into account."""
        change = _CHANGES.get(type(event))
        if change is not None and not event.path:
            change(self, event)

    def run_started(self, event: RunStarted) -> None:
        """A run begins: its counters do too."""
        self.run, self.ended, self.waiting, self.limit = event, None, False, ""
        self.first = len(self._messages)
        self.turns = self.attempts = self.tool_calls = self.recoveries = 0
        if event.input_id:
            self.inputs[event.input_id] = Past(event.run_id, self.first)
        self._usage = NO_USAGE
        self._unsummed.clear()

    def run_ended(self, event: RunEnded) -> None:
        """The run is over, and with it its questions."""
        self.ended, self.waiting = event, False
        if self.asks:
            self.asks.clear()
            self.answers.clear()
        if self.run is not None and self.run.input_id:
            past = Past(event.run_id, self.first, len(self._messages), event)
            self.inputs[self.run.input_id] = past

    def run_waiting(self, _event: RunWaiting) -> None:
        """It stands still until somebody answers: that is no failure."""
        self.waiting, self.recoveries = True, 0

    def run_resumed(self, _event: RunResumed) -> None:
        """Somebody takes it up again."""
        self.waiting = False
        self.recoveries += 1

    def limit_reached(self, event: LimitReached) -> None:
        """It may not go on."""
        self.limit = event.limit

    def question_asked(self, event: QuestionAsked) -> None:
        """A question is open."""
        self.asks[event.ask_id] = event

    def question_answered(self, event: QuestionAnswered) -> None:
        """It is settled."""
        self.answers[event.ask_id] = event
        self.recoveries = 0

    def inbox_added(self, event: InboxAdded) -> None:
        """The agent waits for something."""
        self.inbox[event.item_id] = event

    def inbox_resolved(self, event: InboxResolved) -> None:
        """It has come."""
        self.inbox.pop(event.item_id, None)

    def model_requested(self, event: ModelRequested) -> None:
        """A turn begins, or is tried again."""
        self.turns = event.turn
        self.attempts = event.attempt

    def message_added(self, event: MessageAdded) -> None:
        """The transcript grows; a reply with calls waits for their results."""
        message = event.message
        self.recoveries = 0
        if message.role != "assistant":
            self._messages.append(message)
            return
        self.attempts = 0
        if message.usage is not None:
            self._unsummed.append(message.usage)
        for part in message.parts:
            if type(part) is ToolCall:
                self.open_calls[part.call_id] = part
                self.call_ids.add(part.call_id)
        if self.open_calls:
            self.reply = message
        else:
            self._messages.append(message)

    def reply_discarded(self, event: ReplyDiscarded) -> None:
        """What was thrown away has been paid for all the same."""
        if event.partial is not None and event.partial.usage is not None:
            self._unsummed.append(event.partial.usage)

    def tool_started(self, event: ToolStarted) -> None:
        """A call has an intent."""
        self.started[event.call_id] = event
        if event.attempt == 1:
            self.tool_calls += 1

    def tool_finished(self, event: ToolFinished) -> None:
        """A call has its result; the last one completes the turn."""
        call_id, calls, results = event.call_id, self.open_calls, self.results
        self.recoveries = 0
        self.started.pop(call_id, None)
        if self.decided:
            self.decided.pop(call_id, None)
        self.latest = event.result
        if call_id not in calls:
            return
        results[call_id] = event.result
        if len(results) == len(calls) and self.reply is not None:
            self.latest_results = tuple(map(results.__getitem__, calls))
            self._messages += (self.reply, Message("tool", self.latest_results))
            self.reply = None
            calls.clear()
            results.clear()

    def permission_decided(self, event: PermissionDecided) -> None:
        """A verdict holds for its call, and perhaps for more."""
        self.decided[event.call_id] = event
        if event.scope != "once":
            self.remembered.append(event)


_CHANGES: dict[type[Event], Callable[[State, Any], None]] = {
    RunStarted: State.run_started,
    RunEnded: State.run_ended,
    RunWaiting: State.run_waiting,
    RunResumed: State.run_resumed,
    ModelRequested: State.model_requested,
    MessageAdded: State.message_added,
    ToolStarted: State.tool_started,
    ToolFinished: State.tool_finished,
    PermissionDecided: State.permission_decided,
    ReplyDiscarded: State.reply_discarded,
    LimitReached: State.limit_reached,
    QuestionAsked: State.question_asked,
    QuestionAnswered: State.question_answered,
    InboxAdded: State.inbox_added,
    InboxResolved: State.inbox_resolved,
}


def fold(entries: Iterable[Entry]) -> State:
    """The state that a log amounts to."""
    return fold_events([entry.event for entry in entries])


def fold_events(events: Iterable[Event]) -> State:
    """The state that the events of a log amount to."""
    state = State()
    for event in events:
        state.apply(event)
    return state


INTERRUPTED = (
    "The runtime stopped while this ran. It may or may not have taken effect. Check the state before repeating."
)
NOT_STARTED = "This call was not started: the run ended before its turn came. It had no effect."


CUT_OFF = ("failed", "interrupted", "the process ended")
UNANSWERED = ("cancelled", "unanswered", "the conversation went on without an answer")
CRASHES = ("parked", "crash_loop", "the process ended again and again at this place")
"""How a run is closed that nobody drives: status, reason, words."""


def repairs(state: State, ending: tuple[str, str, str] = CUT_OFF) -> list[Event]:
    """What has to be added to a log whose last run was cut off, so that a new message can follow.

    A call that was started becomes *unknown*, one that was not says so, and the run is closed. Repairing twice finds
    nothing the second time.
    """
    run_id = state.run.run_id if state.run else ""
    events: list[Event] = []
    for call in state.unsettled:
        started = call.call_id in state.started
        events.append(_settled(call.call_id, call.name, run_id, started=started))
    loose = [start for call_id, start in state.started.items() if call_id not in state.open_calls]
    events += [_settled(start.call_id, start.name, start.run_id, started=True) for start in loose]
    if state.interrupted:
        status, reason, words = ending
        events.append(RunEnded(status, reason, words, state.usage, turns=state.turns, run_id=run_id))
    return events


def _settled(call_id: str, name: str, run_id: str, *, started: bool) -> ToolFinished:
    status, text = (Status.UNKNOWN, INTERRUPTED) if started else (Status.CANCELLED_BEFORE_START, NOT_STARTED)
    return ToolFinished(call_id, name, ToolResult(call_id, name, (Text(text),), status), run_id=run_id)
