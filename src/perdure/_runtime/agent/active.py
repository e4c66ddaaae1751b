"""Selection of the agent that answers next in a session, with its role and its model.

Overrides of a run take precedence, then the configuration of the session, then the agent's own options. The
configuration of a session applies to the agent that was active when it was set: after a handoff the next agent has its
own.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from perdure._core.log.fold import FOR_AGENT, State
from perdure._core.model.protocol import Model
from perdure._core.values import checks
from perdure._core.values.event import SessionConfigured
from perdure._models.registry import open_model

from .handoff import ACTIVE_AGENT, HANDED_BY_SETTING, HANDOFF_CALL_SETTING, find_handoff
from .overrides import RunOverrides
from .spec import AgentSpec

if TYPE_CHECKING:
    from perdure._context.history.compaction import Compaction
    from perdure._context.role import Role

RoleLevel: TypeAlias = Literal["run", "session", "agent"]
"""The level at which a role was requested."""


def get_active_agent(first_agent: AgentSpec[Any], state: State) -> AgentSpec[Any]:
    """Return the agent that answers next in a session: that of the last handoff, else the session's first agent."""
    return first_agent.find_reachable(state.settings.get(ACTIVE_AGENT, ""))


def get_session_configuration(first_agent: AgentSpec[Any], agent: AgentSpec[Any], state: State) -> dict[str, Any]:
    """Return the session's settings (model, role, …) that apply to this agent, without those that were reset."""
    found = state.settings if agent is first_agent else state.settings_by_agent.get(agent.name, {})
    return {name: value for name, value in found.items() if value != ""}


def build_configuration_events(
    first_agent: AgentSpec[Any], state: State, changes: dict[str, Any]
) -> list[SessionConfigured]:
    """Build the events that store a change of a session's settings, such as its model, role or active agent."""
    if ACTIVE_AGENT in changes and changes[ACTIVE_AGENT] not in ["", *[each.name for each in first_agent.reachable]]:
        known = ", ".join([repr(each.name) for each in first_agent.reachable])
        checks.raise_config_error(
            "session.configure", ACTIVE_AGENT, changes[ACTIVE_AGENT], f"the conversation can be handed over to {known}"
        )
    agent = (
        first_agent.find_reachable(changes[ACTIVE_AGENT])
        if ACTIVE_AGENT in changes
        else get_active_agent(first_agent, state)
    )
    agent.find_role(changes.get("role", ""))
    settings = {name: value for name, value in changes.items() if name != ACTIVE_AGENT}
    events = (
        [SessionConfigured(settings if agent is first_agent else {**settings, FOR_AGENT: agent.name})]
        if settings
        else []
    )
    return (
        [SessionConfigured(_build_handoff_settings(first_agent, agent, state)), *events]
        if ACTIVE_AGENT in changes
        else events
    )


def _build_handoff_settings(first_agent: AgentSpec[Any], agent: AgentSpec[Any], state: State) -> dict[str, str]:
    """Return the session settings that make an agent the active one, and that mark earlier handoff calls as done."""
    before, name = state.settings.get(ACTIVE_AGENT, ""), "" if agent is first_agent else agent.name
    by = before if before in [each.name for each in first_agent.reachable] and before != name else ""
    return {ACTIVE_AGENT: name, HANDED_BY_SETTING: by, HANDOFF_CALL_SETTING: find_handoff(state.latest_results)[1]}


def choose_role(
    first_agent: AgentSpec[Any], agent: AgentSpec[Any], overrides: RunOverrides, configured: dict[str, Any]
) -> "tuple[Role | None, RoleLevel]":
    """Return the role of the active agent, and where it was set: for the run, the session or the agent.

    Roles that only another reachable agent has are skipped.
    """
    if overrides.get("role") == "":
        return None, "run"
    asked: dict[RoleLevel, str] = {
        "run": overrides.get("role", ""),
        "session": configured.get("role", ""),
        "agent": agent.role,
    }
    for level, name in asked.items():
        if name and has_role(agent, name):
            return agent.find_role(name), level
        check_role(first_agent, name)
    return None, "agent"


def has_role(agent: AgentSpec[Any], name: str) -> bool:
    """Return True if an agent or one of its extensions has a role of that name."""
    return name in [role.name for role in agent.all_roles()]


def check_role(first_agent: AgentSpec[Any], name: str) -> None:
    """Raise `ConfigError` unless this agent, or one it can hand the conversation over to, has the role."""
    if name and not any(has_role(each, name) for each in first_agent.reachable):
        first_agent.find_role(name)


def choose_model(
    first_agent: AgentSpec[Any],
    agent: AgentSpec[Any],
    overrides: RunOverrides,
    role: "tuple[Role | None, RoleLevel]",
    configured: dict[str, Any],
) -> Model:
    """Return the model for a run: that of the overrides, the session, the role or the agent.

    Precedence: the model in the overrides, that of a role requested for the run, that in the session's configuration,
    that of any other role, the agent's.
    """
    if "model" in overrides:
        return open_model(overrides["model"])
    chosen, level = role
    of_the_role = "" if chosen is None else chosen.model
    named = (of_the_role if level == "run" else "") or configured.get("model") or of_the_role
    return (first_agent.find_session_model(named) or open_model(named)) if named else agent.model


def choose_compaction(agent: AgentSpec[Any], configured: dict[str, Any]) -> "Compaction | None":
    """Return the compaction settings of a session: those of the agent, changed by those set for the session."""
    given = configured.get("compaction")
    if not given:
        return agent.compaction
    from perdure._context.history.compaction import Compaction  # at first use: most sessions have that of their agent

    base = Compaction() if agent.compaction is None else agent.compaction
    if not isinstance(base, Compaction):
        return base
    return replace(base, **{name: value for name, value in given.items() if name in Compaction.__struct_fields__})


def encode_compaction(compaction: object) -> dict[str, Any]:
    """Encode the limits and instructions of a `Compaction` for the log.

    Raises `ConfigError` if it has a model or a strategy, and for other objects.
    """
    from perdure._context.history.compaction import Compaction

    if not isinstance(compaction, Compaction):
        checks.raise_config_error("session.configure", "compaction", compaction, "give a Compaction(…), or ''")
    if compaction.model is not None or compaction.strategy is not None:
        advice = "a model and a strategy cannot be stored: give them to the agent, as in Agent(compaction=…)"
        checks.raise_config_error("session.configure", "compaction", compaction, advice)
    names = [name for name in compaction.__struct_fields__ if name not in {"model", "strategy"}]
    return {name: getattr(compaction, name) for name in names}
