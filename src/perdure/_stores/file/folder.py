"""The folder in which a file store keeps its sessions, and all operations on it.

The operations block until the disk is done.

They raise `OSError` as it is; `store.py` turns it into a `StoreError`.
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

from perdure._core.log.codec import decode_entry
from perdure._core.log.status import mark_lost_entries
from perdure._core.log.store import InterruptedSession, Post
from perdure._core.values.clock import Clock
from perdure._core.values.error import Conflict, SessionBusy, SessionExists, SessionNotFound, StoreError
from perdure._core.values.event import Entry
from perdure._core.values.event_class import Event
from perdure._stores.checks import check_fork
from perdure._stores.files import check_folder_path, create_folder, sync_data
from perdure._stores.lease_holder import describe_this_process

from .catalogue import FileRunCache, SessionCatalogue
from .disk import close_file, erase_file, erase_stale_temporary_files, open_file, sync_folder
from .forks import (
    delete_log_keeping_shared,
    find_file_of_shared_entries,
    generate_session_key,
    is_parent_alive,
    read_shared_entries,
)
from .layout import SessionPaths, encode_body, get_fork_marker_path, get_mailbox_paths, get_session_paths
from .lock import LockRecord, is_session_locked, lock_folder, read_lock_record, take_lock
from .log_file import FileLog, LastFileState, build_cannot_redact_message, decode_entry_id, open_log, replace_body
from .mailbox import add_post, decode_posts, erase_mailbox, erase_taken_posts
from .repair import rewrite_file, rewrite_file_securely
from .scan import (
    FORMAT,
    NO_PROBLEMS,
    EncodedEntry,
    FileProblems,
    Header,
    SessionFileScan,
    build_damage_warning,
    scan_unlocked,
)

FindDrivenLog = Callable[[str], FileLog | None]
"""Function that returns the open log of a session that runs through this store; `None` for others."""

_log: Final = logging.getLogger("perdure")


class SessionsFolder:
    """A folder with the files of all sessions; several threads may use it at the same time."""

    def __init__(self, path: str, clock: Clock, driven: FindDrivenLog) -> None:
        self.path = path
        self.catalogue = SessionCatalogue(path)
        self._runs = FileRunCache(path)
        self._runs_lock = threading.Lock()
        self._clock = clock
        self._driven = driven
        self._lock = threading.Lock()
        self._is_checked = False
        self._fence = 0
        """The highest fence given out: a session that is created again continues from there, so that no old lease is
        valid for it.
        """
        self._verified: dict[str, LastFileState] = {}
        self._reported: dict[str, FileProblems] = {}
        """The problems last reported for each file, so that each is logged once."""

    def check_path(self) -> None:
        """Raise `ConfigError` unless the path can be a folder of sessions; log a warning if every user can write to
        it.
        """
        if self._is_checked:
            return
        check_folder_path(self.path)
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(self.path).st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                _log.warning("everybody on this machine can replace the sessions in %r: chmod o-w it", self.path)
        self._is_checked = True

    def acquire(self, session_id: str, *, take_over: bool = False) -> FileLog:
        """Lock a session for this process and open its log; repair a damaged file, with a warning in the log."""
        self.check_path()
        create_folder(self.path)
        place = get_session_paths(self.path, session_id)
        lock = take_lock(place, take_over=take_over)
        try:
            now = self._clock.now()
            verified = self._verified.pop(session_id, None)
            if verified is not None and verified.fence != lock.record.fence:
                verified = None
            lock.write_record(
                LockRecord(self._next_fence(lock.record.fence), lock.record.synced, describe_this_process(now))
            )
            log, found = open_log(place, lock, now, verified)
        except BaseException:
            lock.close()
            raise
        if found is not None:
            self._report_damage(found, is_repaired=True)
        return log

    def release(self, log: FileLog) -> None:
        """Close the log of a session and release its lock, after erasing the posts that it has consumed."""
        try:
            self._compact_mailbox(log.place, log.sync)
        except (OSError, StoreError) as error:  # they are taken all the same, and the next one tries again
            _log.warning("posts that session %r has taken stay in its mailbox: %s", log.lease.session_id, error)
        if (verified := log.close()) is not None:
            self._verified[log.lease.session_id] = verified

    # -- entries -------------------------------------------------------------------------------------------------------

    def read(self, session_id: str, after: int) -> list[Entry]:
        """Return the entries numbered above `after`; of a session that runs in this process, only completed appends."""
        self.check_path()
        return [_decode_kept(session_id, kept) for kept in self._read_kept(session_id, after)]

    def events(self, session_id: str, after: int) -> tuple[list[Event], int]:
        """Return the events of the entries above `after`, with the places of lost ones, and the number of the last."""
        driven, place = self._driven(session_id), get_session_paths(self.path, session_id)
        reached = driven.head if driven is not None else read_lock_record(place).synced
        entries = self.read(session_id, after)
        head = max(after, entries[-1].seq if entries else 0)
        if driven is not None:
            head = max(head, reached)
        elif head < reached:
            head = max(head, min(reached, read_lock_record(place).synced))  # lower if it was deleted meanwhile
        return mark_lost_entries(entries, after, head), head

    def redact(self, log: FileLog, entry: Entry) -> None:
        """Replace an entry in the file that contains it (of a fork, perhaps an ancestor's), and erase every copy of
        the old one.
        """
        session_id = log.lease.session_id
        if not 0 < entry.seq <= log.head:
            raise Conflict(build_cannot_redact_message(session_id, entry.seq, log.head))
        if entry.seq <= log.header.at:
            self._redact_shared(log.header, session_id, entry)
            return
        self._compact_mailbox(log.place, log.sync)
        log.redact(entry)
        log.taken_post_ids.clear()
        erase_file(log.place.quarantine)
        erase_file(get_mailbox_paths(log.place).quarantine)

    def _redact_shared(self, header: Header, session_id: str, entry: Entry) -> None:
        """Replace an entry that a fork shares, in the ancestor's file that contains it."""
        if is_parent_alive(self.path, header):
            driven = self._driven(header.parent)
            owner = driven or self.acquire(header.parent)
            try:
                self.redact(owner, entry)
            finally:
                if driven is None:
                    self.release(owner)
            return
        with lock_folder(self.path):
            found = scan_unlocked(source := find_file_of_shared_entries(self.path, header))
            if found.header is not None and entry.seq > found.base:
                entries = replace_body(found.entries, entry.seq, encode_body(entry))
                if entries is None:
                    raise Conflict(build_cannot_redact_message(session_id, entry.seq, found.head))
                rewrite_file_securely(source, found.header, entries)
                erase_file(source.quarantine)
                return
        if found.header is None or not found.header.parent_key:
            raise Conflict(build_cannot_redact_message(session_id, entry.seq, found.head))
        self._redact_shared(found.header, session_id, entry)

    def _read_kept(self, session_id: str, after: int) -> list[EncodedEntry]:
        driven = self._driven(session_id)
        if driven is not None and (fresh := driven.unread_entries) is not None:
            driven.unread_entries = None
            return self._join_shared(driven.header, fresh, after)
        found = self._scan_session(session_id, driven)
        return self._join_shared(found.header, found.entries, after)

    def _join_shared(self, header: Header | None, own: list[EncodedEntry], after: int) -> list[EncodedEntry]:
        """Return the entries of a file above `after`, preceded by those that it shares with its ancestors."""
        shared: list[EncodedEntry] = []
        if header is not None and after < header.at:
            shared, surveys = read_shared_entries(self.path, header, after)
            for survey in surveys:
                self._report_damage(survey, is_repaired=False)
        return [*shared, *[kept for kept in own if kept.seq > after]]

    def _scan_session(self, session_id: str, driven: FileLog | None) -> SessionFileScan:
        place = get_session_paths(self.path, session_id)
        synced = read_lock_record(place).synced  # before the file, which a driver may extend meanwhile
        opened = driven.open_for_reading if driven is not None else None
        found = scan_unlocked(place, synced, opened)
        if found.head < synced and (now := read_lock_record(place).synced) < synced:  # deleted or repaired meanwhile
            found = scan_unlocked(place, now, opened)
        self._report_damage(found, is_repaired=False)
        return found

    # -- posts ---------------------------------------------------------------------------------------------------------

    def post(self, session_id: str, post: Post) -> bool:
        """Store a post (a message to a session); return False if a post with its id was stored before."""
        self.check_path()
        create_folder(self.path)
        mailbox = get_mailbox_paths(get_session_paths(self.path, session_id))
        is_taken = lambda: bool(self._taken_post_ids(session_id, [post]))  # noqa: E731 - asked only if it is not waiting
        return add_post(mailbox, post, self._clock.now(), is_taken, self._report_repair)

    def posts(self, session_id: str) -> list[Post]:
        """Return the posts (messages to a session) that the process running it has not taken yet."""
        self.check_path()
        found = scan_unlocked(get_mailbox_paths(get_session_paths(self.path, session_id)))
        self._report_damage(found, is_repaired=False)
        posts = decode_posts(found)
        taken = self._taken_post_ids(session_id, posts)
        return [post for post in posts if post.id not in taken]

    def _taken_post_ids(self, session_id: str, posts: list[Post]) -> set[str]:
        """Return the ids of those posts that are in the log already."""
        driven = self._driven(session_id)
        known = driven.taken_post_ids if driven is not None else set[str]()
        asked = {post.id for post in posts}
        if unknown := asked - known:
            found = self._scan_session(session_id, driven)
            known |= unknown & {decode_entry_id(kept) for kept in self._join_shared(found.header, found.entries, 0)}
        return asked & known

    def compact_mailbox(self, session_id: str) -> None:
        """Erase the posts that a session has consumed from its mailbox file. Raises `SessionBusy` if a process runs
        it.
        """
        self.release(self.acquire(session_id))

    def _compact_mailbox(self, place: SessionPaths, sync: Callable[[], object]) -> None:
        def find_taken(posts: list[Post]) -> set[str]:
            gone = self._taken_post_ids(place.session_id, posts)
            if gone:
                sync()  # until now the mailbox was the only place that power cannot take them from
            return gone

        erase_taken_posts(get_mailbox_paths(place), find_taken, self._report_repair)

    # -- interrupted sessions ------------------------------------------------------------------------------------------

    def find_interrupted(self, prefix: str, now: float, *, include_posts: bool) -> list[InterruptedSession]:
        """Return the sessions whose last run can continue and that no process has locked, the longest idle first."""
        self.check_path()
        with self._runs_lock:
            candidates = self._runs.find_candidates(prefix, include_posts=include_posts)
        found: list[InterruptedSession] = []
        for last, is_posted in candidates:
            run, posts = last.run, self.posts(last.session_id) if is_posted else []
            is_due = run.due_at is not None and run.due_at <= now
            if (run.progress == "cut_off" or is_due or posts) and not is_session_locked(
                get_session_paths(self.path, last.session_id)
            ):
                updated_at = posts[0].at if posts and not last.entries else last.updated_at
                found.append(
                    InterruptedSession(last.session_id, run.progress, last.entries, updated_at, len(posts), run.due_at)
                )
        return sorted(found, key=lambda each: (each.updated_at, each.session_id))

    # -- forks and deletion --------------------------------------------------------------------------------------------

    def fork(self, session_id: str, new_id: str, at: int | None) -> None:
        """Create a session that starts with the first `at` entries of another."""
        self.check_path()
        there = self.catalogue.info(session_id)
        if there is None:
            raise SessionNotFound(_not_found_message(session_id))
        check_fork(session_id, at, there.entries)
        new = get_session_paths(self.path, new_id)
        if self.catalogue.info(new_id) is not None:
            raise SessionExists(_exists_message(session_id, new_id))
        try:
            lock = take_lock(new)
        except SessionBusy as error:
            raise SessionExists(f"{_exists_message(session_id, new_id)} ({error})") from error
        try:
            if scan_unlocked(new).head:
                raise SessionExists(_exists_message(session_id, new_id))
            with lock_folder(self.path):
                header, at = self._fork_source(session_id, at)
                self._make_fork(new, header, at)
            with contextlib.suppress(OSError):  # it only helps to notice a loss
                lock.write_record(LockRecord(lock.record.fence, at))
        finally:
            lock.close()
        self._verified.pop(new_id, None)

    def _fork_source(self, session_id: str, at: int | None) -> tuple[Header, int]:
        """Return the parent's header and the number of entries to share. The caller has locked the folder against
        deletions.
        """
        if (driven := self._driven(session_id)) is not None:
            header, head = driven.header, driven.head
        else:
            found = self._scan_session(session_id, None)
            if not found.head or found.header is None:
                raise SessionNotFound(_not_found_message(session_id))
            header, head = found.header, found.head
        check_fork(session_id, at, head)
        return header, head if at is None else at

    def _make_fork(self, new: SessionPaths, parent: Header, at: int) -> None:
        source = get_session_paths(self.path, parent.id)
        self._sync_entries(source, at)  # what the fork relies on must not be lost after it
        _sync_path(get_fork_marker_path(source), os.O_RDONLY | os.O_CREAT)
        sync_folder(self.path)
        key, now = generate_session_key(), self._clock.now()
        header = Header("session-file", FORMAT, new.session_id, "", "", now, key, parent.id, parent.key, at)
        close_file(rewrite_file(new, header, []))

    def _sync_entries(self, place: SessionPaths, at: int) -> None:
        """Sync the first `at` entries of a log to the disk, also if an earlier sync failed."""
        driven = self._driven(place.session_id)
        if driven is not None and driven.sync():
            return
        if read_lock_record(place).synced < at:
            with contextlib.suppress(SessionBusy):  # another process has it, and would know of a sync that failed
                owner = self.acquire(place.session_id)
                try:
                    owner.sync()
                finally:
                    self.release(owner)
                return
        _sync_path(place.log, os.O_RDONLY)

    def delete(self, session_id: str) -> None:
        """Erase all files of a session, except for entries that its forks share."""
        self.check_path()
        place = get_session_paths(self.path, session_id)
        mailbox, mark = get_mailbox_paths(place), get_fork_marker_path(place)
        paths = (place.log, place.quarantine, mailbox.log, mailbox.quarantine, mark, place.lock)
        if not any(os.path.lexists(path) for path in paths):
            return
        lock = take_lock(place)
        try:
            lock.write_record(LockRecord(lock.record.fence))  # what is half deleted when power fails is no loss
            with lock_folder(self.path):
                delete_log_keeping_shared(self.path, place)
            erase_mailbox(mailbox)
            for path in (place.log, mailbox.log):
                erase_stale_temporary_files(path)
            erase_file(place.quarantine)
            erase_file(mailbox.quarantine)
            for path in (mark, place.lock):  # the lock last: the next owner finds nothing left
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            sync_folder(self.path)
        finally:
            lock.close()
        self._next_fence(lock.record.fence)
        self._verified.pop(session_id, None)
        for path in (place.log, mailbox.log):
            self._reported.pop(path, None)

    # -- what all of them need -----------------------------------------------------------------------------------------

    def _next_fence(self, last: int) -> int:
        with self._lock:
            self._fence = max(self._fence, last) + 1
            return self._fence

    def _report_repair(self, found: SessionFileScan) -> None:
        self._report_damage(found, is_repaired=True)

    def _report_damage(self, found: SessionFileScan, *, is_repaired: bool) -> None:
        """Log a warning about a damaged file, once; and once more when it is repaired."""
        path, problems = found.place.log, found.problems
        is_news = problems != self._reported.get(path) or (is_repaired and not found.is_sound)
        if problems != NO_PROBLEMS and is_news:
            _log.warning("%s", build_damage_warning(found, is_repaired=is_repaired))
        self._reported[path] = FileProblems((), missing=problems.missing) if is_repaired else problems


def _sync_path(path: str, flags: int) -> None:
    descriptor = open_file(path, flags)
    try:
        sync_data(descriptor)
    finally:
        close_file(descriptor)


def _decode_kept(session_id: str, kept: EncodedEntry) -> Entry:
    try:
        return decode_entry(kept.body)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"entry {kept.seq} of session {session_id!r} cannot be understood ({error}): it was stored like this, by "
            "another program or version; restore a backup, or delete the session"
        ) from error


def _not_found_message(session_id: str) -> str:
    return f"there is no session {session_id!r} to fork: list() shows which there are"


def _exists_message(session_id: str, new_id: str) -> str:
    return f"there is a session {new_id!r} already: fork {session_id!r} to another id"
