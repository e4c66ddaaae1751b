"""`ServedAgent`: how an MCP server offers an agent to its clients; and the list of agents that it serves."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, cast, get_args

from msgspec import Struct

from perdure.core import argument_checks
from perdure.core.error import ConfigError, UsageError
from perdure.core.model import ModelInfo, Request
from perdure.core.reserved_session_ids import check_part_not_reserved
from perdure.core.tool import Tool
from perdure.core.toolbox import Toolbox
from perdure.runtime.agent import Agent
from perdure.runtime.output import Output, to_output

if TYPE_CHECKING:
    from perdure.core.permission_gate import Gate
    from perdure.core.store import Store

OfferedTools: TypeAlias = Literal["agent", "tools", "both"]
"""The tools that clients see of an agent: one that runs it, the agent's own, or both."""

Served: TypeAlias = "Agent[Any] | ServedAgent | Toolbox | Iterable[Tool[..., Any] | Agent[Any] | ServedAgent]"
"""Agents and tools that can be served."""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_LENGTH: Final = 64


class ServedAgent(Struct, frozen=True, kw_only=True, eq=False):
    """Agent that an MCP server offers: the name and description of its tool, and the type of its answer."""

    agent: Agent[Any]
    """The agent; its permissions, limits, vault and store apply to every call."""
    offer: OfferedTools = "agent"
    """`agent`: a tool that gives the agent a task. `tools`: the agent's own tools, called without a model. `both`."""
    name: str = ""
    """The name of the tool that runs the agent; by default the agent's."""
    description: str = ""
    """The description of that tool; by default the agent's."""
    output: Any = None
    """A type or JSON Schema that the answer has to match: clients get it as structured content, with its schema."""

    def __post_init__(self) -> None:
        if not isinstance(self.agent, Agent):
            argument_checks.raise_config_error("ServedAgent", "agent", self.agent, "give an Agent(…)")
        argument_checks.require_one_of("ServedAgent", "offer", self.offer, get_args(OfferedTools))
        argument_checks.require_text("ServedAgent", "name", self.name)
        argument_checks.require_text("ServedAgent", "description", self.description)
        if self.name and (_NOT_IN_NAMES.search(self.name) or len(self.name) > _MAX_NAME_LENGTH):
            argument_checks.raise_config_error(
                "ServedAgent", "name", self.name, "use at most 64 letters, digits, '_' and '-'"
            )
        check_part_not_reserved(self.tool_name, "the tool of an agent")
        to_output(self.output)

    @property
    def tool_name(self) -> str:
        """The name of the tool that runs the agent."""
        return self.name or _NOT_IN_NAMES.sub("-", self.agent.name).strip("-")[:_MAX_NAME_LENGTH] or "agent"

    @property
    def tool_description(self) -> str:
        """The description of the tool that runs the agent."""
        own = self.description or self.agent.description
        return own or f"Give a task to the agent {self.agent.name!r}, and get its answer."

    @property
    def wanted_output(self) -> Output[Any] | None:
        """The type of the answer; `None` for text."""
        return to_output(self.output)

    @property
    def offered_tools(self) -> Sequence[Tool[..., Any]]:
        """The agent's own tools, as far as they are offered."""
        return () if self.offer == "agent" else tuple(self.agent.toolbox)


class _NoModel:
    """Model of an agent that only has tools to serve: it cannot be asked."""

    info = ModelInfo("none", "mcp")

    def stream(self, request: Request) -> NoReturn:  # noqa: ARG002 - the interface of models
        """Raise `UsageError`: tools are called by clients, and not by a model."""
        raise UsageError("these tools are served to MCP clients: there is no model to ask")


def list_served_agents(
    served: Served, *, permission: "Gate | None" = None, store: "Store | str | None" = None, name: str = "tools"
) -> list[ServedAgent]:
    """Return a `ServedAgent` for each agent that is served, and one for all tools that are served without an agent.

    `permission` and `store` are for those tools. Raises `ConfigError` for anything else, and for a name that is there
    twice.
    """
    if isinstance(served, Agent | ServedAgent):
        parts: list[Any] = [served]
    elif isinstance(served, Toolbox):
        parts = list(served)
    elif isinstance(served, Iterable) and not isinstance(served, str | bytes):
        parts = list(cast("Iterable[Any]", served))
    else:
        argument_checks.raise_config_error("serve", "served", served, "give an agent, a toolbox or a list of tools")
    agents = [each if isinstance(each, ServedAgent) else _wrap_agent(each) for each in parts if _is_agent(each)]
    tools = [each for each in parts if not _is_agent(each)]
    if tools:
        options: dict[str, Any] = {} if store is None else {"store": store}
        host = Agent(_NoModel(), name=name, tools=tools, permission=permission, **options)
        agents.insert(0, ServedAgent(agent=host, offer="tools"))
    elif permission is not None or store is not None:
        raise ConfigError("permission=… and store=… are for tools without an agent: give them to Agent(…) instead")
    _check_names(agents)
    return agents


def _is_agent(part: object) -> bool:
    return isinstance(part, Agent | ServedAgent)


def _wrap_agent(agent: Agent[Any]) -> ServedAgent:
    return ServedAgent(agent=agent)


def _check_names(agents: Sequence[ServedAgent]) -> None:
    names: list[str] = []
    for each in agents:
        names += [tool.name for tool in each.offered_tools]
        if each.offer != "tools":
            names.append(each.tool_name)
    if not names:
        raise ConfigError("there is nothing to serve: give an agent, or at least one tool")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two of the tools that are served are called {name!r}: rename one of them")
