"""The inputs of a run: types of the functions that it calls, its options, its settings, and its session."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from perdure._core.log.redaction import RelatedRunsRedaction
from perdure._core.log.store import Log
from perdure._core.model.budget import Budget
from perdure._core.model.cache import PrefixComparer
from perdure._core.model.protocol import Model, OutputSpec, Settings
from perdure._core.people.mailbox import DrainMode, Mailbox
from perdure._core.tools.context import D
from perdure._core.tools.tool import Tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values import checks
from perdure._core.values.checks import UnresolvedSignatureMeta
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import ContextOverflow, ShuttingDown
from perdure._core.values.event import PermissionDecided
from perdure._core.values.event_class import Event
from perdure._core.values.message import Message, ToolResult
from perdure._core.watch import Fanout

from .outcome import Outcome
from .stop import Guardrail, Limits, StopCondition

if TYPE_CHECKING:
    from perdure._core.log.store import Store
    from perdure._core.permission.gate import Gate

    from .run import Run


CancelMode: TypeAlias = Literal["now", "after_tools", "after_turn"]
"""At once; when the calls in progress have their results; or when the reply and all its calls are settled."""

HistoryProcessor: TypeAlias = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
"""Returns the messages to send for a conversation. They are sent and never stored: the transcript is unchanged."""


class Accepted(Struct, frozen=True):
    """Returned by an output validator: the model's reply is accepted as the answer."""


class Retry(Struct, frozen=True):
    """Returned by an output validator: the model has to try again, with this feedback."""

    feedback: str
    origin: str = "feedback"
    """The origin recorded with the feedback message."""
    event: Event | None = None
    """An event to store in the same append."""

    def __post_init__(self) -> None:
        checks.require_text("Retry", "feedback", self.feedback, non_empty=True)
        checks.require_text("Retry", "origin", self.origin)
        if self.event is not None and not isinstance(self.event, Event):
            checks.raise_config_error("Retry", "event", self.event, "give an event, such as Custom(…)")


OutputValidator: TypeAlias = Callable[["Run", Message], "Accepted | Retry | Awaitable[Accepted | Retry]"]
"""Validates a reply without tool calls, which would end the run. Output types, guards and graders are of this type."""

BetweenTurns: TypeAlias = Callable[["Run"], "Awaitable[None] | None"]
"""Called before each request to the model, and before its calls are executed (then `run.state.reply` is set)."""

Reminder: TypeAlias = Callable[["Run"], "str | None"]
"""Returns text for the very end of one request, never stored: the place for information that changes all the time."""


DecisionSealer: TypeAlias = Callable[[PermissionDecided, "Store"], PermissionDecided]
"""Returns a decision that a store is about to keep with its seal, which proves later who wrote it."""


class CompactFunction(Protocol):
    """Type of the function that shortens the conversation for the model, usually by a summary."""

    def __call__(self, run: "Run", cause: str, *, error: ContextOverflow | None = None) -> Awaitable[bool]:
        """Shorten the conversation; return True if it is shorter now.

        `error` is set if the model rejected the request as too long.
        """
        ...


ToolCaller: TypeAlias = Callable[["Run", Sequence[tuple[str, Mapping[str, Any]]]], Awaitable[list[ToolResult]]]
"""Carries out tool calls of an engine, each given by name and arguments; returns their results in the same order."""


class PrivateRunTask(Struct, frozen=True, kw_only=True, eq=False, metaclass=UnresolvedSignatureMeta):
    """A task that an engine gives the model in a private run, outside the conversation: name, prompt and limits.

    The private run sees the conversation up to here, followed by the prompt. Nothing of it becomes part of the
    conversation, and it is found again in the log after a crash.
    """

    name: str
    """Its name in the log, unique in the run: the last part of its path."""
    prompt: str
    offers_tools: bool = False
    """True if the model may call the tools of the run."""
    max_turns: int
    """Replies of the model for this task; they count towards the limits of the run as well."""
    max_parallel_tools: int | None = None
    """Calls of one reply that run at the same time; as many as in the run if it is `None`."""
    output_validators: Sequence["OutputValidator"] = ()
    """Validate the answer, in order; each accepts it or asks the model to retry."""


