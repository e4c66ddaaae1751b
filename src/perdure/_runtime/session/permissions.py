"""Find permission rules that can match no tool of an agent: they are misspelt, or name the tools of another agent."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from perdure._core.log.fold import State
from perdure._core.log.store import Post, Store, get_namespaced_session_id
from perdure._core.people.mailbox import REVOKE_POST
from perdure._core.permission.gate import Explanation, Gate, Permissions
from perdure._core.permission.grants import Grant, grants_from_log
from perdure._core.permission.inherited import explain_decision, list_chain_grants
from perdure._core.permission.targets.command import NAMED_ACTIONS
from perdure._core.permission.targets.text import matches_text
from perdure._core.run.calling_run import list_seen_labels
from perdure._core.run.run import Run
from perdure._core.run.tool_calls.approval import add_seen_labels, build_permission_request
from perdure._core.run.tool_calls.execution import PreparedCall
from perdure._core.run.tool_calls.preparation import run_prepare_hooks
from perdure._core.schema.problems import Invalid
from perdure._core.tools.tool import Skip
from perdure._core.values import checks
from perdure._core.values.binding import (
    ApprovalBinding,
    build_approval_binding,
    build_call_binding,
    build_unique_session_key,
    identify_store,
)
from perdure._core.values.error import ConfigError
from perdure._core.values.message import ToolCall
from perdure._core.values.provenance import FILE_LABEL, IMPORTED_LABEL, PRIVATE_LABEL, UNTRUSTED_LABEL
from perdure._runtime.agent.active import get_active_agent
from perdure._runtime.agent.build import build_session_gate, build_toolbox, get_project_root, update_grants_from_log
from perdure._runtime.agent.output import ANSWER_TOOL
from perdure._runtime.agent.redaction import list_related_agents
from perdure._runtime.agent.spec import AgentSpec

from .seals import list_trusted_session_keys, record_revocation, select_sealed_decisions

if TYPE_CHECKING:
    from perdure._core.permission.rules import Rule
    from perdure._core.tools.tool import Tool


OF_THE_RUNTIME = Explanation(
    "allow", "it is a tool of the runtime, which ends a run or hands it over: no rule is about it"
)


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


KNOWN_ACTIONS: Final = NAMED_ACTIONS | {"browse", "commit", "exec", "mcp_call", "run", "write"}
"""Actions of the tools that Perdure has. A rule by one of them holds for whichever tools there are, even for none."""
KNOWN_LABELS: Final = frozenset({FILE_LABEL, IMPORTED_LABEL, PRIVATE_LABEL, UNTRUSTED_LABEL})
"""Labels that the runtime gives, whichever tools there are."""
_logger = logging.getLogger("perdure")
_CHECKED_RULES: Final = "_checked_rules"
_SUGGESTION: Final = "did you mean"
_told_rules: set[str] = set()
"""The rules of which this process has warned."""
_MCP_MARK: Final = "__"
"""What the names of tools of MCP servers contain."""


def describe_unmatched_rules(
    rules: "Sequence[Rule]", agent: "AgentSpec[Any]", tools: "Iterable[Tool[..., Any]]" = ()
) -> list[str]:
    """Return a warning for each rule that matches no call of an agent's tools, or no label. Nothing is started.

    The agents that get its conversation or work for it count too, as do these `tools` of a run.
    """
    related = list_related_agents(agent, tools)
    known = [tool for each in related for tool in (*each.toolbox, *each.spare_toolbox, *each.list_late_tools())]
    known += tools
    found = [text for rule in rules for text in _find_mistakes(rule, known, has_mcp=agent.has_late_tools)]
    labels = sorted(KNOWN_LABELS.union(*[each.labels for each in known]))
    return [*found, *_find_unknown_labels(rules, labels)]


def warn_of_unmatched_rules(gate: object, agent: "AgentSpec[Any]", tools: "Sequence[Tool[..., Any]]") -> None:
    """Warn of rules of a gate that are misspelt, before the first run of an agent; of each rule once in a process.

    A pattern that resembles no name is no mistake: a gate may be shared by agents with other tools.
    """
    if not isinstance(gate, Permissions):
        return
    checked: set[str] = vars(agent).setdefault(_CHECKED_RULES, set())
    for rule in gate.rules:
        if (name := str(rule)) not in checked:
            checked.add(name)
            if name not in _told_rules:
                _warn_of_rule(rule, describe_unmatched_rules([rule], agent, tools))


def _warn_of_rule(rule: "Rule", mistakes: "Sequence[str]") -> None:
    named = next((each for each in (rule.tool, rule.action) if each != "*"), rule.when)
    is_pattern = any(mark in named for mark in "*?[")
    for text in mistakes:
        if not is_pattern or _SUGGESTION in text:
            _logger.warning("%s", text)
            mark_rule_as_told(rule)


def mark_rule_as_told(rule: "Rule") -> None:
    """Keep a rule from being warned of again."""
    _told_rules.add(str(rule))


def _find_unknown_labels(rules: "Sequence[Rule]", labels: "Sequence[str]") -> Iterator[str]:
    """Yield a warning for each rule about a label that nothing has, as far as that is known before a run."""
    for rule in rules:
        if rule.when and not any(matches_text(each, rule.when) for each in labels):
            advice = checks.suggest_name(rule.when, labels)
            yield f"the rule {rule} matches no label: {advice}the labels of this agent are {', '.join(labels)}"


def _find_mistakes(rule: "Rule", tools: "Sequence[Tool[..., Any]]", *, has_mcp: bool) -> Iterator[str]:
    if has_mcp and (_MCP_MARK in rule.tool or "mcp_call" in rule.action):  # servers say later what they have
        return
    named = [each for each in tools if matches_text(each.name, rule.tool)]
    if not named:
        names = [each.name for each in tools]
        advice = checks.suggest_name(rule.tool, names)
        listed = ", ".join(sorted(names)) or "none"
        yield (
            f"the rule {rule} matches no tool of this agent: {advice}its tools are {listed}; a rule by action, such as "
            'action = "write", holds for whichever tools there are'
        )
    elif rule.action not in KNOWN_ACTIONS and not any(matches_text(_get_action(each), rule.action) for each in named):
        actions = sorted({_get_action(each) for each in named})
        advice = checks.suggest_name(rule.action, [*actions, *KNOWN_ACTIONS])
        yield f"the rule {rule} matches no action of this agent: {advice}its actions are {', '.join(actions)}"
    elif rule.tool != "*" and not any(_can_do(each, rule.action) for each in named):
        actions = sorted({_get_action(each) for each in named})
        yield f"the rule {rule} matches no call: the action of {rule.tool!r} is {', '.join(actions)}"


def _get_action(tool: "Tool[..., Any]") -> str:
    return tool.action or tool.name


def _can_do(tool: "Tool[..., Any]", action: str) -> bool:
    return matches_text(_get_action(tool), action) or (action in NAMED_ACTIONS and _get_action(tool) in {"run", "exec"})
