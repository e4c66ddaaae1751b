"""Chains of permission gates: a subagent's tool call needs the permission of its own gate and of its parents' gates.

A call of an agent that works for another one, or that a conversation was handed over to, needs the consent of both
gates. A denial of either one denies it. What the gate above asks about, it asks itself: its handler answers, and not
that of the agent below. Only what both allow is allowed.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .gate import (
    Explanation,
    Gate,
    Permissions,
    SupportsAddedRules,
    SupportsExplain,
    SupportsStoredQuestions,
    allow_all,
    cast_to_question_gate,
    deny_all,
    get_gate_grants,
    later,
)
from .grants import Grants
from .request import EVERYTHING_ALLOWED, NO_ONE_TO_ASK, NOTHING_ALLOWED, PermissionRequest, Verdict, complete_verdicts
from .rules import Rule, decide_by_rules
from .targets.path import PathTarget
from .targets.url import UrlTarget


class GateChainDecision(Struct, frozen=True, eq=False):
    """The decision of a chain of gates about a tool call: a verdict, or which gate has to ask a person."""

    request: PermissionRequest
    verdict: Verdict | None = None
    asker: SupportsStoredQuestions | None = None
    """The gate that has to ask, if there is no verdict."""
    level: int = 0
    """The place of the gate in the chain: 0 for that of the session's own agent."""

    @property
    def is_denial(self) -> bool:
        """True if the call is denied."""
        return self.verdict is not None and not self.verdict.allow


class BackgroundTaskCaller(Struct, frozen=True):
    """The session, agent and run that gave a task to a background agent.

    Their remembered denials apply to the background agent too.
    """

    session_id: str
    session: str
    """The session as bindings name it."""
    agent: str
    """The names of the agents from the session's own down to the one above."""
    run_id: str


def restrict_gate(
    gate: Gate | None, parent_gate: Gate | None, caller: BackgroundTaskCaller | None = None
) -> Gate | None:
    """Return the permission gate of a subagent: it allows a tool call only if its parent's gate does too.

    Without a gate of its own, a subagent has its parent's.

    `caller` is the place of the parent's gate, if that belongs to another session.
    """
    if parent_gate is None or parent_gate is allow_all:
        return parent_gate if gate is None else gate
    if caller is not None:
        return RestrictedGate(gate, parent_gate, caller)
    return parent_gate if gate is None or gate is parent_gate else RestrictedGate(gate, parent_gate)


class RestrictedGate:
    """The permission gate of a subagent: its own gate and that of its parent both have to allow a call."""

    def __init__(self, own: Gate | None, above: Gate, caller: BackgroundTaskCaller | None = None) -> None:
        """Combine two gates. Without a gate of its own, the agent may do what its parent may."""
        self._own = own
        self._above = above
        self._caller = caller

    @property
    def depth(self) -> int:
        """The number of gates in the chain."""
        return gate_depth(self._above) + 1

    @property
    def parts(self) -> tuple[Gate, Gate | None]:
        """The parent's gate, and the agent's own."""
        return self._above, self._own

    async def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        verdicts: list[Verdict] = []
        for decision in await self.decide(requests):
            if decision.verdict is None and decision.asker is not None:
                verdicts += await _call_gate(decision.asker, [decision.request])
            else:
                verdicts.append(decision.verdict or NO_ONE_TO_ASK)
        return verdicts

    async def decide(self, requests: Sequence[PermissionRequest]) -> list[GateChainDecision]:
        """Return, for each request, the verdict of both gates, or which of them has to ask a person."""
        above: list[GateChainDecision] = []
        for request, decision in zip(requests, await decide_by_gate(self._above, requests), strict=True):
            denial = self._find_denial_of_caller(request)
            denied = None if denial is None else Verdict(allow=False, reason=denial.why)
            above.append(decision if denied is None else GateChainDecision(request, denied))
        left = [each.request for each in above if not each.is_denial]
        own = iter(await decide_by_gate(self._own or allow_all, left, gate_depth(self._above)) if left else ())
        return [each if each.is_denial else _choose_stricter(each, next(own)) for each in above]

    def explain(self, request: PermissionRequest) -> Explanation:
        """Return the stricter decision of the two gates about a call, and the reason, without asking anyone."""
        above = self._find_denial_of_caller(request) or explain_decision(self._above, request)
        if above.verdict == "deny":
            return above
        own = explain_decision(self._own or allow_all, request)
        return above if above.verdict == "ask" and own.verdict != "deny" else own

    def with_rules(self, rules: Sequence[Rule]) -> Gate | None:
        """Return a gate that applies these rules to the agent's own gate too; `None` if that cannot.

        If it has its gate from its parent, they narrow that one.
        """
        if self._own is None:
            return self.narrow_by_rules(rules)
        own = self._own.with_rules(rules) if isinstance(self._own, SupportsAddedRules) else None
        return None if own is None else RestrictedGate(own, self._above, self._caller)

    def narrow_by_rules(self, rules: Sequence[Rule]) -> Gate | None:
        """Return a gate that also asks about and denies what these rules do; `None` if the lowest gate cannot."""
        if self._own is None:
            return RestrictedGate(None, narrow_gate(self._above, rules), self._caller)
        own = _narrow_if_able(self._own, rules)
        return None if own is None else RestrictedGate(own, self._above, self._caller)

    def add_denials(self, rules: Sequence[Rule]) -> Gate:
        """Return a gate that also denies what these rules deny."""
        return RestrictedGate(self._own, _add_denials(self._above, rules), self._caller)

    def _find_denial_of_caller(self, request: PermissionRequest) -> Explanation | None:
        """Return a denial that was remembered in the session that gave the task; it applies to the background agent
        too.
        """
        caller = self._caller
        if caller is None:
            return None
        agent = f"{caller.agent}/{request.binding.agent}"
        binding = replace(request.binding, session=caller.session, agent=agent)
        seen = replace(request, session_id=caller.session_id, run_id=caller.run_id, binding=binding)
        found = [grants.find(seen) for _, grants in list_chain_grants(self._above)]
        denial = next((each for each in found if each is not None and not each.allow), None)
        why = "" if denial is None else denial.reason or f"denied before, for {denial.scope}"
        return None if denial is None else Explanation("deny", why, grant=denial)


