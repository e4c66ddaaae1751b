"""Permission for tool calls: requests, verdicts, rules, and decisions remembered for later calls (grants).

A gate is one function: it receives every call of a reply that may run, and answers each. The strictest rule that
matches a call decides: deny, then ask, then allow. Without a matching rule, a call of a tool that needs permission is
asked about, and any other is allowed. When there is no one to ask, the call is denied. `Permissions.explain` is the one
place where this is decided; every other method builds on it.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args, runtime_checkable

from msgspec import Struct

from . import check
from .error import ConfigError
from .event import GrantRevoked, PermissionDecided, Scope

Policy: TypeAlias = Literal["allow", "deny", "ask"]

_POLICIES = get_args(Policy)
_SCOPES = get_args(Scope)


class PermissionRequest(Struct, frozen=True):
    """A request for permission to make one tool call, with these arguments."""

    call_id: str
    tool: str
    action: str
    """The kind of action; the tool's name when the tool does not define one."""
    target: str
    """The target: a path, an address, a command line; the arguments when the tool does not define one."""
    arguments: Mapping[str, Any]
    """The arguments that will run, final."""
    arguments_hash: str
    """The verdict is valid for these arguments only."""
    required: bool
    """True if the tool needs permission."""
    session_id: str = ""
    run_id: str = ""


class Verdict(Struct, frozen=True):
    """A decision about a tool call: allowed or not, and the reason."""

    allow: bool
    reason: str = ""
    """Shown to the model when denied."""
    scope: Scope = "once"
    """The scope for which the decision is remembered."""

    def __post_init__(self) -> None:
        if not isinstance(self.allow, bool):
            message = f"Verdict(allow={self.allow!r}): give True or False"
            raise ConfigError(message)
        if self.scope not in _SCOPES:
            message = f"Verdict(scope={self.scope!r}): the scopes are {', '.join(map(repr, _SCOPES))}"
            raise ConfigError(message)
        check.require_text("Verdict", "reason", self.reason)


class Gate(Protocol):
    """Protocol of a gate: a function or callable object that decides which tool calls may run. `Permissions` is one.

    An object may have more powers than this: see `SupportsGrants`, `SupportsExplain`, `SupportsRefusals`,
    `SupportsRules` and `SupportsQuestions`. Each is optional, and asked for by the names of its members.
    """

    def __call__(self, requests: Sequence[PermissionRequest], /) -> Sequence[Verdict] | Awaitable[Sequence[Verdict]]:
        """Return one verdict for each request, in order. A missing verdict denies the call, and so does an error."""
        ...


Handler: TypeAlias = Callable[[Sequence[PermissionRequest]], Sequence[Verdict] | Awaitable[Sequence[Verdict]]]
"""A function that asks a person about the calls that no rule decides: one question for the whole batch."""


class Rule(Struct, frozen=True):
    """A rule that allows, denies or asks about the tool calls that match all its patterns (`*`, `?`, `[…]`)."""

    policy: Policy
    tool: str = "*"
    action: str = "*"
    target: str = "*"

    def __post_init__(self) -> None:
        if self.policy not in _POLICIES:
            message = f"Rule({self.policy!r}): use allow(…), deny(…) or ask(…)"
            raise ConfigError(message)
        for name in ("tool", "action", "target"):
            pattern = getattr(self, name)
            if not isinstance(pattern, str):
                message = f"{self.policy}({name}={pattern!r}): give a pattern as text, such as 'shell' or 'git_*'"
                raise ConfigError(message)

    def matches(self, request: PermissionRequest) -> bool:
        """Return True if the rule matches the call."""
        from fnmatch import fnmatchcase

        return (
            fnmatchcase(request.tool, self.tool)
            and fnmatchcase(request.action, self.action)
            and fnmatchcase(request.target, self.target)
        )

    def __str__(self) -> str:
        narrowed = [
            f"{name}={value!r}" for name, value in (("action", self.action), ("target", self.target)) if value != "*"
        ]
        return f"{self.policy}({', '.join([repr(self.tool), *narrowed])})"


def allow(tool: str = "*", *, action: str = "*", target: str = "*") -> Rule:
    """Make a rule that allows matching calls."""
    return Rule("allow", tool, action, target)


def deny(tool: str = "*", *, action: str = "*", target: str = "*") -> Rule:
    """Make a rule that denies matching calls."""
    return Rule("deny", tool, action, target)


def ask(tool: str = "*", *, action: str = "*", target: str = "*") -> Rule:
    """Make a rule that requires approval of matching calls, even if the tool needs no permission."""
    return Rule("ask", tool, action, target)


