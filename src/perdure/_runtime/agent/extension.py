"""`Extension`: a bundle of tools, instructions, rules and more that is added to an agent, as data.

An agent with two extensions has the tools of both, the instructions of both, and so on, in the order in which they are
listed. There is no other way in which extensions affect an agent or one another.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from inspect import isasyncgenfunction
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from msgspec import Struct

from perdure._core.log.fold import State
from perdure._core.log.store import Post, SessionPlace, Store
from perdure._core.model.protocol import Model
from perdure._core.run.run import Run
from perdure._core.run.spec import BetweenTurns, Engine, HistoryProcessor, OutputValidator, Reminder, ToolSelector
from perdure._core.run.stop import Guardrail, StopCondition
from perdure._core.tools.tool import Tool
from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError
from perdure._core.watch import Watcher

if TYPE_CHECKING:
    import asyncio

    from perdure._context.directives.commands import Command
    from perdure._context.role import Role
    from perdure._context.skills.skill import Skill
    from perdure._core.permission.gate import Gate
    from perdure._core.permission.rules import Rule

    from .middleware import Middleware


Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]]
"""Opens the resources of an extension, and closes them: once for `async with agent`, else for each run."""


class ResumableBackgroundTasks(Protocol):
    """Protocol of an extension's background work, which continues between runs and can be resumed after a crash."""

    def has_unfinished_tasks(self, state: State, posts: Sequence[Post], store: Store) -> bool:
        """Return True if a session has unfinished tasks on which this process is not working."""
        ...

    def resume_tasks(self, run: Run) -> None:
        """Resume the unfinished tasks of a session."""
        ...

    async def report_ended_tasks(self, run: Run) -> None:
        """Post the results of tasks that have ended, if their process died before it could."""
        ...

    def list_tasks(self, place: SessionPlace) -> "Sequence[asyncio.Task[Any]]":
        """Return the asyncio tasks on the running event loop that work for the session at this place."""
        ...


class Extension(Struct, frozen=True, kw_only=True, eq=False, metaclass=StrictOptionsMeta):
    """A bundle of tools, instructions, rules and more for an agent. Each field is added to the agent's own."""

    name: str
    """The name of the extension, used in errors."""
    instructions: str = ""
    """Text added to the system prompt after the agent's own instructions."""
    tools: "Sequence[Tool[..., Any]]" = ()
    late_tools: "Callable[[], Sequence[Tool[..., Any]]] | None" = None
    """Returns the tools that are known only once the lifespan is open, such as those of a server; called for each run.

    A tool of the agent wins over one of these with its name.
    """
    commands: "Sequence[Command]" = ()
    """Handlers of `/name` in a message."""
    skills: "Sequence[Skill]" = ()
    roles: "Sequence[Role]" = ()
    agents: Sequence[str] = ()
    """Names of agents that the extension's tools reach, to which `@name` in a message may refer."""
    reminders: Sequence[Reminder] = ()
    """Functions that return text for the end of each request; the text is never stored."""
    between_turns: Sequence[BetweenTurns] = ()
    """Functions that run before each model request, and before the tool calls of a reply."""
    wrap_model: Callable[[Model], Model] | None = None
    """Wraps the agent's model, such as `lambda model: observed(model, watch)`."""
    wrap_tool: "Callable[[Tool[..., Any]], Tool[..., Any]] | None" = None
    """Wraps each tool, such as `lambda tool: timed(tool, 30)`; also tools that are added later."""
    select_tools: ToolSelector | None = None
    """Chooses the tools that the model is sent, from those of the run and those that it has loaded; the others can be
    called all the same. An extension chooses from what those listed before it have chosen.
    """
    middleware: "Sequence[Middleware]" = ()
    """Functions around runs, turns and tool calls; the first is outermost."""
    engine: Engine | None = None
    """The engine, for an agent that has none of its own. Only one extension can have one."""
    history_processor: HistoryProcessor | None = None
    """Transforms the messages that the model is sent, after that of the agent."""
    rules: "Sequence[Rule]" = ()
    """Permission rules: `allow(…)`, `deny(…)`, `ask(…)`.

    They are added to the rules of the agent's `Permissions`; to any other kind of gate only denials can be added.
    """
    output_validators: Sequence[OutputValidator] = ()
    """Validate a reply without tool calls: each accepts it or asks the model to retry."""
    guardrails: Sequence[Callable[[], Guardrail]] = ()
    stop: Sequence[StopCondition] = ()
    """Stop conditions: each can end a run after a turn."""
    watchers: Sequence[Watcher] = ()
    background: ResumableBackgroundTasks | None = None
    """Work that continues between runs, such as tasks of background agents."""
    lifespan: Lifespan | None = None
    """Opens the resources that the extension needs, and closes them."""

    def __post_init__(self) -> None:
        checks.require_text("Extension", "name", self.name, non_empty=True)
        checks.require_text("Extension", "instructions", self.instructions)
        for field in ("engine", "history_processor"):
            checks.require_callable_or_none("Extension", field, getattr(self, field))
        for field in ("wrap_model", "wrap_tool", "select_tools", "late_tools"):
            checks.require_plain_function_or_none("Extension", field, getattr(self, field))
        for field in ("reminders", "between_turns", "output_validators", "guardrails", "stop", "watchers"):
            checks.require_callables("Extension", field, getattr(self, field))
        check_guardrail_factories("Extension", self.guardrails)
        _check_lifespan(self.lifespan)
        _check_background(self.background)
        for each in self.reminders:
            if checks.is_async_function(each):
                advice = f"in {self.name!r}: a reminder is a plain function; put async code into `between_turns`"
                checks.raise_config_error("Extension", "reminders", each, advice)
        for field, kind in _ITEM_CLASSES.items():
            check_list_option("Extension", field, getattr(self, field), kind)


