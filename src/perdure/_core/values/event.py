"""Events: everything that happens in a session, as frozen values.

An event is *durable* (stored in the log, in order, before any watcher receives it) or passing (delivered to watchers,
not stored). A process that drives a session must understand every *critical* event; any other unknown kind is kept
unchanged.

Each class also declares what other parts need to know of it: which fields are never redacted, how a replay treats it,
and which text a search finds. The order of events in a run is drawn in `docs/concepts/events.md`.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from . import engine_event  # noqa: F401 # pyright: ignore[reportUnusedImport] - its events are among EVENTS
from .binding import ApprovalBinding
from .event_class import Event as Event  # noqa: PLC0414 - everybody imports it from here
from .event_class import QuestionAnswered as QuestionAnswered  # noqa: PLC0414 - as Event
from .event_class import QuestionAsked as QuestionAsked  # noqa: PLC0414 - as Event
from .event_class import QuestionWithdrawn as QuestionWithdrawn  # noqa: PLC0414 - as Event
from .event_class import SlotClosed as SlotClosed  # noqa: PLC0414 - as Event
from .event_class import SlotOpened as SlotOpened  # noqa: PLC0414 - as Event
from .event_class import SlotUpdated as SlotUpdated  # noqa: PLC0414 - as Event
from .event_class import list_event_kinds
from .message import NO_USAGE, Citation, Message, StopReason, ToolResult, Usage

Scope: TypeAlias = Literal["once", "run", "session", "forever"]
"""Duration of a permission verdict: this call, this run, this session, or all sessions."""

# -- a run and its turns -----------------------------------------------------------------------------------------------


class SessionOpened(Event, frozen=True):
    """A session was opened: its log was read for a run that is about to start or resume. Not stored."""

    structural = frozenset({"session_id"})

    session_id: str
    entries: int
    """Number of entries in the log."""


class RunStarted(Event, frozen=True):
    """A run starts. Stored together with the message that it answers."""

    durable = True
    critical = True
    replay = "skipped"
    structural = frozenset({"agent", "input_id", "engine", "middleware"})

    agent: str = ""
    """The agent's name."""
    options: Mapping[str, Any] = {}
    """Options given for this run only, so that `resume` can continue it in the same way."""
    input_id: str = ""
    """The caller's id for this input."""
    engine: str = "react"
    """Name of the engine: the function that carries out the run."""
    middleware: tuple[str, ...] = ()
    """Names of the middleware around the run, its turns and its tool calls; the first is outermost."""
    private: bool = False
    """True for a private run of an engine, such as the one that makes a plan: its turns, tool calls and labels count
    for the run above it."""


class RunResumed(Event, frozen=True):
    """A run that was interrupted, or waited, continues."""

    durable = True
    replay = "skipped"


class RunWaiting(Event, frozen=True):
    """The run is paused: it waits for answers to its questions, or its process has stopped work on it, as at a
    shutdown. `resume` continues it.
    """

    durable = True
    replay = "skipped"

    asks: tuple[str, ...]
    """Ids of the open questions; none if its process has left it."""
    due_at: float | None = None
    """When the run can be continued without an answer, in seconds since 1970: when the first question expires, or at
    once if there is none. `None` if only an answer continues it."""
    reason: str = ""
    """`question`, or the reason why its process has left it, such as `shutdown`."""


class RunEnded(Event, frozen=True):
    """A run is over, with any status."""

    durable = True
    critical = True
    replay = "compared"
    compared_fields = ("status", "reason")
    structural = frozenset({"status", "is_unreported"})

    status: str
    """One of the statuses of an `Outcome`."""
    reason: str = ""
    """Reason of a status other than plain success."""
    error: str = ""
    """Text of the error, when the run failed."""
    usage: Usage = NO_USAGE
    """Tokens used by the whole run."""
    cost_usd: float | None = None
    """Cost of the run; `None` when the model's price is not known."""
    turns: int = 0
    """Number of turns that were begun, also one whose request failed, or was refused by a budget and not sent."""
    is_unreported: bool = False
    """True if it ends the task of a background agent, and the session that gave the task has yet to be told of it."""


