"""The posts for a session, in a file beside its log. Above: `folder.py`. Below: the file's lines, as in a log.

The file is locked by whoever writes to it, for as long as that takes, so that anybody can post while a driver has the
log. It holds posts that wait, and some that the log has taken already: those go when the driver lets go of the session.
"""

import contextlib
import math
import os
from collections.abc import Callable, Generator
from typing import Any, Final

import msgspec

from perdure.core.plain import to_jsonable
from perdure.core.store import Post

from .access import close_file, identity, open_file, sync_data, sync_folder, write_all
from .erase import discard
from .lock import wait_for_lock
from .name import Place
from .record import fit_for_a_line, line_of
from .repair import repair, rewrite_erasing
from .survey import FORMAT, Header, Kept, Survey, header_line, survey

Tell = Callable[[Survey], None]
"""Called with what was found in a file that had to be repaired."""

_FLAGS: Final = os.O_RDWR | os.O_APPEND


class _Record(msgspec.Struct, frozen=True):
    """A post, as it stands in its line."""

    seq: int
    """Its place in the file."""
    id: str
    kind: str
    at: float
    body: Any = None


_records = msgspec.json.Decoder(_Record)


def posts_in(found: Survey) -> list[Post]:
    """The posts that were found, in the order in which they came."""
    records = [_records.decode(kept.body) for kept in found.entries]
    return [Post(record.id, record.kind, record.body, record.at) for record in records]


def put(mailbox: Place, post: Post, now: float, is_taken: Callable[[], bool], tell: Tell) -> bool:
    """Add a post, unless one of its id is there, or was taken. It is on the disk then. Raises `OSError`."""
    with _locked(mailbox, tell, flags=os.O_CREAT) as box:
        descriptor, found = box
        is_new = all(there.id != post.id for there in posts_in(found))
        if is_new:
            if is_taken():
                return False
            header = b"" if found.size else header_line(_header(mailbox, now))
            _append(descriptor, found.size, header + line_of(_body(post, found.head + 1), mailbox.seed))
        else:
            sync_data(descriptor)  # whoever posted it may have died before it was on the disk
        sync_folder(os.path.dirname(mailbox.log))  # noqa: PTH120 - so may whoever gave the file its name
        return is_new


def compact(mailbox: Place, taken: Callable[[list[Post]], set[str]], tell: Tell) -> None:
    """Erase the posts that were taken; `taken` says which, and that they are safe elsewhere. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError), _locked(mailbox, tell) as box:
        _, found = box
        posts = posts_in(found)
        gone = taken(posts) if posts else set[str]()
        left = [post for post in posts if post.id not in gone]
        if not left:
            discard(mailbox.log)
        elif gone and found.header is not None:
            kept = [Kept(seq, has_more=False, body=_body(post, seq)) for seq, post in enumerate(left, 1)]
            rewrite_erasing(mailbox, found.header, kept)


def empty(mailbox: Place) -> None:
    """Erase all posts, whatever state they are in. Raises `OSError`."""
    try:
        descriptor = open_file(mailbox.log, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        wait_for_lock(descriptor, mailbox.log)
        discard(mailbox.log)
    finally:
        close_file(descriptor)


@contextlib.contextmanager
def _locked(mailbox: Place, tell: Tell, flags: int = 0) -> Generator[tuple[int, Survey], None, None]:
    """The file, open and in good order, with what it holds; nobody else writes to it. Raises `OSError`."""
    while True:
        descriptor = open_file(mailbox.log, _FLAGS | flags)
        try:
            wait_for_lock(descriptor, mailbox.log)
            if identity(mailbox.log) != identity(descriptor):
                continue  # it was replaced while we waited
            found = survey(descriptor, os.fstat(descriptor).st_size, mailbox)
            if found.size and not found.is_sound:
                descriptor = repair(descriptor, found, found.header or _header(mailbox, 0.0))
                tell(found)
                continue  # the new file has no lock yet
            yield descriptor, found
            return
        finally:
            close_file(descriptor)


def _append(descriptor: int, size: int, data: bytes) -> None:
    """Add to the file, and make it last; or leave it as it was."""
    try:
        write_all(descriptor, data)
        sync_data(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):  # half a line is set aside by the next one who posts
            os.ftruncate(descriptor, size)
        raise


def _header(mailbox: Place, now: float) -> Header:
    return Header("session", FORMAT, mailbox.session_id, "", "", now)


def _body(post: Post, seq: int) -> bytes:
    at = post.at if math.isfinite(post.at) else 0.0
    record = _Record(seq, post.id, post.kind, at, to_jsonable(post.body))
    return fit_for_a_line(msgspec.json.encode(record), f"post {post.id!r}")
