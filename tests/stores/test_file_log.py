"""The open log of a session in a store of files: what is written when, what is refused, and what follows an error."""

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from perdure import StoreError
from perdure._stores.file import disk, log_file
from perdure._stores.file.disk import TEMPORARY_SUFFIX, make_unused_path
from perdure._stores.file.layout import SessionPaths, encode_append_lines, get_session_paths
from perdure._stores.file.lock import LockRecord, is_session_locked, read_lock_record, take_lock
from perdure._stores.file.log_file import FileLog, LastFileState, get_file_stamp, open_log
from perdure._stores.file.scan import Header, SessionFileScan, encode_header
from perdure.events import Custom, Entry
from perdure.stores import Conflict, Fenced, FileStore, Lease
from tests.stores.material import entries


@pytest.fixture
def place(tmp_path: Path) -> Iterator[SessionPaths]:
    """The paths of session `s`. What is opened during the test is closed at its end."""
    before = set(disk._open)
    yield get_session_paths(str(tmp_path), "s")
    assert disk._open == before


def opened(
    place: SessionPaths, now: float = 5.0, verified: LastFileState | None = None
) -> tuple[FileLog, SessionFileScan | None]:
    lock = take_lock(place)
    try:
        return open_log(place, lock, now, verified)
    except BaseException:
        lock.close()
        raise


@pytest.fixture
def log(place: SessionPaths) -> Iterator[FileLog]:
    log, _ = opened(place)
    yield log
    log.close()


def content_of(log: FileLog, *appends: list[Entry]) -> bytes:
    seed = log.place.seed
    return encode_header(log.header) + b"".join([encode_append_lines(each, seed) for each in appends])


def read(log: FileLog) -> bytes:
    return Path(log.place.log).read_bytes()


def test_a_new_log_is_its_header_and_appends_follow_it(log: FileLog, place: SessionPaths) -> None:
    assert (log.header.id, log.header.format, log.header.created_at, log.head) == ("s", 1, 5.0, 0)
    assert (read(log), log.size) == (content_of(log), len(content_of(log)))
    assert (log.lease, log.has_lock, log.lost_up_to, log.unread_entries) == (Lease("s", 0), True, 0, [])
    assert log.append_now(entries(1, 2))
    assert (log.head, log.unread_entries, read_lock_record(place).synced) == (2, None, 0)
    assert not log.append_now(entries(2))
    assert not log.append_now([*entries(3), *entries(5)])
    log.append(entries(3), sync=False)
    assert read_lock_record(place).synced == 0
    assert read(log) == content_of(log, entries(1, 2), entries(3))
    log.append(entries(4), sync=True)
    assert read_lock_record(place).synced == 4
    assert read(log) == content_of(log, entries(1, 2), entries(3), entries(4))
    assert log.append_now(entries(5))
    assert log.sync()
    assert read_lock_record(place).synced == log.head == 5
    assert log.size == len(read(log))
    descriptor, size = log.open_for_reading()
    assert os.read(descriptor, 10_000) == read(log)
    assert size == log.size
    disk.close_file(descriptor)


