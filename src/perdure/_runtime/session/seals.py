"""Seal the approvals that a session remembers, and tell which of those in its log have a seal that counts.

A store that lasts is sealed with the user's key. One that ends with this process, such as a store in memory, is sealed
with a key of this process, so that no file is needed.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from perdure._core.log.fold import State
from perdure._core.permission.grants import grants_from_log, is_seal_of, list_sealed_fields, make_seal
from perdure._core.tools.binding import KEEPS_GRANTS_OF, list_session_keys
from perdure._core.values.binding import identify_store, is_identity_of_this_process
from perdure._core.values.event import GrantRevoked, PermissionDecided
from perdure._io.home.keys import (
    RuntimeKey,
    build_process_key,
    find_grant_key,
    find_revoked_seals,
    make_grant_key,
    record_revoked_seals,
    warn_once,
)

KEPT_GRANTS_SEAL: Final = "keeps_grants_seal"
"""The setting in which a fork stores the seal of the sessions whose grants it keeps."""


def seal_decision(decision: PermissionDecided, store: Any) -> PermissionDecided:
    """Return a decision that is remembered with its seal. One without a key has none, and does not count later."""
    if not decision.allow:  # a no holds without one
        return decision
    key = build_process_key() if _ends_with_process(store) else make_grant_key()
    if key is None:
        return decision
    return msgspec.structs.replace(decision, seal=make_seal(list_sealed_fields(decision), key))


def select_sealed_decisions(
    remembered: Iterable[PermissionDecided | GrantRevoked], store: Any
) -> list[PermissionDecided | GrantRevoked]:
    """Return the remembered decisions that count: denials, revocations, and approvals whose seal fits.

    An approval that is there twice counts once: the second may have been put there after it was revoked.
    """
    events = list(remembered)
    seals = [each.seal for each in events if isinstance(each, PermissionDecided) and each.allow]
    if not seals:
        return events
    is_own = _ends_with_process(store)
    key = build_process_key() if is_own else find_grant_key()
    used = set[str]() if is_own else find_revoked_seals(each for each in seals if each)
    kept: list[PermissionDecided | GrantRevoked] = []
    for event in events:
        if isinstance(event, GrantRevoked) or not event.allow:
            kept.append(event)
        elif _is_sealed(event, key) and event.seal not in used:
            used.add(event.seal)
            kept.append(event)
    return kept


def _is_sealed(event: PermissionDecided, key: RuntimeKey | None) -> bool:
    """Return True if the seal of an approval fits; if it does not, that is logged once."""
    if key is not None and event.seal and is_seal_of(event.seal, list_sealed_fields(event), key):
        return True
    if event.binding is not None:
        why = "has no seal" if not event.seal else "was not sealed with the key of this user, or was changed"
        warn_once(
            f"an approval of {event.tool!r} in the log of session {event.binding.session_id!r} {why}: it does not "
            "count, and the next call is asked about"
        )
    return False


def list_trusted_session_keys(session_id: str, state: State, store: Any) -> list[str]:
    """Return the key of a session, and those of the sessions whose grants it keeps, if that is sealed.

    `session_id` is the id in the innermost store.
    """
    own, *others = list_session_keys(session_id, state)
    if not others:
        return [own]
    root = state
    while root.parent is not None:
        root = root.parent
    key = build_process_key() if _ends_with_process(store) else find_grant_key()
    seal = root.settings.get(KEPT_GRANTS_SEAL)
    sealed = _describe_kept(session_id, others)
    if key is not None and isinstance(seal, str) and is_seal_of(seal, sealed, key):
        return [own, *others]
    warn_once(f"that session {session_id!r} keeps the approvals of another one is not sealed: they do not count here")
    return [own]


def seal_kept_grants(session_id: str, kept: list[str], store: Any) -> Mapping[str, Any]:
    """Return the settings by which a fork keeps the grants of other sessions; none without a key."""
    if not kept:
        return {}
    key = build_process_key() if _ends_with_process(store) else make_grant_key()
    if key is None:
        return {}
    seal = make_seal(_describe_kept(session_id, kept), key)
    return {KEEPS_GRANTS_OF: kept, KEPT_GRANTS_SEAL: seal}


def record_revocation(grant_id: str, session_id: str, state: State, store: Any) -> None:
    """Record, outside of the store, the seals of the approvals in a session's log that make up a revoked grant."""
    if _ends_with_process(store):
        return
    keys = list_trusted_session_keys(session_id, state, store)
    decisions = [each for each in state.remembered_decisions if isinstance(each, PermissionDecided) and each.seal]
    record_revoked_seals(
        [
            each.seal
            for each in decisions
            if grant_id in {grant.grant_id for grant in grants_from_log([each], session_id, keys, level=None)}
        ]
    )


def _describe_kept(session_id: str, kept: Iterable[str]) -> list[Any]:
    return ["kept", session_id, list(kept)]


def _ends_with_process(store: Any) -> bool:
    return is_identity_of_this_process(identify_store(store))
