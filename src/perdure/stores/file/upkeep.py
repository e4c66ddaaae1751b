"""Looks after a folder of sessions: what it takes, what can go, a copy of it. Above: `store.py`. Below: the folder.

A copy is taken while others write: each file up to its last complete append. The posts for a session are copied before
its log, so that one which is taken meanwhile is in both, and none in neither. So is what is known to be on the disk: it
is in the copy then.
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
from perdure.stores.place import make_folder

from .access import close_file, open_file, read_at, sync_data, sync_folder, write_all
from .erase import TEMPORARY, discard, is_leftover, new_name, remove_leftover
from .folder import Folder
from .lineage import settle, trunks_in
from .lock import Claim, claim_of, folder_lock, take_lock
from .look import header_at, look
from .name import FORKED, LOCK, LOG, MAILBOX, QUARANTINE, TRUNK, Place, id_of, mailbox_of, place_of
from .repair import rewrite
from .survey import header_line

_DAY: Final = 24 * 3600.0
_CHUNK: Final = 1024 * 1024
_ENDINGS: Final = (LOG, MAILBOX, TRUNK, QUARANTINE, LOCK, FORKED)
_log: Final = logging.getLogger("perdure")


def size_of(folder: Folder, now: float) -> StoreSize:
    """What the files in a folder take."""
    folder.check()
    total = free = 0
    sessions: dict[str, int] = {}
    for file in _files(folder.path):
        with contextlib.suppress(FileNotFoundError):
            size = file.stat(follow_symlinks=False).st_size
            total += size
            free += size if _can_go(file, now) else 0
            if file.name.endswith(LOG) and (own := _own_bytes(file.path, size)) is not None:
                sessions[own[0]] = own[1]
    return StoreSize(total, free, 0, sessions)


def vacuum(folder: Folder, now: float) -> None:
    """Remove what nobody needs. A session that is being driven is left to its driver."""
    folder.check()
    files = list(_files(folder.path))
    in_use = {file.inode() for file in files if not is_leftover(file.name)}
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            if _can_go(file, now):
                remove_leftover(file, in_use) if is_leftover(file.name) else discard(file.path)
            elif file.name.endswith(MAILBOX) and (header := header_at(file.path)) is not None:
                _compact(folder, header.id)
    if os.path.isdir(folder.path):  # noqa: PTH112 - a string
        with folder_lock(folder.path):
            for trunk in trunks_in(folder.path):
                settle(folder.path, trunk)


def backup(folder: Folder, path: str) -> None:
    """Copy everything to a new folder, under another name until it is complete and on the disk."""
    folder.check()
    if os.path.lexists(path):
        raise ConfigError(f"there is something at {path!r} already: back up to a path where nothing is")
    parent = os.path.dirname(path)
    make_folder(parent)
    temporary = new_name(path, TEMPORARY)
    os.mkdir(temporary, 0o700)
    try:
        if os.path.isdir(folder.path):  # noqa: PTH112 - a string
            with folder_lock(folder.path):  # so that no fork is made or loses its parent meanwhile
                _copy_all(folder.path, temporary)
        sync_folder(temporary)
        os.rename(temporary, path)
        sync_folder(parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    """The regular files in a folder that are ours."""
    try:
        with os.scandir(folder) as files:
            there = [file for file in files if file.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return
    for file in there:
        name = file.name.rsplit(".", 2)[0] if is_leftover(file.name) else file.name
        if name.endswith(_ENDINGS):
            yield file


def _can_go(file: os.DirEntry[str], now: float) -> bool:
    """Whether it was left or set aside more than a day ago."""
    if not is_leftover(file.name) and not file.name.endswith(QUARANTINE):
        return False
    status = file.stat(follow_symlinks=False)
    return now - max(status.st_mtime, status.st_ctime) > _DAY


def _own_bytes(path: str, size: int) -> tuple[str, int] | None:
    """The id of a session, and what its file holds behind the header."""
    try:
        header = header_at(path)
    except StoreError:
        return None  # of a newer version
    session_id = header.id if header is not None else id_of(os.path.basename(path).removesuffix(LOG))
    if session_id is None:
        return None
    own = size - len(header_line(header)) if header is not None else size
    return (session_id, own) if own > 0 or (header is not None and header.at) else None


def _compact(folder: Folder, session_id: str) -> None:
    """Erase the posts that a session has taken, unless somebody drives it: then that is done when it is released."""
    if not os.path.lexists(place_of(folder.path, session_id).log):
        return  # nobody has driven it yet: every post waits
    try:
        folder.compact(session_id)
    except SessionBusy:
        return
    except StoreError as error:
        _log.warning("the mailbox of session %r is left as it is: %s", session_id, error)


def _copy_all(source: str, target: str) -> None:
    files = [file.name for file in _files(source) if not is_leftover(file.name)]
    order = {MAILBOX: 0, LOCK: 0, LOG: 1, TRUNK: 1, FORKED: 2, QUARANTINE: 2}
    for rank in sorted(set(order.values())):
        for name in files:
            ending = os.path.splitext(name)[1]  # noqa: PTH122 - a string
            if order[ending] != rank:
                continue
            if ending == LOCK:
                _copy_claim(os.path.join(source, name), os.path.join(target, name))
            else:
                _copy(os.path.join(source, name), os.path.join(target, name), is_log=rank < order[FORKED])


def _copy_claim(source: str, target: str) -> None:
    """Who drives a session does not drive its copy."""
    claim = claim_of(Place("", "", source, "", 0))
    lock = take_lock(Place("", "", target, "", 0))
    try:
        lock.write(Claim(claim.fence, claim.synced))
    finally:
        lock.close()


def _copy(source: str, target: str, *, is_log: bool) -> None:
    header = None
    with contextlib.suppress(StoreError):  # of a newer version: copied byte by byte
        header = header_at(source) if is_log else None
    if header is None:
        with contextlib.suppress(FileNotFoundError):
            _copy_bytes(source, target)
        return
    place = place_of(os.path.dirname(source), header.id)
    seed = mailbox_of(place).seed if source.endswith(MAILBOX) else place.seed
    found = look(Place(header.id, source, mailbox_of(place).lock if source.endswith(MAILBOX) else place.lock, "", seed))
    if found.header is None or found.bad:
        _copy_bytes(source, target)  # damaged: as it is, so that it can be repaired there as well as here
        return
    close_file(rewrite(Place(header.id, target, target, "", seed), found.header, found.entries))


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
