"""Permission rules: patterns for tool, action and target, and which of several matching rules decides.

The strictest matching rule decides (deny, then ask, then allow), unless a less strict one is narrower: it matches a
part of the same calls, and no others. Narrower means certainly so: each of its patterns lies within that of the other.
So `allow("search")` stands beside `ask("*")` and `deny("*")`, and no broad or unrelated `allow` weakens a `deny`.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, cast, get_args

from msgspec import Struct

from perdure._core.values.error import ConfigError

from .request import PermissionRequest
from .targets.command import NAMED_ACTIONS
from .targets.patterns import (
    Match,
    Pattern,
    is_narrower_pattern,
    is_target_pattern,
    match_restricting_rule,
    matches_allow_rule,
)
from .targets.text import TextPattern, is_text_pattern_within, matches_text

Policy: TypeAlias = Literal["allow", "deny", "ask"]

_POLICIES = get_args(Policy)
_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


class Rule(Struct, frozen=True):
    """A rule that allows, denies or asks about the tool calls that match all its patterns (`*`, `?`, `[…]`)."""

    policy: Policy
    tool: str = "*"
    action: str = "*"
    target: str | Pattern = "*"
    """A pattern made by `path`, `command` or `url`; text is read as a pattern for the kind of target of the call."""
    when: str = ""
    """A pattern for labels, such as `untrusted`: only calls that follow text with such a label. Empty for all calls."""
    reason: str = ""
    """Why the rule denies, for the model; empty for a text that names the rule."""

    def __post_init__(self) -> None:
        if self.policy not in _POLICIES:
            message = f"Rule({self.policy!r}): use allow(…), deny(…) or ask(…)"
            raise ConfigError(message)
        for name in ("tool", "action", "target", "when", "reason"):
            pattern = getattr(self, name)
            if not isinstance(pattern, str) and not (name == "target" and is_target_pattern(pattern)):
                advice = "give text" if name == "reason" else "give a pattern as text, such as 'shell' or 'git_*'"
                message = f"{self.policy}({name}={pattern!r}): {advice}"
                raise ConfigError(message)

    @property
    def pattern(self) -> Pattern:
        """The pattern for the target."""
        return TextPattern(self.target) if isinstance(self.target, str) else self.target

    def matches(self, request: PermissionRequest) -> bool:
        """Return True if the rule certainly matches the call."""
        return self.match(request) == "yes"

    def match(self, request: PermissionRequest) -> Match:
        """Return how the rule matches a call: allowing rules are read narrowly, denying and asking rules widely."""
        if not (matches_text(request.tool, self.tool) and self._matches_action(request.action)):
            return "no"
        if self.when and not any(matches_text(label, self.when) for label in request.labels):
            return "no"
        if self.policy == "allow":
            return "yes" if matches_allow_rule(self.pattern, request.matched_target) else "no"
        return match_restricting_rule(self.pattern, request.matched_target, request.arguments)

    def _matches_action(self, action: str) -> bool:
        """Return True if the rule is about an action; the network has to be allowed by its name."""
        if action not in NAMED_ACTIONS:
            return matches_text(action, self.action)
        return self.action == action if self.policy == "allow" else True

    def is_narrower(self, other: "Rule") -> bool:
        """Return True if every call that matches this rule matches the other, and not the reverse."""
        return self.is_within(other) and not other.is_within(self)

    def is_within(self, other: "Rule") -> bool:
        """Return True if it is certain that every call which matches this rule matches the other."""
        return (
            is_text_pattern_within(self.tool, other.tool)
            and is_text_pattern_within(self.action, other.action)
            and is_narrower_pattern(self.pattern, other.pattern)
            and (not other.when or (bool(self.when) and is_text_pattern_within(self.when, other.when)))
        )

    def __str__(self) -> str:
        narrowed = [f"action={self.action!r}"] if self.action != "*" else []
        narrowed += [f"target={self.pattern}"] if self.target != "*" else []
        narrowed += [f"when={self.when!r}"] if self.when else []
        return f"{self.policy}({', '.join([repr(self.tool), *narrowed])})"


def allow(tool: str = "*", *, action: str = "*", target: str | Pattern = "*", when: str = "") -> Rule:
    """Make a rule that allows matching calls."""
    return Rule("allow", tool, action, target, when)


def deny(tool: str = "*", *, action: str = "*", target: str | Pattern = "*", when: str = "", reason: str = "") -> Rule:
    """Make a rule that denies matching calls. The model gets the `reason`, if one is given."""
    return Rule("deny", tool, action, target, when, reason)


def ask(tool: str = "*", *, action: str = "*", target: str | Pattern = "*", when: str = "") -> Rule:
    """Make a rule that requires approval of matching calls, even if the tool needs no permission."""
    return Rule("ask", tool, action, target, when)


class RuleDecision(Struct, frozen=True):
    """The decision of permission rules about a call: the rule that decides, and other rules that match."""

    policy: Policy | None = None
    """The decision; `None` if no rule matches."""
    rule: Rule | None = None
    beaten: tuple[Rule, ...] = ()
    is_uncertain: bool = False
    """True if the rule denies, and it is only not ruled out that it matches: a person is asked."""


NO_RULE = RuleDecision()


def decide_by_rules(rules: Iterable[Rule], request: PermissionRequest) -> RuleDecision:
    """Return the decision of a list of permission rules about a call."""
    matches: list[tuple[Rule, Match]] = [(rule, rule.match(request)) for rule in rules]
    is_named = any(rule.policy == "allow" and rule.target != "*" and match == "yes" for rule, match in matches)
    found = [each for each in matches if each[1] != "no" and not (each[1] == "unproved" and is_named)]
    if not found:
        return NO_RULE
    best: tuple[Rule, Match] | None = None
    for rule, match in found:
        if not _is_set_aside(rule, found) and (best is None or _rank(rule, match) > _rank(*best)):
            best = rule, match
    rule, match = cast("tuple[Rule, Match]", best)  # one is left: no rule is narrower than itself through others
    is_uncertain = match != "yes" and rule.policy == "deny"
    policy: Policy = "ask" if is_uncertain else rule.policy
    return RuleDecision(policy, rule, tuple([each for each, _ in found if each is not rule]), is_uncertain)


def decide_by_strictest_layer(
    layers: Sequence[Sequence[Rule]], request: PermissionRequest, narrowing_layers: Sequence[Sequence[Rule]] = ()
) -> RuleDecision:
    """Return the strictest decision of several lists of permission rules: no list can weaken another.

    What a narrowing list allows is left to the others: it can only ask and deny.
    """
    decisions = [made for rules in layers if (made := decide_by_rules(rules, request)).rule is not None]
    narrowing = [decide_by_rules(rules, request) for rules in narrowing_layers]
    decisions += [made for made in narrowing if made.policy in {"ask", "deny"}]
    if not decisions:
        return NO_RULE
    best = max(decisions, key=lambda each: _STRICTNESS[each.policy or "allow"])  # the first of equals
    others = [rule for each in decisions if each is not best for rule in (each.rule, *each.beaten) if rule is not None]
    return RuleDecision(best.policy, best.rule, (*best.beaten, *others), best.is_uncertain)


def _is_set_aside(rule: Rule, found: Sequence[tuple[Rule, Match]]) -> bool:
    """Return True if a rule does not apply because a narrower and less strict rule certainly matches."""
    return any(
        match == "yes" and _STRICTNESS[other.policy] < _STRICTNESS[rule.policy] and other.is_narrower(rule)
        for other, match in found
    )


def _rank(rule: Rule, match: Match) -> int:
    return 2 * _STRICTNESS[rule.policy if match == "yes" else "ask"] + (match == "yes")
