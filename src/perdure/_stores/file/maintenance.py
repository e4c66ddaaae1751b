"""Maintain the folder of a file store: measure it, remove unneeded files, back it up with a manifest, and restore."""

# ruff: noqa: PTH102, PTH104, PTH118, PTH119, PTH120 - paths are strings

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Generator, Iterable, Iterator
from typing import Final, Literal

import msgspec

from perdure._core.log.store import StoreSize
from perdure._core.values.error import ConfigError, SessionBusy, StoreError
from perdure._stores.files import create_folder, make_path_absolute, sync_data

from .disk import (
    TEMPORARY_SUFFIX,
    close_file,
    erase_file,
    erase_stale_temporary_file,
    is_temporary_file_name,
    make_unused_path,
    open_file,
    read_at,
    sync_folder,
    to_store_error,
    write_all,
)
from .folder import SessionsFolder
from .forks import erase_unshared_entries, find_deleted_parents
from .layout import (
    FORK_MARKER_SUFFIX,
    LOCK_SUFFIX,
    LOG_SUFFIX,
    MAILBOX_SUFFIX,
    QUARANTINE_SUFFIX,
    REMNANT_SUFFIX,
    SessionPaths,
    decode_file_name,
    encode_line,
    get_mailbox_paths,
    get_session_paths,
    read_first_line,
)
from .lock import LockRecord, lock_folder, read_lock_record, take_lock
from .repair import rewrite_file
from .scan import read_header, read_header_and_size, scan_unlocked

MANIFEST_NAME: Final = "backup.manifest"
"""The name of the manifest in a backup folder; no file of a session has it."""
_CHUNK: Final = 1024 * 1024


class FileDigest(msgspec.Struct, frozen=True):
    """Size and SHA-256 digest of a file."""

    size: int
    sha256: str


class _Manifest(msgspec.Struct, frozen=True):
    perdure: Literal["backup"]
    format: int
    files: dict[str, FileDigest]


_manifests = msgspec.json.Decoder(_Manifest)