def gate_depth(gate: Gate | None) -> int:
    """Return the number of gates in a permission gate chain; a `DenyRulesGate` is not counted."""
    return (
        gate.depth
        if isinstance(gate, RestrictedGate)
        else int(gate is not None and not isinstance(gate, DenyRulesGate))
    )


def can_ask_in_process(gate: Gate | None) -> bool:
    """Return True if a gate of this chain has a function that answers permission questions in this process."""
    if isinstance(gate, RestrictedGate):
        return any(map(can_ask_in_process, gate.parts))
    asks = cast_to_question_gate(gate)
    return asks is not None and asks.handler is not None and asks.handler is not later


def list_chain_grants(gate: Gate | None) -> list[tuple[int, Grants]]:
    """Return the grants (remembered decisions) of every gate in a chain, each with its level in the chain."""
    if isinstance(gate, RestrictedGate):
        above, own = gate.parts
        grants = get_gate_grants(own)
        return [*list_chain_grants(above), *([] if grants is None else [(gate_depth(above), grants)])]
    grants = get_gate_grants(gate)
    return [] if grants is None else [(0, grants)]


async def decide_by_gate(
    gate: Gate, requests: Sequence[PermissionRequest], level: int = 0
) -> Sequence[GateChainDecision]:
    """Return the decision of a gate about each request: a verdict, or that a person has to be asked.

    A plain function is just called.
    """
    if isinstance(gate, RestrictedGate):
        return await gate.decide(requests)
    asks = cast_to_question_gate(gate)
    verdicts: Sequence[Verdict | None]
    if asks is None or asks.handler is None:
        verdicts = await _call_gate(gate, requests)
    else:
        decided: Any = asks.verdicts(requests)
        verdicts = await decided if inspect.isawaitable(decided) else decided
    return [GateChainDecision(each, verdict, asks, level) for each, verdict in zip(requests, verdicts, strict=True)]


def _choose_stricter(above: GateChainDecision, own: GateChainDecision) -> GateChainDecision:
    """Return the stricter of the decisions of a parent's gate and an agent's own; of two questions, the parent's."""
    return above if above.verdict is None and not own.is_denial else own


def add_rules_to_gate(gate: Gate | None, rules: Sequence[Rule]) -> Gate | None:
    """Return a permission gate that applies these rules in addition to its own.

    A gate that cannot apply rules only gets their denials.
    """
    if gate is None:
        return Permissions(*rules)
    if isinstance(gate, SupportsAddedRules):
        combined = gate.with_rules(rules)
        if combined is not None:
            return combined
    return _add_denials(gate, rules)


