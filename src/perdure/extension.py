"""A bundle of what an agent can be given, as data. Above: agents. Below: the seams of `core`.

An agent with two extensions has the tools of both, the instructions of both, and so on, in the order of listing. There
is no other way in which extensions act on an agent or on one another.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct

from .core import check
from .core.error import ConfigError
from .core.event import Entry
from .core.feed import Watcher
from .core.gate import held_below
from .core.model import Model
from .core.permission import Gate, Permissions, Rule, allow, allow_all
from .core.run import Accept, Reminder, Upkeep
from .core.stop import Guardrail, StopCondition
from .core.tool import Tool

if TYPE_CHECKING:
    from .agent import Agent
    from .context.directives import Hook
    from .context.role import Role
    from .context.skills import Skill

Lifespan: TypeAlias = Callable[["Agent[Any]"], AbstractAsyncContextManager[Any]]
"""Opens what an extension needs, and closes it: once for `async with agent`, else for each run."""


class Extension(Struct, frozen=True, kw_only=True, eq=False):
    """What an agent gets besides its own. Every field is added to the agent's, none replaces it."""

    name: str
    """What it is called in errors."""
    instructions: str = ""
    """Told to the model after the agent's own instructions."""
    tools: "Sequence[Tool[..., Any]]" = ()
    hooks: "Sequence[Hook]" = ()
    """Handlers of `/name` in a message."""
    skills: "Sequence[Skill]" = ()
    roles: "Sequence[Role]" = ()
    agents: Sequence[str] = ()
    """Names that `@name` in a message may mean: of agents that its tools reach."""
    reminders: Sequence[Reminder] = ()
    """Words for the end of each request, which are never kept."""
    upkeep: Sequence[Upkeep] = ()
    """What is done before the model is asked, and before its calls are made."""
    wrap_model: Callable[[Model], Model] | None = None
    """Makes another model of the agent's, such as `lambda model: observed(model, watch)`."""
    wrap_tool: "Callable[[Tool[..., Any]], Tool[..., Any]] | None" = None
    """Makes another tool of each, such as `lambda tool: timed(tool, 30)`; also of those that come later."""
    rules: Sequence[Rule] = ()
    """Which calls are made, which never, which are asked about: `allow(…)`, `deny(…)`, `ask(…)`. They are added to the
    rules of the agent's `Permissions`; of a gate of another kind only a denial can be added to."""
    accept: Sequence[Accept] = ()
    """Asked whether a reply without calls may stand."""
    guardrails: Sequence[Callable[[], Guardrail]] = ()
    stop: Sequence[StopCondition] = ()
    """Each of them ends a run after a turn with calls."""
    watchers: Sequence[Watcher[Entry]] = ()
    lifespan: Lifespan | None = None
    """Opens what the rest of it needs, and closes it."""

    def __post_init__(self) -> None:
        check.text("Extension", "name", self.name, filled=True)
        check.text("Extension", "instructions", self.instructions)
        for field in ("wrap_model", "wrap_tool", "lifespan"):
            check.function_or_none("Extension", field, getattr(self, field))
        for field in ("reminders", "upkeep", "accept", "guardrails", "stop", "watchers"):
            check.functions("Extension", field, getattr(self, field))
        for each in self.reminders:
            if iscoroutinefunction(each):
                advice = f"in {self.name!r}: a reminder is a plain function; what has to wait belongs into `upkeep`"
                check.refuse("Extension", "reminders", each, advice)
        for field, kind in _BUNDLES.items():
            check_bundle("Extension", field, getattr(self, field), kind)


_BUNDLES = {"tools": "Tool", "hooks": "Hook", "skills": "Skill", "roles": "Role", "agents": "str", "rules": "Rule"}


def check_bundle(call: str, name: str, value: object, kind: str = "") -> None:
    """Refuse what is no list, or a list of anything but `kind`, the name of a class."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        check.refuse(call, name, value, "give a list")
    for each in cast("Sequence[object]", value if kind else ()):
        if kind not in [known.__name__ for known in type(each).__mro__]:  # the classes are imported at first use
            check.refuse(call, name, each, f"give a list of {kind}(…)")


def check_extensions(extensions: Sequence[Extension]) -> None:
    """Refuse two extensions that give the same name to something. Tools, skills and hooks are checked with all others.

    An agent's own role comes before that of an extension.
    """
    _check_distinct("extensions", [each.name for each in extensions])
    _check_distinct("roles of extensions", [role.name for each in extensions for role in each.roles])


def _check_distinct(what: str, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigError(f"two {what} are called {name!r}: give one of them another name, or leave it out")


def watchers_of(agent: "Agent[Any]") -> list[Watcher[Entry]]:
    """Those of an agent, its extensions, and the agents that it may hand over to. Who is listed twice is told once."""
    found: list[Watcher[Entry]] = []
    for each in agent.reachable:
        listed = [*each.watchers, *[watcher for extension in each.extensions for watcher in extension.watchers]]
        found += [watcher for watcher in listed if each is agent or watcher not in found]
    return found


def ruled(gate: Gate | None, extensions: "Sequence[Extension]") -> Gate | None:
    """A gate, with the rules of extensions."""
    rules = [rule for each in extensions for rule in each.rules]
    if not rules:
        return gate
    if gate is not None and type(gate) is not Permissions:
        denials = [rule for rule in rules if rule.policy == "deny"]
        if gate is allow_all:
            return Permissions(*denials, allow()) if denials else gate
        return held_below(gate, Permissions(*denials)) if denials else gate
    own = gate if isinstance(gate, Permissions) else Permissions()
    return Permissions(*own.rules, *rules, handler=own.handler, grants=own.grants, expires_seconds=own.expires_seconds)


@asynccontextmanager
async def alive(agent: "Agent[Any]") -> AsyncGenerator[None]:
    """What the extensions of an agent need is open in this block. In `async with agent`, it was open before."""
    async with AsyncExitStack() as stack:
        closed = [] if agent.is_alive else [each for each in agent.reachable if not each.is_alive]
        for each in closed:
            for extension in each.extensions:
                if extension.lifespan is not None:
                    await stack.enter_async_context(extension.lifespan(each))
        yield
