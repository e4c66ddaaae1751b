"""What a file store does in its folder, step by step, waiting for the disk. Above: `store.py`. Below: files and locks.

Everything here raises `OSError` as it comes; `store.py` says what it means.
"""

# ruff: noqa: PTH108, PTH116 - paths are strings
import contextlib
import logging
import os
import stat
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from perdure.core.clock import Clock
from perdure.core.codec import decode_entry
from perdure.core.error import Conflict, SessionBusy, SessionExists, SessionNotFound, StoreError
from perdure.core.event import Entry
from perdure.core.store import Post
from perdure.stores.holder import this_process
from perdure.stores.place import check_folder, make_folder
from perdure.stores.refusal import check_fork

from .access import close_file, open_file, sync_data, sync_folder
from .catalogue import Catalogue
from .erase import discard, remove_leftovers
from .lineage import bury, is_alive, new_key, shared_by, source_of
from .lock import Claim, claim_of, folder_lock, take_lock
from .log import FileLog, Verified, id_in, not_there, open_log, replaced
from .look import look
from .mailbox import compact, empty, posts_in, put
from .name import Place, mailbox_of, mark_of, place_of
from .record import body_of
from .repair import rewrite, rewrite_erasing
from .survey import FORK_FORMAT, NO_PROBLEMS, Header, Kept, Problems, Survey, report

Driven = Callable[[str], FileLog | None]
"""The log of a session that this store drives itself."""

_log: Final = logging.getLogger("perdure")