class TurnStarted(Event, frozen=True):
    """A turn starts: a request is about to be sent to the model."""

    turn: int


class TurnEnded(Event, frozen=True):
    """A turn is over: the model has replied, and its tool calls have their results."""

    turn: int
    usage: Usage = NO_USAGE
    """Tokens used by the run so far."""


class CancelRequested(Event, frozen=True):
    """A caller asked to cancel the run."""

    structural = frozenset({"mode"})

    mode: Literal["now", "after_tools", "after_turn"] = "now"


class ErrorRaised(Event, frozen=True):
    """An error was raised; the run either continues despite it, or is about to end because of it."""

    error: str
    """Name of the error's class."""
    message: str
    where: str = ""
    """Part in which it was raised: `model`, `permission`, `shape`, …"""


# -- the model ---------------------------------------------------------------------------------------------------------


class ModelRequested(Event, frozen=True):
    """A request is about to be sent to the model: for the next reply of the conversation, or outside it."""

    durable = True
    replay = "compared"
    structural = frozenset({"model", "provider", "prefix", "labels"})

    turn: int
    attempt: int = 1
    """Number of the request within this turn, counted across crashes."""
    model: str = ""
    provider: str = ""
    settings: Mapping[str, Any] = {}
    prefix: str = ""
    """Hash of instructions and tools; a change of it invalidates the provider's cache."""
    messages: int = 0
    """Number of messages sent."""
    estimated_tokens: int = 0
    """Estimate of the input tokens. They count as used if a crash keeps the reply from being stored."""
    aside: bool = False
    """True if an engine or a tool asked beside the conversation: `ModelReplied` has the reply."""
    price_usd: tuple[float | None, ...] = ()
    """Price of the model, as `Price.to_tuple` returns it; empty if it is not known. With it, the log tells the cost of
    a run that is not over, or whose process has died."""
    labels: tuple[str, ...] = ()
    """Labels of what is sent and is not in the log itself: the messages of a request beside the conversation, the
    files of a project, pinned memories.
    """
    label_sources: tuple[str, ...] = ()
    """Sources of the text with these labels."""


class TextDelta(Event, frozen=True):
    """A streamed piece of the reply's text."""

    text: str


class ThinkingDelta(Event, frozen=True):
    """A streamed piece of the model's thinking."""

    structural = frozenset({"signature", "data", "details"})

    text: str = ""
    signature: str = ""
    """The provider's signature, sent at the end of a block."""
    data: str = ""
    """Encrypted form of a block."""
    details: Mapping[str, Any] = {}
    """Provider data that has to be sent back with the block."""
    index: int = 0
    """Number of the block in the reply."""
    is_item: bool = False
    """True if it is no thinking, but an item that the provider made itself, such as a search; `details` has it all."""


class ToolCallDelta(Event, frozen=True):
    """A streamed piece of a tool call: its name and id once, its arguments in pieces."""

    structural = frozenset({"call_id", "name", "signature"})

    call_id: str = ""
    name: str = ""
    arguments: str = ""
    signature: str = ""
    index: int = 0
    """Number of the call in the reply."""


class CitationAdded(Event, frozen=True):
    """The reply cites a source for the text so far."""

    citation: Citation


class UsageReported(Event, frozen=True):
    """The model reported the tokens that the current request has used so far."""

    usage: Usage


class ReplyFinished(Event, frozen=True):
    """The model's stream has ended, with its stop reason and usage."""

    structural = frozenset({"stop", "model", "provider"})

    stop: StopReason | None = None
    """Stop reason; `None` to derive it from the parts of the reply."""
    usage: Usage | None = None
    """Tokens of the request; `None` when the provider reported none."""
    model: str = ""
    provider: str = ""
    message: Message | None = None
    """The complete reply, when the deltas alone do not contain everything; otherwise the deltas are assembled."""
    metadata: Mapping[str, Any] = {}
    """What the provider says about the reply, such as its log probabilities; becomes `Message.metadata`."""