RECALL_ATTRIBUTE = "recall_private_run"
"""The attribute of a `between_turns` function that, in a replay, stores the recorded events of a private run: an async
function of the run and the path of the private run."""

PrivateRunBuilder: TypeAlias = Callable[["Run", PrivateRunTask], "Run"]
"""Builds the private run of an engine for a task, below the run of the engine."""

ToolSelector: TypeAlias = Callable[["Toolbox", Sequence[str]], "Toolbox"]
"""Returns the tools that the model is sent, given those of the run and the names of those that it has loaded.

It is called when either changes. The others stay tools of the run: they can be called, and are validated and gated."""

TurnWrapper: TypeAlias = Callable[["Run", Callable[[], Awaitable[Message]]], Awaitable[Message]]
"""Called around each turn with the run and a function that requests the reply; returns the reply that was stored."""

Engine: TypeAlias = Callable[["Run"], Awaitable[Outcome[Any]]]
"""Drives a run to its outcome. `react` is the engine in core; others wrap it. A plain function works too."""


def call_engine(engine: Engine, run: "Run") -> Awaitable[Outcome[Any]]:
    """Call an engine, async or plain, and return its outcome, which has to be awaited."""
    outcome: Any = engine(run)
    return outcome if isawaitable(outcome) else _return_plain_outcome(outcome)


async def _return_plain_outcome(outcome: Outcome[Any]) -> Outcome[Any]:
    return outcome


SHUTDOWN_REASON = "shutdown"
"""Reason in the outcome of a run that its process left, or ended, because the process itself ends."""
PROCESS_END_ATTRIBUTE = "process_end"
"""The attribute of an engine whose runs stop when the process is asked to end: its `ShutdownSignal`."""


class ShutdownSignal(Protocol):
    """Protocol of an object that stops runs when the process is asked to end; implemented by `Shutdown`."""

    @property
    def requested(self) -> bool:
        """True once the process was asked to end."""
        ...

    async def wait(self) -> None:
        """Wait until the process is asked to end."""
        ...

    def wrap_engine(self, engine: Engine) -> Engine:
        """Return an engine whose runs stop when the process is asked to end."""
        ...


def find_shutdown_signal(engine: Engine | None) -> ShutdownSignal | None:
    """Return the object that ends this engine's runs when the process shuts down; `None` if it has none."""
    found: ShutdownSignal | None = getattr(engine, PROCESS_END_ATTRIBUTE, None)
    return found


def is_shutting_down(process_end: ShutdownSignal | None) -> bool:
    """Return True if the process was asked to shut down."""
    return process_end is not None and process_end.requested


def raise_if_shutting_down(engine: Engine, session_id: str) -> None:
    """Raise `ShuttingDown` if the process was asked to shut down, so that it begins no more runs with this engine."""
    if is_shutting_down(find_shutdown_signal(engine)):
        message = (
            f"this process was asked to end, and begins no more runs of session {session_id!r}: nothing was stored, "
            "so ask the next process again, for a prompt with the same input_id"
        )
        raise ShuttingDown(message)


def get_engine_name(engine: Engine) -> str:
    """Return the name of an engine, for the log and for errors: its `name`, or that of its function or class."""
    given = getattr(engine, "name", None)
    if isinstance(given, str) and given:
        return given
    function = getattr(engine, "func", engine)  # of a functools.partial
    return str(getattr(function, "__name__", type(function).__name__))


_NO_DEPS: Any = None  # typed Any, because `Agent[Ship](…)` may be given its deps for each run instead