_ITEM_CLASSES = {
    "tools": "Tool",
    "commands": "Command",
    "skills": "Skill",
    "roles": "Role",
    "agents": "str",
    "rules": "Rule",
    "middleware": "Middleware",
}


def check_guardrail_factories(owner: str, guardrails: Sequence[object]) -> None:
    """Raise `ConfigError` if a guardrail factory is an async function; the guardrails that it returns may be async."""
    for each in guardrails:
        if checks.is_async_function(each):
            advice = "give plain functions without arguments, each of which returns a guardrail, plain or async"
            checks.raise_config_error(owner, "guardrails", each, advice)


def _check_lifespan(lifespan: object) -> None:
    if lifespan is not None and (
        not callable(lifespan) or checks.is_async_function(lifespan) or isasyncgenfunction(lifespan)
    ):
        advice = "give a function of the agent that returns a context manager: put @asynccontextmanager above it"
        checks.raise_config_error("Extension", "lifespan", lifespan, advice)


def _check_background(background: object) -> None:
    if background is None:
        return
    for method in ("has_unfinished_tasks", "resume_tasks", "list_tasks"):
        checks.require_plain_function("Extension", f"background.{method}", getattr(background, method, None))
    report = getattr(background, "report_ended_tasks", None)
    if not checks.is_async_function(report):
        checks.raise_config_error("Extension", "background.report_ended_tasks", report, "give an async method")


def check_list_option(owner: str, name: str, value: object, item_class: str = "") -> None:
    """Raise `ConfigError` unless the value is a list, and its items are of the class named `item_class`."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        checks.raise_config_error(owner, name, value, "give a list")
    for each in cast("Sequence[object]", value if item_class else ()):
        if item_class not in [known.__name__ for known in type(each).__mro__]:  # the classes are imported at first use
            checks.raise_config_error(owner, name, each, f"give a list of {item_class}(…)")


def check_extensions(extensions: Sequence[Extension]) -> None:
    """Raise `ConfigError` if two extensions, or two roles of extensions, have the same name.

    Tools, skills and commands are checked elsewhere, together with the agent's own. An agent's own role wins over that
    of an extension.
    """
    _check_distinct_names("extensions", [each.name for each in extensions])
    with_engine = [repr(each.name) for each in extensions if each.engine is not None]
    if len(with_engine) > 1:
        raise ConfigError(
            f"the extensions {', '.join(with_engine)} each have an engine, and an agent has one: leave one"
        )
    _check_distinct_names("roles of extensions", [role.name for each in extensions for role in each.roles])


async def enter_lifespan(stack: AsyncExitStack, lifespan: Lifespan, agent: object) -> None:
    """Open the resources of an extension, by an async or a plain context manager; the stack closes them."""
    opened: Any = lifespan(agent)
    if isinstance(opened, AbstractAsyncContextManager):
        await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", opened))
    else:
        advice = "a context manager: put @asynccontextmanager above it"
        checks.require_plain_return_type("lifespan", lifespan, opened, AbstractContextManager, advice)
        stack.enter_context(opened)


def _check_distinct_names(kind: str, names: Sequence[str]) -> None:
    """Raise `ConfigError` if a name occurs twice."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigError(f"two {kind} are called {name!r}: give one of them another name, or leave it out")


def list_extension_rules(extensions: "Sequence[Extension]") -> "list[Rule]":
    """Return the permission rules of all extensions."""
    return [rule for each in extensions for rule in each.rules]


def add_extension_rules(gate: "Gate | None", extensions: "Sequence[Extension]") -> "Gate | None":
    """Return the gate (which decides about tool calls) with the permission rules of the extensions added."""
    rules = list_extension_rules(extensions)
    if not rules:
        return gate
    from perdure._core.permission.inherited import add_rules_to_gate  # at first use: few extensions have rules

    return add_rules_to_gate(gate, rules)
