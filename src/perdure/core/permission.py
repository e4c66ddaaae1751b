"""What may be done: requests, verdicts, rules, and what was decided before. Above: the loop. Below: events.

A gate is one function: it is given every call of a reply that may run and answers each. The strictest rule that
matches a call decides: deny, then ask, then allow. Without a matching rule a call of a tool that needs permission is
asked about, and any other is allowed. When nobody can be asked, asking is denying. `Permissions.explain` is the one
place that says so; whatever decides is built on it.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from . import check
from .error import ConfigError
from .event import GrantRevoked, PermissionDecided, Scope

Policy: TypeAlias = Literal["allow", "deny", "ask"]

_POLICIES = get_args(Policy)
_SCOPES = get_args(Scope)


class PermissionRequest(Struct, frozen=True):
    """May this call be made?"""

    call_id: str
    tool: str
    action: str
    """What kind of thing is done; the tool's name when it does not say."""
    target: str
    """To what: a path, an address, a command line; the arguments when the tool does not say."""
    arguments: Mapping[str, Any]
    """The arguments that will run, final."""
    arguments_hash: str
    """The verdict holds for these arguments only."""
    required: bool
    """Whether the tool says that it needs permission."""
    session_id: str = ""
    run_id: str = ""


class Verdict(Struct, frozen=True):
    """Yes or no, and why."""

    allow: bool
    reason: str = ""
    """Shown to the model when denied."""
    scope: Scope = "once"
    """Remember it this far."""

    def __post_init__(self) -> None:
        if not isinstance(self.allow, bool):
            message = f"Verdict(allow={self.allow!r}): say True or False"
            raise ConfigError(message)
        if self.scope not in _SCOPES:
            message = f"Verdict(scope={self.scope!r}): the scopes are {', '.join(map(repr, _SCOPES))}"
            raise ConfigError(message)
        check.text("Verdict", "reason", self.reason)


Gate: TypeAlias = Callable[[Sequence[PermissionRequest]], Sequence[Verdict] | Awaitable[Sequence[Verdict]]]
"""Answers each request of a batch, in order. A missing answer is a no, and so is an error."""

Handler: TypeAlias = Callable[[Sequence[PermissionRequest]], Sequence[Verdict] | Awaitable[Sequence[Verdict]]]
"""Asks a person (or whoever decides) about the calls that no rule settles: one question for the whole batch."""


class Rule(Struct, frozen=True):
    """A policy for the calls that match all its patterns (`*`, `?`, `[…]`)."""

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
        """Whether this rule is about that call."""
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
    """Calls that need no question."""
    return Rule("allow", tool, action, target)


def deny(tool: str = "*", *, action: str = "*", target: str = "*") -> Rule:
    """Calls that are never made."""
    return Rule("deny", tool, action, target)


def ask(tool: str = "*", *, action: str = "*", target: str = "*") -> Rule:
    """Calls that somebody has to agree to, even if the tool does not ask for it."""
    return Rule("ask", tool, action, target)


def decision_of(request: PermissionRequest, verdict: Verdict, path: str = "") -> PermissionDecided:
    """The event that keeps a verdict; it is stored before the effect that it allows."""
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
    """A verdict that is remembered, allow or deny."""

    scope: Scope
    allow: bool
    tool: str
    action: str
    target: str = ""
    session_id: str = ""
    reason: str = ""

    @property
    def grant_id(self) -> str:
        """Names it, to revoke it by."""
        import hashlib

        key = f"{self.scope}\0{self.tool}\0{self.action}\0{self.target}\0{self.session_id}"
        return f"grant_{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"

    @property
    def rule(self) -> Rule:
        """The same as a rule, to be shown: it matches what this covers, in the sessions that this is for."""
        target = "*" if self.scope == "session" else _literally(self.target)
        return Rule("allow" if self.allow else "deny", _literally(self.tool), _literally(self.action), target)

    @classmethod
    def of_decision(cls, decision: PermissionDecided, session_id: str) -> "Grant":
        """What a decision in the log says for later calls."""
        scope: Scope = decision.scope
        target = "" if scope == "session" else decision.target
        owner = "" if scope == "forever" else session_id
        return cls(scope, decision.allow, decision.tool, decision.action, target, owner, decision.reason)

    def covers(self, request: PermissionRequest) -> bool:
        """Whether it settles that call."""
        if (self.tool, self.action) != (request.tool, request.action):
            return False
        if self.scope == "forever":
            return self.target == request.target
        if self.scope == "once" or self.session_id != request.session_id:
            return False
        return self.scope == "session" or self.target == request.target