class RunOptions(Struct, Generic[D], kw_only=True, eq=False, dict=True):
    """Options of an agent that apply to each of its runs: name, limits, model settings, message delivery, clock."""

    name: str = "agent"
    """The agent's name, in events, in logs and as a tool, in which `_` replaces what a tool's name cannot have. One
    line, without slashes."""
    limits: Limits = Limits()
    """Upper limits of a run: turns, tokens, money, time, tools."""
    settings: Settings = Settings()
    """Settings of the model: temperature, maximum tokens, reasoning effort, …"""
    history_processor: HistoryProcessor | None = None
    """Transforms the messages that the model is sent; the transcript stays as it is."""
    deps: D = _NO_DEPS
    """Passed to tools as `ToolContext.deps`. A run may be given another value of the same type; dicts are merged."""
    steering_mode: DrainMode = "one"
    """Delivery of queued steering messages: one for each turn, or all at once."""
    follow_up_mode: DrainMode = "one"
    """Delivery of queued follow-up messages: one for each turn, or all at once."""
    answer_timeout_seconds: float = 0.0
    """Seconds a run waits for an answer from another process before it ends as `waiting`."""
    interactive: bool = True
    """False for runs without a person who can answer questions."""
    clock: Clock = SYSTEM_CLOCK
    """The source of time, such as `perdure.testing.FakeClock()` in tests."""


class RunSpec(Struct, frozen=True, kw_only=True, eq=False, metaclass=UnresolvedSignatureMeta):
    """The settings of a run: those of its agent, extensions and session, and the overrides for this run, combined."""

    options: RunOptions[Any]
    _model: Model
    """The model with all its wrappers, past the limits of the run: engines and tools get `Run.model`."""
    toolbox: Toolbox
    seal_decision: "DecisionSealer"
    """Seals the approvals that a store keeps."""
    instructions: str = ""
    """The system prompt."""
    gate: "Gate | None" = None
    project: str = ""
    """The root of the agent's project, which approvals are bound to; empty for the working folder of the process."""
    project_labels: Sequence[str] = ()
    """Labels of the instructions in the files of the project."""
    stop: StopCondition | None = None
    guardrails: Sequence[Guardrail] = ()
    output_validators: Sequence[OutputValidator] = ()
    output_spec: OutputSpec | None = None
    """The schema of the reply, for a provider that can enforce it."""
    between_turns: Sequence[BetweenTurns] = ()
    reminders: Sequence[Reminder] = ()
    compaction: CompactFunction | None = None
    around_turn: TurnWrapper | None = None
    """Middleware around each turn of the model."""
    wrap_tool: Callable[[Tool[..., Any]], Tool[..., Any]] | None = None
    """Wraps tools that are added while the run goes on."""
    budgets: Sequence[Budget] = ()
    """The budgets that this run and its children share."""
    spare_tools: Toolbox = Toolbox()
    """Tools that are not offered until a tool adds them."""
    has_late_tools: bool = False
    """True if tools may come while the run goes on, so that allowed tools may be missing at its beginning."""
    tool_selectors: Sequence[ToolSelector] = ()
    """Choose the tools that the model is sent, each from those that the one before has chosen."""
    tool_caller: ToolCaller | None = None
    """Carries out the tool calls of the engine itself."""
    has_output_type: bool = False
    """True if the run has to return a value of a type."""
    answer_tool: str = ""
    """Name of the tool that takes the answer of a run with an output type; empty if there is none."""
    private_run_builder: PrivateRunBuilder | None = None
    """Builds the private runs of the engine."""


class RunPlace(Struct, frozen=True, kw_only=True, eq=False, metaclass=UnresolvedSignatureMeta):
    """The environment of a run: its session, log, watchers, mailbox and parent run."""

    session_id: str
    run_id: str
    log: Log
    fanout: Fanout
    mailbox: Mailbox
    prefix_comparer: PrefixComparer = field(default_factory=PrefixComparer)
    """Detects requests that do not begin with the one before, which the provider's cache cannot serve."""
    can_wait: bool = True
    """True if the run may end as `waiting`, because it can be resumed."""
    parent: "Run | None" = None
    """The run whose tool call this one carries out."""
    is_private: bool = False
    """True for a private run of an engine: its turns and tool calls count towards the limits of the parent run."""
    is_restricted: bool = True
    """False if the agent's own gate decides alone, without that of the parent run."""
    redaction: RelatedRunsRedaction = field(default_factory=RelatedRunsRedaction)
    """The redaction that all runs of a session and its subagents share."""
    budgets: Sequence[Budget] = ()
    """The budgets of the session that gave the task: those of a background agent, and of all runs below it."""
