"""An agent: a frozen description of who answers, with what, under which rules. Above: callers. Below: `session.py`.

Building one costs microseconds and touches nothing outside. `run` makes a session of its own; `session` opens one that
is kept.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, Unpack

import msgspec
from msgspec import Struct

from .core.clock import SYSTEM_CLOCK, Clock, new_id
from .core.error import ConfigError
from .core.event import Entry
from .core.feed import Watcher
from .core.loop import react
from .core.message import Content, Message
from .core.model import Model, Settings
from .core.permission import Gate
from .core.run import Accept, DrainMode, Engine, Outcome, Shape
from .core.stop import GUARDRAILS, Guardrail, Limits, StopCondition
from .core.store import Store
from .core.tool import Tool, Toolbox
from .models import open_model
from .session import Overrides, Session
from .stores import open_store
from .stream import RunStream
from .sync import wait_for

D = TypeVar("D")


class _Answering(Struct, frozen=True, eq=False):
    model: Model | str
    """Who answers: `"provider:model"`, or any object with `stream`."""


class Agent(_Answering, Generic[D], frozen=True, kw_only=True, eq=False):
    """Who answers, with what, under which rules."""

    name: str = "agent"
    """What it is called in events, logs and as a tool."""
    description: str = ""
    """What it is good for, told to other agents."""
    instructions: str = ""
    """What it is told before every conversation."""
    tools: Sequence[Tool[..., Any]] = ()
    """What it can do."""
    store: Store | str = "memory:"
    """Where its sessions are kept: `"memory:"`, `"sqlite:PATH"`, or any store."""
    permission: Gate | None = None
    """Who decides about calls. `None`: tools that need permission are denied."""
    limits: Limits = Limits()
    """What a run may use."""
    settings: Settings = Settings()
    """How the model is to answer."""
    stop: StopCondition | None = None
    """Ends a run after a turn with calls."""
    guardrails: Sequence[Callable[[], Guardrail]] = GUARDRAILS
    """What keeps a run from going in circles; `()` for nothing."""
    accept: Sequence[Accept] = ()
    """Asked whether a reply without calls may stand."""
    shape: Shape | None = None
    """What the model sees of the conversation."""
    engine: Engine = react
    """How it thinks."""
    deps: D | None = None
    """Handed to tools as `ToolContext.deps`."""
    watchers: Sequence[Watcher[Entry]] = ()
    """Who is told what happens, in every session."""
    steering_mode: DrainMode = "one"
    """Whether waiting steering messages are handed over one at a time or all at once."""
    follow_up_mode: DrainMode = "one"
    """The same for follow-ups."""
    clock: Clock = SYSTEM_CLOCK
    """Where its time comes from."""
    toolbox: Toolbox = msgspec.UNSET  # type: ignore[assignment] # made from `tools`

    def __post_init__(self) -> None:
        force = msgspec.structs.force_setattr
        force(self, "model", open_model(self.model))
        force(self, "store", open_store(self.store))
        force(self, "toolbox", Toolbox(self.tools))
        _check(self)

    def session(self, session_id: str | None = None, *, store: Store | str | None = None) -> Session:
        """A conversation that is kept under a name. Opening one that exists goes on with it."""
        if session_id is not None and (not isinstance(session_id, str) or not session_id.strip()):
            message = f"a session cannot be called {session_id!r}: give it a name, or None for a new one"
            raise ConfigError(message)
        return Session(self, session_id or new_id(), open_store(self.store if store is None else store))

    async def run(self, prompt: Content | Message, **overrides: Unpack[Overrides]) -> Outcome[Any]:
        """Answer one prompt in a session of its own."""
        session = self.session()
        try:
            return await session.run(prompt, **overrides)
        finally:
            await session.aclose()

    def run_sync(self, prompt: Content | Message, **overrides: Unpack[Overrides]) -> Outcome[Any]:
        """As `run`, for scripts: waits for the outcome. Inside an event loop use `await agent.run(…)`."""
        return wait_for(lambda: self.run(prompt, **overrides))

    def stream(self, prompt: Content | Message, **overrides: Unpack[Overrides]) -> RunStream:
        """Answer one prompt in a session of its own, and tell each event as it happens."""
        return self.session().stream(prompt, **overrides)

    async def __aenter__(self) -> "Agent[D]":
        """Keep what the agent needs open until the block ends."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.aclose()


def _check(agent: Agent[Any]) -> None:
    """Say where it is described what cannot work when it is run."""
    for field, kind in (("limits", Limits), ("settings", Settings)):
        if not isinstance(getattr(agent, field), kind):
            message = f"Agent({field}={getattr(agent, field)!r}): give a {kind.__name__}(…)"
            raise ConfigError(message)
    for field in ("engine", "permission", "stop", "shape"):
        value = getattr(agent, field)
        if value is not None and not callable(value):
            message = f"Agent({field}={value!r}) has to be a function"
            raise ConfigError(message)
    if agent.limits.allowed_tools is not None:
        agent.toolbox.only(agent.limits.allowed_tools)
