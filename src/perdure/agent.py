"""An agent: a frozen description of who answers, with what, under which rules. Above: callers. Below: `session.py`.

Building one costs microseconds and touches nothing outside. `run` makes a session of its own; `session` opens one that
is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
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
from .core.model import Model, Settings
from .core.outcome import Outcome
from .core.permission import Gate
from .core.run import Accept, Engine, Shape
from .core.stop import GUARDRAILS, Guardrail, Limits, StopCondition
from .core.store import Hit, Narrowed, Store
from .core.tool import D, Tool
from .core.toolbox import Toolbox
from .extension import alive, check_bundle, check_extensions
from .keeping import searchable
from .models import open_model
from .output import Output
from .override import Overrides
from .session import Session
from .speaking import check_handoffs, check_role
from .stores import open_store
from .stream import RunStream
from .sync import wait_for

if TYPE_CHECKING:
    from .context.compaction import Compaction
    from .context.directives import Hook, Mentions
    from .context.project import Project
    from .context.role import Role
    from .context.skills import Skills
    from .credentials import Redactor, Vault
    from .extension import Extension

T = TypeVar("T")

_set = object.__setattr__
_NO_DEPS: Any = None  # of any type: `Agent[Ship](…)` may be given its deps for each run
_DEFAULT_LIMITS = Limits()
_DEFAULT_SETTINGS = Settings()


class Agent(Generic[D]):
    """Who answers, with what, under which rules. It does not change; `replace` makes another one."""

    __slots__ = (
        "_alive",
        "_forgetful",
        "_own_tools",
        "accept",
        "clock",
        "compaction",
        "deps",
        "description",
        "engine",
        "extensions",
        "follow_up_mode",
        "guardrails",
        "handoffs",
        "hooks",
        "instructions",
        "interactive",
        "ledger",
        "limits",
        "mentions",
        "model",
        "name",
        "patience_seconds",
        "permission",
        "project",
        "redactor",
        "role",
        "roles",
        "settings",
        "shape",
        "skills",
        "steering_mode",
        "stop",
        "store",
        "toolbox",
        "tools",
        "vault",
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
        compaction: "Compaction | None" = None,
        engine: Engine = react,
        deps: D = _NO_DEPS,
        watchers: Sequence[Watcher[Entry]] = (),
        steering_mode: DrainMode = "one",
        follow_up_mode: DrainMode = "one",
        patience_seconds: float = 0.0,
        ledger: Ledger | None = None,
        extensions: "Sequence[Extension]" = (),
        project: "Project | None" = None,
        skills: "Skills | None" = None,
        roles: "Sequence[Role]" = (),
        role: str = "",
        hooks: "Sequence[Hook]" = (),
        mentions: "Mentions | None" = None,
        handoffs: "Sequence[Agent[Any]]" = (),
        vault: "Vault | None" = None,
        interactive: bool = True,
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
            compaction: When the conversation is summed up for the model, and how.
            engine: How it thinks.
            deps: Handed to tools as `ToolContext.deps`; a run may be given others of the same type.
            watchers: Who is told what happens, in every session.
            steering_mode: Whether waiting steering messages are handed over one at a time or all at once.
            follow_up_mode: The same for follow-ups.
            patience_seconds: How long a run waits for an answer that nobody here can give, before it ends as `waiting`.
            ledger: A budget that it shares with others.
            extensions: Bundles of more of the same.
            project: The files of a project that tell an agent how to work there, such as AGENTS.md.
            skills: What it can learn when it needs it.
            roles: Profiles that it can take on, by name.
            role: The one that it has, unless a session or a run asks for another.
            hooks: Handlers of `/name` in a message.
            mentions: Where `@file` in a message may read.
            handoffs: Other agents that the conversation can be handed over to.
            vault: Where the secrets are that tools need, and the model never sees.
            interactive: Whether anybody can be asked; `False` for runs that nobody looks after.
            clock: Where its time comes from.
        """
        _set(self, "model", open_model(model))
        _set(self, "name", name)
        _set(self, "description", description)
        _set(self, "instructions", instructions)
        _set(self, "extensions", extensions)
        _set(self, "project", project)
        _set(self, "skills", skills)
        _set(self, "roles", roles)
        _set(self, "role", role)
        _set(self, "hooks", hooks)
        _set(self, "mentions", mentions)
        _set(self, "handoffs", handoffs)
        _set(self, "vault", vault)
        _set(self, "interactive", interactive)
        _set(self, "_own_tools", tools)
        _set(self, "_alive", [])
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
        _set(self, "redactor", None if vault is None else _redactor())
        _set(self, "toolbox", Toolbox(self._given_tools()))
        _set(self, "tools", tuple(self.toolbox))
        if limits.allowed_tools is not None:
            self.toolbox.only(limits.allowed_tools)

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
    compaction: "Compaction | None"
    engine: Engine
    deps: D
    watchers: Sequence[Watcher[Entry]]
    steering_mode: DrainMode
    follow_up_mode: DrainMode
    patience_seconds: float
    ledger: Ledger | None
    extensions: "Sequence[Extension]"
    project: "Project | None"
    skills: "Skills | None"
    roles: "Sequence[Role]"
    role: str
    hooks: "Sequence[Hook]"
    mentions: "Mentions | None"
    handoffs: "Sequence[Agent[Any]]"
    vault: "Vault | None"
    redactor: "Redactor | None"
    interactive: bool
    clock: Clock
    _own_tools: Sequence[Tool[..., Any]]
    _alive: list[AsyncExitStack]

    def session(self, session_id: str | None = None, *, store: Store | str | None = None, role: str = "") -> Session[D]:
        """A conversation that is kept under a name. Opening one that exists goes on with it.

        `role` is the role that its runs have, unless one of them asks for another.
        """
        if session_id is not None and (not isinstance(session_id, str) or not session_id.strip()):
            raise ConfigError(f"a session cannot be called {session_id!r}: give it a name, or None for a new one")
        check_role(self, role)
        return Session(self, session_id or new_id(), self.store if store is None else open_store(store), role)

    @overload
    async def run(
        self, prompt: Content | Message, *, output: type[T] | Output[T], **overrides: Unpack[Overrides[D]]
    ) -> Outcome[T]: ...
    @overload
    async def run(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]: ...
    async def run(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]:
        """Answer one prompt in a session of its own; without a store, nothing is left of it: nobody answers later."""
        session = self._anonymous()
        try:
            return await session.run(prompt, output=output, **overrides)
        finally:
            await session.aclose()

    @overload
    def run_sync(
        self, prompt: Content | Message, *, output: type[T] | Output[T], **overrides: Unpack[Overrides[D]]
    ) -> Outcome[T]: ...
    @overload
    def run_sync(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]: ...
    def run_sync(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]:
        """As `run`, for scripts: waits for the outcome. Inside an event loop use `await agent.run(…)`."""
        return wait_for(lambda: self.run(prompt, output=output, **overrides))

    @overload
    def stream(
        self, prompt: Content | Message, *, output: type[T] | Output[T], **overrides: Unpack[Overrides[D]]
    ) -> RunStream[T]: ...
    @overload
    def stream(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> RunStream[Any]: ...
    def stream(
        self, prompt: Content | Message, *, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> RunStream[Any]:
        """Answer one prompt in a session of its own, and tell each event as it happens."""
        return self._anonymous().stream(prompt, output=output, **overrides)

    async def search(self, query: str, **narrowed: Unpack[Narrowed]) -> list[Hit]:
        """What was said in any session of its store. Takes what `Searchable.search` takes."""
        return await searchable(self.store).search(query, **narrowed)

    def _anonymous(self) -> Session[D]:
        """A session that nobody has named. One that is kept in memory by default would never be found again."""
        return Session(self, new_id(), open_store("memory:"), forgotten=True) if self._forgetful else self.session()

    def as_tool(
        self,
        *,
        name: str = "",
        description: str = "",
        input: Any = None,  # noqa: A002 - what it is
        output: Any = None,
        durable: bool = False,
        max_depth: int = 5,
    ) -> Tool[..., Any]:
        """This agent as a tool of another one: each call gives it a task, and its answer is the result.

        Args:
            name: What the tool is called; by default as the agent.
            description: What the other model is told; by default the agent's own description.
            input: A type whose fields are the parameters of the tool; without one there is `task`, in words.
            output: A type of which the agent has to make a value; the result is that value as JSON.
            durable: Whether its conversation goes on from call to call; otherwise each task is all that it knows.
            max_depth: How many agents may stand between it and the session, itself included.
        """
        from .subagents.as_tool import agent_tool

        return agent_tool(
            self, name=name, description=description, input=input, output=output, durable=durable, max_depth=max_depth
        )

    def replace(self, **changes: Any) -> "Agent[Any]":
        """Another agent, which differs in what is given."""
        derived = {"toolbox", "tools", "redactor", "_forgetful", "_alive", "_own_tools"}
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name not in derived}
        fields["tools"] = self._own_tools
        other = Agent(**{**fields, **changes})
        _set(other, "_forgetful", self._forgetful if "store" not in changes else other._forgetful)
        return other

    async def __aenter__(self) -> "Agent[D]":
        """Keep what the agent and its extensions need open until the block ends."""
        stack = AsyncExitStack()
        async with stack:
            stack.push_async_callback(self.store.aclose)
            await stack.enter_async_context(alive(self))
            self._alive.append(stack.pop_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._alive.pop().aclose()

    @property
    def is_alive(self) -> bool:
        """Whether what its extensions need is open: this is inside `async with agent`."""
        return bool(self._alive)

    # -- what it is made of --------------------------------------------------------------------------------------------

    def role_of(self, name: str) -> "Role | None":
        """The role of that name, its own or of an extension; an unknown one is an error that lists what there is."""
        if not name:
            return None
        from .context.roles import chosen

        return chosen([*self.roles, *[role for each in self.extensions for role in each.roles]], name)

    def all_skills(self) -> "Skills | None":
        """Its skills and those of its extensions; `None` when there are none."""
        more = [skill for each in self.extensions for skill in each.skills]
        if not more:
            return self.skills
        from .context.skills import Skills

        return Skills(more) if self.skills is None else self.skills + Skills(more)

    @property
    def reachable(self) -> "Sequence[Agent[Any]]":
        """This agent, and those that the conversation can be handed over to from here, by one or more steps."""
        found: list[Agent[Any]] = [self]
        for agent in found:
            found += [each for each in agent.handoffs if each not in found]
        return found

    def speaking(self, name: str) -> "Agent[Any]":
        """The agent of that name, to which the conversation was handed over; empty for this one."""
        if not name or name == self.name:
            return self
        for agent in self.reachable:
            if agent.name == name:
                return agent
        known = ", ".join([repr(each.name) for each in self.reachable]) + '; session.configure(agent="") hands it back'
        raise ConfigError(f"the conversation was handed over to {name!r}, which is not here any more: there is {known}")

    @property
    def wraps_tools(self) -> bool:
        """Whether anything is put around its tools."""
        return self.vault is not None or any(each.wrap_tool is not None for each in self.extensions)

    def wrap_tool(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """A tool as this agent offers it: the vault innermost, so that nothing else sees a secret."""
        if self.vault is not None and tool.credentials:
            from .credentials import credentialed

            tool = credentialed(tool, self.vault, redactor=self.redactor)
        for extension in self.extensions:
            if extension.wrap_tool is not None:
                tool = extension.wrap_tool(tool)
        return tool

    def _given_tools(self) -> Sequence[Tool[..., Any]]:
        """Its tools and those of its extensions, and what skills and handoffs need."""
        if not (self.extensions or self.skills or self.handoffs or self.vault):
            return self._own_tools
        tools = [*self._own_tools, *[tool for each in self.extensions for tool in each.tools]]
        if (skills := self.all_skills()) is not None:
            from .context.skills import skill_tools

            tools += skill_tools(skills)
        if self.handoffs:
            from .subagents.handoff import handoff_tool

            tools += [handoff_tool(each) for each in self.handoffs]
        return [self.wrap_tool(each) for each in tools] if self.wraps_tools else tools

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise Unchangeable(f"an agent does not change: use agent.replace({name}={value!r}) to make another one")

    def __delattr__(self, name: str) -> NoReturn:
        raise Unchangeable(f"an agent does not change: {name} cannot be taken from it")

    def __repr__(self) -> str:
        return f"Agent({self.model!r}, name={self.name!r}, tools={self.toolbox!r})"

    def _check(self) -> None:
        """Say here, where it is described, what could not work when it is run."""
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and not (value is None and name == "ledger"):
                raise ConfigError(f"Agent({name}={value!r}): give a {kind.__name__}(…)")
        if not callable(self.engine):
            raise ConfigError(f"Agent(engine={self.engine!r}): give an async function of a Run, such as react")
        check.text("Agent", "name", self.name, filled=True)
        check.text("Agent", "description", self.description)
        check.text("Agent", "instructions", self.instructions)
        check.flag("Agent", "interactive", self.interactive)
        for name in ("permission", "stop", "shape"):
            if (value := getattr(self, name)) is not None:
                check.function("Agent", name, value)
        for name in ("guardrails", "accept", "watchers"):
            if (value := getattr(self, name)) != ():
                check.functions("Agent", name, value)
        for name in ("steering_mode", "follow_up_mode"):
            if getattr(self, name) not in {"one", "all"}:
                check.refuse("Agent", name, getattr(self, name), "say 'one' or 'all'")
        if not isinstance(self.patience_seconds, (int, float)) or self.patience_seconds < 0:
            check.refuse("Agent", "patience_seconds", self.patience_seconds, "give a number of seconds, from 0")
        self._check_parts()

    def _check_parts(self) -> None:
        """The same, of what is made elsewhere."""
        for name, kind in _BUNDLES.items():
            if (value := getattr(self, name)) != ():  # most agents have none
                check_bundle("Agent", name, value, kind)
        for name, (method, advice) in _PARTS.items():
            if (value := getattr(self, name)) is not None and not callable(getattr(value, method, None)):
                check.refuse("Agent", name, value, f"give {advice}")
        if self.hooks or self.extensions:
            from .context.directives import by_name

            by_name([*self.hooks, *[hook for each in self.extensions for hook in each.hooks]])
            check_extensions(self.extensions)
        if self.handoffs:
            check_handoffs(self)
        if self.role != "":
            self.role_of(self.role)


_BUNDLES = {"extensions": "Extension", "roles": "Role", "hooks": "Hook", "handoffs": "Agent"}
_KINDS: Mapping[str, type] = {"limits": Limits, "settings": Settings, "ledger": Ledger}
_PARTS: Mapping[str, tuple[str, str]] = {
    "clock": ("monotonic", "a clock, such as perdure.testing.FakeClock()"),
    "compaction": ("compact", "a Compaction(…)"),
    "project": ("text", "a Project(…)"),
    "skills": ("catalogue", "Skills([…]), or what load_skills(…) has found"),
    "mentions": ("read", "Mentions(…)"),
    "vault": ("resolve", "a vault, such as EnvironmentVault()"),
}
"""What is known by something that it can do, and what to give instead."""


def _redactor() -> "Redactor":
    from .credentials import Redactor

    return Redactor()