def narrow_gate(gate: Gate, rules: Sequence[Rule]) -> Gate:
    """Return a stricter permission gate: it also denies and asks as these rules do, and allows nothing more.

    So an agent that has its gate from the one above applies the rules of its own extensions. A gate that cannot apply
    rules only gets their denials.
    """
    return (_narrow_if_able(gate, rules) or _add_denials(gate, rules)) if rules else gate


def _narrow_if_able(gate: Gate, rules: Sequence[Rule]) -> Gate | None:
    """Return the gate narrowed by rules; `None` if it cannot apply rules."""
    if isinstance(gate, (Permissions, RestrictedGate)):
        return gate.narrow_by_rules(rules)
    if isinstance(gate, SupportsAddedRules):  # somebody's own: it would take an `allow` for a permission
        return gate.with_rules([rule for rule in rules if rule.policy != "allow"])
    return None


def _add_denials(gate: Gate, rules: Sequence[Rule]) -> Gate:
    """Return the gate, limited by the denials of these rules."""
    denials = [rule for rule in rules if rule.policy == "deny"]
    if not denials:
        return gate
    if gate is allow_all:
        return DenyRulesGate(denials)
    if isinstance(gate, (RestrictedGate, DenyRulesGate)):
        return gate.add_denials(denials)  # in their place: the levels of the other gates stay the same
    return RestrictedGate(gate, DenyRulesGate(denials))


class DenyRulesGate:
    """A permission gate with deny rules only: denies each call that a rule matches or may match, allows all others."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules

    def add_denials(self, rules: Sequence[Rule]) -> "DenyRulesGate":
        """Return a gate that also denies what these rules deny."""
        return DenyRulesGate([*self._rules, *rules])

    def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        explained = [self.explain(each) for each in requests]
        return [Verdict(allow=each.verdict == "allow", reason=each.why) for each in explained]

    def explain(self, request: PermissionRequest) -> Explanation:
        """Explain which rule denies a call, or that none does."""
        decided = decide_by_rules(self._rules, request)
        if decided.rule is None:
            return Explanation("allow", EVERYTHING_ALLOWED.reason)
        return Explanation("deny", f"denied by the rule {decided.rule}", str(decided.rule))


def explain_decision(gate: Gate | None, request: PermissionRequest) -> Explanation:
    """Explain whether a gate would allow a call, deny it, or ask about it, without asking anyone."""
    if isinstance(gate, SupportsExplain):
        return gate.explain(request)
    if gate is None:
        if request.required:
            return Explanation("deny", NO_ONE_TO_ASK.reason)
        return Explanation("allow", "the tool needs no permission")
    if gate is allow_all:
        return Explanation("allow", EVERYTHING_ALLOWED.reason)
    if gate is deny_all:
        return Explanation("deny", NOTHING_ALLOWED.reason)
    name = getattr(gate, "__name__", type(gate).__name__)
    return Explanation("ask", f"the gate {name!r} decides when the call is made")


def has_path_restrictions(gate: Gate | None) -> bool:
    """Return True if a gate has rules or grants that can deny an allowed tool call some of the paths that it reads."""
    if isinstance(gate, RestrictedGate):
        return any(map(has_path_restrictions, gate.parts))
    if not isinstance(gate, Permissions):
        return isinstance(gate, SupportsExplain)
    has_rule = any(each.policy != "allow" and each.target != "*" for each in gate.rules)
    return has_rule or any(not each.allow for each in gate.grants)


def can_call_see_path(gate: Gate, request: PermissionRequest, path: PathTarget | UrlTarget) -> bool:
    """Return True if an allowed tool call may also see this path or URL: no rule or grant denies or asks about it.

    What a rule asks about is shown if the same rule has asked about the call. A gate that is a function decides when a
    call is made, and hides nothing.
    """
    asked = replace(request, target=str(path), typed_target=path)
    objections = [each for each in explain_each_gate(gate, asked) if each.verdict != "allow"]
    if not objections:
        return True
    known = {rule for each in explain_each_gate(gate, request) for rule in (each.rule, *each.beaten)} - {""}
    return all(each.grant is None and each.rule in known for each in objections)


def explain_each_gate(gate: Gate | None, request: PermissionRequest) -> list[Explanation]:
    """Return the decision of each gate of a chain about a tool call, with its reason, without asking anyone."""
    if isinstance(gate, RestrictedGate):
        return [each for part in gate.parts for each in explain_each_gate(part, request)]
    return [gate.explain(request)] if isinstance(gate, SupportsExplain) else []


async def _call_gate(gate: Gate, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    answered = gate(requests)
    return complete_verdicts(requests, list(await answered if inspect.isawaitable(answered) else answered))
