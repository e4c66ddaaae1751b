"""From events to what they amount to. Above: the loop and whoever opens a session. Below: `event.py`, `message.py`.

The same fold makes the state of a running session, event by event, and of one that is read from its log, so the two
cannot differ. Nothing here asks for time, chance or the outside world.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .event import (
    Compacted,
    Entry,
    Event,
    GrantRevoked,
    InboxAdded,
    InboxResolved,
    LimitReached,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    ReplyDiscarded,
    RunEnded,
    RunResumed,
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
from .message import NO_USAGE, Message, ToolCall, ToolResult, Usage
from .view import Transcript, View

FOR = "for"
"""Of the changes of a session: the agent that they are for, when it is not the one that the session was begun with."""


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
        "_children_usage",
        "_unsummed",
        "_usage",
        "answers",
        "asks",
        "attempts",
        "call_ids",
        "children",
        "children_usd",
        "configured",
        "configured_for",
        "decided",
        "ended",
        "errands",
        "first",
        "inbox",
        "inputs",
        "kept",
        "latest",
        "latest_results",
        "limit",
        "open_below",
        "open_calls",
        "parent",
        "path",
        "recoveries",
        "remembered",
        "reply",
        "requested",
        "results",
        "run",
        "skills",
        "slots",
        "started",
        "subagents",
        "tool_calls",
        "transcript",
        "turns",
        "view_changed",
        "view_turns",
        "waiting",
    )

    def __init__(self, path: str = "", parent: "State | None" = None) -> None:  # noqa: PLR0915 - a line for each thing
        self.path = path
        """Whose it is: empty for the session's own agent, else the path of a child."""
        self.parent = parent
        """Of a child: the state of whoever gave it its task."""
        self.children: dict[str, State] = {} if parent is None else parent.children
        """The states of all agents below the session's own, by path."""
        self.open_below: dict[str, State] = {}
        """Those of them that work for this one right now, by path: they have a run that has not ended."""
        self.errands: dict[str, str] = {}
        """The calls that they carry out, or have carried out, and that have no result yet: by call, the path."""
        self.transcript = Transcript()
        """What was said, and what of it the model is sent."""
        self.call_ids: set[str] = set() if parent is None else parent.call_ids
        """Every call id there has been, by whichever agent."""
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
        self.view_turns = 0
        """Turns since the model was last sent a summary of what came before, or since the beginning."""
        self.view_changed = False
        """Whether it was told since the last request that the next one begins differently."""
        self.requested: ModelRequested | None = None
        """The last request of all."""
        self._usage = NO_USAGE
        self._unsummed: list[Usage] = []
        self._children_usage = NO_USAGE
        self.children_usd = 0.0
        """What the children of that run have cost that are done."""
        self.reply: Message | None = None
        """The reply whose calls are not all settled."""
        self.open_calls: dict[str, ToolCall] = {}
        """All the calls of that reply, in order."""
        self.results: dict[str, ToolResult] = {}
        """The results that there are, for those calls."""
        self.started: dict[str, ToolStarted] = {}
        """The calls that have an intent and no result."""
        self.subagents: dict[str, SubagentStarted] = {}
        """The tasks that other agents have been given, by call, and are not done with."""
        self.latest: ToolResult | None = None
        """The result that came last."""
        self.latest_results: tuple[ToolResult, ...] = ()
        """The results of the last reply whose calls were all settled."""
        self.decided: dict[str, PermissionDecided] = {}
        """What was decided about those calls."""
        self.remembered: list[PermissionDecided | GrantRevoked] = [] if parent is None else parent.remembered
        """What was decided for longer than one call, and taken back, by whichever agent."""
        self.asks: dict[str, QuestionAsked] = {} if parent is None else parent.asks
        """The questions of that run, and of its children."""
        self.answers: dict[str, QuestionAnswered] = {} if parent is None else parent.answers
        """The answers to them that there are."""
        self.slots: dict[str, SlotOpened] = {} if parent is None else parent.slots
        """What is shown without waiting for anybody, by whichever agent."""
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
        self.kept: dict[str, Any] = {}
        """What tools have left in the log, by name."""
        self.skills: dict[str, SkillLoaded] = {}
        """The skills that have come into the conversation."""
        self.configured: dict[str, Any] = {}
        """What was changed for this session alone."""
        self.configured_for: dict[str, dict[str, Any]] = {}
        """The same, for agents that have taken the conversation over: by name."""

    @property
    def messages(self) -> View:
        """The transcript: valid at any time, for calls enter it together with their results."""
        return View(self.transcript.messages)

    @property
    def view(self) -> View:
        """What of it the model is sent."""
        return View(self.transcript.sent)

    @property
    def own_usage(self) -> Usage:
        """What that run has used itself. Summed up when it is asked for, since most turns do not ask."""
        for each in self._unsummed:
            self._usage += each
        self._unsummed.clear()
        return self._usage

    @property
    def usage(self) -> Usage:
        """What that run and its children have used."""
        return self.own_usage if self._children_usage is NO_USAGE else self.own_usage + self._children_usage

    @property
    def answer(self) -> Message | None:
        """The reply without calls that came last in that run, when nothing has followed it."""
        messages = self.transcript.messages
        last = messages[-1] if len(messages) > self.first else None
        return last if last is not None and last.role == "assistant" else None

    @property
    def unfollowed(self) -> Message | None:
        """The last reply of that run, when nothing has followed it but the results of its calls."""
        if self.reply is not None or self.attempts:
            return self.reply
        messages = self.transcript.messages
        if len(messages) > self.first + 1 and messages[-1].role == "tool":
            return messages[-2]
        return self.answer

    @property
    def steered(self) -> bool:
        """Whether the last thing that the model was told is steering, and it has not answered yet."""
        messages = self.transcript.messages
        return bool(messages) and messages[-1].origin == "steering"

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

    @property
    def begun(self) -> frozenset[str]:
        """The calls that have begun: those with an intent and no result, and those that other agents carry out."""
        return frozenset([*self.started, *self.subagents, *self.errands])

    def apply(self, event: Event) -> None:
        """Take one more event into account."""
        change = _CHANGES.get(type(event))
        if change is not None:
            change(self if event.path == self.path else self.child(event.path), event)

    def child(self, path: str) -> "State":
        """The state of an agent below this one."""
        state = self.children.get(path)
        if state is None:
            above = path.rpartition("/")[0]
            parent = self if above == self.path else self.child(above)
            state = self.children[path] = State(path, parent)
        return state

    def run_started(self, event: RunStarted) -> None:
        """A run begins: its counters do too."""
        self.run, self.ended, self.waiting, self.limit = event, None, False, ""
        self.first = len(self.transcript.messages)
        self._children_usage, self.children_usd = NO_USAGE, 0.0
        self.turns = self.attempts = self.tool_calls = self.recoveries = 0
        if event.input_id:
            self.inputs[event.input_id] = Past(event.run_id, self.first)
        if self.parent is not None:
            self.parent.open_below[self.path] = self
            if event.input_id:
                self.parent.errands[event.input_id] = self.path
        self._usage = NO_USAGE
        self._unsummed.clear()

    def run_ended(self, event: RunEnded) -> None:
        """The run is over, and with it its questions."""
        self.ended, self.waiting = event, False
        for ask_id, question in list(self.asks.items()):
            if self.parent is None or question.path == self.path:
                del self.asks[ask_id]
                self.answers.pop(ask_id, None)
        if self.slots:
            self._close_slots("run", event.run_id)
        if self.parent is not None:
            self.parent.children_usd += event.cost_usd or 0.0
            self.parent.open_below.pop(self.path, None)
        if self.run is not None and self.run.input_id:
            past = Past(event.run_id, self.first, len(self.transcript.messages), event)
            self.inputs[self.run.input_id] = past

    def _close_slots(self, until: str, of: str) -> None:
        """What was to be shown only as long as this run, or this call, is shown no more."""
        for slot_id, slot in list(self.slots.items()):
            if slot.until == until and of in {slot.run_id, slot.call_id}:
                del self.slots[slot_id]

    def _spend(self, usage: Usage) -> None:
        """What a child uses, those above it have used too."""
        self._unsummed.append(usage)
        self._spend_above(usage)

    def _spend_above(self, usage: Usage) -> None:
        above = self.parent
        while above is not None:
            above._children_usage += usage  # noqa: SLF001 - of its own kind
            above = above.parent

    def _get_on(self) -> None:
        """A run that gets somewhere is in no circle of crashes, and neither are those whose calls it carries out."""
        self.recoveries = 0
        if self.parent is not None:
            self.parent._get_on()  # noqa: SLF001 - of its own kind

    def run_waiting(self, _event: RunWaiting) -> None:
        """It stands still until somebody answers: that is no failure."""
        self.waiting = True
        self._get_on()

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
        self._get_on()

    def question_withdrawn(self, event: QuestionWithdrawn) -> None:
        """Nobody waits for its answer."""
        self.asks.pop(event.ask_id, None)

    def slot_opened(self, event: SlotOpened) -> None:
        """Something is shown."""
        self.slots[event.slot_id] = event

    def slot_updated(self, event: SlotUpdated) -> None:
        """It has changed."""
        slot = self.slots.get(event.slot_id)
        if slot is not None:
            self.slots[event.slot_id] = replace(slot, input=event.input)

    def slot_closed(self, event: SlotClosed) -> None:
        """It is gone."""
        self.slots.pop(event.slot_id, None)

    def value_kept(self, event: ValueKept) -> None:
        """A tool has left something."""
        self.kept[event.name] = event.value

    def skill_loaded(self, event: SkillLoaded) -> None:
        """A skill is in the conversation."""
        self.skills[event.name] = event

    def session_configured(self, event: SessionConfigured) -> None:
        """Something is different for this session from here on."""
        whose = event.changes.get(FOR)
        told = self.configured_for.setdefault(str(whose), {}) if whose else self.configured
        told.update({name: value for name, value in event.changes.items() if name != FOR})

    def compacted(self, event: Compacted) -> None:
        """The model is sent a summary of what came before."""
        self.view_turns = 0
        self.transcript.compact(event.summary, event.upto)
        if event.usage is not None:
            self._spend(event.usage)

    def view_has_changed(self, event: ViewChanged) -> None:
        """The model is sent something else than before."""
        self.view_changed = True
        if event.upto:
            self.transcript.shorten(event.upto)

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
        self.requested, self.view_changed = event, False
        if event.attempt == 1:
            self.view_turns += 1

    def message_added(self, event: MessageAdded) -> None:
        """The transcript grows; a reply with calls waits for their results."""
        message = event.message
        self.recoveries = 0
        if self.parent is not None:
            self._get_on()
        if message.role != "assistant":
            self.transcript.add(message)
            return
        self.attempts = 0
        if message.usage is not None:
            self._unsummed.append(message.usage)
            if self.parent is not None:
                self._spend_above(message.usage)
        for part in message.parts:
            if type(part) is ToolCall:
                self.open_calls[part.call_id] = part
                self.call_ids.add(part.call_id)
        if self.open_calls:
            self.reply = message
        else:
            self.transcript.add(message)

    def reply_discarded(self, event: ReplyDiscarded) -> None:
        """What was thrown away has been paid for all the same."""
        if event.partial is not None and event.partial.usage is not None:
            self._spend(event.partial.usage)

    def tool_started(self, event: ToolStarted) -> None:
        """A call has an intent."""
        self.started[event.call_id] = event
        if event.attempt == 1:
            self.tool_calls += 1

    def subagent_started(self, event: SubagentStarted) -> None:
        """Another agent carries out a call: it has no intent of its own, and counts all the same."""
        self.subagents[event.call_id] = event
        self.tool_calls += 1

    def subagent_finished(self, event: SubagentFinished) -> None:
        """It is done with it. What it has used in a session of its own counts from here on."""
        self.subagents.pop(event.call_id, None)
        if event.usage is not None:
            self._children_usage += event.usage
            self._spend_above(event.usage)
            self.children_usd += event.cost_usd or 0.0

    def tool_finished(self, event: ToolFinished) -> None:
        """A call has its result; the last one completes the turn."""
        call_id, calls, results = event.call_id, self.open_calls, self.results
        self.recoveries = 0
        if self.parent is not None:
            self._get_on()
        self.started.pop(call_id, None)
        self.errands.pop(call_id, None)
        if self.decided:
            self.decided.pop(call_id, None)
        self.latest = event.result
        if self.slots:
            self._close_slots("call", call_id)
        if call_id not in calls:
            return
        results[call_id] = event.result
        if len(results) == len(calls) and self.reply is not None:
            self.latest_results = tuple(map(results.__getitem__, calls))
            self.transcript.add_settled(self.reply, Message("tool", self.latest_results))
            self.reply = None
            calls.clear()
            results.clear()

    def permission_decided(self, event: PermissionDecided) -> None:
        """A verdict holds for its call, and perhaps for more."""
        self.decided[event.call_id] = event
        if event.scope != "once":
            self.remembered.append(event)

    def grant_revoked(self, event: GrantRevoked) -> None:
        """It does not hold any more."""
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
    QuestionWithdrawn: State.question_withdrawn,
    SlotOpened: State.slot_opened,
    SlotUpdated: State.slot_updated,
    SlotClosed: State.slot_closed,
    ValueKept: State.value_kept,
    SkillLoaded: State.skill_loaded,
    SessionConfigured: State.session_configured,
    Compacted: State.compacted,
    ViewChanged: State.view_has_changed,
    GrantRevoked: State.grant_revoked,
    SubagentStarted: State.subagent_started,
    SubagentFinished: State.subagent_finished,
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
