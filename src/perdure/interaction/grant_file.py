"""A file with permission decisions (grants) that are remembered for ever, shared by several processes.

The file has a line of JSON for each grant. It is read again when it has changed, and never changed in place: a new
file, readable by its owner alone, replaces the old one under a lock. A file with a line that cannot be parsed is left
as it is, and an error is raised: a denial could be in it. A line that allows has a seal, made with the user's key: one
without a seal that fits does not count, and is gone with the next change.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH116, PTH120 - pathlib would cost every start milliseconds
import contextlib
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from perdure.core import argument_checks
from perdure.core.error import StoreError
from perdure.core.grant_seal import is_seal_of, list_sealed_values, make_seal
from perdure.core.permissions import Grant, Grants
from perdure.files.grant_key import find_grant_key, find_revoked_seals, make_grant_key, record_revoked_seals, warn_once
from perdure.files.perdure_home import expand_user_path
from perdure.files.runtime_files import trust_runtime_file
from perdure.files.runtime_key import RuntimeKey

_PRIVATE = 0o600
_OTHERS_WRITE = 0o022
_IS_POSIX = os.name == "posix"


class GrantFile(Grants):
    """Grants (remembered permission decisions); those that are valid forever are stored in a file."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        """Use this file; it is created, for its owner alone, when there is a grant to store."""
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            argument_checks.raise_config_error("GrantFile", "path", path, "give the path of a file")
        super().__init__()
        self.path: str = expand_user_path(os.fspath(path))
        trust_runtime_file(self, self.path, "file")
        self._kept: dict[str, Grant] = {}
        self._seals: dict[str, str] = {}
        """The seals of the grants that allow, by the ids of these."""
        self._version: tuple[int | str | None, ...] | None = None
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
        return iter([*self._kept.values(), *super().__iter__()])

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
        """Read the file again if it has changed."""
        with self._convert_os_errors("read"):
            try:
                found = os.stat(self.path)
            except FileNotFoundError:
                self._kept, self._seals, self._version = {}, {}, None
                return
            if _IS_POSIX and found.st_mode & _OTHERS_WRITE:
                mode = stat.S_IMODE(found.st_mode)
                raise StoreError(
                    f"the grants in {self.path!r} can be changed by others (mode {mode:04o}): chmod 600 them"
                )
            key = find_grant_key() if found.st_size else None
            version = (
                found.st_dev,
                found.st_ino,
                found.st_size,
                found.st_mtime_ns,
                None if key is None else key.fingerprint,
            )
            if version != self._version:
                with open(self.path, "rb") as file:  # noqa: PTH123 - as above
                    lines = _parse_grants(self.path, file.read().splitlines())
                sealed = _select_sealed(self.path, lines, key)
                self._kept = {name: grant for name, (grant, _) in sealed.items()}
                self._seals = {name: seal for name, (_, seal) in sealed.items() if seal}
                self._version = version

    def _update_file(self, grant_id: str, grant: Grant | None, seal: str) -> None:
        """Put a grant in the place of the one with its id, or remove that, under the lock.

        The seal of the old one is recorded as revoked: nobody can put it back.
        """
        with self._convert_os_errors("written"):
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
            with self._lock_folder():
                self._reload_if_changed()
                kept = {name: (each, self._seals.get(name, "")) for name, each in self._kept.items()}
                _, old_seal = kept.pop(grant_id, (None, ""))
                if grant is not None:
                    kept[grant_id] = grant, seal
                record_revoked_seals([old_seal] if old_seal else [])
                self._replace_file(kept.values())
            self._version = None
            self._reload_if_changed()

    @contextlib.contextmanager
    def _lock_folder(self) -> Generator[None]:
        """Lock the folder against other writers, also of other processes. This needs no lock file."""
        if not _IS_POSIX:
            yield
            return
        import fcntl

        folder = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _replace_file(self, grants: Iterable[tuple[Grant, str]]) -> None:
        import secrets

        beside = f"{self.path}.{secrets.token_hex(8)}.new"
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        try:
            with os.fdopen(file, "wb") as opened:
                opened.writelines([_encode_grant(grant, seal) for grant, seal in grants])
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    @contextlib.contextmanager
    def _convert_os_errors(self, done: str) -> Generator[None]:
        """Context manager: convert an `OSError` to a `StoreError` that names the file."""
        try:
            yield
        except OSError as error:
            message = (
                f"the grants in {self.path!r} cannot be {done}: {error.strerror}; check the disk and the permissions"
            )
            raise StoreError(message) from error


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


def _parse_grants(path: str, lines: Iterable[bytes]) -> dict[str, tuple[Grant, str]]:
    """Return the grants of the file with their seals, by their ids."""
    grants: dict[str, tuple[Grant, str]] = {}
    for number, line in enumerate(lines, 1):
        try:
            found = _decode_grant(line) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f"line {number} of the grants in {path!r} cannot be parsed ({error}): correct it, or delete it"
            raise StoreError(message) from error
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
