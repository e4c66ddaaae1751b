"""What the permissions of a session are: explain a call, list the grants that apply, forget one that is revoked."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from perdure._core.log.fold import State
from perdure._core.log.store import Post, Store, get_namespaced_session_id
from perdure._core.people.mailbox import REVOKE_POST
from perdure._core.permission.gate import Explanation, Gate
from perdure._core.permission.grants import Grant, grants_from_log
from perdure._core.permission.inherited import explain_decision, list_chain_grants
from perdure._core.run.calling_run import list_seen_labels
from perdure._core.run.run import Run
from perdure._core.run.tool_calls.approval import add_seen_labels, build_permission_request
from perdure._core.run.tool_calls.execution import PreparedCall
from perdure._core.run.tool_calls.preparation import run_prepare_hooks
from perdure._core.schema.problems import Invalid
from perdure._core.tools.binding import build_approval_binding, build_call_binding, build_unique_session_key
from perdure._core.tools.tool import Skip
from perdure._core.values.binding import ApprovalBinding, identify_store
from perdure._core.values.error import ConfigError
from perdure._core.values.message import ToolCall
from perdure._runtime.agent.active import get_active_agent
from perdure._runtime.agent.build import (
    build_session_gate,
    build_toolbox,
    combine_gates,
    get_project_root,
    update_grants_from_log,
)
from perdure._runtime.agent.output import ANSWER_TOOL
from perdure._runtime.agent.spec import AgentSpec

from .seals import list_trusted_session_keys, record_revocation, select_sealed_decisions

OF_THE_RUNTIME = Explanation(
    "allow", "it is a tool of the runtime, which ends a run or hands it over: no rule is about it"
)


def get_current_gate(first_agent: AgentSpec[Any], state: State, run: Run | None) -> Gate | None:
    """Return the permission gate of the current run; without a run, that of the active agent."""
    if run is not None:
        return run.gate
    try:
        agent = get_active_agent(first_agent, state)
    except ConfigError:  # this program does not have it: its grants can be listed and revoked all the same
        agent = first_agent
    return combine_gates(first_agent, agent)


async def explain_permission(
    first_agent: AgentSpec[Any], session_id: str, state: State, call: ToolCall, *, store: Store, run: Run | None
) -> Explanation:
    """Explain whether a tool call would be allowed, denied or asked about in a session, and why."""
    agent = get_active_agent(first_agent, state)
    toolbox = build_toolbox(agent, {}, agent.all_skills(), state.skills) if run is None else run.toolbox
    tool = toolbox.get(call.name)
    if tool is None and _is_added_to_runs(agent, call.name):
        return OF_THE_RUNTIME
    if tool is None:
        raise ConfigError(f"there is no tool {call.name!r}; {toolbox.suggest_names(call.name)}")
    if tool.is_of_the_runtime:
        return OF_THE_RUNTIME
    allowed = agent.limits.allowed_tools if run is None else None  # the toolbox of a run contains only allowed tools
    if allowed is not None and call.name not in allowed:
        return Explanation("deny", f"allowed_tools does not list {call.name!r}: it is not offered, and not called")
    try:
        final = await run_prepare_hooks(tool, call)
    except Invalid as problem:
        raise ConfigError(f"invalid arguments for {call.name!r}: {problem}") from None
    if isinstance(final, Skip):
        return Explanation("deny", final.reason)
    if run is None:
        session = build_unique_session_key(get_namespaced_session_id(store, session_id), state)
        binding = build_approval_binding(
            tool, agent=agent.name, store=store, project=get_project_root(agent), session=session
        )
    else:
        binding = build_call_binding(run, tool)
    job = PreparedCall(call, tool, *final)
    try:
        request = build_permission_request(job, session_id, "" if run is None else run.run_id, binding)
    except Invalid as problem:
        raise ConfigError(f"invalid arguments for {call.name!r}: {problem}") from None
    if labels := (state.labels if run is None else list_seen_labels(run)):
        request = add_seen_labels(labels, request)
    gate = build_session_gate(first_agent, agent, session_id, state, store) if run is None else run.gate
    return explain_decision(gate, request)


def _is_added_to_runs(agent: AgentSpec[Any], name: str) -> bool:
    """Return True for a tool that the runtime adds to a run: for a typed answer, or for the end of an engine."""
    return name == ANSWER_TOOL or name == getattr(agent.engine, "finish_tool_name", None)


def list_grants(gate: Gate | None, session_id: str, state: State, store: Store, posts: Iterable[Post]) -> list[Grant]:
    """Return the grants that apply in a session: approvals for more than one call that were not revoked."""
    full_id = get_namespaced_session_id(store, session_id)
    keys = list_trusted_session_keys(full_id, state, store)
    here = ApprovalBinding(store=identify_store(store), session=keys[0])
    update_grants_from_log(gate, session_id, state, store)
    all_grants = list_chain_grants(gate)
    applying = [
        grant
        for _, grants in all_grants
        for grant in grants
        if grant.session_id in {"", full_id} and _is_bound_here(grant, here)
    ]
    if not all_grants:
        remembered = select_sealed_decisions(state.remembered_decisions, store)
        found = grants_from_log(remembered, full_id, keys, level=None)
        applying = [grant for grant, is_granted in found.items() if is_granted]
    revoked = {post.text_field("grant_id") for post in posts if post.kind == REVOKE_POST}
    # an answer for ever may be known to the gate, and be in the log of the session: it is listed once
    listed = {(grant.grant_id, grant.allow): grant for grant in reversed(applying) if grant.grant_id not in revoked}
    return list(reversed(listed.values()))


def forget_grant(gate: Gate | None, grant_id: str, session_id: str, state: State, store: Store) -> None:
    """Remove a revoked grant from the gates of a session, and record outside of the store that it was revoked."""
    full_id = get_namespaced_session_id(store, session_id)
    for _, grants in list_chain_grants(gate):
        grants.forget(grant_id, full_id)
    record_revocation(grant_id, full_id, state, store)


def _is_bound_here(grant: Grant, here: ApprovalBinding) -> bool:
    """Return True if a grant is not bound to another session or store; one of another project is listed too."""
    if grant.binding is None:
        return True
    bound = replace(grant.binding, project=here.project)
    if not grant.holds_in_all_sessions:
        return bound.is_same_session(here)
    return bound.has_in_store(here) or (not grant.allow and bound.is_same_store(here))
