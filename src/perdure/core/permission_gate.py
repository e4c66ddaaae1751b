"""The protocol of permission gates, which decide whether tool calls may run, and of their optional abilities."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct

from .permission_grants import Grant, Grants
from .permission_request import PermissionRequest, Verdict
from .permission_rule import Policy, Rule


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