class Folder:
    """A folder of sessions. May be used from several threads."""

    def __init__(self, path: str, clock: Clock, driven: Driven) -> None:
        self.path = path
        self.catalogue = Catalogue(path)
        self._clock = clock
        self._driven = driven
        self._lock = threading.Lock()
        self._is_checked = False
        self._fence = 0
        """The highest that was given: a session that is made anew goes on from there, so that no old lease fits it."""
        self._verified: dict[str, Verified] = {}
        self._told: dict[str, Problems] = {}
        """What was last found wrong with a file, so that it is said once."""

    def check(self) -> None:
        """Refuse a folder that is none, and say when it is open to everybody."""
        if self._is_checked:
            return
        check_folder(self.path)
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(self.path).st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                _log.warning("everybody on this machine can replace the sessions in %r: chmod o-w it", self.path)
        self._is_checked = True

    def acquire(self, session_id: str, *, take_over: bool = False) -> FileLog:
        """Take a session, repair its file if it is damaged, and say so."""
        self.check()
        make_folder(self.path)
        place = place_of(self.path, session_id)
        lock = take_lock(place, take_over=take_over)
        try:
            now = self._clock.now()
            verified = self._verified.pop(session_id, None)
            if verified is not None and verified.fence != lock.claim.fence:
                verified = None
            lock.write(Claim(self._next_fence(lock.claim.fence), lock.claim.synced, this_process(now)))
            log, found = open_log(place, lock, now, verified)
        except BaseException:
            lock.close()
            raise
        if found is not None:
            self._tell(found, is_repaired=True)
        return log

    def release(self, log: FileLog) -> None:
        """Let go of a session, and of the posts that it has taken."""
        try:
            self._compact(log.place, log.sync)
        except (OSError, StoreError) as error:  # they are taken all the same, and the next one tries again
            _log.warning("posts that session %r has taken stay in its mailbox: %s", log.lease.session_id, error)
        if (verified := log.close()) is not None:
            self._verified[log.lease.session_id] = verified

    # -- entries -------------------------------------------------------------------------------------------------------

    def read(self, session_id: str, after: int) -> list[Entry]:
        """The entries above `after`. Of a log that we drive ourselves, those that are acknowledged."""
        self.check()
        return [_entry(session_id, kept) for kept in self._kept(session_id, after)]

    def redact(self, log: FileLog, entry: Entry) -> None:
        """Put an entry in the place of another one, wherever that lies, and erase whatever may hold it."""
        session_id = log.lease.session_id
        if not 0 < entry.seq <= log.head:
            raise Conflict(not_there(session_id, entry.seq, log.head))
        if entry.seq <= log.header.at:
            self._redact_shared(log.header, session_id, entry)
            return
        self._compact(log.place, log.sync)
        log.redact(entry)
        log.taken.clear()
        discard(log.place.quarantine)
        discard(mailbox_of(log.place).quarantine)

    def _redact_shared(self, header: Header, session_id: str, entry: Entry) -> None:
        """The same, where the entry is one of those that a fork shares: in the file that holds it."""
        if is_alive(self.path, header):
            driven = self._driven(header.parent)
            owner = driven or self.acquire(header.parent)
            try:
                self.redact(owner, entry)
            finally:
                if driven is None:
                    self.release(owner)
            return
        with folder_lock(self.path):
            found = look(source := source_of(self.path, header))
            if found.header is not None and entry.seq > found.base:
                entries = replaced(found.entries, entry.seq, body_of(entry))
                if entries is None:
                    raise Conflict(not_there(session_id, entry.seq, found.head))
                rewrite_erasing(source, found.header, entries)
                discard(source.quarantine)
                return
        if found.header is None or not found.header.parent_key:
            raise Conflict(not_there(session_id, entry.seq, found.head))
        self._redact_shared(found.header, session_id, entry)

    def _kept(self, session_id: str, after: int) -> list[Kept]:
        driven = self._driven(session_id)
        if driven is not None and (fresh := driven.fresh) is not None:
            driven.fresh = None
            return self._with_shared(driven.header, fresh, after)
        found = self._look(session_id, driven)
        return self._with_shared(found.header, found.entries, after)

    def _with_shared(self, header: Header | None, own: list[Kept], after: int) -> list[Kept]:
        """The entries of a file that are above `after`, and before them those that it shares."""
        shared: list[Kept] = []
        if header is not None and after < header.at:
            shared, surveys = shared_by(self.path, header, after)
            for survey in surveys:
                self._tell(survey, is_repaired=False)
        return [*shared, *[kept for kept in own if kept.seq > after]]

    def _look(self, session_id: str, driven: FileLog | None) -> Survey:
        place = place_of(self.path, session_id)
        synced = claim_of(place).synced  # before the file, which a driver may extend meanwhile
        opened = driven.opened if driven is not None else None
        found = look(place, synced, opened)
        if found.head < synced and (now := claim_of(place).synced) < synced:  # deleted or repaired meanwhile
            found = look(place, now, opened)
        self._tell(found, is_repaired=False)
        return found

    # -- posts ---------------------------------------------------------------------------------------------------------

    def post(self, session_id: str, post: Post) -> bool:
        """Keep a post, unless one of its id is there, or was taken."""
        self.check()
        make_folder(self.path)
        mailbox = mailbox_of(place_of(self.path, session_id))
        is_taken = lambda: bool(self._taken(session_id, [post]))  # noqa: E731 - asked only if it is not waiting
        return put(mailbox, post, self._clock.now(), is_taken, self._tell_repaired)

    def posts(self, session_id: str) -> list[Post]:
        """The posts that nobody has taken."""
        self.check()
        found = look(mailbox_of(place_of(self.path, session_id)))
        self._tell(found, is_repaired=False)
        posts = posts_in(found)
        taken = self._taken(session_id, posts)
        return [post for post in posts if post.id not in taken]

    def _taken(self, session_id: str, posts: list[Post]) -> set[str]:
        """The ids of those posts that are entries of the log."""
        driven = self._driven(session_id)
        known = driven.taken if driven is not None else set[str]()
        asked = {post.id for post in posts}
        if unknown := asked - known:
            found = self._look(session_id, driven)
            known |= unknown & {id_in(kept) for kept in self._with_shared(found.header, found.entries, 0)}
        return asked & known

    def compact(self, session_id: str) -> None:
        """Erase the posts that a session has taken which nobody drives. Raises `SessionBusy` when somebody does."""
        self.release(self.acquire(session_id))

    def _compact(self, place: Place, sync: Callable[[], object]) -> None:
        def taken(posts: list[Post]) -> set[str]:
            gone = self._taken(place.session_id, posts)
            if gone:
                sync()  # until now the mailbox was the only place that power cannot take them from
            return gone

        compact(mailbox_of(place), taken, self._tell_repaired)

    # -- forks and deletion --------------------------------------------------------------------------------------------

    def fork(self, session_id: str, new_id: str, at: int | None) -> None:
        """Make a session that shares the first `at` entries of another."""
        self.check()
        there = self.catalogue.info(session_id)
        if there is None:
            raise SessionNotFound(_not_found(session_id))
        check_fork(session_id, at, there.entries)
        new = place_of(self.path, new_id)
        if self.catalogue.info(new_id) is not None:
            raise SessionExists(_exists(session_id, new_id))
        try:
            lock = take_lock(new)
        except SessionBusy as error:
            raise SessionExists(f"{_exists(session_id, new_id)} ({error})") from error
        try:
            if look(new).head:
                raise SessionExists(_exists(session_id, new_id))
            with folder_lock(self.path):
                header, at = self._forkable(session_id, at)
                self._make_fork(new, header, at)
            with contextlib.suppress(OSError):  # it only helps to notice a loss
                lock.write(Claim(lock.claim.fence, at))
        finally:
            lock.close()
        self._verified.pop(new_id, None)

    def _forkable(self, session_id: str, at: int | None) -> tuple[Header, int]:
        """What a fork begins with, while nobody can delete it."""
        if (driven := self._driven(session_id)) is not None:
            header, head = driven.header, driven.head
        else:
            found = self._look(session_id, None)
            if not found.head or found.header is None:
                raise SessionNotFound(_not_found(session_id))
            header, head = found.header, found.head
        check_fork(session_id, at, head)
        return header, head if at is None else at

    def _make_fork(self, new: Place, parent: Header, at: int) -> None:
        source = place_of(self.path, parent.id)
        self._make_certain(source, at)  # what the fork relies on must not be lost after it
        _sync(mark_of(source), os.O_RDONLY | os.O_CREAT)
        sync_folder(self.path)
        key, now = new_key(), self._clock.now()
        header = Header("session", FORK_FORMAT, new.session_id, "", "", now, key, parent.id, parent.own_key, at)
        close_file(rewrite(new, header, []))

    def _make_certain(self, place: Place, at: int) -> None:
        """Have the first entries of a log on the disk, however often a sync has failed before."""
        driven = self._driven(place.session_id)
        if driven is not None and driven.sync():
            return
        if claim_of(place).synced < at:
            with contextlib.suppress(SessionBusy):  # another process has it, and would know of a sync that failed
                owner = self.acquire(place.session_id)
                try:
                    owner.sync()
                finally:
                    self.release(owner)
                return
        _sync(place.log, os.O_RDONLY)

    def delete(self, session_id: str) -> None:
        """Erase all files of a session, but for what its forks need."""
        self.check()
        place = place_of(self.path, session_id)
        mailbox, mark = mailbox_of(place), mark_of(place)
        paths = (place.log, place.quarantine, mailbox.log, mailbox.quarantine, mark, place.lock)
        if not any(os.path.lexists(path) for path in paths):
            return
        lock = take_lock(place)
        try:
            lock.write(Claim(lock.claim.fence))  # what is half deleted when power fails is no loss
            with folder_lock(self.path):
                bury(self.path, place)
            empty(mailbox)
            for path in (place.log, mailbox.log):
                remove_leftovers(path)
            discard(place.quarantine)
            discard(mailbox.quarantine)
            for path in (mark, place.lock):  # the lock last: whoever gets it finds nothing more
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            sync_folder(self.path)
        finally:
            lock.close()
        self._next_fence(lock.claim.fence)
        self._verified.pop(session_id, None)
        for path in (place.log, mailbox.log):
            self._told.pop(path, None)

    # -- what all of them need -----------------------------------------------------------------------------------------

    def _next_fence(self, last: int) -> int:
        with self._lock:
            self._fence = max(self._fence, last) + 1
            return self._fence

    def _tell_repaired(self, found: Survey) -> None:
        self._tell(found, is_repaired=True)

    def _tell(self, found: Survey, *, is_repaired: bool) -> None:
        """Say what is wrong with a file, once; and once more when it is repaired."""
        path, problems = found.place.log, found.problems
        is_news = problems != self._told.get(path) or (is_repaired and not found.is_sound)
        if problems != NO_PROBLEMS and is_news:
            _log.warning("%s", report(found, is_repaired=is_repaired))
        self._told[path] = Problems((), missing=tuple(found.gaps)) if is_repaired else problems


def _sync(path: str, flags: int) -> None:
    descriptor = open_file(path, flags)
    try:
        sync_data(descriptor)
    finally:
        close_file(descriptor)


def _entry(session_id: str, kept: Kept) -> Entry:
    try:
        return decode_entry(kept.body)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"entry {kept.seq} of session {session_id!r} cannot be understood ({error}): it was stored like this, by "
            "another program or version; restore a backup, or delete the session"
        ) from error


def _not_found(session_id: str) -> str:
    return f"there is no session {session_id!r} to fork: list() shows which there are"


def _exists(session_id: str, new_id: str) -> str:
    return f"there is a session {new_id!r} already: fork {session_id!r} to another id"
