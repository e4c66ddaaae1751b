"""Permission gates of subagents: the subagent's own gate decides, but whatever the parent agent's gate denies stays
denied.

An agent with its own gate that is started by another agent decides by its own gate, except for calls that the parent's
gate forbids: by a rule, by a denial remembered for longer than one call, or, for a gate that is a function, by its
answer. Calls that the parent's gate would only ask about are decided by the child's gate.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from .permission import (
    EVERYTHING_ALLOWED,
    NO_ONE_TO_ASK,
    NOTHING_ALLOWED,
    Explanation,
    Gate,
    Grants,
    Handler,
    PermissionRequest,
    Permissions,
    Rule,
    SupportsExplain,
    SupportsQuestions,
    SupportsRefusals,
    SupportsRules,
    Verdict,
    allow,
    allow_all,
    complete_verdicts,
    deny_all,
)

V = TypeVar("V", Verdict, Verdict | None)


def restrict_gate(gate: Gate | None, parent_gate: Gate | None, session_id: str = "") -> Gate | None:
    """Return the gate for a subagent: its own, limited by the parent's denials; the parent's if it has none.

    `session_id` is the session of the parent's gate, when that is another one.
    """
    if gate is None or parent_gate is None:
        return parent_gate if gate is None else gate
    if gate is parent_gate or parent_gate is allow_all:
        return gate
    return RestrictedGate(gate, parent_gate, session_id)


class RestrictedGate:
    """A subagent's gate (it decides which tool calls may run), limited by another gate whose denials apply first."""

    def __init__(self, own: Gate, above: Gate, session_id: str = "") -> None:
        self._own: Any = own
        self._above = above
        self._session_id = session_id

    async def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        return await _merge_refusals(
            await self._find_parent_refusals(requests), requests, partial(_call_gate, self._own)
        )

    @property
    def grants(self) -> Grants:
        """The grants of the subagent's own gate. Raises `AttributeError` if that gate has none."""
        grants: Grants = self._own.grants
        return grants

    @property
    def handler(self) -> Handler | None:
        """The function by which the subagent's own gate asks. Raises `AttributeError` if that gate has none."""
        handler: Handler | None = self._own.handler
        return handler

    @property
    def expires_seconds(self) -> float | None:
        """The seconds that a question of the subagent's own gate stays open. Raises `AttributeError` if that gate has
        none.
        """
        seconds: float | None = self._own.expires_seconds
        return seconds

    def with_handler(self, handler: Handler, grants: Grants) -> "RestrictedGate":
        """Return a copy whose restricted gate asks by this function, and remembers decisions in these grants."""
        return RestrictedGate(cast("Gate", self._own.with_handler(handler, grants)), self._above, self._session_id)

    async def verdicts(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        """Return both gates' verdicts that need no question; `None` for each call that a person must be asked about."""
        own: SupportsQuestions = self._own
        return await _merge_refusals(await self._find_parent_refusals(requests), requests, own.verdicts)

    async def refusals(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        """Return the denials of either gate that need no question; `None` for each of the other calls."""
        return await _merge_refusals(
            await self._find_parent_refusals(requests), requests, partial(find_refusals, self._own)
        )

    async def _find_parent_refusals(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        return await find_refusals(self._above, _as_session(self._session_id, requests))

    def explain_denial(self, request: PermissionRequest) -> Explanation | None:
        """Return the rule or remembered decision of either gate that denies a call. A gate that is a function is not
        called.
        """
        (seen,) = _as_session(self._session_id, [request])
        return _explain_denial(self._above, seen) or _explain_denial(self._own, request)

    def explain(self, request: PermissionRequest) -> Explanation:
        """Return the decision about a call, and the reason, without asking anyone."""
        return self.explain_denial(request) or explain_decision(self._own, request)


def with_rules(gate: Gate | None, rules: Sequence[Rule]) -> Gate | None:
    """Return a gate that applies these rules too. A gate that cannot be combined with rules gets only their denials."""
    if gate is None:
        return Permissions(*rules)
    if isinstance(gate, SupportsRules):
        combined = gate.with_rules(rules)
        if combined is not None:
            return combined
    denials = [rule for rule in rules if rule.policy == "deny"]
    if not denials:
        return gate
    return Permissions(*denials, allow()) if gate is allow_all else restrict_gate(gate, Permissions(*denials))


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


def _explain_denial(gate: Gate, request: PermissionRequest) -> Explanation | None:
    return gate.explain_denial(request) if isinstance(gate, SupportsRefusals) else None


async def find_refusals(gate: Gate, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
    """Return, for each request, the denial that a gate gives without asking anyone, or `None`. A plain function is
    called.
    """
    if isinstance(gate, SupportsRefusals):
        return await gate.refusals(requests)
    return [None if verdict.allow else verdict for verdict in await _call_gate(gate, requests)]


async def _call_gate(gate: Gate, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    answered = gate(requests)
    return complete_verdicts(requests, list(await answered if inspect.isawaitable(answered) else answered))


def _as_session(session_id: str, requests: Sequence[PermissionRequest]) -> Sequence[PermissionRequest]:
    """Return the requests with another session's id, so that grants for that session apply to them."""
    return [replace(each, session_id=session_id) for each in requests] if session_id else requests


async def _merge_refusals(
    refused: Sequence[Verdict | None],
    requests: Sequence[PermissionRequest],
    rest: Callable[[Sequence[PermissionRequest]], Awaitable[Sequence[V]]],
) -> list[Verdict | V]:
    """Return one verdict for each request: its refusal if there is one, else the next of `rest`."""
    left = [each for each, verdict in zip(requests, refused, strict=True) if verdict is None]
    answers = iter(await rest(left) if left else ())
    return [next(answers) if verdict is None else verdict for verdict in refused]
