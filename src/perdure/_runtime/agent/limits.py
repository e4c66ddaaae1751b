"""The limits of a run: those of its active agent, merged with those of the run and of the agent that handed over."""

from typing import Any

from msgspec.structs import replace

from perdure._core.run.stop import Limits, merge_limits
from perdure._core.tools.toolbox import Toolbox

from .handoff import build_handoff_tool_name
from .overrides import RunOverrides
from .spec import AgentSpec


def choose_limits(
    first_agent: AgentSpec[Any], agent: AgentSpec[Any], overrides: RunOverrides, toolbox: Toolbox
) -> Limits:
    """Return the limits of a run of `agent` with these tools, in a conversation that began with `first_agent`.

    With `narrow_handoffs`, those of the first agent on money, tokens, time and calls hold for the others too. Raises
    `ConfigError` if the run allows a tool that no agent of the conversation has.
    """
    limits = agent.limits
    if agent is not first_agent and first_agent.narrow_handoffs:
        own = first_agent.limits
        limits = merge_limits(
            limits,
            Limits(
                token_budget=own.token_budget,
                max_cost_usd=own.max_cost_usd,
                timeout_seconds=own.timeout_seconds,
                max_tool_calls=own.max_tool_calls,
                tool_timeout_seconds=own.tool_timeout_seconds,
            ),
        )
    later = overrides.get("limits")
    if later is not None:
        later = _drop_tools_of_other_agents(first_agent, toolbox, later)
        if later.allowed_tools is not None and not agent.has_late_tools:
            toolbox.with_only(later.allowed_tools, agent.spare_toolbox)  # a name that is misspelt raises
        limits = replace(merge_limits(limits, later), widens=())
    if limits.allowed_tools is not None and "tools" in overrides:  # it may lack some that the agent allows
        limits = replace(limits, allowed_tools=tuple([each for each in limits.allowed_tools if each in toolbox]))
    return _drop_tools_of_other_agents(first_agent, toolbox, limits)


def _drop_tools_of_other_agents(first_agent: AgentSpec[Any], toolbox: Toolbox, limits: Limits) -> Limits:
    """Return the limits without allowed tools that this agent lacks, but another agent of the conversation has."""
    allowed = limits.allowed_tools
    if allowed is None or not first_agent.handoffs:
        return limits
    others = {
        name for each in first_agent.reachable for name in (*each.toolbox.names, build_handoff_tool_name(each.name))
    }
    return replace(limits, allowed_tools=tuple([each for each in allowed if each in toolbox or each not in others]))
