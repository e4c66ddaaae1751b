"""An agent: a frozen description of who answers, with what, under which rules. Above: callers. Below: `session.py`.

Building one costs microseconds and touches nothing outside. `run` makes a session of its own; `session` opens one that
is kept.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, overload

from .core import check
from .core.clock import SYSTEM_CLOCK, Clock, new_id
from .core.error import ConfigError, Unchangeable
from .core.event import Entry
from .core.feed import Watcher
from .core.ledger import Ledger
from .core.loop import react
from .core.mailbox import DrainMode
from .core.message import Content, Message
from .core.model import Compact, Model, Settings
from .core.outcome import Outcome
from .core.permission import Gate
from .core.run import Accept, Engine, Shape
from .core.stop import GUARDRAILS, Guardrail, Limits, StopCondition
from .core.store import Hit, Narrowed, Store
from .core.tool import Tool
from .core.toolbox import Toolbox
from .models import open_model
from .output import Output
from .override import Overrides
from .session import Session, searchable
from .stores import open_store
from .stream import RunStream
from .sync import wait_for

if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVarWithDefault

    D = _TypeVarWithDefault("D", default=None)
else:
    D = TypeVar("D")  # the default is for type checkers: an agent without deps is an Agent[None]

T = TypeVar("T")

_set = object.__setattr__
_DEFAULT_LIMITS = Limits()
_DEFAULT_SETTINGS = Settings()


class Agent(Generic[D]):
    """Who answers, with what, under which rules. It does not change; `replace` makes another one."""

    __slots__ = (
        "_forgetful",
        "accept",
        "clock",
        "compaction",
        "deps",
        "description",
        "engine",
        "follow_up_mode",
        "guardrails",
        "instructions",
        "ledger",
        "limits",
        "model",
        "name",
        "patience_seconds",
        "permission",
        "settings",
        "shape",
        "steering_mode",
        "stop",
        "store",
        "toolbox",
        "tools",
        "watchers",
    )

    def __init__(
        self,
        model: Model | str,
        *,
        name: str = "agent",
        description: str = "",
        instructions: str = "",
        tools: Sequence[Tool[..., Any]] = (),
        store: Store | str = "memory:",
        permission: Gate | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        settings: Settings = _DEFAULT_SETTINGS,
        stop: StopCondition | None = None,
        guardrails: Sequence[Callable[[], Guardrail]] = GUARDRAILS,
        accept: Sequence[Accept] = (),
        shape: Shape | None = None,
        compaction: Compact | None = None,
        engine: Engine = react,
        deps: D = None,  # type: ignore[assignment] # an agent without deps is an Agent[None]
        watchers: Sequence[Watcher[Entry]] = (),
        steering_mode: DrainMode = "one",
        follow_up_mode: DrainMode = "one",
        patience_seconds: float = 0.0,
        ledger: Ledger | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Describe an agent.

        Args:
            model: Who answers: `"provider:model"`, or any object with `stream`.
            name: What it is called in events, logs and as a tool.
            description: What it is good for, told to other agents.
            instructions: What it is told before every conversation.
            tools: What it can do.
            store: Where its sessions are kept: `"memory:"`, `"file:DIR"`, `"sqlite:PATH"`, `"postgresql://…"`, or any
                store.
            permission: Who decides about calls. Without one, tools that need permission are denied.
            limits: What a run may use.
            settings: How the model is to answer.
            stop: Ends a run after a turn with calls.
            guardrails: What keeps a run from going in circles; `()` for nothing.
            accept: Asked, in order, whether a reply without calls may stand.
            shape: What the model sees of the conversation.
            compaction: Makes a request shorter that was too long for the model, which is then asked once more.
            engine: How it thinks.
            deps: Handed to tools as `ToolContext.deps`.
            watchers: Who is told what happens, in every session.
            steering_mode: Whether waiting steering messages are handed over one at a time or all at once.
            follow_up_mode: The same for follow-ups.
            patience_seconds: How long a run waits for an answer that nobody here can give, before it ends as `waiting`.
            ledger: A budget that it shares with others.
            clock: Where its time comes from.
        """
        _set(self, "model", open_model(model))
        _set(self, "name", name)
        _set(self, "description", description)
        _set(self, "instructions", instructions)
        _set(self, "toolbox", Toolbox(tools))
        _set(self, "tools", tuple(self.toolbox))
        _set(self, "store", open_store(store))
        _set(self, "_forgetful", isinstance(store, str) and store == "memory:")
        _set(self, "permission", permission)
        _set(self, "limits", limits)
        _set(self, "settings", settings)
        _set(self, "stop", stop)
        _set(self, "guardrails", guardrails)
        _set(self, "accept", accept)
        _set(self, "shape", shape)
        _set(self, "compaction", compaction)
        _set(self, "engine", engine)
        _set(self, "deps", deps)
        _set(self, "watchers", watchers)
        _set(self, "steering_mode", steering_mode)
        _set(self, "follow_up_mode", follow_up_mode)
        _set(self, "patience_seconds", patience_seconds)
        _set(self, "ledger", ledger)
        _set(self, "clock", clock)
        self._check()

    model: Model
    name: str
    description: str
    instructions: str
    tools: tuple[Tool[..., Any], ...]
    toolbox: Toolbox
    store: Store
    _forgetful: bool
    permission: Gate | None
    limits: Limits
    settings: Settings
    stop: StopCondition | None
    guardrails: Sequence[Callable[[], Guardrail]]
    accept: Sequence[Accept]
    shape: Shape | None
    compaction: Compact | None
    engine: Engine
    deps: D
    watchers: Sequence[Watcher[Entry]]
    steering_mode: DrainMode
    follow_up_mode: DrainMode
    patience_seconds: float
    ledger: Ledger | None
    clock: Clock

    def session(self, session_id: str | None = None, *, store: Store | str | None = None) -> Session:
        """A conversation that is kept under a name. Opening one that exists goes on with it."""
        if session_id is not None and (not isinstance(session_id, str) or not session_id.strip()):
            raise ConfigError(f"a session cannot be called {session_id!r}: give it a name, or None for a new one")
        return Session(self, session_id or new_id(), self.store if store is None else open_store(store))

    @overload
    async def run(
        self, prompt: Content | Message, *, output: type[T] | Output[T], **overrides: Unpack[Overrides]
    ) -> Outcome[T]: ...
    @overload
    async def run(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides]
    ) -> Outcome[Any]: ...
    async def run(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides]
    ) -> Outcome[Any]:
        """Answer one prompt in a session of its own; without a store of its own, nothing is left of it afterwards."""
        session = self._anonymous()
        try:
            return await session.run(prompt, output=output, **overrides)
        finally:
            await session.aclose()

    @overload
    def run_sync(
        self, prompt: Content | Message, *, output: type[T] | Output[T], **overrides: Unpack[Overrides]
    ) -> Outcome[T]: ...
    @overload
    def run_sync(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides]
    ) -> Outcome[Any]: ...
    def run_sync(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides]
    ) -> Outcome[Any]:
        """As `run`, for scripts: waits for the outcome. Inside an event loop use `await agent.run(…)`."""
        return wait_for(lambda: self.run(prompt, output=output, **overrides))

    @overload
    def stream(
        self, prompt: Content | Message, *, output: type[T] | Output[T], **overrides: Unpack[Overrides]
    ) -> RunStream[T]: ...
    @overload
    def stream(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides]
    ) -> RunStream[Any]: ...
    def stream(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides]
    ) -> RunStream[Any]:
        """Answer one prompt in a session of its own, and tell each event as it happens."""
        return self._anonymous().stream(prompt, output=output, **overrides)

    async def search(self, query: str, **narrowed: Unpack[Narrowed]) -> list[Hit]:
        """What was said in any session of its store. Takes what `Searchable.search` takes."""
        return await searchable(self.store).search(query, **narrowed)

    def _anonymous(self) -> Session:
        """A session that nobody has named. One that is kept in memory by default would never be found again."""
        return self.session(store="memory:" if self._forgetful else None)

    def replace(self, **changes: Any) -> "Agent[Any]":
        """Another agent, which differs in what is given."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in {"toolbox", "_forgetful"}}
        other = Agent(**{**fields, **changes})
        _set(other, "_forgetful", self._forgetful if "store" not in changes else other._forgetful)
        return other

    async def __aenter__(self) -> "Agent[D]":
        """Keep what the agent needs open until the block ends."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.aclose()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise Unchangeable(f"an agent does not change: use agent.replace({name}={value!r}) to make another one")

    def __delattr__(self, name: str) -> NoReturn:
        raise Unchangeable(f"an agent does not change: {name} cannot be taken from it")

    def __repr__(self) -> str:
        return f"Agent({self.model!r}, name={self.name!r}, tools={self.toolbox!r})"

    def _check(self) -> None:
        """Say here, where it is described, what could not work when it is run."""
        if not isinstance(self.limits, Limits):
            raise ConfigError(f"Agent(limits={self.limits!r}): give a Limits(…)")
        if not isinstance(self.settings, Settings):
            raise ConfigError(f"Agent(settings={self.settings!r}): give a Settings(…)")
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise ConfigError(f"Agent(ledger={self.ledger!r}): give a Ledger(…)")
        if not callable(self.engine):
            raise ConfigError(f"Agent(engine={self.engine!r}): give an async function of a Run, such as react")
        check.text("Agent", "name", self.name, filled=True)
        check.text("Agent", "description", self.description)
        check.text("Agent", "instructions", self.instructions)
        for name in ("permission", "stop", "shape", "compaction"):
            check.function_or_none("Agent", name, getattr(self, name))
        for name in ("guardrails", "accept", "watchers"):
            check.functions("Agent", name, getattr(self, name))
        for name in ("steering_mode", "follow_up_mode"):
            if getattr(self, name) not in {"one", "all"}:
                check.refuse("Agent", name, getattr(self, name), "say 'one' or 'all'")
        if not isinstance(self.patience_seconds, (int, float)) or self.patience_seconds < 0:
            check.refuse("Agent", "patience_seconds", self.patience_seconds, "give a number of seconds, from 0")
        if not callable(getattr(self.clock, "monotonic", None)):
            check.refuse("Agent", "clock", self.clock, "give a clock, such as windlass.testing.FakeClock()")
        if self.limits.allowed_tools is not None:
            self.toolbox.only(self.limits.allowed_tools)