class RetryScheduled(Event, frozen=True):
    """A request failed and will be sent again after a delay."""

    attempt: int
    """Number of the attempt that failed."""
    max_attempts: int
    delay_seconds: float
    error: str
    message: str


class FailedOver(Event, frozen=True):
    """A model of a `failover` failed before it produced any output; the next model is asked."""

    failed: str
    next: str
    error: str
    message: str


class ReplyDiscarded(Event, frozen=True):
    """A reply that was partly streamed is dropped from the conversation: it was cut off, cancelled or retried."""

    durable = True
    replay = "compared"
    compared_fields = ("reason",)

    turn: int
    reason: str
    partial: Message | None = None
    """The part of the reply received up to then."""
    aside: bool = False
    """True if it was the reply to a request beside the conversation."""


class ModelReplied(Event, frozen=True):
    """The model replied to a request outside the conversation, by an engine or a tool; the tokens are counted."""

    durable = True
    replay = "skipped"

    turn: int
    """Turn of its `ModelRequested`."""
    message: Message


class MessageAdded(Event, frozen=True):
    """A message was added to the conversation. (Results of tools are added by `ToolFinished`.)"""

    durable = True
    critical = True
    replay = "compared"

    message: Message

    def search_text(self) -> tuple[str, str] | None:
        """Return the role and text of a message of the user or the assistant; `None` for any other."""
        role = str(self.message.role)
        return (role, self.message.text) if role in {"user", "assistant"} else None


# -- tools -------------------------------------------------------------------------------------------------------------


class PermissionDecided(Event, frozen=True):
    """A tool call was allowed or denied."""

    durable = True
    replay = "compared"
    compared_fields = ("tool", "action", "target", "allow")
    structural = frozenset(
        {
            *("call_id", "tool", "action", "arguments_hash", "scope"),
            *("tool_identity", "target_kind", "binding", "level", "at", "seal"),
        }
    )

    call_id: str
    tool: str
    action: str
    target: str
    arguments_hash: str
    """Hash of the arguments that the decision applies to; it applies to no others."""
    allow: bool
    reason: str = ""
    scope: Scope = "once"
    tool_identity: str = ""
    """Hash of the tool's name, source, description and parameters: the decision applies to no other tool."""
    by: str = ""
    """Person who decided; empty if that is not known, or a rule decided."""
    covers: str = ""
    """Calls that a lasting decision is for: `arguments`, `target`, `tool`, or a pattern for the target."""
    target_kind: str = ""
    """Kind of target of a lasting decision: `path`, `command` or `url`; empty for text."""
    binding: ApprovalBinding | None = None
    """Identity of tool, agent, store, project and session that a lasting decision is bound to."""
    level: int = 0
    """Gate that asked, for a lasting decision: 0 for that of the session's own agent, 1 for an agent below, …"""
    at: float = 0.0
    """Time of a lasting decision, in seconds since 1970."""
    seal: str = ""
    """Seal of a lasting approval, made with the key of the user: without one that fits, it does not count later."""


class ToolStarted(Event, frozen=True):
    """A tool is about to run: stored before it can have an effect. A call without this event has never started."""

    durable = True
    critical = True
    replay = "compared"
    compared_fields = ("name", "attempt")
    structural = frozenset({"call_id", "name", "effect", "idempotency_key", "arguments_hash"})

    call_id: str
    name: str
    effect: str
    """Effect class of the tool, which decides what a crash from here on means: `read`, `idempotent`, `at_most_once` or
    `ask`.
    """
    idempotency_key: str
    """Key by which the receiver of an idempotent call recognises a repetition."""
    arguments_hash: str = ""
    """Hash of the arguments that were allowed; empty when no permission was needed."""
    attempt: int = 1
    arguments: str = ""
    """Arguments of a call that a program or an engine makes, as JSON; empty for other calls, whose reply has them."""
    adjusted_arguments: str = ""
    """Arguments that are not as the model wrote them, as JSON: defaults of absent ones, and values that were converted.

    Empty for a call that only reads and needed no permission, and for one that got exactly what was written.
    """


