"""`Permissions`, the usual permission gate: it decides about tool calls by rules, by grants, and by asking a person.

`Permissions.explain` is the one place where a call is decided; every other method builds on it. The rules decide first
(see `permission_rule.py`), then remembered decisions (see `permission_grants.py`). Without a matching rule, a call of a
tool that needs permission is asked about, and any other is allowed. When there is no one to ask, the call is denied.
"""

import inspect
from collections.abc import Sequence
from copy import copy

from msgspec.structs import replace

from . import argument_checks
from .approval_binding import ApprovalBinding
from .error import ConfigError
from .permission_gate import (
    Explanation,
    Gate,
    Handler,
    SupportsAddedRules,
    SupportsExplain,
    SupportsGrants,
    SupportsStoredQuestions,
    cast_to_question_gate,
    get_gate_grants,
)
from .permission_grants import (
    Grant,
    Grants,
    Offer,
    check_grant_pattern,
    describe_rule,
    grants_from_log,
    list_offers,
    make_grant,
)
from .permission_request import (
    EVERYTHING_ALLOWED,
    EXPIRED,
    NO_ANSWER,
    NO_ONE_TO_ASK,
    NOTHING_ALLOWED,
    TOOL_NEEDS_PERMISSION,
    PermissionRequest,
    Verdict,
    build_permission_decided_event,
    complete_verdicts,
    explain_no_one_to_ask,
    list_part_requests,
)
from .permission_rule import Policy, Rule, allow, ask, decide_by_strictest_layer, deny

__all__ = [
    "EVERYTHING_ALLOWED",
    "EXPIRED",
    "NOTHING_ALLOWED",
    "NO_ANSWER",
    "NO_ONE_TO_ASK",
    "ApprovalBinding",
    "Explanation",
    "Gate",
    "Grant",
    "Grants",
    "Handler",
    "Offer",
    "PermissionRequest",
    "Permissions",
    "Policy",
    "Rule",
    "SupportsAddedRules",
    "SupportsExplain",
    "SupportsGrants",
    "SupportsStoredQuestions",
    "Verdict",
    "allow",
    "allow_all",
    "ask",
    "build_permission_decided_event",
    "cast_to_question_gate",
    "check_grant_pattern",
    "complete_verdicts",
    "deny",
    "deny_all",
    "describe_rule",
    "get_gate_grants",
    "grants_from_log",
    "later",
    "list_offers",
    "make_grant",
]


