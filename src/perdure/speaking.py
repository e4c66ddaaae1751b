"""Who speaks in a session, in which role, and by which model. Above: `build.py`, `session.py`, `prompting.py`.
Below: `core`, `models`.

What a run was asked for comes first, then what the session was told, then the agent's own. What a session was told
holds for the agent that spoke at that time: whoever takes the conversation over has words and a model of its own.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .core import check
from .core.event import SessionConfigured
from .core.fold import FOR, State
from .core.model import Model
from .models import open_model
from .override import Options

if TYPE_CHECKING:
    from .agent import Agent
    from .context.role import Role

SPEAKS = "agent"
"""Of what a session was told: who speaks in it, by name; empty for the agent that it was begun with."""
HANDED_BY = "handed_by"
"""Who spoke before, and can be handed the conversation back."""
HANDED_IN = "handed_in"
"""The last call by which it was handed over: that was done, or came to nothing."""

Level: TypeAlias = Literal["run", "session", "agent"]
"""Who has asked for something."""


def speaking(first: "Agent[Any]", state: State) -> "Agent[Any]":
    """Who has the conversation of a session that was begun with the first agent."""
    return first.speaking(state.configured.get(SPEAKS, ""))


def told_to(first: "Agent[Any]", agent: "Agent[Any]", state: State) -> dict[str, Any]:
    """What the session was told for this agent; what was taken back is not there."""
    told = state.configured if agent is first else state.configured_for.get(agent.name, {})
    return {name: value for name, value in told.items() if value != ""}


def configured(first: "Agent[Any]", state: State, given: dict[str, str]) -> list[SessionConfigured]:
    """What is kept in the log when a session is told who speaks, and what that agent is to be."""
    if SPEAKS in given and given[SPEAKS] not in ["", *[each.name for each in first.reachable]]:
        known = ", ".join([repr(each.name) for each in first.reachable])
        check.refuse("session.configure", SPEAKS, given[SPEAKS], f"the conversation can be handed over to {known}")
    agent = first.speaking(given[SPEAKS]) if SPEAKS in given else speaking(first, state)
    agent.role_of(given.get("role", ""))
    told = {name: value for name, value in given.items() if name != SPEAKS}
    events = [SessionConfigured(told if agent is first else {**told, FOR: agent.name})] if told else []
    return [SessionConfigured(_handed(first, agent, state)), *events] if SPEAKS in given else events


def _handed(first: "Agent[Any]", agent: "Agent[Any]", state: State) -> dict[str, str]:
    """How the log says that an agent speaks from here on. What a model has called for earlier is over with that."""
    from .subagents.handoff import handed_to  # at first use: most sessions have one agent

    before, name = state.configured.get(SPEAKS, ""), "" if agent is first else agent.name
    by = before if before in [each.name for each in first.reachable] and before != name else ""
    return {SPEAKS: name, HANDED_BY: by, HANDED_IN: handed_to(state.latest_results)[1]}


def role_of(
    first: "Agent[Any]", agent: "Agent[Any]", overrides: Options, told: dict[str, Any]
) -> "tuple[Role | None, Level]":
    """The role of whoever speaks, and who has asked for it. A role of another agent that may speak is left out."""
    if overrides.get("role") == "":
        return None, "run"
    asked: dict[Level, str] = {"run": overrides.get("role", ""), "session": told.get("role", ""), "agent": agent.role}
    for level, name in asked.items():
        if has_role(agent, name):
            return agent.role_of(name), level
        check_role(first, name)
    return None, "agent"


def has_role(agent: "Agent[Any]", name: str) -> bool:
    """Whether an agent has a role of that name, its own or of an extension."""
    return name in [role.name for role in (*agent.roles, *[role for each in agent.extensions for role in each.roles])]


def check_role(first: "Agent[Any]", name: str) -> None:
    """Refuse a role that neither this agent has nor any that the conversation can be handed over to."""
    if not any(has_role(each, name) for each in first.reachable):
        first.role_of(name)


def check_handoffs(first: "Agent[Any]") -> None:
    """Refuse agents that nobody could tell apart: the log knows by its name who speaks."""
    names = [each.name for each in first.reachable]
    for name in names:
        if names.count(name) > 1:
            check.refuse(
                "Agent",
                "handoffs",
                [each.name for each in first.handoffs],
                f"two of the agents that may speak are called {name!r}: give one of them another name",
            )


def model_of(agent: "Agent[Any]", overrides: Options, role: "tuple[Role | None, Level]", told: dict[str, Any]) -> Model:
    """Whoever was asked for most closely. On the same level, a model comes before that of a role."""
    if "model" in overrides:
        return open_model(overrides["model"])
    chosen, level = role
    of_the_role = "" if chosen is None else chosen.model
    named = (of_the_role if level == "run" else "") or told.get("model") or of_the_role
    return open_model(named) if named else agent.model