class ToolProgress(Event, frozen=True):
    """Progress reported by a running tool."""

    structural = frozenset({"call_id", "name"})

    call_id: str
    name: str
    data: Any


class ToolFinished(Event, frozen=True):
    """A tool call has its result. Each call gets exactly one."""

    durable = True
    critical = True
    replay = "compared"
    compared_fields = ("result",)
    structural = frozenset({"call_id", "name"})

    call_id: str
    name: str
    result: ToolResult
    duration_seconds: float = 0.0

    def search_text(self) -> tuple[str, str] | None:
        """Return `tool` and the text of the result."""
        return "tool", self.result.text


class ToolsChanged(Event, frozen=True):
    """Tools were added or removed during the run."""

    durable = True
    replay = "compared"

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


# -- posts, subagents, what the model is sent, and the session ---------------------------------------------------------


class PostTaken(Event, frozen=True):
    """A post (a stored message to the session) was taken from the store unused, because it arrived too late.

    Such as a second answer to a question, or a late cancel.
    """

    durable = True
    replay = "skipped"
    structural = frozenset({"about"})

    about: str
    """Kind of the post."""


class InboxAdded(Event, frozen=True):
    """The agent began to wait for a result from outside (an inbox item), from a job or a person."""

    durable = True
    replay = "copied"
    structural = frozenset({"item_id"})

    item_id: str
    tag: str
    """Kind of item, for the party that answers it."""
    request: str
    """Text of the request."""
    blocking: bool = False
    """True if the model is reminded that it cannot continue without the answer."""
    wake: bool = False
    """True if the answer starts a run when none is active."""


class InboxResolved(Event, frozen=True):
    """The result of an inbox item has arrived from outside, and is passed to the model.

    Stored together with the message that passes it on.
    """

    durable = True
    replay = "copied"
    structural = frozenset({"item_id"})

    item_id: str
    response: Any = None
    resolved_at: float = 0.0
    labels: tuple[str, ...] = ()


class HookInvoked(Event, frozen=True):
    """A command was called because a user's message contains its `/name`.

    The event keeps an older word for commands.
    """

    structural = frozenset({"name"})

    name: str


class SkillLoaded(Event, frozen=True):
    """The text of a skill was added to the conversation."""

    durable = True
    replay = "copied"
    structural = frozenset({"name", "source"})

    name: str
    source: Literal["user", "model", "code"] = "user"
    arguments: str = ""


class SubagentStarted(Event, frozen=True):
    """A subagent was given a task."""

    durable = True
    replay = "copied"
    structural = frozenset({"call_id", "name", "child"})

    call_id: str
    name: str
    prompt: str
    child: str = ""
    """Location of its events: a path in this log, or the id of a separate session."""


class SubagentFinished(Event, frozen=True):
    """A subagent finished its task. Each `SubagentStarted` is followed by exactly one of these."""

    durable = True
    replay = "copied"
    structural = frozenset({"call_id", "name", "status"})

    call_id: str
    name: str
    status: str
    message: str = ""
    usage: Usage | None = None
    """Tokens used, when it worked in a separate session; otherwise its own events contain them."""
    cost_usd: float | None = None
    """Cost of these tokens; `None` when prices are not known."""


class CompactionStarted(Event, frozen=True):
    """The older part of the conversation is being summarized."""

    durable = True
    replay = "compared"
    structural = frozenset({"cause"})

    cause: str
    tokens: int = 0


class Compacted(Event, frozen=True):
    """A summary replaces the first messages in requests to the model from here on; the log keeps all messages."""

    durable = True
    critical = True
    replay = "compared"

    summary: Message
    upto: int
    """Number of messages of the transcript that the summary replaces."""
    tokens: int = 0
    """Approximate number of tokens that the model is sent now."""
    usage: Usage | None = None
    """Tokens used for the summary; `None` when no model wrote it."""


