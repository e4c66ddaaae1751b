"""The mailbox of a session: a file beside its log with posts, which are durable messages to the session.

Each writer locks the file only while it writes, so that any process can post while a driver has the log. The file
contains posts that wait, and some that the log has taken already: those are erased when the driver releases the
session.
"""

import contextlib
import math
import os
from collections.abc import Callable, Generator
from typing import Any, Final

import msgspec

from perdure._core.log.store import Post
from perdure._core.values.jsonable import to_jsonable
from perdure._stores.files import sync_data

from .disk import close_file, erase_file, get_file_identity, open_file, sync_folder, write_all
from .layout import SessionPaths, encode_line, to_ascii_json
from .lock import wait_for_lock
from .repair import repair_file, rewrite_file_securely
from .scan import FORMAT, EncodedEntry, Header, SessionFileScan, encode_header, scan_file

OnRepair = Callable[[SessionFileScan], None]
"""Function that is called with the scan result of a mailbox file that had to be repaired."""

_FLAGS: Final = os.O_RDWR | os.O_APPEND


class _PostRecord(msgspec.Struct, frozen=True):
    """A post (a message to a session), as stored in a line of the file."""

    seq: int
    """Its position in the file."""
    id: str
    kind: str
    at: float
    body: Any = None


_records = msgspec.json.Decoder(_PostRecord)


def decode_posts(scan: SessionFileScan) -> list[Post]:
    """Decode all posts (messages to a session) of a scanned mailbox file, oldest first."""
    records = [_records.decode(kept.body) for kept in scan.entries]
    return [Post(record.id, record.kind, record.body, record.at) for record in records]


def add_post(mailbox: SessionPaths, post: Post, now: float, is_taken: Callable[[], bool], on_repair: OnRepair) -> bool:
    """Append a post (a message to a session) to its mailbox file; return False if its id was used before.

    The file is synced. Raises `OSError`.
    """
    with _open_locked(mailbox, on_repair, flags=os.O_CREAT) as box:
        descriptor, found = box
        is_new = all(there.id != post.id for there in decode_posts(found))
        if is_new:
            if is_taken():
                return False
            body = _encode_post(post, found.head + 1)
            start = b"" if found.size else encode_header(_build_header(mailbox, now))
            _append(descriptor, found.size, start + encode_line(body, mailbox.seed))
        else:
            # Whoever posted it may have died before the sync, or been told that it failed. After a failure the next
            # sync may succeed without having written anything, so all posts are written again.
            rewrite_file_securely(mailbox, found.header or _build_header(mailbox, now), found.entries)
        sync_folder(os.path.dirname(mailbox.log))  # noqa: PTH120 - also the one that created the file
        return is_new


def erase_taken_posts(mailbox: SessionPaths, find_taken: Callable[[list[Post]], set[str]], on_repair: OnRepair) -> None:
    """Erase the posts (messages to a session) in a mailbox file that are already in the session's log.

    `find_taken` returns their ids. Raises `OSError`.
    """
    with contextlib.suppress(FileNotFoundError), _open_locked(mailbox, on_repair) as box:
        _, found = box
        posts = decode_posts(found)
        gone = find_taken(posts) if posts else set[str]()
        left = [post for post in posts if post.id not in gone]
        if not left:
            erase_file(mailbox.log)
        elif gone and found.header is not None:
            kept = [EncodedEntry(seq, has_more=False, body=_encode_post(post, seq)) for seq, post in enumerate(left, 1)]
            rewrite_file_securely(mailbox, found.header, kept)


def erase_mailbox(mailbox: SessionPaths) -> None:
    """Erase a mailbox file with all its posts, also if it is damaged. Raises `OSError`."""
    try:
        descriptor = open_file(mailbox.log, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        wait_for_lock(descriptor, mailbox.log)
        erase_file(mailbox.log)
    finally:
        close_file(descriptor)


@contextlib.contextmanager
def _open_locked(
    mailbox: SessionPaths, on_repair: OnRepair, flags: int = 0
) -> Generator[tuple[int, SessionFileScan], None, None]:
    """Open and lock a mailbox file, repaired if damaged; yield its descriptor and scan result. Raises `OSError`."""
    while True:
        descriptor = open_file(mailbox.log, _FLAGS | flags)
        try:
            wait_for_lock(descriptor, mailbox.log)
            if get_file_identity(mailbox.log) != get_file_identity(descriptor):
                continue  # it was replaced while we waited
            found = scan_file(descriptor, os.fstat(descriptor).st_size, mailbox)
            if found.size and not found.is_sound:
                descriptor = repair_file(descriptor, found, found.header or _build_header(mailbox, 0.0))
                on_repair(found)
                continue  # the new file has no lock yet
            yield descriptor, found
            return
        finally:
            close_file(descriptor)


def _append(descriptor: int, size: int, data: bytes) -> None:
    """Append bytes and sync them; on an error, truncate the file to its old size."""
    try:
        write_all(descriptor, data)
        sync_data(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):  # half a line is set aside by the next one who posts
            os.ftruncate(descriptor, size)
        raise


def _build_header(mailbox: SessionPaths, now: float) -> Header:
    return Header("session-file", FORMAT, mailbox.session_id, "", "", now)


def _encode_post(post: Post, seq: int) -> bytes:
    at = post.at if math.isfinite(post.at) else 0.0
    record = _PostRecord(seq, post.id, post.kind, at, to_jsonable(post.body))
    return to_ascii_json(msgspec.json.encode(record), f"post {post.id!r}")
