"""Maintain a folder of sessions: measure its size, remove unneeded files, and back it up.

A backup is taken while others write: each file up to its last complete append. The posts for a session are copied
before its log, so that one that is taken meanwhile is in both, and none in neither. The record of the last synced entry
is copied before the log as well, so that this entry is in the copy.
"""

# ruff: noqa: PTH102, PTH104, PTH118, PTH119, PTH120 - paths are strings
import contextlib
import logging
import os
import shutil
from collections.abc import Iterator
from typing import Final

from perdure.core.error import ConfigError, SessionBusy, StoreError
from perdure.core.store import StoreSize
from perdure.stores.store_paths import create_folder

from .file_io import close_file, open_file, read_at, sync_data, sync_folder, write_all
from .folder import SessionsFolder
from .forks import erase_unshared_entries, find_remnants
from .lock import LockRecord, lock_folder, read_lock_record, take_lock
from .paths import (
    FORK_MARKER_SUFFIX,
    LOCK_SUFFIX,
    LOG_SUFFIX,
    MAILBOX_SUFFIX,
    QUARANTINE_SUFFIX,
    REMNANT_SUFFIX,
    SessionPaths,
    decode_file_name,
    mailbox_paths,
    session_paths,
)
from .repair import rewrite_file
from .secure_delete import TEMPORARY_SUFFIX, erase_file, is_leftover, remove_leftover, unused_path
from .unlocked_scan import read_header, read_header_and_size, scan_unlocked

_DAY: Final = 24 * 3600.0
_CHUNK: Final = 1024 * 1024
_ENDINGS: Final = (LOG_SUFFIX, MAILBOX_SUFFIX, REMNANT_SUFFIX, QUARANTINE_SUFFIX, LOCK_SUFFIX, FORK_MARKER_SUFFIX)
_log: Final = logging.getLogger("perdure")


def measure_folder(folder: SessionsFolder, now: float) -> StoreSize:
    """Return how many bytes the files of a store take, in total and for each session."""
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
    """Remove files and entries that are no longer needed. Sessions that a process is running are skipped."""
    folder.check_path()
    files = list(_store_files(folder.path))
    in_use = {file.inode() for file in files if not is_leftover(file.name)}
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            if _is_removable(file, now):
                remove_leftover(file, in_use) if is_leftover(file.name) else erase_file(file.path)
            elif file.name.endswith(MAILBOX_SUFFIX) and (header := read_header(file.path)) is not None:
                _compact_mailbox(folder, header.id)
    if os.path.isdir(folder.path):  # noqa: PTH112 - a string
        with lock_folder(folder.path):
            for trunk in find_remnants(folder.path):
                erase_unshared_entries(folder.path, trunk)


def back_up_folder(folder: SessionsFolder, path: str) -> None:
    """Copy all sessions to a new folder, which gets its final name only when it is complete and synced."""
    folder.check_path()
    if os.path.lexists(path):
        raise ConfigError(f"there is something at {path!r} already: back up to a path where nothing is")
    parent = os.path.dirname(path)
    create_folder(parent)
    temporary = unused_path(path, TEMPORARY_SUFFIX)
    os.mkdir(temporary, 0o700)
    try:
        if os.path.isdir(folder.path):  # noqa: PTH112 - a string
            with lock_folder(folder.path):  # so that no fork is made or loses its parent meanwhile
                _copy_all(folder.path, temporary)
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
        name = file.name.rsplit(".", 2)[0] if is_leftover(file.name) else file.name
        if name.endswith(_ENDINGS):
            yield file


def _is_removable(file: os.DirEntry[str], now: float) -> bool:
    """Return True if this is a temporary or quarantine file older than a day."""
    if not is_leftover(file.name) and not file.name.endswith(QUARANTINE_SUFFIX):
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
    """Erase the messages that a session has taken, unless a process is running it: that one does it later."""
    if not os.path.lexists(session_paths(folder.path, session_id).log):
        return  # it was never driven: every post waits
    try:
        folder.compact_mailbox(session_id)
    except SessionBusy:
        return
    except StoreError as error:
        _log.warning("the mailbox of session %r is left as it is: %s", session_id, error)


def _copy_all(source: str, target: str) -> None:
    files = [file.name for file in _store_files(source) if not is_leftover(file.name)]
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
    place = session_paths(os.path.dirname(source), header.id)
    seed = mailbox_paths(place).seed if source.endswith(MAILBOX_SUFFIX) else place.seed
    found = scan_unlocked(
        SessionPaths(
            header.id, source, mailbox_paths(place).lock if source.endswith(MAILBOX_SUFFIX) else place.lock, "", seed
        )
    )
    if found.header is None or found.damaged:
        _copy_bytes(source, target)  # damaged: as it is, so that it can be repaired there as well as here
        return
    close_file(rewrite_file(SessionPaths(header.id, target, target, "", seed), found.header, found.entries))


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
