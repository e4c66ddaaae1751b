"""The protocol of permission gates, and `Permissions`: it decides by rules, by grants, and by asking a person."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values import checks
from perdure._core.values.binding import ApprovalBinding
from perdure._core.values.error import ConfigError

from .grants import (
    Grant,
    Grants,
    Offer,
    check_grant_pattern,
    describe_rule,
    grants_from_log,
    list_offers,
    make_grant,
)
from .request import (
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
from .rules import Policy, Rule, allow, ask, decide_by_strictest_layer, deny


class Gate(Protocol):
    """Protocol of a gate: a function or callable object that decides which tool calls may run. `Permissions` is one.

    An object may have more powers than this: see `SupportsGrants`, `SupportsExplain`, `SupportsAddedRules` and
    `SupportsStoredQuestions`. Each is optional, and asked for by the names of its members.
    """

    def __call__(self, requests: Sequence[PermissionRequest], /) -> Sequence[Verdict] | Awaitable[Sequence[Verdict]]:
        """Return one verdict for each request, in order. A missing verdict denies the call, and so does an error."""
        ...


Handler: TypeAlias = Callable[[Sequence[PermissionRequest]], Sequence[Verdict] | Awaitable[Sequence[Verdict]]]
"""A function that asks a person about the calls that no rule decides: one question for the whole batch."""


class Explanation(Struct, frozen=True):
    """An explanation of a permission decision about a tool call: allowed, denied or asked about, and why."""

    verdict: Policy
    """Allowed, denied, or asked about."""
    why: str
    """The reason as text; for a call that is denied, the text that the model receives."""
    rule: str = ""
    """The rule that decides, if one does, as it would be written."""
    grant: Grant | None = None
    """The remembered decision that decides, if one does: its scope, width and binding, who decided, and when."""
    beaten: tuple[str, ...] = ()
    """The other rules that match the call, and did not decide."""

    def describe(self) -> str:
        """Return the whole explanation as text, one fact on each line."""
        lines = [f"{self.verdict}: {self.why}"]
        if self.rule:
            lines.append(f"rule: {self.rule}")
        lines += [f"not used: {each}" for each in self.beaten]
        return "\n".join([*lines, *([] if self.grant is None else _describe_grant(self.grant))])


def _describe_grant(grant: Grant) -> list[str]:
    lines = [f"grant: {grant.grant_id}: {grant.rule}", f"scope: {grant.scope}", f"covers: {grant.covers}"]
    if grant.binding is not None:
        bound = [(name, getattr(grant.binding, name)) for name in grant.binding.__struct_fields__]
        lines.append(f"bound to: {', '.join([f'{name} {value}' for name, value in bound if value])}")
    if grant.by:
        lines.append(f"by: {grant.by}")
    if grant.at:
        from datetime import UTC, datetime

        lines.append(f"at: {datetime.fromtimestamp(grant.at, UTC).isoformat(timespec='seconds')}")
    return lines


class SupportsGrants(Protocol):
    """Protocol of a gate that remembers decisions for later tool calls.

    The grants are filled from the log of the session before a run, listed by `session.grants`, and removed by
    `session.revoke`.
    """

    @property
    def grants(self) -> Grants:
        """The remembered decisions, as a `Grants` object."""
        ...


@runtime_checkable
class SupportsExplain(Protocol):
    """Protocol of a gate that can explain its decision without asking anyone, for `session.explain`."""

    def explain(self, request: PermissionRequest) -> Explanation:
        """Explain whether the call would be allowed, denied or asked about. Changes nothing."""
        ...


@runtime_checkable
class SupportsAddedRules(Protocol):
    """Protocol of a gate to which the permission rules of extensions can be added."""

    def with_rules(self, rules: Sequence[Rule]) -> Gate | None:
        """Return a gate that applies these rules too; `None` if it cannot: then only their denials apply.

        They apply before this gate is called.

        That is also what becomes of the rules of extensions when a gate has no such method.
        """
        ...


class SupportsStoredQuestions(SupportsGrants, Gate, Protocol):
    """Protocol of a gate whose questions to people are stored by the run, to be answered even after a restart.

    The gate decides what it can by rules, and leaves asking to the run.
    """

    @property
    def handler(self) -> Handler | None:
        """The function that asks a person; `later` waits for `session.answer`. With `None`, the gate is called."""
        ...

    @property
    def expires_seconds(self) -> float | None:
        """The time that a question stays open, after which the call is denied; `None` for no limit."""
        ...

    async def verdicts(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        """Return a verdict for each request that can be decided at once, and `None` if a person has to be asked."""
        ...

    def with_handler(self, handler: Handler, grants: Grants) -> "SupportsStoredQuestions":
        """Return a copy of this gate that asks with this handler, and remembers decisions in these grants."""
        ...


def get_gate_grants(gate: Gate | None) -> Grants | None:
    """Return the remembered decisions (grants) of a gate, or `None` if the gate does not remember any."""
    grants = getattr(gate, "grants", None)
    return grants if isinstance(grants, Grants) else None


def cast_to_question_gate(gate: Gate | None) -> SupportsStoredQuestions | None:
    """Return the gate if it implements `SupportsStoredQuestions`, else `None`."""
    members = ("handler", "expires_seconds", "verdicts", "with_handler")
    if get_gate_grants(gate) is None or not all(hasattr(gate, each) for each in members):
        return None
    return cast("SupportsStoredQuestions", gate)


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
            checks.raise_config_error("Permissions", "grants", grants, "give a Grants(…)")
        if expires_seconds is not None and not (isinstance(expires_seconds, (int, float)) and expires_seconds > 0):
            checks.raise_config_error(
                "Permissions", "expires_seconds", expires_seconds, "give a number above zero, or None"
            )
        checks.require_bool("Permissions", "data_flow", data_flow)
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
