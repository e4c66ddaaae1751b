"""Approvals in a session: explain whether a tool call would be allowed, and list the grants that apply."""

from collections.abc import Iterable
from typing import Any

from perdure.core.call_preparation import run_prepare_hooks
from perdure.core.error import ConfigError
from perdure.core.fold import State
from perdure.core.gate_operations import explain_decision
from perdure.core.mailbox import REVOKE_POST
from perdure.core.message import ToolCall
from perdure.core.permission import Explanation, Gate, Grant, grants_from_log, grants_of
from perdure.core.run import Run
from perdure.core.schema import Invalid
from perdure.core.store import Post
from perdure.core.tool import Skip
from perdure.core.tool_execution import PreparedCall

from .active_agent import active_agent
from .build import build_toolbox
from .extension import add_extension_rules
from .spec import AgentSpec


async def explain_call(
    agent: AgentSpec[Any], session_id: str, state: State, run: Run | None, call: ToolCall
) -> Explanation:
    """Explain whether a tool call would be allowed, denied or asked about in a session, and why."""
    agent = active_agent(agent, state)
    toolbox = build_toolbox(agent, {}, agent.all_skills(), state.skills) if run is None else run.toolbox
    tool = toolbox.get(call.name)
    if tool is None:
        raise ConfigError(f"there is no tool {call.name!r}; {toolbox.suggest_names(call.name)}")
    allowed = agent.limits.allowed_tools if run is None else None  # the toolbox of a run contains only allowed tools
    if allowed is not None and call.name not in allowed:
        return Explanation("deny", f"allowed_tools does not list {call.name!r}: it is not offered, and not called")
    try:
        final = await run_prepare_hooks(tool, call)
    except Invalid as problem:
        raise ConfigError(f"invalid arguments for {call.name!r}: {problem}") from None
    if isinstance(final, Skip):
        return Explanation("deny", final.reason)
    request = PreparedCall(call, tool, *final).build_permission_request(session_id, "" if run is None else run.run_id)
    gate = add_extension_rules(agent.permission, agent.extensions) if run is None else run.gate
    if (grants := grants_of(gate)) is not None:
        grants.sync_with_log(state.remembered_decisions, session_id)
    return explain_decision(gate, request)


def list_grants(gate: Gate | None, session_id: str, state: State, posts: Iterable[Post]) -> list[Grant]:
    """Return the grants that apply in a session: approvals for more than one call that were not revoked."""
    if (grants := grants_of(gate)) is not None:
        grants.sync_with_log(state.remembered_decisions, session_id)
        applying = [grant for grant in grants if grant.session_id in {"", session_id}]
    else:
        applying = [
            grant for grant, is_granted in grants_from_log(state.remembered_decisions, session_id).items() if is_granted
        ]
    revoked = {post.text_field("grant_id") for post in posts if post.kind == REVOKE_POST}
    return [grant for grant in applying if grant.grant_id not in revoked]