class ViewChanged(Event, frozen=True):
    """The start of the model's view has changed: requests do not begin as before, and miss the prompt cache."""

    durable = True
    replay = "compared"
    structural = frozenset({"cause"})

    cause: str
    """`compaction`, `summaries`, `instructions`, `tools`, `model`, `messages`."""
    upto: int = 0
    """For `summaries`: results in this many messages of the transcript are sent in their short form from here on."""


RESERVED_PREFIX = "perdure:"
"""The prefix of the names under which the runtime itself keeps values."""
ADDED_TOOLS_NAME = f"{RESERVED_PREFIX}added_tools"
"""The name of the tools that were added to a run or a session."""
LOADED_TOOLS_NAME = f"{RESERVED_PREFIX}loaded_tools"
"""The name of the tools that the model has loaded from a catalogue."""


class ValueKept(Event, frozen=True):
    """A tool stored a value (such as a task list) in the log under a name, replacing the value stored before."""

    durable = True
    replay = "copied"
    structural = frozenset({"name"})

    name: str
    value: Any = None


class GrantRevoked(Event, frozen=True):
    """A grant (a permission for more than one call) was revoked."""

    durable = True
    replay = "copied"
    structural = frozenset({"grant_id"})

    grant_id: str


class SessionConfigured(Event, frozen=True):
    """Settings of the session, such as its model or role, were changed.

    The key `for` in `changes` names the only agent that they apply to.
    """

    durable = True
    critical = True
    replay = "copied"

    changes: Mapping[str, Any]


class SessionImported(Event, frozen=True):
    """The entries that follow were imported from a document. First entry of an imported session."""

    durable = True
    replay = "skipped"
    structural = frozenset({"digest", "session_id"})

    digest: str
    """SHA-256 of the document."""
    session_id: str = ""
    """Id that it had in the document."""
    by: str = ""
    """User who imported it."""
    trusted: bool = False
    """True if everything was imported."""
    dropped: Mapping[str, Any] = {}
    """Number of dropped entries, by kind."""


class Custom(Event, frozen=True):
    """An event that an extension defines and stores in the log."""

    durable = True
    replay = "copied"
    structural = frozenset({"name"})

    name: str
    data: Any = None


class Unknown(Event, frozen=True):
    """An event of a kind that this version of Perdure does not know, stored unchanged."""

    durable = True
    replay = "skipped"
    structural = frozenset({"name"})

    name: str
    body: Any = None


# -- watchers ----------------------------------------------------------------------------------------------------------


class EntriesLost(Event, frozen=True):
    """Entries of the log were lost to damage. Never stored: a reader of the log derives it from missing entry numbers.

    `run_id` is the run in which they were lost; empty if runs may have begun or ended among them.
    """

    first: int
    """Number of the first lost entry."""
    last: int
    """Number of the last lost entry."""


class Lagged(Event, frozen=True):
    """A watcher was too slow and missed events; those that are stored can be read from the log."""

    missed: int
    after: int | None = None
    """Entries of the log after this number were missed, and can be read from there; `None` when all were passing."""


class WatcherDropped(Event, frozen=True):
    """A watcher raised an error and receives no more events."""

    structural = frozenset({"name"})

    name: str
    error: str


ModelEvent: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolCallDelta
    | CitationAdded
    | UsageReported
    | RetryScheduled
    | FailedOver
    | ErrorRaised
    | ReplyFinished
)
"""Events that a model's stream consists of. It ends with one `ReplyFinished`; a stream without it was cut off."""


class Entry(Struct, frozen=True, gc=False):
    """An event with its number, id and time in the log: the log stores entries, and watchers receive them."""

    seq: int
    """Number in the session's log, from 1; 0 for a passing event."""
    at: float
    """Time in seconds since 1970. For display only: order is by `seq`."""
    event: Event
    id: str = ""
    """Id of the entry, by which a repeated append is recognised."""


EVENTS: Mapping[str, type[Event]] = list_event_kinds(Event)
"""All event classes by wire name."""
