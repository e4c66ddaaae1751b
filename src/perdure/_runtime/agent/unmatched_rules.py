"""Find permission rules that can match no tool of an agent: they are misspelt, or name the tools of another agent."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from perdure._core.permission.gate import Permissions
from perdure._core.permission.targets.command import NAMED_ACTIONS
from perdure._core.permission.targets.text import matches_text
from perdure._core.values import checks
from perdure._core.values.provenance import FILE_LABEL, IMPORTED_LABEL, PRIVATE_LABEL, UNTRUSTED_LABEL

from .redaction import list_related_agents

if TYPE_CHECKING:
    from perdure._core.permission.rules import Rule
    from perdure._core.tools.tool import Tool

    from .spec import AgentSpec

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
        names = sorted({each.name for each in tools})
        advice = checks.suggest_name(rule.tool, names)
        listed = ", ".join(names) or "none"
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