def _literally(text: str) -> str:
    """A pattern that matches this text alone."""
    return "".join([f"[{character}]" if character in "*?[" else character for character in text])


def rules_for(request: PermissionRequest) -> dict[str, str]:
    """What a yes would allow from then on, by how far it is to reach: the very rule, in words."""
    rules: dict[str, str] = {}
    for scope in _SCOPES[1:]:
        decision = decision_of(request, Verdict(allow=True, scope=scope))
        rules[scope] = str(Grant.of_decision(decision, request.session_id).rule)
    return rules


def last_words(remembered: Iterable[PermissionDecided | GrantRevoked], session_id: str) -> dict[Grant, bool]:
    """What the log of a session has decided for longer than one call, and whether it still holds."""
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
    """The verdicts that were given for longer than one call. They can be listed and taken back."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._grants: dict[str, Grant] = {}
        self._revoked: set[str] = set()
        for grant in grants:
            self.remember(grant)

    def remember(self, grant: Grant) -> None:
        """Keep it; it replaces an older one for the same thing."""
        if not isinstance(grant, Grant):
            check.refuse("Grants", "grant", grant, "give a Grant, such as Grant.of_decision(…)")
        self._revoked.discard(grant.grant_id)
        self._grants[grant.grant_id] = grant

    def restore(self, grant: Grant) -> None:
        """Take up again what a session's log remembers, unless it was revoked or decided anew since."""
        if grant.grant_id not in self._revoked:
            self._grants.setdefault(grant.grant_id, grant)

    def follow(self, remembered: Iterable[PermissionDecided | GrantRevoked], session_id: str) -> None:
        """Know what a session's log says: what was decided there, and what was taken back.

        What holds for ever is not the session's own: it is not taken back here by what an old log says.
        """
        for grant, holds in last_words(remembered, session_id).items():
            if holds:
                self.restore(grant)
            elif grant.scope != "forever":
                self.forget(grant.grant_id)

    def find(self, request: PermissionRequest) -> Grant | None:
        """The remembered verdict for a call. A denial outranks a permission."""
        found = [grant for grant in self if grant.covers(request)]
        return min(found, key=lambda grant: grant.allow, default=None)

    def revoke(self, grant_id: str) -> bool:
        """Take one back; `False` when there is none of that name. It holds as long as this object lives."""
        if self._grants.pop(grant_id, None) is None:
            return False
        self._revoked.add(grant_id)
        return True

    def forget(self, grant_id: str) -> None:
        """Hold no more to what was taken back in a log. What holds for ever is not restored by another log either."""
        grant = self._grants.pop(grant_id, None)
        if grant is not None and grant.scope == "forever":
            self._revoked.add(grant_id)

    def __iter__(self) -> Iterator[Grant]:
        return iter(tuple(self._grants.values()))


class Explanation(Struct, frozen=True):
    """What becomes of a call, and why."""

    verdict: Policy
    """Allowed, denied, or asked about."""
    why: str
    """In words; for a call that is denied, what the model is told."""
    rule: str = ""
    """The rule that decides, if one does, as it would be written."""
    grant: Grant | None = None
    """What was decided before, if that decides."""


