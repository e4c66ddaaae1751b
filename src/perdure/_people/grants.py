"""A file with permission decisions (grants) that are remembered for ever, shared by several processes.

The file has a line of JSON for each grant. It is read again when it has changed, and never changed in place: a new
file, readable by its owner alone, replaces the old one under a lock. A file with a line that cannot be parsed is left
as it is, and an error is raised: a denial could be in it. A line that allows has a seal, made with the user's key: one
without a seal that fits does not count, and is gone with the next change.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perdure._core.permission.grants import Grant, Grants, is_seal_of, list_sealed_values, make_seal
from perdure._core.values import checks
from perdure._core.values.error import StoreError
from perdure._io.home.decision_file import DecisionFile, FileVersion
from perdure._io.home.keys import (
    RuntimeKey,
    find_grant_key,
    find_revoked_seals,
    make_grant_key,
    record_revoked_seals,
    warn_once,
)
from perdure._io.home.paths import expand_user_path
from perdure._io.home.runtime_files import trust_runtime_file


class GrantFile(Grants):
    """Grants (remembered permission decisions); those valid forever are stored in a file. A link is refused."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        """Use this file; it is created, for its owner alone, when there is a grant to store."""
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            checks.raise_config_error("GrantFile", "path", path, "give the path of a file")
        super().__init__()
        self.path: str = expand_user_path(os.fspath(path))
        trust_runtime_file(self, self.path, "file")
        self._file = DecisionFile(self.path, "the grant file", _parse_grants, error=StoreError)
        self._kept: dict[str, tuple[Grant, str]] = {}
        """The grants that count, by their ids, with the seals of those that allow."""
        self._version: tuple[FileVersion, str] | None = None
        self._reload_if_changed()

    def remember(self, grant: Grant) -> None:
        """Add a grant; it replaces an older one for the same calls. One of scope `forever` is on the disk when this
        returns.
        """
        if not isinstance(grant, Grant) or not grant.holds_in_all_sessions:
            super().remember(grant)
            return
        key = make_grant_key() if grant.allow else None
        if grant.allow and key is None:  # the file would not prove it
            super().remember(grant)
            return
        seal = "" if key is None else make_seal(_list_sealed(grant), key)
        self._update_file(grant.grant_id, grant, seal)

    def restore(self, grant: Grant) -> None:
        """Add a grant from a session's log, unless its scope is `forever`: those are only read from the file."""
        if grant.scope != "forever":
            super().restore(grant)

    def revoke(self, grant_id: str) -> bool:
        """Revoke a grant, in the file too; `False` when there is none of that id."""
        return self._remove_from_file(grant_id) or super().revoke(grant_id)

    def forget(self, grant_id: str, session_id: str = "") -> None:
        """Remove a grant after its revocation was found in a session's log, from the file too."""
        if not self._remove_from_file(grant_id):
            super().forget(grant_id, session_id)

    def __iter__(self) -> Iterator[Grant]:
        self._reload_if_changed()
        return iter([*[grant for grant, _ in self._kept.values()], *super().__iter__()])

    def __repr__(self) -> str:
        return f"GrantFile({self.path!r})"

    # -- the file ------------------------------------------------------------------------------------------------------

    def _remove_from_file(self, grant_id: str) -> bool:
        """Remove a grant from the file; return `False` when there is none of that id."""
        self._reload_if_changed()
        if grant_id not in self._kept:
            return False
        self._update_file(grant_id, None, "")
        return True

    def _reload_if_changed(self) -> None:
        """Read the file again if it, or the key, has changed."""
        found = self._file.find_version()
        if found is None:
            self._kept, self._version = {}, None
            return
        key = find_grant_key() if found.size else None
        version = found, "" if key is None else key.fingerprint
        if version != self._version:
            self._kept, self._version = _select_sealed(self.path, self._file.load(), key), version

    def _update_file(self, grant_id: str, grant: Grant | None, seal: str) -> None:
        """Put a grant in the place of the one with its id, or remove that, under the lock.

        The seal of the old one is recorded as revoked: nobody can put it back.
        """
        with self._file.lock():
            self._reload_if_changed()
            kept = dict(self._kept)
            _, old_seal = kept.pop(grant_id, (None, ""))
            if grant is not None:
                kept[grant_id] = grant, seal
            record_revoked_seals([old_seal] if old_seal else [])
            self._file.replace(b"".join([_encode_grant(*each) for each in kept.values()]))
        self._version = None
        self._reload_if_changed()


def _list_sealed(grant: Grant) -> list[Any]:
    """Return what of a grant is sealed, as a plain value: all of it."""
    return ["grant", *list_sealed_values(grant)]


def _encode_grant(grant: Grant, seal: str) -> bytes:
    """Encode a grant as a line of the file, always with what it covers."""
    sealed = {"seal": seal} if seal else {}
    return msgspec.json.encode({**msgspec.to_builtins(grant), "covers": grant.covers, **sealed}) + b"\n"


class _GrantLine(msgspec.Struct):
    """What a line of the file has beside the other fields of its grant."""

    covers: str
    seal: Any = ""


def _decode_grant(line: bytes) -> tuple[Grant, str]:
    """Decode a line of the file, with its seal."""
    seal = msgspec.json.decode(line, type=_GrantLine).seal
    return msgspec.json.decode(line, type=Grant), seal if isinstance(seal, str) else ""


def _parse_grants(content: bytes) -> dict[str, tuple[Grant, str]]:
    """Return the grants of the file with their seals, by their ids."""
    grants: dict[str, tuple[Grant, str]] = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            found = _decode_grant(line) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"line {number}: {error}") from error
        if found is not None and found[0].scope == "forever":
            grants[found[0].grant_id] = found
    return grants


def _select_sealed(
    path: str, grants: Mapping[str, tuple[Grant, str]], key: RuntimeKey | None
) -> dict[str, tuple[Grant, str]]:
    """Return the grants that count: those that deny, and those whose seal fits and was not revoked."""
    revoked = find_revoked_seals(seal for grant, seal in grants.values() if grant.allow and seal)
    kept: dict[str, tuple[Grant, str]] = {}
    for name, (grant, seal) in grants.items():
        is_sealed = key is not None and is_seal_of(seal, _list_sealed(grant), key)
        if not grant.allow or (is_sealed and seal not in revoked):
            kept[name] = grant, seal
        elif not is_sealed:
            warn_once(
                f"an approval of {grant.tool!r} in {path!r} was not sealed with the key of this user, or was changed: "
                "it does not count, and the next call is asked about"
            )
    return kept
