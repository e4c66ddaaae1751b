"""Everything that happens, as values. Above: whoever watches. Below: `message.py`.

An event is *durable* (kept in the log, in order, before anybody sees it) or passing (shown, then gone). A *critical*
one must be understood by whoever drives the session; any other unknown kind is kept as it came.

The order of a run is drawn in `docs/concepts/events.md`.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from .message import NO_USAGE, Message, StopReason, ToolResult, Usage

Scope: TypeAlias = Literal["once", "session", "session_target", "forever"]
"""How far a verdict reaches: this call; this tool and action in this session; the same on the same target only; the
same tool, action and target in every session."""


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class Event(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="kind", tag=_snake_case):
    """Something that happened. The wire name of a kind is the snake case of its class."""

    durable: ClassVar[bool] = False
    """Whether it is kept in the log."""
    critical: ClassVar[bool] = False
    """Whether a driver that does not know this kind must stop."""

    run_id: str = ""
    """The run in which it happened; empty between runs."""
    path: str = ""
    """Where in a tree of agents: empty for the session's own agent, `child`, `child/grandchild` below it."""


# -- a run and its turns -----------------------------------------------------------------------------------------------


class SessionOpened(Event, frozen=True):
    """The log was read, and a run is about to begin: tells watchers which session a run belongs to."""

    session_id: str
    entries: int
    """How many there were."""


class RunStarted(Event, frozen=True):
    """A run begins. Stored together with the message that it answers."""

    durable = True
    critical = True

    agent: str = ""
    """The agent's name."""
    options: Mapping[str, Any] = {}
    """What was asked of this run in particular, so that `resume` can go on in the same way."""
    input_id: str = ""
    """The caller's own name for this input."""


class RunResumed(Event, frozen=True):
    """A run that had been interrupted goes on."""

    durable = True


class RunWaiting(Event, frozen=True):
    """The run cannot go on before somebody answers, and nobody drives it meanwhile. `resume` goes on."""

    durable = True

    asks: tuple[str, ...]
    """The questions that are open."""


class RunEnded(Event, frozen=True):
    """A run is over, however it went."""

    durable = True
    critical = True

    status: str
    """One of the statuses of an `Outcome`."""
    reason: str = ""
    """Why, when it is not simply done."""
    error: str = ""
    """What went wrong, when it failed."""
    usage: Usage = NO_USAGE
    """What the whole run used."""
    cost_usd: float | None = None
    """What it cost, when the model's price is known."""
    turns: int = 0
    """How many turns the model had."""


class TurnStarted(Event, frozen=True):
    """The model is about to be asked."""

    turn: int


class TurnEnded(Event, frozen=True):
    """A reply has come, and its calls are settled."""

    turn: int
    usage: Usage = NO_USAGE
    """What the run has used up to here."""


class CancelRequested(Event, frozen=True):
    """Somebody asked the run to stop."""

    mode: Literal["now", "after_tools", "after_turn"] = "now"


class ErrorRaised(Event, frozen=True):
    """Something went wrong that did not end the run, or is about to."""

    error: str
    """The name of the error's class."""
    message: str
    where: str = ""
    """Which part: `model`, `permission`, `shape`, …"""


# -- the model ---------------------------------------------------------------------------------------------------------


class ModelRequested(Event, frozen=True):
    """A request goes out."""

    durable = True

    turn: int
    attempt: int = 1
    """Counts the requests for this same turn, also over crashes."""
    model: str = ""
    provider: str = ""
    settings: Mapping[str, Any] = {}
    prefix: str = ""
    """A hash of instructions and tools: when it changes, the provider's cache starts anew."""
    messages: int = 0
    """How many messages were sent."""
    reserved_usd: float = 0.0
    """Money set aside for the answer."""


class TextDelta(Event, frozen=True):
    """More words."""

    text: str


class ThinkingDelta(Event, frozen=True):
    """More thinking."""

    text: str = ""
    signature: str = ""
    """The provider's proof, which comes at the end of a block."""
    data: str = ""
    """The encrypted form of a block."""
    details: Mapping[str, Any] = {}
    """What has to be sent back with the block."""
    index: int = 0
    """Which block."""


class ToolCallDelta(Event, frozen=True):
    """A piece of a call: its name and id once, its arguments bit by bit."""

    call_id: str = ""
    name: str = ""
    arguments: str = ""
    signature: str = ""
    index: int = 0
    """Which call of the reply."""


class UsageReported(Event, frozen=True):
    """Tokens used so far by the request that is under way."""

    usage: Usage


class ReplyFinished(Event, frozen=True):
    """The last thing that a model's stream says."""

    stop: StopReason | None = None
    """`None` means what the parts suggest."""
    usage: Usage | None = None
    """`None` when the provider did not tell."""
    model: str = ""
    provider: str = ""
    message: Message | None = None
    """The whole reply, when the deltas alone do not say everything; otherwise they are put together."""