def write_manifest(folder: str, names: Iterable[str]) -> None:
    """Write and sync the manifest of a new backup folder with these files. Raises `OSError`."""
    files = {name: digest_file(os.path.join(folder, name)) for name in sorted(names)}
    body = msgspec.json.encode(_Manifest("backup", 1, files))
    descriptor = open_file(os.path.join(folder, MANIFEST_NAME), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(descriptor, encode_line(body, 0))
        sync_data(descriptor)
    finally:
        close_file(descriptor)


def read_manifest(folder: str) -> dict[str, FileDigest]:
    """Return the files that the manifest of a backup lists.

    Raises `OSError`, and `StoreError` if the manifest is missing or damaged.
    """
    path = os.path.join(folder, MANIFEST_NAME)
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        raise StoreError(
            f"{folder!r} is no complete backup, because it has no {MANIFEST_NAME!r}: give the folder that "
            "`perdure backup --store file:DIR PATH` has made"
        ) from None
    try:
        size = os.fstat(descriptor).st_size
        line = read_first_line(descriptor, size, 0)
        if line is None or not line.is_ended or line.end != size:
            raise StoreError(f"the manifest {path!r} is damaged: use another backup")
        return _manifests.decode(line.body).files
    except msgspec.DecodeError as error:
        raise StoreError(f"the manifest {path!r} is of another version ({error}): upgrade perdure") from error
    finally:
        close_file(descriptor)


def check_manifest_files(folder: str, files: dict[str, FileDigest], names: Iterable[str]) -> None:
    """Raise `StoreError` unless the files in a backup folder are exactly those of its manifest. Raises `OSError`."""
    there = set(names)
    for name in sorted(there ^ files.keys()):
        what = "is missing" if name in files else "has come into it"
        raise StoreError(f"the backup {folder!r} is not as it was made: {name!r} {what}. {_ADVICE}")
    for name, digest in files.items():
        if digest_file(os.path.join(folder, name)) != digest:
            raise StoreError(f"the backup {folder!r} is not as it was made: {name!r} has other content. {_ADVICE}")


_ADVICE: Final = (
    "Use another backup if nobody has used it as a store since; if that is what happened, back it up as one: "
    "`perdure backup --store file:DIR PATH`"
)


def digest_file(path: str) -> FileDigest:
    """Return size and digest of a file. Raises `OSError`."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        digest, at = hashlib.sha256(), 0
        while chunk := read_at(descriptor, at, _CHUNK):
            digest.update(chunk)
            at += len(chunk)
        return FileDigest(at, digest.hexdigest())
    finally:
        close_file(descriptor)


_DAY: Final = 24 * 3600.0
_ENDINGS: Final = (LOG_SUFFIX, MAILBOX_SUFFIX, REMNANT_SUFFIX, QUARANTINE_SUFFIX, LOCK_SUFFIX, FORK_MARKER_SUFFIX)
_log: Final = logging.getLogger("perdure")


def measure_folder(folder: SessionsFolder, now: float) -> StoreSize:
    """Return how many bytes the files of a file store take, in total and for each session."""
    folder.check_path()
    total = free = 0
    sessions: dict[str, int] = {}
    for file in _store_files(folder.path):
        with contextlib.suppress(FileNotFoundError):
            size = file.stat(follow_symlinks=False).st_size
            total += size
            free += size if _is_removable(file, now) else 0
            if file.name.endswith(LOG_SUFFIX) and (own := _measure_session(file.path, size)) is not None:
                sessions[own[0]] = own[1]
    return StoreSize(total, free, 0, sessions)


def vacuum_folder(folder: SessionsFolder, now: float) -> None:
    """Remove files and entries that a file store no longer needs. Sessions that a process is running are skipped."""
    folder.check_path()
    files = list(_store_files(folder.path))
    in_use = {file.inode() for file in files if not is_temporary_file_name(file.name)}
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            if _is_removable(file, now):
                erase_stale_temporary_file(file, in_use) if is_temporary_file_name(file.name) else erase_file(file.path)
            elif file.name.endswith(MAILBOX_SUFFIX) and (header := read_header(file.path)) is not None:
                _compact_mailbox(folder, header.id)
    if os.path.isdir(folder.path):  # noqa: PTH112 - a string
        with lock_folder(folder.path):
            for trunk in find_deleted_parents(folder.path):
                erase_unshared_entries(folder.path, trunk)


def back_up_folder(folder: SessionsFolder, path: str) -> None:
    """Copy all sessions of a file store to a new folder, which gets its final name only when it is complete and synced.

    Its manifest has the digest of every file, by which `restore_folder` verifies it.
    """
    folder.check_path()
    with _publish_folder(path) as temporary:
        if os.path.isdir(folder.path):  # noqa: PTH112 - a string
            with lock_folder(folder.path):  # so that no fork is made or loses its parent meanwhile
                _copy_all(folder.path, temporary)
        write_manifest(temporary, [file.name for file in _store_files(temporary)])


def restore_folder(backup: str, path: str) -> None:
    """Copy a backup of a file store to a new folder, after it was verified by the digests in its manifest.

    Every file is compared before anything is copied, and again in the copy. Raises `StoreError` if the backup is
    damaged or has no manifest.
    """
    source, target = make_path_absolute(backup), make_path_absolute(path)
    try:
        files = read_manifest(source)
        names = [file.name for file in _store_files(source)]
        check_manifest_files(source, files, names)
        with _publish_folder(target) as temporary:
            for name in names:
                _copy_bytes(os.path.join(source, name), os.path.join(temporary, name))
            check_manifest_files(temporary, files, names)
    except OSError as error:
        raise to_store_error(error, str(error.filename or source)) from error


@contextlib.contextmanager
def _publish_folder(path: str) -> Generator[str]:
    """Context manager: yield a temporary folder, which is synced and renamed to `path` if the block succeeds."""
    if os.path.lexists(path):
        raise ConfigError(f"there is something at {path!r} already: back up to a path where nothing is")
    parent = os.path.dirname(path)
    create_folder(parent)
    temporary = make_unused_path(path, TEMPORARY_SUFFIX)
    os.mkdir(temporary, 0o700)
    try:
        yield temporary
        sync_folder(temporary)
        os.rename(temporary, path)
        sync_folder(parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _store_files(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the regular files in a folder that belong to the store."""
    try:
        with os.scandir(folder) as files:
            there = [file for file in files if file.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return
    for file in there:
        name = file.name.rsplit(".", 2)[0] if is_temporary_file_name(file.name) else file.name
        if name.endswith(_ENDINGS):
            yield file


def _is_removable(file: os.DirEntry[str], now: float) -> bool:
    """Return True if this is a temporary or quarantine file older than a day."""
    if not is_temporary_file_name(file.name) and not file.name.endswith(QUARANTINE_SUFFIX):
        return False
    status = file.stat(follow_symlinks=False)
    return now - max(status.st_mtime, status.st_ctime) > _DAY


def _measure_session(path: str, size: int) -> tuple[str, int] | None:
    """Return the id of a session, and the size of its file without the header; `None` if that is unknown."""
    try:
        header, header_size = read_header_and_size(path)
    except StoreError:
        return None  # of a newer version
    session_id = header.id if header is not None else decode_file_name(os.path.basename(path).removesuffix(LOG_SUFFIX))
    if session_id is None:
        return None
    own = size - header_size
    return (session_id, own) if own > 0 or (header is not None and header.at) else None


def _compact_mailbox(folder: SessionsFolder, session_id: str) -> None:
    """Erase the posts that a session has consumed, unless a process runs the session, which does it later."""
    if not os.path.lexists(get_session_paths(folder.path, session_id).log):
        return  # it was never driven: every post waits
    try:
        folder.compact_mailbox(session_id)
    except SessionBusy:
        return
    except StoreError as error:
        _log.warning("the mailbox of session %r is left as it is: %s", session_id, error)


def _copy_all(source: str, target: str) -> None:
    files = [file.name for file in _store_files(source) if not is_temporary_file_name(file.name)]
    order = {
        MAILBOX_SUFFIX: 0,
        LOCK_SUFFIX: 0,
        LOG_SUFFIX: 1,
        REMNANT_SUFFIX: 1,
        FORK_MARKER_SUFFIX: 2,
        QUARANTINE_SUFFIX: 2,
    }
    for rank in sorted(set(order.values())):
        for name in files:
            ending = os.path.splitext(name)[1]  # noqa: PTH122 - a string
            if order[ending] != rank:
                continue
            if ending == LOCK_SUFFIX:
                _copy_lock_file(os.path.join(source, name), os.path.join(target, name))
            else:
                _copy_file(
                    os.path.join(source, name), os.path.join(target, name), is_log=rank < order[FORK_MARKER_SUFFIX]
                )


def _copy_lock_file(source: str, target: str) -> None:
    """Copy a lock file without the process that has the lock, since it does not run the copied session."""
    claim = read_lock_record(SessionPaths("", "", source, "", 0))
    lock = take_lock(SessionPaths("", "", target, "", 0))
    try:
        lock.write_record(LockRecord(claim.fence, claim.synced))
    finally:
        lock.close()


def _copy_file(source: str, target: str, *, is_log: bool) -> None:
    header = None
    with contextlib.suppress(StoreError):  # of a newer version: copied byte by byte
        header = read_header(source) if is_log else None
    if header is None:
        with contextlib.suppress(FileNotFoundError):
            _copy_bytes(source, target)
        return
    place = _paths_of(source, header.id)
    found = scan_unlocked(place)
    if found.header is None or found.damaged:
        _copy_bytes(source, target)  # damaged: as it is, so that it can be repaired there as well as here
        return
    close_file(rewrite_file(SessionPaths(header.id, target, target, "", place.seed), found.header, found.entries))


def _paths_of(path: str, session_id: str) -> SessionPaths:
    """Return the paths that belong to a log, a remnant or a mailbox with this path."""
    place = get_session_paths(os.path.dirname(path), session_id)
    if path.endswith(MAILBOX_SUFFIX):
        place = get_mailbox_paths(place)
    return SessionPaths(session_id, path, place.lock, path + QUARANTINE_SUFFIX, place.seed)


def _copy_bytes(source: str, target: str) -> None:
    descriptor = open_file(source, os.O_RDONLY)
    try:
        copy = open_file(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            at = 0
            while chunk := read_at(descriptor, at, _CHUNK):
                write_all(copy, chunk)
                at += len(chunk)
            sync_data(copy)
        finally:
            close_file(copy)
    finally:
        close_file(descriptor)