class Permissions:
    """The gate that we ship: rules, what was decided before, and somebody to ask."""

    def __init__(
        self,
        *rules: Rule,
        handler: Handler | None = None,
        grants: Grants | None = None,
        expires_seconds: float | None = None,
    ) -> None:
        """Decide by rules, and ask about the rest.

        Args:
            rules: Made by `allow`, `deny` and `ask`.
            handler: Asks somebody who is here; or `later`, and the run waits for an answer from anywhere.
            grants: What was decided before, to be shared by several agents.
            expires_seconds: How long a question stays open; then the answer is no.
        """
        for rule in rules:
            if not isinstance(rule, Rule):
                message = f"{rule!r} is not a rule: use allow(…), deny(…) or ask(…)"
                raise ConfigError(message)
        if handler is not None and not callable(handler):
            message = f"Permissions(handler={handler!r}): give an async function that answers a list of requests"
            raise ConfigError(message)
        if grants is not None and not isinstance(grants, Grants):
            check.refuse("Permissions", "grants", grants, "give a Grants(…)")
        if expires_seconds is not None and not (isinstance(expires_seconds, (int, float)) and expires_seconds > 0):
            check.refuse("Permissions", "expires_seconds", expires_seconds, "give a number above zero, or None")
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
        """What is settled without asking anybody, for each request; `None` means: ask."""
        return [self.settled(request) for request in requests]

    async def refusals(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        """What rules and earlier decisions deny, whoever could be asked, for each request."""
        said = [self.forbidden(request) for request in requests]
        return [None if each is None else Verdict(allow=False, reason=each.why) for each in said]

    def settled(self, request: PermissionRequest) -> Verdict | None:
        """The verdict that rules and remembered grants give, with its reason; `None` means: ask."""
        explanation = self.explain(request)
        if explanation.verdict == "ask":
            return None
        return Verdict(allow=explanation.verdict == "allow", reason=explanation.why)

    def forbidden(self, request: PermissionRequest) -> Explanation | None:
        """The rule or the earlier decision that denies a call, whoever could be asked; `None` when there is none."""
        rule = next((str(rule) for rule in self.rules if rule.policy == "deny" and rule.matches(request)), "")
        if rule:
            return Explanation("deny", f"denied by the rule {rule}", rule)
        grant = self.grants.find(request)
        if grant is None or grant.allow:
            return None
        return Explanation("deny", grant.reason or f"denied before, for {grant.scope}", grant=grant)

    def explain(self, request: PermissionRequest) -> Explanation:
        """What becomes of a call, and why. Nobody is asked, and nothing is remembered."""
        if no := self.forbidden(request):
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
            return Explanation("deny", NOBODY_TO_ASK.reason, asking)
        why = f"the rule {asking} wants somebody to agree" if asking else "the tool needs permission"
        return Explanation("ask", why, asking)

    async def _ask(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        answered = (self.handler or later)(requests)
        answers = one_each(requests, list(await answered if inspect.isawaitable(answered) else answered))
        for request, answer in zip(requests, answers, strict=True):
            if answer.scope != "once":
                self.grants.remember(Grant.of_decision(decision_of(request, answer), request.session_id))
        return answers


def later(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """The handler for agents that nobody sits beside: the question is kept, and the run ends as `waiting`.

    `session.answer` answers it, from any process, and `session.resume` goes on. Called by hand, it says no.
    """
    return [NOBODY_TO_ASK] * len(requests)


NO_ANSWER = Verdict(allow=False, reason="permission denied: no answer was given")
EXPIRED = Verdict(allow=False, reason="permission denied: nobody answered in time")
NOBODY_TO_ASK = Verdict(
    allow=False,
    reason="permission denied: this tool needs permission and nobody can be asked; do not try it again in this run",
)


def one_each(requests: Sequence[PermissionRequest], answers: Sequence[object]) -> list[Verdict]:
    """One verdict for each request: whatever is missing, or no verdict, is a no."""
    verdicts = [answer if isinstance(answer, Verdict) else NO_ANSWER for answer in answers[: len(requests)]]
    return verdicts + [NO_ANSWER] * (len(requests) - len(verdicts))


async def allow_all(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """A gate that lets everything through."""
    return [Verdict(allow=True, reason="everything is allowed")] * len(requests)


async def deny_all(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """A gate that lets nothing through, not even tools that need no permission."""
    return [Verdict(allow=False, reason="permission denied: no tool may be used")] * len(requests)