class Permissions:
    """Decides whether a tool call may run: by rules, by remembered decisions, or by asking a person."""

    def __init__(
        self,
        *rules: Rule,
        handler: Handler | None = None,
        grants: Grants | None = None,
        expires_seconds: float | None = None,
        data_flow: bool = True,
    ) -> None:
        """Make a gate that decides by these rules, and asks `handler` about calls that no rule decides.

        Args:
            rules: Made by `allow`, `deny` and `ask`.
            handler: Asks a person who is present; or `later`, and the run waits for an answer from anywhere.
            grants: The remembered decisions, to be shared by several agents.
            expires_seconds: How long a question stays open; then the call is denied.
            data_flow: Ask again before a call that can send data out, whatever the rules allow, once the model has seen
                private data and untrusted text.
        """
        for rule in rules:
            if not isinstance(rule, Rule):
                message = f"{rule!r} is not a rule: use allow(…), deny(…) or ask(…)"
                raise ConfigError(message)
        if handler is not None and not callable(handler):
            message = f"Permissions(handler={handler!r}): give an async function that answers a list of requests"
            raise ConfigError(message)
        if grants is not None and not isinstance(grants, Grants):
            argument_checks.raise_config_error("Permissions", "grants", grants, "give a Grants(…)")
        if expires_seconds is not None and not (isinstance(expires_seconds, (int, float)) and expires_seconds > 0):
            argument_checks.raise_config_error(
                "Permissions", "expires_seconds", expires_seconds, "give a number above zero, or None"
            )
        argument_checks.require_bool("Permissions", "data_flow", data_flow)
        self.data_flow = data_flow
        self._layers: tuple[tuple[Rule, ...], ...] = (rules,)
        self._narrowing_layers: tuple[tuple[Rule, ...], ...] = ()
        """Rules of which only the questions and denials count."""
        self.handler = handler
        self.expires_seconds = expires_seconds
        self.grants = grants if grants is not None else Grants()

    @classmethod
    def deny_all(cls, reason: str = "") -> "Permissions":
        """Make a gate that denies every call, even of tools that need no permission, and tells the model the reason."""
        return cls(deny(reason=reason))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, with those of extensions."""
        return tuple([rule for layer in (*self._layers, *self._narrowing_layers) for rule in layer])

    async def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        verdicts = list(await self.verdicts(requests))
        open_places = [place for place, verdict in enumerate(verdicts) if verdict is None]
        if open_places:
            answers = await self._ask([requests[place] for place in open_places])
            for place, answer in zip(open_places, answers, strict=True):
                verdicts[place] = answer
        return [verdict or NO_ANSWER for verdict in verdicts]

    async def verdicts(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        """Return the verdicts that need no question; `None` for each call that a person must be asked about."""
        return [self.decide_without_asking(request) for request in requests]

    def decide_without_asking(self, request: PermissionRequest) -> Verdict | None:
        """Return the verdict by rules and grants, with its reason; `None` if a person must be asked."""
        explanation = self.explain(request)
        if explanation.verdict == "ask":
            return None
        return Verdict(allow=explanation.verdict == "allow", reason=explanation.why)

    def explain(self, request: PermissionRequest) -> Explanation:
        """Explain whether a call would be allowed, denied or asked about. Asks no one, and remembers nothing."""
        explanation = self._decide(request)
        if explanation.verdict == "ask" and (parts := list_part_requests(request)):
            explanation = _combine_parts(explanation, parts, [self._decide(each) for each in parts])
        if explanation.verdict == "ask" and self.handler is None:
            return replace(explanation, verdict="deny", why=explain_no_one_to_ask(explanation.why))
        return explanation

    def _decide(self, request: PermissionRequest) -> Explanation:
        """Decide about a call as a whole: by rules, by remembered decisions, and by what its tool needs."""
        decided = decide_by_strictest_layer(self._layers, request, self._narrowing_layers)
        can_leak = self.data_flow and request.can_leak
        rule, beaten = "" if decided.rule is None else str(decided.rule), tuple(map(str, decided.beaten))
        if decided.policy == "deny":
            reason = "" if decided.rule is None else decided.rule.reason
            return Explanation("deny", reason or f"denied by the rule {rule}", rule, beaten=beaten)
        grant = self.grants.find(request, exact=decided.is_uncertain or can_leak or self._asks_about_labels(request))
        if grant is not None and not grant.allow:
            return Explanation("deny", grant.reason or f"denied before, for {grant.scope}", rule, grant, beaten)
        if can_leak:
            return _explain_flow(request, rule, grant, beaten)
        if decided.policy == "allow" and not request.caution:
            return Explanation("allow", f"allowed by the rule {rule}", rule, beaten=beaten)
        if decided.policy is None and not (request.required or request.caution):
            return Explanation("allow", request.reads_only or "the tool needs no permission")
        if grant is not None:
            return Explanation("allow", grant.reason or f"allowed before, for {grant.scope}", rule, grant, beaten)
        why = request.caution or TOOL_NEEDS_PERMISSION
        if decided.policy == "allow":
            return Explanation("ask", why, rule, beaten=beaten)
        if decided.is_uncertain:
            why = f"it cannot be ruled out that the rule {rule} denies this"
        elif rule:
            why = f"the rule {rule} requires approval"
        return Explanation("ask", why, rule, beaten=beaten)

    def _asks_about_labels(self, request: PermissionRequest) -> bool:
        """Return True if a rule asks about the labels of a call, which an earlier, wider approval did not consider.

        Only an answer for exactly these arguments or this target counts then.
        """
        rules = [rule for rule in self.rules if rule.when] if request.labels else []
        return any(rule.policy == "ask" and rule.match(request) != "no" for rule in rules)

    def with_rules(self, rules: Sequence[Rule]) -> "Permissions | None":
        """Return a gate with these rules added; `None` for a subclass, which may decide by more than its rules.

        The added rules are decided apart, and the stricter of both decisions holds: they never weaken those of this
        gate.
        """
        if type(self) is not Permissions:
            return None
        more = copy(self)
        more._layers = (*self._layers, tuple(rules))  # noqa: SLF001 - the same class
        return more

    def narrow_by_rules(self, rules: Sequence[Rule]) -> "Permissions | None":
        """Return a gate that also asks about and denies what these rules do; `None` for a subclass.

        They allow nothing: where they say so, this gate decides as if there were no such rule.
        """
        if type(self) is not Permissions:
            return None
        narrower = copy(self)
        narrower._narrowing_layers = (*self._narrowing_layers, tuple(rules))  # noqa: SLF001 - the same class
        return narrower

    def with_handler(self, handler: Handler, grants: Grants) -> "Permissions":
        """Return a copy of this gate that asks by this function, and remembers decisions in these grants."""
        double = copy(self)
        double.handler, double.grants = handler, grants
        return double

    async def _ask(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        answered = (self.handler or later)(requests)
        answers = complete_verdicts(requests, list(await answered if inspect.isawaitable(answered) else answered))
        for request, answer in zip(requests, answers, strict=True):
            check_grant_pattern(request, answer)
        for request, answer in zip(requests, answers, strict=True):
            if answer.scope != "once":
                self.grants.remember(make_grant(request, answer))
        return answers


def _explain_flow(request: PermissionRequest, rule: str, grant: Grant | None, beaten: tuple[str, ...]) -> Explanation:
    """Explain the decision about a call that can send out private data: only an answer for exactly this call counts."""
    if grant is not None:
        return Explanation("allow", grant.reason or f"allowed before, for {grant.scope}", rule, grant, beaten)
    seen, sources = ", ".join(request.labels), ", ".join(request.sources)
    why = f"it can send data out, and the model has seen private data and untrusted text ({seen}; from {sources})"
    return Explanation("ask", why, rule, beaten=beaten)


def _combine_parts(
    whole: Explanation, parts: Sequence[PermissionRequest], decided: Sequence[Explanation]
) -> Explanation:
    """Combine the decisions about the simple commands of a line: the strictest holds."""
    denied = next((each for each in decided if each.verdict == "deny"), None)
    if denied is not None:
        return denied
    asking = [part.target for part, each in zip(parts, decided, strict=True) if each.verdict == "ask"]
    if not asking:
        why = "; ".join([f"{part.target}: {each.why}" for part, each in zip(parts, decided, strict=True)])
        return decided[0] if len(parts) == 1 else Explanation("allow", why)
    return whole if len(parts) == 1 else replace(whole, why=f"{whole.why}, for: {'; '.join(asking)}")


def later(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """Permission handler for unattended agents: store the question, and end the run as `waiting` until it is answered.

    `session.answer` answers it, from any process, and `session.resume` goes on. Called directly, it denies.
    """
    return [NO_ONE_TO_ASK] * len(requests)


async def allow_all(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """A gate that allows every call."""
    return [EVERYTHING_ALLOWED] * len(requests)


async def deny_all(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """A gate that denies every call, even of tools that need no permission."""
    return [NOTHING_ALLOWED] * len(requests)
