"""Grants: permission decisions that are remembered for later calls, and the seals that prove who wrote them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values import checks
from perdure._core.values.binding import ApprovalBinding
from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError
from perdure._core.values.event import GrantRevoked, PermissionDecided, Scope
from perdure._core.values.jsonable import replace_surrogates

from .request import SCOPES, WIDTHS, Covers, PermissionRequest, Verdict, build_permission_decided_event
from .rules import Rule
from .targets.command import NAMED_ACTIONS, CommandPattern
from .targets.path import PathPattern
from .targets.patterns import Pattern, Target, list_wider_patterns, match_restricting_rule, matches_allow_rule
from .targets.text import TextPattern, UncomputableTarget, escape_pattern
from .targets.url import UrlPattern

_VERSION: Final = "1"
_PURPOSE: Final = "grant"
_SEALED_FIELDS: Final = (
    *("call_id", "tool", "action", "target", "arguments_hash", "allow", "reason", "scope", "tool_identity", "by"),
    *("covers", "target_kind", "binding", "level", "at", "run_id"),
)


class SealKey(Protocol):
    """A secret key, with which a message is signed for a purpose."""

    def sign(self, purpose: str, message: bytes) -> str:
        """Return the signature of a message for a purpose."""
        ...

    def is_signed(self, purpose: str, message: bytes, signature: str) -> bool:
        """Return True if a signature is that of a message for a purpose; compared in constant time."""
        ...


def make_seal(sealed: Any, key: SealKey) -> str:
    """Return a new seal for a plain value."""
    number = new_id()
    return f"{_VERSION}.{number}.{key.sign(_PURPOSE, _encode(sealed, number))}"


def is_seal_of(seal: str, sealed: Any, key: SealKey) -> bool:
    """Return True if a seal was made for exactly this value, with this key."""
    version, _, rest = seal.partition(".")
    number, _, given = rest.partition(".")
    return version == _VERSION and key.is_signed(_PURPOSE, _encode(sealed, number), given)


def list_sealed_fields(decision: PermissionDecided) -> list[Any]:
    """Return what of a decision is sealed, as a plain value: all that says what it is for, and who gave it."""
    return ["decision", *[_to_plain(getattr(decision, name)) for name in _SEALED_FIELDS]]


def list_sealed_values(value: msgspec.Struct) -> list[Any]:
    """Return all fields of a value as a plain list: of equal values, it is equal."""
    return [_to_plain(each) for each in msgspec.structs.astuple(value)]


def _to_plain(value: Any) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    return list_sealed_values(value) if isinstance(value, msgspec.Struct) else value


def _encode(sealed: Any, number: str) -> bytes:
    return msgspec.json.encode([replace_surrogates(number), sealed], order="sorted")


SHOWN_MATCHES = 3
"""Number of earlier calls that an offer shows."""
_PATTERN_KINDS: dict[str, type[Pattern]] = {"path": PathPattern, "command": CommandPattern, "url": UrlPattern}


class Grant(Struct, frozen=True, omit_defaults=True):
    """A decision, allow or deny, that is remembered for later tool calls."""

    scope: Scope
    allow: bool
    tool: str
    action: str = "*"
    target: str = ""
    """The target, or a pattern for it if `covers` is `pattern`; empty for any."""
    session_id: str = ""
    """The id of the session in its innermost store. Empty for a grant of scope `forever`, unless it is from the log of
    a session: then it holds in that session alone."""
    reason: str = ""
    covers: str = "pattern"
    """The calls that it is for: `arguments`, `target`, `tool` or `pattern`."""
    target_kind: str = ""
    """The kind of target of a `pattern`: `path`, `command`, `url`; empty for text."""
    arguments_hash: str = ""
    """The hash of the arguments, if it is for exactly these."""
    run_id: str = ""
    """The run, for a grant of scope `run`."""
    binding: ApprovalBinding | None = None
    """The identity that it is bound to; `None` for a grant that a program has written, which holds everywhere."""
    by: str = ""
    """Who decided."""
    at: float = 0.0
    """When it was decided, in seconds since 1970; 0 if that is not known."""

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            message = f"Grant(scope={self.scope!r}): the scopes are {', '.join(map(repr, SCOPES))}"
            raise ConfigError(message)
        if not isinstance(self.allow, bool):
            message = f"Grant(allow={self.allow!r}): give True or False"
            raise ConfigError(message)
        checks.require_text("Grant", "tool", self.tool)

    @property
    def grant_id(self) -> str:
        """The id by which the grant can be revoked."""
        import hashlib

        session_id = "" if self.scope == "forever" else self.session_id  # in every log, it has the id of the answer
        parts = [self.scope, self.tool, self.action, self.target, session_id]
        bound = self.binding
        more = [self.covers, self.target_kind, self.arguments_hash, self.run_id]
        if bound is not None:  # a session is of one store and one project
            for_ever = [bound.tool, bound.widen_to_tenant().store, bound.project]
            more += for_ever if self.scope == "forever" else [bound.session]
            more.append(bound.agent)
        key = "\0".join(parts if more == ["pattern", "", "", ""] else [*parts, *more])
        return f"grant_{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"

    @property
    def rule(self) -> Rule:
        """The grant as a permission rule, for display."""
        target: str | Pattern = "*"
        if self.covers in {"target", "arguments"}:
            target = escape_pattern(self.target)
        elif self.covers == "pattern" and self.target:
            target = self.pattern
        action = self.action if self.action == "*" else escape_pattern(self.action)
        shown = target.pattern if isinstance(target, TextPattern) else target
        return Rule("allow" if self.allow else "deny", escape_pattern(self.tool), action, shown)

    @property
    def pattern(self) -> Pattern:
        """The pattern for the target."""
        return _PATTERN_KINDS.get(self.target_kind, TextPattern)(self.target or "*")

    @property
    def is_exact(self) -> bool:
        """True if the grant is for exactly one target, or for exactly these arguments."""
        return self.covers in {"arguments", "target"}

    @classmethod
    def of_decision(cls, decision: PermissionDecided, session_id: str) -> "Grant":
        """Build the grant for later calls from a permission decision in the log."""
        width = decision.covers or "arguments"  # nothing less, if it does not say
        covers = width if width in WIDTHS else "pattern"
        pattern = width if covers == "pattern" else decision.target
        return cls(
            decision.scope,
            decision.allow,
            decision.tool,
            decision.action,
            "" if covers == "tool" else pattern,
            "" if decision.scope == "forever" else session_id,
            decision.reason,
            covers,
            target_kind=decision.target_kind,
            arguments_hash=decision.arguments_hash if covers == "arguments" else "",
            run_id=decision.run_id.partition("/")[0] if decision.scope == "run" else "",
            binding=_narrow_binding(decision),
            by=decision.by,
            at=decision.at,
        )

    def covers_call(self, request: PermissionRequest) -> bool:
        """Return True if the grant applies to this call."""
        return (
            self.tool == request.tool
            and self._covers_action(request.action)
            and self._holds_in(request)
            and self._is_bound_to(request.binding)
            and self._covers_target(request)
        )

    @property
    def holds_in_all_sessions(self) -> bool:
        """True if the grant is not for one session or run alone."""
        return self.scope == "forever" and not self.session_id

    def _covers_action(self, action: str) -> bool:
        """Return True if the grant is about an action; one that allows is about the network only by that name."""
        is_any = self.action == "*" and not (self.allow and action in NAMED_ACTIONS)
        return is_any or self.action == action

    def _holds_in(self, request: PermissionRequest) -> bool:
        if self.holds_in_all_sessions:
            return True
        is_bound = self.binding is not None and bool(self.binding.session)  # then that decides: see `_is_bound_to`
        if self.scope == "once" or not (is_bound or self.session_id == request.session_id):
            return False
        return self.scope != "run" or self.run_id == request.root_run_id

    def _is_bound_to(self, other: ApprovalBinding) -> bool:
        own = self.binding
        if own is None:
            return True
        if self.holds_in_all_sessions:
            is_here = own.has_in_store(other) or (not self.allow and own.is_same_store(other))
        else:
            is_here = own.is_same_session(other)
        if not is_here:
            return False
        return (own.tool, own.agent) == (other.tool, other.agent) if self.allow else own.is_above(other)

    def _covers_target(self, request: PermissionRequest) -> bool:
        if self.covers == "arguments":
            return self.arguments_hash == request.arguments_hash and self.target == request.target
        if self.covers == "target":
            return self.target == request.target and not isinstance(request.typed_target, UncomputableTarget)
        if self.covers == "tool" or not self.target:
            return True
        target = request.matched_target
        if self.allow:
            return matches_allow_rule(self.pattern, target)
        return match_restricting_rule(self.pattern, target, request.arguments) != "no"


def _narrow_binding(decision: PermissionDecided) -> ApprovalBinding | None:
    """Return the binding of a decision; to the tenant instead of the session, if it applies in all sessions."""
    binding = decision.binding
    return binding if binding is None or decision.scope != "forever" else binding.widen_to_tenant()


class Offer(Struct, frozen=True, omit_defaults=True):
    """A grant that a person can choose when approving a call: it says which later calls are approved too."""

    covers: Covers
    """The value for `Verdict(covers=…)`."""
    rule: str
    """The rule that an approval would add, as text."""
    matches: str
    """What the rule would match, as text."""
    matched_count: int = 0
    """Number of earlier calls in this session that the rule would have matched."""
    matched: tuple[str, ...] = ()
    """Targets of the last of these, each once."""


def list_offers(request: PermissionRequest) -> tuple[Offer, ...]:
    """Return the grants that a person can choose from when approving a tool call, the narrowest first."""
    target: Target | None = request.typed_target
    name = f"{request.tool!r}" if request.action == request.tool else f"{request.tool!r} to {request.action}"
    offers = [_make_offer(request, "arguments", f"{name} with exactly these arguments")]
    if not isinstance(target, UncomputableTarget):
        offers.append(_make_offer(request, "target", f"{name} on exactly {request.target}"))
        for pattern, described in () if target is None else list_wider_patterns(target):
            offers.append(_make_offer(request, pattern.text, f"{name} on {described}"))
    offers.append(_make_offer(request, "tool", f"every call of {name}"))
    return tuple(offers)


def _make_offer(request: PermissionRequest, covers: Covers, matches: str) -> Offer:
    grant = make_grant(request, Verdict(allow=True, scope="session", covers=covers))
    matched = [each.target for each in request.earlier if grant.covers_call(each)]
    shown = tuple(list(dict.fromkeys(reversed(matched)))[:SHOWN_MATCHES])
    return Offer(covers, describe_rule(request, covers), matches, len(matched), shown)


def make_grant(request: PermissionRequest, verdict: Verdict, at: float = 0.0) -> Grant:
    """Build the grant that a verdict about a tool call leads to. Raises `ConfigError` if its pattern is invalid."""
    session_id = request.binding.session_id or request.session_id
    grant = Grant.of_decision(build_permission_decided_event(request, verdict, at=at), session_id)
    _ = grant.rule  # parses the pattern
    return grant


def describe_rule(request: PermissionRequest, covers: Covers) -> str:
    """Return, as text, the permission rule of a grant for `covers`, such as exactly this target or the whole tool."""
    rule = str(make_grant(request, Verdict(allow=True, scope="session", covers=covers)).rule)
    return f"{rule} with exactly these arguments" if covers == "arguments" else rule


def check_grant_pattern(request: PermissionRequest, verdict: Verdict) -> None:
    """Raise `ConfigError` if a verdict is to be remembered for a pattern that does not match the call itself."""
    if (
        verdict.scope != "once"
        and verdict.covers not in WIDTHS
        and not make_grant(request, verdict).covers_call(request)
    ):
        message = (
            f"Verdict(covers={verdict.covers!r}) does not match the call of {request.tool!r} on {request.target!r}: "
            "give 'arguments', 'target', 'tool', or a pattern that does"
        )
        raise ConfigError(message)


def grants_from_log(
    remembered: Iterable[PermissionDecided | GrantRevoked],
    session_id: str,
    session_keys: Iterable[str] = (),
    *,
    level: int | None = 0,
) -> dict[Grant, bool]:
    """Return the grants in a session's log, each with True if it is still valid, or False if it was revoked.

    Each is for this session alone, also one of scope `forever`: other sessions do not read this log. `session_keys` are
    the session itself as bindings name it, and those whose grants a fork keeps. A permission that is
    bound to no tool is not used: the next call is asked about again. A denial is. With a `level` of `None`, the
    decisions of all gates in a chain are returned.
    """
    keys = tuple(session_keys)
    decided: dict[str, Grant] = {}
    revoked: set[str] = set()
    ids_as_decided: dict[str, str] = {}
    """The ids that grants had where they were decided, by their ids in this session: by these they may be revoked."""
    for event in remembered:
        if isinstance(event, GrantRevoked):
            revoked.add(event.grant_id)
            continue
        if level not in {None, event.level} or (event.allow and event.binding is None and keys):
            continue
        grant = replace(Grant.of_decision(event, session_id), session_id=session_id, binding=event.binding)
        if grant.binding is not None and keys:
            if grant.binding.session not in keys:
                continue  # of the session that this one was forked from, or of one that had its name before
            as_decided = replace(grant, session_id=grant.binding.session_id).grant_id
            grant = replace(grant, binding=replace(grant.binding, session=keys[0]))
            ids_as_decided[grant.grant_id] = as_decided
            revoked.discard(as_decided)
        decided[grant.grant_id] = grant
        revoked.discard(grant.grant_id)
    return {
        grant: not {grant_id, ids_as_decided.get(grant_id, grant_id)} & revoked for grant_id, grant in decided.items()
    }


class Grants:
    """The decisions about tool calls that are remembered for later calls. They can be listed and revoked."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._grants: dict[tuple[str, str], Grant] = {}
        """The grants by their id and the session that they are for: an answer for ever may be in several logs."""
        self._revoked: set[str] = set()
        for grant in grants:
            self.remember(grant)

    def remember(self, grant: Grant) -> None:
        """Add a grant; it replaces an older one for the same calls."""
        if not isinstance(grant, Grant):
            checks.raise_config_error("Grants", "grant", grant, "give a Grant, such as Grant.of_decision(…)")
        self._revoked.discard(grant.grant_id)
        self._grants[grant.grant_id, grant.session_id] = grant

    def restore(self, grant: Grant) -> None:
        """Add a grant from a session's log, unless it was revoked or decided anew since."""
        for_all = self._grants.get((grant.grant_id, ""))
        is_known = for_all is not None and for_all.allow == grant.allow
        if not is_known and grant.grant_id not in self._revoked:
            self._grants.setdefault((grant.grant_id, grant.session_id), grant)

    def sync_with_log(
        self,
        remembered: Iterable[PermissionDecided | GrantRevoked],
        session_id: str,
        session_keys: Iterable[str] = (),
        *,
        level: int = 0,
    ) -> None:
        """Synchronize with a session's log: add the grants decided there, and remove those revoked there.

        A grant for all sessions is not removed because of a log that is older than the answer.
        """
        for grant, is_active in grants_from_log(remembered, session_id, session_keys, level=level).items():
            if is_active:
                self.restore(grant)
            elif grant.scope != "forever":
                self.forget(grant.grant_id)
            else:
                self._forget_answer(grant)

    def _forget_answer(self, revoked: Grant) -> None:
        """Remove an answer for ever that was revoked in a session's log; for all sessions, unless it was given anew."""
        self._grants.pop((revoked.grant_id, revoked.session_id), None)
        for_all = self._grants.get((revoked.grant_id, ""))
        if for_all is not None and 0 < for_all.at <= revoked.at:
            del self._grants[revoked.grant_id, ""]

    def find(self, request: PermissionRequest, *, exact: bool = False) -> Grant | None:
        """Return the grant that applies to a call, or `None`. A denial outranks a permission.

        With `exact`, a permission must be for exactly these arguments or this target.
        """
        found = [grant for grant in self if grant.covers_call(request)]
        denials = [grant for grant in found if not grant.allow]
        return next(iter(denials or [grant for grant in found if grant.is_exact or not exact]), None)

    def revoke(self, grant_id: str) -> bool:
        """Revoke a grant, as long as this object exists; return `False` when there is none with that id."""
        if not self._remove(grant_id):
            return False
        self._revoked.add(grant_id)
        return True

    def forget(self, grant_id: str, session_id: str = "") -> None:
        """Remove a grant that was revoked in one session's log; one for all sessions is not restored by other logs.

        With `session_id`, the same answer stays where it is from the log of another session.
        """
        if [grant for grant in self._remove(grant_id, session_id) if grant.holds_in_all_sessions]:
            self._revoked.add(grant_id)

    def _remove(self, grant_id: str, session_id: str = "") -> list[Grant]:
        """Remove and return the grants with an id: all of them, or those that hold in a session."""
        keys = [key for key in self._grants if key[0] == grant_id and (not session_id or key[1] in {"", session_id})]
        return [self._grants.pop(key) for key in keys]

    def __iter__(self) -> Iterator[Grant]:
        return iter(tuple(self._grants.values()))