class RetryScheduled(Event, frozen=True):
    """A request failed and will be sent again after a wait."""

    attempt: int
    """The attempt that failed."""
    max_attempts: int
    delay_seconds: float
    error: str
    message: str


class FailedOver(Event, frozen=True):
    """A model failed before it said anything; the next one is asked."""

    failed: str
    next: str
    error: str
    message: str


class ReplyDiscarded(Event, frozen=True):
    """What has been shown of a reply is not part of the conversation: it was cut off, cancelled or tried again."""

    durable = True

    turn: int
    reason: str
    partial: Message | None = None
    """What had come up to then."""


class MessageAdded(Event, frozen=True):
    """The transcript has grown by a message. (Results of tools come as `ToolFinished`.)"""

    durable = True
    critical = True

    message: Message


# -- tools -------------------------------------------------------------------------------------------------------------


class QuestionAsked(Event, frozen=True):
    """Somebody has to answer before the run goes on. It stays open, under this id, until `QuestionAnswered`."""

    durable = True

    ask_id: str
    """What an answer has to name."""
    about: Literal["permission", "settlement", "slot"]
    """Whether calls may be made (one question for the whole batch), what became of a call that a crash cut off, or
    something that a tool wants to know."""
    text: str = ""
    """What is asked, in words."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """The calls that it is about: each one's `call_id`, `tool`, `action`, `target`, `arguments`, `arguments_hash`."""
    expires_at: float | None = None
    """When it is too late: then the answer is no. `None` for never."""
    renderer: str = ""
    """How a screen shows it: `form`, `choice`, `confirm`, … Empty for what is not asked by a tool."""
    input: Any = None
    """What a screen shows, as JSON values."""
    output: Mapping[str, Any] | None = None
    """The JSON Schema of an answer; `None` when anything may be answered."""


class QuestionAnswered(Event, frozen=True):
    """A question is settled; nobody can answer it a second time."""

    durable = True

    ask_id: str
    answer: Any = None
    """What was answered, as JSON values."""
    source: str = ""
    """Where the answer came from: `handler`, `post`, or `expired` when none came in time."""
    rejected: str = ""
    """Why whoever was asked does not answer; empty when they did."""


class QuestionWithdrawn(Event, frozen=True):
    """Nobody waits for the answer any more, and this is why."""

    durable = True

    ask_id: str
    reason: str


class SlotOpened(Event, frozen=True):
    """A tool shows something, and waits for nobody. (What it waits for is a `QuestionAsked`.)"""

    durable = True

    slot_id: str
    renderer: str
    """How a screen shows it: `text`, `table`, `progress`, …"""
    input: Any = None
    """What is shown, as JSON values."""
    call_id: str = ""
    """The call that shows it."""
    until: Literal["closed", "call", "run"] = "closed"
    """How long: until it is closed, or at the latest until the call, or the run, is over."""


class SlotUpdated(Event, frozen=True):
    """Something that is shown has changed."""

    durable = True

    slot_id: str
    input: Any = None


class SlotClosed(Event, frozen=True):
    """Something is not shown any more."""

    durable = True

    slot_id: str
    reason: str = ""


class PermissionDecided(Event, frozen=True):
    """A call was allowed or denied, and why."""

    durable = True

    call_id: str
    tool: str
    action: str
    target: str
    arguments_hash: str
    """The arguments that this is about; no others."""
    allow: bool
    reason: str = ""
    scope: Scope = "once"


class ToolStarted(Event, frozen=True):
    """The intent: stored before the effect begins. A call without one has never started."""

    durable = True
    critical = True

    call_id: str
    name: str
    effect: str
    """What a crash from here on would mean: `read`, `idempotent`, `at_most_once` or `ask`."""
    idempotency_key: str
    """What the receiver of an idempotent call knows it by."""
    arguments_hash: str = ""
    """The arguments that were allowed; empty when nobody had to be asked."""
    attempt: int = 1


class ToolProgress(Event, frozen=True):
    """A tool tells how far it is."""

    call_id: str
    name: str
    data: Any


class ToolFinished(Event, frozen=True):
    """A call has its one result."""

    durable = True
    critical = True

    call_id: str
    name: str
    result: ToolResult
    duration_seconds: float = 0.0


class ToolsChanged(Event, frozen=True):
    """The set of tools changed while the run was going."""

    durable = True

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


# -- what steps in -----------------------------------------------------------------------------------------------------


class LimitReached(Event, frozen=True):
    """The run may not go on much longer, and the model has been told."""

    durable = True

    limit: str
    """`max_tool_calls`, or another one of the `Limits`."""


class GuardrailTripped(Event, frozen=True):
    """The model goes in circles: it is told so, and in the end stopped."""

    durable = True

    guardrail: str
    """`repeat`, `mistakes`, or the name of your own."""
    count: int
    action: Literal["nudge", "halt"]


