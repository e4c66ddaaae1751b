"""`AgentSpec`: the options of an agent as one frozen value, and the tools, skills and roles that result from them."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeAlias, TypeVar, cast, overload

from msgspec.structs import force_setattr

from perdure._core.log.store import Store
from perdure._core.model.budget import Budget
from perdure._core.model.protocol import Model, Settings
from perdure._core.run.loop import react
from perdure._core.run.spec import Engine, OutputValidator, RunOptions
from perdure._core.run.stop import GUARDRAILS, Guardrail, Limits, StopCondition
from perdure._core.tools.context import D
from perdure._core.tools.tool import Tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError, Unchangeable, UsageError
from perdure._core.watch import Watcher
from perdure._engines.registry import open_engine
from perdure._models.registry import open_model
from perdure._stores import open_store

from .extension import check_extensions, check_guardrail_factories, check_list_option, enter_lifespan

T = TypeVar("T")

if TYPE_CHECKING:
    from perdure._context.directives.commands import Command
    from perdure._context.directives.mentions import MentionSettings
    from perdure._context.history.compaction import Compaction
    from perdure._context.project import Project
    from perdure._context.role import Role
    from perdure._context.skills.skill import Skills
    from perdure._core.permission.gate import Gate
    from perdure._credentials.redactor import Redactor
    from perdure._credentials.vault import Vault

    from .extension import Extension
    from .middleware import Middleware

    class ResolvedOption(Generic[T]):
        """Type of an option that accepts a value, or its name or address, and returns the value."""

        @overload
        def __get__(self, instance: None, owner: object) -> Self: ...
        @overload
        def __get__(self, instance: object, owner: object) -> T: ...
        def __get__(self, instance: object, owner: object) -> Any: ...
        def __set__(self, instance: object, value: T | str) -> None: ...

    ModelOption: TypeAlias = ResolvedOption[Model]
    StoreOption: TypeAlias = ResolvedOption[Store]
    EngineOption: TypeAlias = ResolvedOption[Engine]
    _DEFAULT_STORE: Final = cast("StoreOption", None)
    _DEFAULT_ENGINE: Final = cast("EngineOption", None)
else:
    ModelOption = StoreOption = EngineOption = Any  # only type checkers distinguish what is given from what is read
    _DEFAULT_ENGINE = react
    _DEFAULT_STORE = "memory:"


OBJECT_PREFIX: Final = "object:"
"""Prefix of the name, in the log, of a model object that a session was configured with."""


class _ModelOptions(RunOptions[D], Generic[D], kw_only=False, eq=False, metaclass=StrictOptionsMeta):
    """Base of `AgentSpec` with its only positional option: the model."""

    model: ModelOption
    """The model: `"provider:model"`, or any object with `stream`."""


class AgentSpec(_ModelOptions[D], Generic[D], kw_only=True, eq=False):
    """The options of an agent, and values derived from them. Immutable; `replace` makes a changed copy."""

    description: str = ""
    """One line for other agents: when to call this one."""
    instructions: str = ""
    """The system prompt."""

    # -- tools and rules -----------------------------------------------------------------------------------------------

    tools: Sequence[Tool[..., Any]] = ()
    """Tools the model can call. Once the agent is built, also those of extensions, skills and handoffs."""
    spare_tools: Sequence[Tool[..., Any]] = ()
    """Tools that are not offered at first: another tool offers them with `ToolContext.add_tools`."""
    permission: "Gate | None" = None
    """Decides about tool calls. Without one, tools that need permission are denied."""
    stop: StopCondition | None = None
    """Stop condition: can end a run after a turn."""
    guardrails: Sequence[Callable[[], Guardrail]] = GUARDRAILS
    """Stop a run that repeats itself; `()` for none."""
    output_validators: Sequence[OutputValidator] = ()
    """Validate a reply without tool calls, in order; each accepts it or asks the model to retry."""
    budget: Budget | None = None
    """A budget that it shares with other agents."""
    vault: "Vault | None" = None
    """Secrets for tools, which the model never sees."""

    # -- sessions ------------------------------------------------------------------------------------------------------

    store: StoreOption = _DEFAULT_STORE
    """Where sessions are stored: `"memory:"`, `"file:DIR"`, `"sqlite:PATH"`, `"postgresql://…"`, or any store."""
    watchers: Sequence[Watcher] = ()
    """Functions that get every event, in all sessions."""

    # -- what the model sees -------------------------------------------------------------------------------------------

    project: "Project | None" = None
    """Files of a project with instructions for agents, such as AGENTS.md."""
    skills: "Skills | None" = None
    """Skills that the model can load when it needs them."""
    roles: "Sequence[Role]" = ()
    """Roles that it can take, by name."""
    role: str = ""
    """Its role, unless a session or a run asks for another."""
    compaction: "Compaction | None" = None
    """When the conversation is summarized for the model, and how."""
    commands: "Sequence[Command]" = ()
    """Handlers of `/name` in a message."""
    mentions: "MentionSettings | None" = None
    """The files that `@file` in a message may read."""

    # -- how it works --------------------------------------------------------------------------------------------------

    engine: EngineOption = _DEFAULT_ENGINE
    """The engine: how turns and tool calls follow each other. A name, such as `"planner"`, or a function of a `Run`.
    Once the agent is built, perhaps that of an extension."""
    middleware: "Sequence[Middleware]" = ()
    """Functions around runs, turns and tool calls; the first is outermost."""
    handoffs: "Sequence[AgentSpec[Any]]" = ()
    """Other agents that the conversation can be handed over to."""
    narrow_handoffs: bool = True
    """An agent that takes over needs the consent of this agent's `permission` too. `False`: its own decides alone."""
    extensions: "Sequence[Extension]" = ()
    """Bundles of tools, instructions, rules and more, added to the agent's own."""

    def __post_init__(self) -> None:
        """Open the model and the store, and raise `ConfigError` for options that cannot work."""
        is_forgetful = isinstance(self.store, str) and self.store == "memory:"
        if self.engine is not react:
            force_setattr(self, "engine", open_engine(self.engine))
        vars(self).update(_own_tools=self.tools, _own_engine=self.engine, _open=[], _is_forgetful=is_forgetful)
        force_setattr(self, "model", open_model(self.model))
        force_setattr(self, "store", open_store(self.store))
        self._check_options()
        if self.engine is react and self.extensions:
            engines = [each.engine for each in self.extensions if each.engine is not None]
            force_setattr(self, "engine", engines[0] if engines else react)
        force_setattr(self, "tools", tuple(self.toolbox))
        if self.spare_tools:
            force_setattr(self, "spare_tools", tuple(self.spare_toolbox))
        if self.limits.allowed_tools is not None and not self.has_late_tools:
            self.toolbox.with_only(self.limits.allowed_tools, self.spare_toolbox)

    def replace(self, **changes: Any) -> Self:
        """Return a copy of the agent with these options changed."""
        options: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        options["tools"], options["engine"] = self.__dict__["_own_tools"], self.__dict__["_own_engine"]
        other = type(self)(**{**options, **changes})
        if "store" not in changes:
            vars(other).update(_is_forgetful=self.has_default_store)
        return other

    def with_additions(self, extensions: "Sequence[Extension]", models: "Mapping[str, Model]") -> Self:
        """Return a copy of the agent for one session, with more extensions and models.

        It replaces the additions that this copy has: those of the agent itself stay.
        """
        agent: Self = self.__dict__.get("_without_additions", self)
        own = {each.name for each in agent.extensions}
        other = agent.replace(extensions=[*agent.extensions, *[each for each in extensions if each.name not in own]])
        vars(other).update(_without_additions=agent, _open=agent.__dict__["_open"], _session_models=models)
        if agent.vault is not None:
            vars(other).update(redactor=agent.redactor)
        return other

    def find_session_model(self, name: str) -> Model | None:
        """Return the model object that a session was configured with, by its name in the log; `None` for other names.

        Raises `UsageError` for a model object that the session was given in another process.
        """
        models: Mapping[str, Model] = self.__dict__.get("_session_models", {})
        if (model := models.get(name)) is not None:
            return model
        if name.startswith(OBJECT_PREFIX):
            raise UsageError(
                f"this session was configured with the model object {name.removeprefix(OBJECT_PREFIX)!r}, which a log "
                "cannot store: session.configure(model=…) it again, or configure(model='') for the agent's own"
            )
        return None

    @property
    def has_default_store(self) -> bool:
        """True if no store was given: a session without a name cannot be found again."""
        return bool(self.__dict__["_is_forgetful"])

    # -- derived from the options --------------------------------------------------------------------------------------

    @cached_property
    def toolbox(self) -> Toolbox:
        """The agent's own tools, and those of its extensions, skills and handoffs."""
        tools: Sequence[Tool[..., Any]] = self.__dict__["_own_tools"]
        if not (self.extensions or self.skills or self.handoffs or self.vault or self.middleware):
            return Toolbox(tools)
        tools = [*tools, *[tool for each in self.extensions for tool in each.tools]]
        if (skills := self.all_skills()) is not None:
            from perdure._context.skills.tools import skill_tools  # at first use: most agents have no skills

            tools += skill_tools(skills)
        if self.handoffs:
            from .handoff import make_handoff_tool  # at first use: most agents hand nothing over

            tools += [make_handoff_tool(each.name, each.description) for each in self.handoffs]
        return Toolbox([self.wrap_tool(each) for each in tools] if self.has_tool_wrappers else tools)

    @cached_property
    def run_options(self) -> RunOptions[D]:
        """The agent's options for its runs, and nothing else of the agent: engines have no way to its model."""
        return RunOptions(**{name: getattr(self, name) for name in RunOptions.__struct_fields__})

    @cached_property
    def spare_toolbox(self) -> Toolbox:
        """The agent's `spare_tools`. Raises `ConfigError` if one has the name of a tool that is offered."""
        spare = Toolbox(self.spare_tools)
        self.toolbox.with_tools(spare)
        return spare

    @cached_property
    def redactor(self) -> "Redactor | None":
        """The object that removes the secrets of the agent's tools from text; None without a vault."""
        if self.vault is None:
            return None
        from perdure._credentials.redactor import Redactor  # at first use: most agents have no vault

        return Redactor()

    def find_role(self, name: str) -> "Role | None":
        """Return the role of that name, the agent's own or of an extension. Raises `ConfigError` if it has none."""
        if not name:
            return None
        from perdure._context.role_files import find_role

        return find_role(self.all_roles(), name)

    def all_roles(self) -> "list[Role]":
        """Return the agent's own roles, and those of its extensions."""
        return [*self.roles, *[role for each in self.extensions for role in each.roles]]

    def all_skills(self) -> "Skills | None":
        """Return the agent's skills together with those of its extensions; None if there are none."""
        more = [skill for each in self.extensions for skill in each.skills]
        if not more:
            return self.skills
        from perdure._context.skills.skill import Skills

        return Skills(more) if self.skills is None else self.skills + Skills(more)

    def all_commands(self) -> "list[Command]":
        """Return the handlers of `/name` commands of the agent and its extensions."""
        return [*self.commands, *[hook for each in self.extensions for hook in each.commands]]

    def all_watchers(self) -> list[Watcher]:
        """Return the watchers of this agent, its extensions, and the agents it may hand over to, without duplicates."""
        if not (self.extensions or self.handoffs):
            return list(self.watchers)
        found: list[Watcher] = []
        for each in self.reachable:
            listed = [*each.watchers, *[watcher for extension in each.extensions for watcher in extension.watchers]]
            found += [watcher for watcher in listed if each is self or watcher not in found]
        return found

    @cached_property
    def middleware_layers(self) -> "Sequence[Middleware]":
        """The middleware of the agent and its extensions, the outermost first."""
        return (*self.middleware, *[layer for each in self.extensions for layer in each.middleware])

    @cached_property
    def can_expand_prompts(self) -> bool:
        """True if `/name` or `@file` in a prompt can refer to commands, skills or files, of any reachable agent."""
        return any(
            each.commands
            or each.skills
            or each.mentions
            or any(more.commands or more.skills for more in each.extensions)
            for each in self.reachable
        )

    @cached_property
    def has_fixed_runs(self) -> bool:
        """True if all runs of this agent are built in the same way, unless overrides or session settings change one.

        A project, skills, summaries, handoffs, middleware, and the models and gates of extensions may differ from run
        to run.
        """
        own = self.project is None and self.skills is None and self.compaction is None and not self.handoffs
        own = own and not self.middleware_layers
        own = own and not self.has_late_tools
        return own and not any(each.wrap_model or each.skills or each.rules for each in self.extensions)

    @property
    def has_late_tools(self) -> bool:
        """True if an extension has tools that are known only once its lifespan is open."""
        return any(each.late_tools is not None for each in self.extensions)

    def list_late_tools(self) -> "list[Tool[..., Any]]":
        """Return the tools of extensions that are known by now, without those whose name is taken."""
        found: dict[str, Tool[..., Any]] = {}
        for extension in self.extensions:
            for each in () if extension.late_tools is None else extension.late_tools():
                if each.name not in self.toolbox:
                    found.setdefault(each.name, each)
        return list(found.values())

    @property
    def reachable(self) -> "Sequence[AgentSpec[Any]]":
        """This agent, and those that the conversation can be handed over to, directly or through others."""
        if not self.handoffs:
            return (self,)
        found: list[AgentSpec[Any]] = [self]
        for agent in found:
            found += [each for each in agent.handoffs if each not in found]
        return found

    def find_reachable(self, name: str) -> "AgentSpec[Any]":
        """Return the agent of that name among this one and those it may hand over to. Raises `ConfigError`.

        An empty name is this agent.
        """
        if not name or name == self.name:
            return self
        for agent in self.reachable:
            if agent.name == name:
                return agent
        known = ", ".join([repr(each.name) for each in self.reachable]) + '; session.configure(agent="") hands it back'
        raise ConfigError(f"the conversation was handed over to {name!r}, which no longer exists: there is {known}")

    @property
    def has_tool_wrappers(self) -> bool:
        """True if a vault, a middleware or an extension wraps the agent's tools."""
        wrapped = any(each.wrap_tool is not None for each in self.extensions)
        return self.vault is not None or bool(self.middleware_layers) or wrapped

    def wrap_tool(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """Wrap a tool with the agent's vault and extensions. The vault is innermost: no other wrapper sees a secret."""
        if self.vault is not None and tool.credentials:
            from perdure._credentials.credentialed import credentialed

            tool = credentialed(tool, self.vault, redactor=self.redactor)
        if layers := self.middleware_layers:
            from .middleware import wrap_tool  # at first use: most agents have none

            tool = wrap_tool(tool, layers)
        for extension in self.extensions:
            if extension.wrap_tool is not None:
                tool = extension.wrap_tool(tool)
                checks.require_plain_return_type("wrap_tool", extension.wrap_tool, tool, Tool, "a tool")
        return tool

    # -- resources of extensions ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Keep the resources of the agent and its extensions open until the block ends."""
        stack = AsyncExitStack()
        async with stack:
            stack.push_async_callback(self.store.aclose)
            await stack.enter_async_context(self.open_lifespans())
            self._open_stacks.append(stack.pop_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open_stacks.pop().aclose()

    @asynccontextmanager
    async def open_lifespans(self) -> AsyncGenerator[None]:
        """Keep the resources of extensions open during this block, unless `async with agent` does already."""
        async with AsyncExitStack() as stack:
            closed = [] if self.is_open else [each for each in self.reachable if not each.is_open]
            for each in closed:
                for extension in each.extensions:
                    if extension.lifespan is not None:
                        await enter_lifespan(stack, extension.lifespan, each)
            yield

    @cached_property
    def has_lifespans(self) -> bool:
        """True if an extension of this agent, or of one it may hand over to, has resources to open."""
        return any(extension.lifespan is not None for each in self.reachable for extension in each.extensions)

    @property
    def is_open(self) -> bool:
        """True inside `async with agent`, while its resources are open."""
        return bool(self._open_stacks)

    @property
    def _open_stacks(self) -> list[AsyncExitStack]:
        stacks: list[AsyncExitStack] = self.__dict__["_open"]
        return stacks

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, name={self.name!r}, tools={self.toolbox!r})"

    # -- validation ----------------------------------------------------------------------------------------------------

    def _check_name(self) -> None:
        """Raise `ConfigError` for a name that breaks the paths of subagents, or garbles logs and lists."""
        checks.require_text("Agent", "name", self.name, non_empty=True)
        checks.require_one_line("Agent", "name", self.name)
        if "/" in self.name:
            advice = "give a name without slashes, which separate the agents in a path"
            checks.raise_config_error("Agent", "name", self.name, advice)

    def _check_options(self) -> None:
        for name, kind in _OPTION_TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and not (value is None and name == "budget"):
                raise ConfigError(f"Agent({name}={value!r}): give a {kind.__name__}(…)")
        if self.limits.widens:
            checks.raise_config_error("Agent", "limits", self.limits, "widens= is for the limits of one run")
        self._check_name()
        checks.require_text("Agent", "description", self.description)
        checks.require_text("Agent", "instructions", self.instructions)
        checks.require_bool("Agent", "interactive", self.interactive)
        for name in ("permission", "stop", "history_processor"):
            if (value := getattr(self, name)) is not None:
                checks.require_callable("Agent", name, value)
        for name in ("guardrails", "output_validators", "watchers"):
            if (value := getattr(self, name)) != ():
                checks.require_callables("Agent", name, value)
        if self.guardrails is not GUARDRAILS:
            check_guardrail_factories("Agent", self.guardrails)
        for name in ("steering_mode", "follow_up_mode"):
            if getattr(self, name) not in {"one", "all"}:
                checks.raise_config_error("Agent", name, getattr(self, name), "give 'one' or 'all'")
        if not isinstance(self.answer_timeout_seconds, (int, float)) or self.answer_timeout_seconds < 0:
            checks.raise_config_error(
                "Agent", "answer_timeout_seconds", self.answer_timeout_seconds, "give a number of seconds, from 0"
            )
        self._check_parts()

    def _check_parts(self) -> None:
        for name, kind in _ITEM_CLASSES.items():
            if (value := getattr(self, name)) != ():  # most agents have none
                check_list_option("Agent", name, value, kind)
        for name, (method, advice) in _OPTION_METHODS.items():
            if (value := getattr(self, name)) is not None and not callable(getattr(value, method, None)):
                checks.raise_config_error("Agent", name, value, f"give {advice}")
        if self.commands or self.extensions:
            from perdure._context.directives.commands import index_commands

            index_commands(self.all_commands())
            check_extensions(self.extensions)
        if self.handoffs:
            self._check_handoffs()
        if self.role != "":
            self.find_role(self.role)

    def _check_handoffs(self) -> None:
        """Raise `ConfigError` if two reachable agents have the same name: the log identifies the active agent by it."""
        names = [each.name for each in self.reachable]
        for name in names:
            if names.count(name) > 1:
                checks.raise_config_error(
                    "Agent",
                    "handoffs",
                    [each.name for each in self.handoffs],
                    f"two of the agents in this conversation are called {name!r}: rename one of them",
                )


_ITEM_CLASSES = {
    "middleware": "Middleware",
    "extensions": "Extension",
    "roles": "Role",
    "commands": "Command",
    "handoffs": "AgentSpec",
}
_OPTION_TYPES: Mapping[str, type] = {"limits": Limits, "settings": Settings, "budget": Budget}
_OPTION_METHODS: Mapping[str, tuple[str, str]] = {
    "clock": ("monotonic", "a clock, such as perdure.testing.FakeClock()"),
    "compaction": ("compact", "a Compaction(…)"),
    "project": ("text", "a Project(…)"),
    "skills": ("catalogue", "Skills([…]), or what load_skills(…) has found"),
    "mentions": ("read_files", "MentionSettings(…)"),
    "vault": ("resolve", "a vault, such as EnvironmentVault()"),
}
"""Options that are recognized by a method they have: the method, and the advice in the error."""


def _refuse_change(_: object, name: str, value: object) -> NoReturn:
    raise Unchangeable(f"an agent does not change: use agent.replace({name}={value!r}) to make another one")


def _refuse_deletion(_: object, name: str) -> NoReturn:
    raise Unchangeable(f"an agent does not change: its {name} cannot be deleted")


AgentSpec.__no_type_check__ = True  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
"""Lets `inspect.signature` and `help` do without types that are imported for type checkers alone."""

# Not defined in the class body: msgspec replaces those when it creates a Struct class.
AgentSpec.__setattr__ = _refuse_change  # type: ignore[method-assign] # pyright: ignore[reportAttributeAccessIssue]
AgentSpec.__delattr__ = _refuse_deletion  # type: ignore[method-assign] # pyright: ignore[reportAttributeAccessIssue]