def build_decision(request: PermissionRequest, verdict: Verdict, path: str = "") -> PermissionDecided:
    """Build the event that stores a verdict about a tool call. It is stored before the call runs."""
    return PermissionDecided(
        request.call_id,
        request.tool,
        request.action,
        request.target,
        request.arguments_hash,
        verdict.allow,
        verdict.reason,
        verdict.scope,
        run_id=request.run_id,
        path=path,
    )


class Grant(Struct, frozen=True):
    """A decision, allow or deny, that is remembered for later tool calls."""

    scope: Scope
    allow: bool
    tool: str
    action: str
    target: str = ""
    session_id: str = ""
    reason: str = ""

    @property
    def grant_id(self) -> str:
        """The id by which the grant can be revoked."""
        import hashlib

        key = f"{self.scope}\0{self.tool}\0{self.action}\0{self.target}\0{self.session_id}"
        return f"grant_{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"

    @property
    def rule(self) -> Rule:
        """A rule with the same effect as the grant, for display."""
        target = "*" if self.scope == "session" else _escape_pattern(self.target)
        return Rule("allow" if self.allow else "deny", _escape_pattern(self.tool), _escape_pattern(self.action), target)

    @classmethod
    def of_decision(cls, decision: PermissionDecided, session_id: str) -> "Grant":
        """Build the grant that a stored decision implies for later calls; `None` if it applies to one call only."""
        scope: Scope = decision.scope
        target = "" if scope == "session" else decision.target
        owner = "" if scope == "forever" else session_id
        return cls(scope, decision.allow, decision.tool, decision.action, target, owner, decision.reason)

    def covers(self, request: PermissionRequest) -> bool:
        """Return True if the grant applies to this call."""
        if (self.tool, self.action) != (request.tool, request.action):
            return False
        if self.scope == "forever":
            return self.target == request.target
        if self.scope == "once" or self.session_id != request.session_id:
            return False
        return self.scope == "session" or self.target == request.target


def _escape_pattern(text: str) -> str:
    """Return a pattern that matches exactly this text."""
    return "".join([f"[{character}]" if character in "*?[" else character for character in text])


def rules_by_scope(request: PermissionRequest) -> dict[str, str]:
    """Return, for each scope longer than one call, the rule that an approval would add, as text."""
    rules: dict[str, str] = {}
    for scope in _SCOPES[1:]:
        decision = build_decision(request, Verdict(allow=True, scope=scope))
        rules[scope] = str(Grant.of_decision(decision, request.session_id).rule)
    return rules


def grants_from_log(remembered: Iterable[PermissionDecided | GrantRevoked], session_id: str) -> dict[Grant, bool]:
    """Return the grants in a session's log, each with True unless it has been revoked since."""
    decided: dict[str, Grant] = {}
    revoked: set[str] = set()
    for event in remembered:
        if isinstance(event, PermissionDecided):
            grant = Grant.of_decision(event, session_id)
            decided[grant.grant_id] = grant
            revoked.discard(grant.grant_id)
        else:
            revoked.add(event.grant_id)
    return {grant: grant_id not in revoked for grant_id, grant in decided.items()}


class Grants:
    """The decisions about tool calls that are remembered for later calls. They can be listed and revoked."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._grants: dict[str, Grant] = {}
        self._revoked: set[str] = set()
        for grant in grants:
            self.remember(grant)

    def remember(self, grant: Grant) -> None:
        """Add a grant; it replaces an older one for the same calls."""
        if not isinstance(grant, Grant):
            check.raise_config_error("Grants", "grant", grant, "give a Grant, such as Grant.of_decision(…)")
        self._revoked.discard(grant.grant_id)
        self._grants[grant.grant_id] = grant

    def restore(self, grant: Grant) -> None:
        """Add a grant from a session's log, unless it was revoked or decided anew since."""
        if grant.grant_id not in self._revoked:
            self._grants.setdefault(grant.grant_id, grant)

    def sync_with_log(self, remembered: Iterable[PermissionDecided | GrantRevoked], session_id: str) -> None:
        """Synchronize with a session's log: add the grants decided there, and remove those revoked there.

        A grant of scope `forever` does not belong to the session, and is not removed because of an old log.
        """
        for grant, is_active in grants_from_log(remembered, session_id).items():
            if is_active:
                self.restore(grant)
            elif grant.scope != "forever":
                self.forget(grant.grant_id)

    def find(self, request: PermissionRequest) -> Grant | None:
        """Return the grant that applies to a call, or `None`. A denial outranks a permission."""
        found = [grant for grant in self if grant.covers(request)]
        return min(found, key=lambda grant: grant.allow, default=None)

    def revoke(self, grant_id: str) -> bool:
        """Revoke a grant, as long as this object exists; return `False` when there is none with that id."""
        if self._grants.pop(grant_id, None) is None:
            return False
        self._revoked.add(grant_id)
        return True

    def forget(self, grant_id: str) -> None:
        """Remove a grant that was revoked in a session's log. Other logs do not restore one of scope `forever`."""
        grant = self._grants.pop(grant_id, None)
        if grant is not None and grant.scope == "forever":
            self._revoked.add(grant_id)

    def __iter__(self) -> Iterator[Grant]:
        return iter(tuple(self._grants.values()))


