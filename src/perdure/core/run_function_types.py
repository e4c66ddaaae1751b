"""Types of the functions that a run calls: engine, history processor, output validators, reminders, compaction."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from . import argument_checks
from .error import ContextOverflow, ShuttingDown
from .event import Event, PermissionDecided
from .message import Message, ToolResult
from .outcome import Outcome

if TYPE_CHECKING:
    from .run import Run
    from .store import Store
    from .toolbox import Toolbox

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
        argument_checks.require_text("Retry", "feedback", self.feedback, non_empty=True)
        argument_checks.require_text("Retry", "origin", self.origin)
        if self.event is not None and not isinstance(self.event, Event):
            argument_checks.raise_config_error("Retry", "event", self.event, "give an event, such as Custom(…)")


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


class PrivateRunTask(Struct, frozen=True, kw_only=True, eq=False):
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
