"""What a tool call may use of the run that it belongs to, and of itself; `Run` and `PreparedCall` offer it."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from perdure._core.log.fold import State
from perdure._core.log.redaction import RelatedRunsRedaction
from perdure._core.log.store import Log
from perdure._core.model.protocol import Model, ModelInfo
from perdure._core.model.transcript import MessagesSnapshot
from perdure._core.values.event_class import Event
from perdure._core.values.message import Usage

if TYPE_CHECKING:
    from perdure._core.permission.gate import Gate
    from perdure._core.schema.parsing import FrozenArguments

    from .context import ToolContext
    from .slots import Askable
    from .tool import Tool


class HasProject(Protocol):
    """What a tool call may know of the settings of its run."""

    @property
    def project(self) -> str:
        """The root of the agent's project; empty for the working folder of the process."""
        ...


class RunOfCall(Protocol):
    """The run that a tool call belongs to, as far as tools may use it."""

    session_id: str
    full_session_id: str
    """The id of the session in its innermost store, which is the same through every part of that store."""
    run_id: str
    path: str
    log: Log
    state: State
    info: ModelInfo
    """What is known of the run's model."""
    redaction: RelatedRunsRedaction
    scratch: dict[str, Any]
    """Values that functions of this run share; never stored."""

    @property
    def parent(self) -> "RunOfCall | None":
        """The run whose tool call this one carries out, or whose engine performs it."""
        ...

    @property
    def spec(self) -> HasProject:
        """The settings of the run."""
        ...

    @property
    def agent_name(self) -> str:
        """The name of the agent that is active in the conversation."""
        ...

    @property
    def deps(self) -> Any:
        """The dependencies given to the agent."""
        ...

    @property
    def messages(self) -> MessagesSnapshot:
        """The messages of the conversation so far."""
        ...

    @property
    def model(self) -> Model:
        """The model, for requests of a tool that are not part of the conversation."""
        ...

    @property
    def usage(self) -> Usage:
        """The tokens of the run and its subagents, and of models beside it that worked for it, such as graders."""
        ...

    @property
    def cost_usd(self) -> float | None:
        """The cost of the run and its subagents in US dollars; `None` if a price is neither reported nor known."""
        ...

    @property
    def gate(self) -> "Gate | None":
        """The gate, which decides whether tool calls may run."""
        ...

    async def emit(self, *events: Event, sync: bool = False, entry_ids: Sequence[str] = ()) -> None:
        """Store events, then publish them to watchers."""
        ...

    def stamp_event(self, event: Event) -> Event:
        """Return the event with this run's id and path."""
        ...

    def publish_progress(self, call_id: str, name: str, data: Any) -> None:
        """Publish the progress of a tool call. May be called from any thread."""
        ...

    def call_on_loop(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine function on the event loop of the run, and wait for its end; only from another thread."""
        ...

    def idempotency_key(self, call_id: str) -> str:
        """Return a key for a tool call that is identical for every attempt at it."""
        ...

    def add_tools(
        self,
        tools: "Iterable[Tool[..., Any] | str]",
        scope: Literal["process", "run", "session"] = "process",
    ) -> None:
        """Offer more tools from the next turn on."""
        ...

    async def compact(self, cause: str) -> bool:
        """Replace older messages by a summary for the model. Return True if what is sent is shorter now."""
        ...

    def cancel(self, mode: Literal["now", "after_tools", "after_turn"] = "now") -> None:
        """Ask the run to stop."""
        ...


class CallInProgress(Protocol):
    """A prepared tool call, as far as its context shows it to the tool."""

    tool: "Tool[..., Any]"
    labels: tuple[str, ...]
    """Labels of the result, beside those of the tool and those that its value has."""
    checked_arguments: dict[str, Any] | None
    """The arguments that a verdict is about, defaults included; `None` when no permission is needed."""
    frozen: "FrozenArguments | None"
    """The arguments that a verdict is bound to, as bytes; `None` when no permission is needed."""

    def get_target(self) -> Any:
        """Return the target of the call; `None` if the tool declares none."""
        ...

    async def ask_people(
        self, context: "ToolContext[Any]", asked: "Askable[Any]", timeout_seconds: float | None
    ) -> Any:
        """Ask people a question of the call, and return the answer. Raises `NotAnswered` when there is none."""
        ...
