"""Build the agents that `perdure eval` runs: those the user names, or the agent of `perdure run`, with each model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .terminal_output import TerminalOutput, to_one_line

if TYPE_CHECKING:
    from perdure.runtime.agent import Agent


def build_agents(
    places: Sequence[str], models: Sequence[str], options: dict[str, Any], *, yes: bool, screen: TerminalOutput
) -> "dict[str, Agent[Any]]":
    """Build the agents to evaluate, by their names in the report. Raises `ConfigError` for one that cannot be used.

    Agents are those at `places`, or else that of `perdure run`, assembled with `options`; with models, each of them
    with each model.
    """
    from perdure.evaluating.evaluation import name_agents
    from perdure.evaluating.import_by_name import import_agent

    if not places:
        return _build_own_agents(models, options, yes=yes, screen=screen)
    named = name_agents([import_agent(each) for each in places])
    if not models:
        return named
    return {f"{name} ({model})": agent.replace(model=model) for name, agent in named.items() for model in models}


def _build_own_agents(
    models: Sequence[str], options: dict[str, Any], *, yes: bool, screen: TerminalOutput
) -> "dict[str, Agent[Any]]":
    """Return the agent of `perdure run` with each model; calls that would be asked about are denied."""
    from .agent_assembly import collect_agent_parts
    from .run_options import AgentOptions

    agents: dict[str, Agent[Any]] = {}
    for model in models or (None,):
        parts = collect_agent_parts(AgentOptions(model=model, **options))
        choice = parts.choice
        for note in (*parts.notes, *([f"model {choice.model}: {choice.reason}"] if choice.reason else [])):
            screen.note(to_one_line(note))
        gate = parts.build_gate(None, yes=yes)
        agents[choice.model] = parts.build_agent(permission=gate, answer_timeout_seconds=0.0)
    return agents