class AutoContinued(Event, frozen=True):
    """The model announced something and stopped; it was told to go on."""

    durable = True

    count: int


class PostTaken(Event, frozen=True):
    """A post was taken that came too late to change anything: a cancel of a run that is over, a second answer."""

    durable = True

    about: str
    """The kind of the post."""


class InboxAdded(Event, frozen=True):
    """The agent waits for something from outside: the work of a job, a reply by mail, somebody's decision."""

    durable = True

    item_id: str
    tag: str
    """What kind of thing it is, for whoever answers."""
    request: str
    """What was asked for."""
    blocking: bool = False
    """Whether the model is reminded that it cannot go on without it."""
    wake: bool = False
    """Whether the answer begins a run when none is going."""


class InboxResolved(Event, frozen=True):
    """The answer has come, and the model is told it: stored together with the message that does."""

    durable = True

    item_id: str
    response: Any = None
    resolved_at: float = 0.0


class HookInvoked(Event, frozen=True):
    """A `/name` in a message called a handler."""

    name: str


class SkillLoaded(Event, frozen=True):
    """A skill's text came into the conversation."""

    durable = True

    name: str
    source: Literal["user", "model", "code"] = "user"
    arguments: str = ""


class SubagentStarted(Event, frozen=True):
    """Another agent was given a task."""

    durable = True

    call_id: str
    name: str
    prompt: str
    child: str = ""
    """Where its events are: a path in this log, or the name of a session of its own."""


class SubagentFinished(Event, frozen=True):
    """Another agent is done with its task; comes exactly once for each start."""

    durable = True

    call_id: str
    name: str
    status: str
    message: str = ""
    usage: Usage | None = None
    """What it has used, when it worked in a session of its own; else its own events say so."""
    cost_usd: float | None = None
    """What that cost, when the prices are known."""


class CompactionStarted(Event, frozen=True):
    """The older part of the conversation is being summed up."""

    durable = True

    cause: str
    tokens: int = 0


class Compacted(Event, frozen=True):
    """From here on the model sees the summary instead of what came before; the log keeps everything."""

    durable = True
    critical = True

    summary: Message
    upto: int
    """How many messages of the transcript it stands for."""
    tokens: int = 0
    """About how many tokens the model is sent now."""
    usage: Usage | None = None
    """What it took to sum it up; `None` when no model was asked."""


class ViewChanged(Event, frozen=True):
    """What is sent first in every request has changed."""

    durable = True

    cause: str
    """`compaction`, `summaries`, `instructions`, `tools`, `model`, `messages`."""
    upto: int = 0
    """Of `summaries`: results in this many messages of the transcript are sent in their short form from here on."""


RESERVED = "windlass:"
"""How the names begin under which the runtime itself keeps things."""


class ValueKept(Event, frozen=True):
    """A tool has left something in the log, by name: a list of tasks, a page of notes. The last one counts."""

    durable = True

    name: str
    value: Any = None


class GrantRevoked(Event, frozen=True):
    """What was decided for longer than one call does not hold any more."""

    durable = True

    grant_id: str


class SessionConfigured(Event, frozen=True):
    """The session's own settings were changed; with `for` among them, for the agent of that name alone."""

    durable = True
    critical = True

    changes: Mapping[str, Any]


class Custom(Event, frozen=True):
    """Anything that an extension wants in the log."""

    durable = True

    name: str
    data: Any = None


class Unknown(Event, frozen=True):
    """A kind written by a newer version, kept as it came."""

    durable = True

    name: str
    body: Any = None


# -- those who watch ---------------------------------------------------------------------------------------------------


class Lagged(Event, frozen=True):
    """This watcher fell behind and missed passing events; what lasts can be read from the log."""

    missed: int
    after: int | None = None
    """Entries of the log after this number were missed, and can be read from there; `None` when all were passing."""


class WatcherDropped(Event, frozen=True):
    """A watcher raised an error and gets no more events."""

    name: str
    error: str


ModelEvent: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolCallDelta
    | UsageReported
    | RetryScheduled
    | FailedOver
    | ErrorRaised
    | ReplyFinished
)
"""What a model's stream is made of. It ends with one `ReplyFinished`; a stream that does not was cut off."""


class Entry(Struct, frozen=True, gc=False):
    """An event with its place: what the log keeps and what watchers receive."""

    seq: int
    """Its number in the session's log, from 1; 0 when it is passing."""
    at: float
    """When, in seconds since 1970. For people: order is by `seq`."""
    event: Event
    id: str = ""
    """Names the entry, so that a repeated append can be recognised."""


def _kinds(parent: type[Event]) -> dict[str, type[Event]]:
    return {str(kind.__struct_config__.tag): kind for kind in parent.__subclasses__()}


EVENTS: Mapping[str, type[Event]] = _kinds(Event)
"""Every kind by its wire name."""