class Explanation(Struct, frozen=True):
    """An explanation of a decision about a tool call: allowed, denied or asked about, and the reason."""

    verdict: Policy
    """Allowed, denied, or asked about."""
    why: str
    """The reason as text; for a call that is denied, the text that the model receives."""
    rule: str = ""
    """The rule that decides, if one does, as it would be written."""
    grant: Grant | None = None
    """The remembered decision that decides, if one does."""


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
class SupportsRefusals(Protocol):
    """Protocol of a gate that can list the calls it denies without asking anyone.

    An agent that runs below another one has its own gate, and these denials of the parent's gate apply first. A
    parent's gate without this power is called, and whatever it denies is denied.
    """

    async def refusals(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        """Return, for each request, the verdict that denies it, or `None`."""
        ...

    def explain_denial(self, request: PermissionRequest) -> Explanation | None:
        """Return why the call is denied without asking anyone, or `None`."""
        ...


@runtime_checkable
class SupportsRules(Protocol):
    """Protocol of a gate to which the permission rules of extensions can be added."""

    def with_rules(self, rules: Sequence[Rule]) -> Gate | None:
        """Return a gate that applies these rules too; `None` if it cannot: then only their denials apply.

        They apply before this gate is called.

        That is also what becomes of the rules of extensions when a gate has no such method.
        """
        ...


class SupportsQuestions(SupportsGrants, Gate, Protocol):
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
        """Return the verdict for each request that needs no question, and `None` for each that does."""
        ...

    def with_handler(self, handler: Handler, grants: Grants) -> "SupportsQuestions":
        """Return a copy of this gate that asks by this function, and remembers decisions in these grants."""
        ...


def grants_of(gate: Gate | None) -> Grants | None:
    """Return the grants that a gate remembers, or `None` if it does not remember decisions."""
    grants = getattr(gate, "grants", None)
    return grants if isinstance(grants, Grants) else None


def questions_of(gate: Gate | None) -> SupportsQuestions | None:
    """Return the gate if it has all members of `SupportsQuestions`, or `None`."""
    members = ("handler", "expires_seconds", "verdicts", "with_handler")
    if grants_of(gate) is None or not all(hasattr(gate, each) for each in members):
        return None
    return cast("SupportsQuestions", gate)


class Permissions:
    """Decides whether a tool call may run: by rules, by remembered decisions, or by asking a person."""

    def __init__(
        self,
        *rules: Rule,
        handler: Handler | None = None,
        grants: Grants | None = None,
        expires_seconds: float | None = None,
    ) -> None:
        """Make a gate that decides by these rules, and asks `handler` about calls that no rule decides.

        Args:
            rules: Made by `allow`, `deny` and `ask`.
            handler: Asks a person who is present; or `later`, and the run waits for an answer from anywhere.
            grants: The remembered decisions, to be shared by several agents.
            expires_seconds: How long a question stays open; then the call is denied.
        """
        for rule in rules:
            if not isinstance(rule, Rule):
                message = f"{rule!r} is not a rule: use allow(…), deny(…) or ask(…)"
                raise ConfigError(message)
        if handler is not None and not callable(handler):
            message = f"Permissions(handler={handler!r}): give an async function that answers a list of requests"
            raise ConfigError(message)
        if grants is not None and not isinstance(grants, Grants):
            check.raise_config_error("Permissions", "grants", grants, "give a Grants(…)")
        if expires_seconds is not None and not (isinstance(expires_seconds, (int, float)) and expires_seconds > 0):
            check.raise_config_error(
                "Permissions", "expires_seconds", expires_seconds, "give a number above zero, or None"
            )
        self.rules = rules
        self.handler = handler
        self.expires_seconds = expires_seconds
        self.grants = grants if grants is not None else Grants()

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

    async def refusals(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        """Return the denials by rules and grants; `None` for each of the other calls."""
        found = [self.explain_denial(request) for request in requests]
        return [None if each is None else Verdict(allow=False, reason=each.why) for each in found]

    def decide_without_asking(self, request: PermissionRequest) -> Verdict | None:
        """Return the verdict by rules and grants, with its reason; `None` if a person must be asked."""
        explanation = self.explain(request)
        if explanation.verdict == "ask":
            return None
        return Verdict(allow=explanation.verdict == "allow", reason=explanation.why)

    def explain_denial(self, request: PermissionRequest) -> Explanation | None:
        """Return the rule or grant that denies a call without asking anyone; `None` when there is none."""
        rule = next((str(rule) for rule in self.rules if rule.policy == "deny" and rule.matches(request)), "")
        if rule:
            return Explanation("deny", f"denied by the rule {rule}", rule)
        grant = self.grants.find(request)
        if grant is None or grant.allow:
            return None
        return Explanation("deny", grant.reason or f"denied before, for {grant.scope}", grant=grant)

    def explain(self, request: PermissionRequest) -> Explanation:
        """Explain whether a call would be allowed, denied or asked about. Asks no one, and remembers nothing."""
        if no := self.explain_denial(request):
            return no
        matching = {rule.policy: str(rule) for rule in reversed(self.rules) if rule.matches(request)}
        grant = self.grants.find(request)  # an allowing one, if any
        asking = matching.get("ask", "")
        if not asking:
            if rule := matching.get("allow"):
                return Explanation("allow", f"allowed by the rule {rule}", rule)
            if not request.required:
                return Explanation("allow", "the tool needs no permission")
        if grant is not None:
            return Explanation("allow", grant.reason or f"allowed before, for {grant.scope}", grant=grant)
        if self.handler is None:
            return Explanation("deny", NO_ONE_TO_ASK.reason, asking)
        why = f"the rule {asking} requires approval" if asking else "the tool needs permission"
        return Explanation("ask", why, asking)

    def with_rules(self, rules: Sequence[Rule]) -> "Permissions | None":
        """Return a gate with these rules added; `None` for a subclass, which may decide by more than its rules."""
        if type(self) is not Permissions:
            return None
        return Permissions(
            *self.rules, *rules, handler=self.handler, grants=self.grants, expires_seconds=self.expires_seconds
        )

    def with_handler(self, handler: Handler, grants: Grants) -> "Permissions":
        """Return a copy of this gate that asks by this function, and remembers decisions in these grants."""
        double = copy(self)
        double.handler, double.grants = handler, grants
        return double

    async def _ask(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        answered = (self.handler or later)(requests)
        answers = complete_verdicts(requests, list(await answered if inspect.isawaitable(answered) else answered))
        for request, answer in zip(requests, answers, strict=True):
            if answer.scope != "once":
                self.grants.remember(Grant.of_decision(build_decision(request, answer), request.session_id))
        return answers


def later(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """Handler for unattended agents: stores the question instead of asking, and the run ends as `waiting`.

    `session.answer` answers it, from any process, and `session.resume` goes on. Called directly, it denies.
    """
    return [NO_ONE_TO_ASK] * len(requests)


EVERYTHING_ALLOWED = Verdict(allow=True, reason="everything is allowed")
NOTHING_ALLOWED = Verdict(allow=False, reason="permission denied: no tool may be used")
NO_ANSWER = Verdict(allow=False, reason="permission denied: no answer was given")
EXPIRED = Verdict(allow=False, reason="permission denied: the question expired without an answer")
NO_ONE_TO_ASK = Verdict(
    allow=False,
    reason="permission denied: this tool needs permission and there is no one to ask; do not try it again in this run",
)


def complete_verdicts(requests: Sequence[PermissionRequest], answers: Sequence[object]) -> list[Verdict]:
    """Return exactly one verdict for each request: a missing or invalid answer becomes a denial."""
    verdicts = [answer if isinstance(answer, Verdict) else NO_ANSWER for answer in answers[: len(requests)]]
    return verdicts + [NO_ANSWER] * (len(requests) - len(verdicts))


async def allow_all(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """A gate that allows every call."""
    return [EVERYTHING_ALLOWED] * len(requests)


async def deny_all(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """A gate that denies every call, even of tools that need no permission."""
    return [NOTHING_ALLOWED] * len(requests)