def test_a_closed_log_refuses_everything_and_its_session_is_free(log: FileLog, place: SessionPaths) -> None:
    log.append_now(entries(1))
    stamp = get_file_stamp(log._descriptor)
    status = Path(place.log).stat()
    assert stamp == (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    assert is_session_locked(place)
    assert log.close() == LastFileState(0, stamp, 1, log.header)
    assert not is_session_locked(place)
    assert (log.has_lock, log.close(), log.sync(), log.append_now(entries(2))) == (False, None, False, False)
    text = "session 's' has changed hands since this driver got it: stop, and open it again"
    with pytest.raises(Fenced) as refused:
        log.append(entries(2), sync=False)
    assert str(refused.value) == text
    with pytest.raises(Fenced) as refused:
        log.redact(entries(1)[0])
    assert str(refused.value) == text


def test_a_file_is_scanned_again_only_if_it_is_not_as_it_was_left(place: SessionPaths) -> None:
    first, _ = opened(place)
    first.append(entries(1, 2), sync=True)
    left = first.close()
    again, found = opened(place, verified=left)
    assert (again.head, again.header, found) == (2, first.header, None)
    again.close()
    again, found = opened(place)
    assert found is not None
    assert [kept.seq for kept in found.entries] == [1, 2]
    assert again.unread_entries == found.entries
    again.append_now(entries(3))
    again.close()
    again, found = opened(place, verified=left)
    assert (again.head, found is None) == (3, False)
    newer = again.close()
    lock = take_lock(place)
    lock.write_record(LockRecord(0, 4))  # an entry that is not in the file was synced
    lock.close()
    again, found = opened(place, verified=newer)
    assert (again.head, again.lost_up_to, found is None) == (4, 4, False)
    again.append(entries(5), sync=False)
    assert read(again) == content_of(again, entries(1, 2), entries(3), entries(5))
    again.close()


def test_entries_that_may_not_be_on_the_disk_are_written_again_before_others_follow(place: SessionPaths) -> None:
    first, _ = opened(place)
    first.append_now(entries(1))
    first.close()
    log, _ = opened(place)
    before = Path(place.log).stat().st_ino
    assert not log.append_now(entries(2))
    log.append(entries(2), sync=False)
    assert Path(place.log).stat().st_ino != before
    assert read(log) == content_of(log, entries(1), entries(2))
    assert read_lock_record(place).synced == 1
    assert log.append_now(entries(3))
    assert log.close() is not None


def test_an_append_that_is_repeated_is_accepted_and_any_other_that_does_not_follow_is_a_conflict(log: FileLog) -> None:
    log.append(entries(1, 3), sync=False)
    whole = read(log)
    for repeated in (entries(1), entries(1, 3), entries(2, 2)):
        log.append(repeated, sync=False)
    nameless = [Entry(3, 1.0, Custom("data"))]
    renamed = [Entry(3, 1.0, Custom("data"), "e-4")]
    for refused in (entries(3, 2), entries(5), entries(0), nameless, renamed, [*entries(1), *entries(3)]):
        with pytest.raises(Conflict) as conflict:
            log.append(refused, sync=False)
        assert str(conflict.value) == (
            f"session 's' ends at entry 3, and entries from {refused[0].seq} on were to be added: read it again, "
            "and go on from its end"
        )
    assert read(log) == whole


def test_a_file_that_somebody_else_has_changed_is_not_written(log: FileLog, place: SessionPaths) -> None:
    log.append(entries(1), sync=False)
    with Path(place.log).open("ab") as file:
        file.write(b"x")
    for change in (lambda: log.append_now(entries(2)), lambda: log.redact(entries(1)[0])):
        with pytest.raises(Fenced) as refused:
            change()
        assert str(refused.value) == (
            f"the file {place.log!r} was changed by another process while this driver had it: stop, and open session "
            "'s' again"
        )
    assert read(log) == content_of(log, entries(1)) + b"x"


def test_a_barrier_notices_that_the_file_or_its_lock_is_gone(log: FileLog, place: SessionPaths) -> None:
    moved = Path(place.log).rename(place.log + ".moved")
    for change in (lambda: log.append(entries(1), sync=True), lambda: log.redact(entries(1)[0])):
        with pytest.raises(StoreError) as replaced:
            change()
        assert str(replaced.value) == (
            f"the file {place.log!r} was deleted or replaced while it was open, and what it held may be gone with it: "
            "put it back, or open the session again to begin anew"
        )
    moved.rename(place.log)
    log.append(entries(1), sync=True)
    Path(place.lock).unlink()
    assert not log.has_lock
    with pytest.raises(Fenced) as refused:
        log.append(entries(2), sync=True)
    assert str(refused.value) == (
        f"the lock {place.lock!r} was deleted: session 's' has changed hands since this driver got it: stop, and open "
        "it again"
    )
    assert read(log) == content_of(log, entries(1))


def test_an_append_that_the_disk_refuses_is_taken_back(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_half(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    def fail(_descriptor: int, _size: int) -> None:
        raise OSError(5, "Input/output error")

    log.append(entries(1), sync=True)
    before = Path(log.place.log).stat().st_ino
    with monkeypatch.context() as patched:
        patched.setattr(log_file, "write_all", write_half)
        with pytest.raises(StoreError, match="No space left on device"):
            log.append_now(entries(2))
    assert (log.head, read(log)) == (1, content_of(log, entries(1)))
    assert log.append_now(entries(2))
    assert Path(log.place.log).stat().st_ino == before
    with monkeypatch.context() as patched:
        patched.setattr(log_file, "write_all", write_half)
        patched.setattr(os, "ftruncate", fail)
        with pytest.raises(StoreError, match="No space left on device"):
            log.append_now(entries(3))
    assert not log.append_now(entries(3))  # half of it may be there
    log.append(entries(3), sync=False)
    assert read(log) == content_of(log, entries(1), entries(2), entries(3))
    assert Path(log.place.log).stat().st_ino != before


@pytest.mark.parametrize("way", ["append", "repeat", "sync", "redact"])
def test_after_a_sync_that_failed_the_file_is_written_again(
    log: FileLog, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    log.append(entries(1), sync=True)
    before = Path(log.place.log).stat().st_ino
    with monkeypatch.context() as patched:
        patched.setattr(log_file, "sync_data", fail)
        with pytest.raises(OSError, match="Input/output error") if way == "sync" else pytest.raises(StoreError):
            log.sync() if way == "sync" else log.append(entries(1 if way == "repeat" else 2), sync=True)
    assert read(log) == content_of(log, entries(1))
    assert not log.append_now(entries(2))
    redacted = Entry(1, 1.0, Custom("gone"), "e-1")
    if way == "redact":
        log.redact(redacted)
    elif way == "sync":
        assert log.sync()
    else:
        log.append(entries(1), sync=False)
    if way != "redact":  # which writes it twice, and may be given the first number again
        assert Path(log.place.log).stat().st_ino != before
    first = [redacted] if way == "redact" else entries(1)
    assert log.append_now(entries(2))
    assert (log.head, read(log)) == (2, content_of(log, first, entries(2)))


def test_a_log_that_cannot_be_relied_on_when_it_is_closed_is_scanned_the_next_time(
    log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log_file, "sync_data", fail)
    with pytest.raises(StoreError):
        log.append(entries(1), sync=True)
    assert log.close() is None


def test_a_file_that_is_damaged_when_it_must_be_written_again_is_left_as_it_is(
    log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    log.append(entries(1), sync=True)
    with monkeypatch.context() as patched:
        patched.setattr(log_file, "sync_data", fail)
        with pytest.raises(StoreError):
            log.append(entries(2), sync=True)
    whole, path = read(log), log.place.log
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    renewed = encode_header(msgspec.structs.replace(log.header, created_at=6.0))
    for damaged in (flipped, content_of(log), renewed + whole.partition(b"\n")[2]):
        Path(path).write_bytes(damaged)
        with pytest.raises(StoreError) as refused:
            log.append(entries(2), sync=False)
        assert str(refused.value) == f"the file {path!r} was damaged by an error of the disk: open the session again"
        assert read(log) == damaged
    Path(path).write_bytes(whole)
    log.append(entries(2), sync=False)
    assert read(log) == content_of(log, entries(1), entries(2))


def test_an_entry_is_redacted_and_one_that_is_not_there_is_told(log: FileLog) -> None:
    log.append(entries(1, 2), sync=False)
    before = Path(log.place.log).stat().st_ino
    for seq in (0, 3):
        with pytest.raises(Conflict) as refused:
            log.redact(Entry(seq, 1.0, Custom("gone"), "x"))
        assert str(refused.value) == (
            f"session 's' has 2 entries and none numbered {seq}: read it again, and redact one it has"
        )
    assert Path(log.place.log).stat().st_ino == before
    redacted = Entry(1, 1.0, Custom("gone"), "x")
    log.redact(redacted)
    assert (read(log), log.size) == (content_of(log, [redacted, *entries(2)]), len(read(log)))
    assert log.append_now(entries(3))
    assert sorted(path.name for path in Path(log.place.log).parent.iterdir()) == ["s.lock", "s.session"]


def test_a_file_that_cannot_be_opened_is_not_left_open(place: SessionPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    for step in ("sync_folder", "write_all", "scan_file"):
        with monkeypatch.context() as patched:
            patched.setattr(log_file, step, fail)
            with pytest.raises(OSError, match="Input/output error"):
                opened(place)
        assert (Path(place.log).read_bytes() == b"") is (step != "scan_file")
    log, found = opened(place, now=7.0)
    assert found is not None
    assert log.header.created_at == 5.0
    log.close()


def test_only_a_barrier_waits_for_the_disk(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(log_file, "sync_data", synced.append)
    log.append_now(entries(1))
    log.append(entries(2), sync=False)
    log.append(entries(2), sync=False)
    assert synced == []
    log.append(entries(3), sync=True)
    log.append(entries(3), sync=True)
    log.sync()
    assert synced == [log._descriptor] * 3


def test_what_interrupts_an_append_is_raised_and_nothing_of_the_append_is_left(
    log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:10])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(log_file, "write_all", interrupt)
        with pytest.raises(KeyboardInterrupt):
            log.append_now(entries(1))
    assert (log.head, read(log)) == (0, content_of(log))
    assert log.append_now(entries(1))


def test_a_file_whose_new_name_may_not_last_is_written_again_before_others_follow(
    log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[str] = []

    def fail(folder: str) -> None:
        folders.append(folder)
        raise OSError(5, "Input/output error")

    log.append(entries(1), sync=True)
    redacted = Entry(1, 1.0, Custom("gone"), "x")
    with monkeypatch.context() as patched:
        patched.setattr(log_file, "sync_folder", fail)
        with pytest.raises(StoreError, match="Input/output error"):
            log.redact(redacted)
    assert folders == [str(Path(log.place.log).parent)]
    assert not log.append_now(entries(2))
    log.append(entries(2), sync=False)
    assert read(log) == content_of(log, [redacted], entries(2))
    assert log.append_now(entries(3))


def test_a_file_that_is_written_again_leaves_nothing_of_earlier_attempts(log: FileLog) -> None:
    log.append(entries(1), sync=True)
    left = Path(make_unused_path(log.place.log, TEMPORARY_SUFFIX))
    left.write_bytes(b"half of it")
    log.redact(Entry(1, 1.0, Custom("gone"), "x"))
    assert sorted(path.name for path in left.parent.iterdir()) == ["s.lock", "s.session"]


def test_a_damaged_header_is_made_anew_with_the_time_of_the_first_entry(place: SessionPaths) -> None:
    first, _ = opened(place)
    first.append([Entry(1, 3.0, Custom("x"), "e-1"), Entry(2, 4.0, Custom("x"), "e-2")], sync=True)
    first.close()
    content = bytearray(Path(place.log).read_bytes())
    content[30] ^= 1
    Path(place.log).write_bytes(content)
    log, found = opened(place, now=9.0)
    assert found is not None
    assert found.header is None
    assert msgspec.structs.replace(log.header, key="") == Header("session-file", 1, "s", "", "", 3.0)
    assert Path(place.log).read_bytes().startswith(encode_header(log.header))
    log.close()
    Path(place.log).write_bytes(content[:20])
    log, _ = opened(place, now=9.0)
    assert (log.header.created_at, log.head) == (9.0, 2)
    log.close()


@pytest.mark.parametrize(("first", "count"), [(1, 1), (2, 1), (1, 3), (2, 2), (3, 1), (2, 3)])
async def test_a_fork_accepts_that_entries_it_shares_are_repeated(files: FileStore, first: int, count: int) -> None:
    await files.append(await files.acquire("s"), entries(1, 5), sync=True)
    await files.fork("s", "fork", at=2)
    lease = await files.acquire("fork")
    await files.append(lease, entries(3), sync=True)
    if first + count > 4:
        with pytest.raises(Conflict, match="session 'fork' ends at entry 3, and entries from 2 on were to be added"):
            await files.append(lease, entries(first, count), sync=False)
    else:
        await files.append(lease, entries(first, count), sync=False)
    assert await files.read("fork") == entries(1, 3)


async def test_a_fork_of_the_process_is_refused_whatever_it_asks_of_the_store(
    files: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=False)
    parent = os.getpid()
    uses: list[Callable[[], Awaitable[object]]] = [
        lambda: files.release(lease),
        lambda: files.holds(lease),
        lambda: files.read("s", after=1),
        lambda: files.events("s", after=1),
        lambda: files.append(lease, entries(2), sync=False),
        lambda: files.redact(lease, entries(1)[0]),
        files.list,
    ]
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 7)
        for use in uses:
            with pytest.raises(StoreError) as refused:
                await use()
            assert str(refused.value) == (
                f"the store {str(folder)!r} was opened by process {parent}, of which this one, 7, is a fork: make a "
                "new store object here"
            )
    assert await files.holds(lease)
    assert await files.read("s") == entries(1)
    await files.release(lease)
    assert not await files.holds(lease)
