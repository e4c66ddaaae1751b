"""The calls of a store of files to the system, and what is read of a session without reading all of its file."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import SessionBusy, StoreError, user
from perdure._stores.file import catalogue, disk
from perdure._stores.file import lock as session_lock
from perdure._stores.file.catalogue import FileSummary, summarize_file
from perdure._stores.file.layout import encode_body, encode_line, get_session_paths
from perdure._stores.file.lock import LockRecord, is_session_locked, read_lock_record, take_lock
from perdure._stores.file.maintenance import (
    FileDigest,
    check_manifest_files,
    digest_file,
    read_manifest,
    write_manifest,
)
from perdure._stores.file.scan import Header, encode_header
from perdure.events import Custom, Entry, Event, MessageAdded, SessionConfigured
from perdure.stores import UnsupportedByStore, describe_this_process

# -- the system --------------------------------------------------------------------------------------------------------

FULL = "the disk is full, and nothing of this was stored: make room, then go on"
FORBIDDEN = "it cannot be opened or written: check the permissions of the file and its folder, and the disk"
NO_FILE = "there is something in its place that is no regular file: move that away"
GONE = "its folder is not there, or is none: choose another path, or put it back"
DISK = "the disk reported an error: check the disk and its free space, then open the session again"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        *[(each, FULL) for each in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)],
        *[(each, FORBIDDEN) for each in (errno.EACCES, errno.EPERM, errno.EROFS)],
        *[(each, NO_FILE) for each in (errno.ELOOP, errno.EISDIR, errno.ENXIO)],
        *[(each, GONE) for each in (errno.ENOENT, errno.ENOTDIR)],
        (errno.EIO, DISK),
    ],
)
def test_an_error_of_the_system_is_told_with_advice(number: int, advice: str) -> None:
    error = disk.to_store_error(OSError(number, "its words"), "/x")
    assert str(error) == f"the file '/x' failed: {advice} (its words)"


def test_an_error_without_a_number_is_one_of_the_disk() -> None:
    assert str(disk.to_store_error(OSError("odd"), "/x")) == f"the file '/x' failed: {DISK} (odd)"


def test_only_a_regular_file_is_opened_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    descriptor = disk.open_file(str(path), os.O_RDWR | os.O_CREAT)
    assert os.get_inheritable(descriptor) is False
    assert path.stat().st_mode & 0o777 == 0o600
    assert disk.get_file_identity(descriptor) == disk.get_file_identity(str(path)) != (0, 0)
    disk.close_file(descriptor)
    assert disk.get_file_identity(descriptor) == disk.get_file_identity(str(tmp_path / "none")) == (0, 0)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(path)
    before = set(disk._open)
    for name, number in (("pipe", errno.ENXIO), ("link", errno.ELOOP), ("none", errno.ENOENT)):
        with pytest.raises(OSError) as refused:
            disk.open_file(str(tmp_path / name), os.O_RDONLY)
        assert refused.value.errno == number
        assert refused.value.filename == str(tmp_path / name)
    assert disk._open == before
    identity = disk.get_file_identity(str(tmp_path / "link"))
    assert identity == ((tmp_path / "link").lstat().st_dev, (tmp_path / "link").lstat().st_ino)


def test_what_the_system_reads_and_writes_in_parts_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    content, written = b"0123456789", bytearray()

    def write(_descriptor: int, data: Any) -> int:
        written.extend(data[:4])
        return min(len(data), 4)

    with monkeypatch.context() as patched:  # as short as possible: others write as well
        patched.setattr(os, "write", write)
        disk.write_all(5, content)
    assert bytes(written) == content
    asked: list[tuple[int, int]] = []

    def read(_descriptor: int, count: int, offset: int) -> bytes:
        asked.append((count, offset))
        return content[offset : offset + min(count, 3)]

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", read)
        found = [disk.read_at(5, *place) for place in ((1, 7), (4, 99), (10, 5), (3, 0))]
    assert found == [b"1234567", b"456789", b"", b""]
    assert asked == [(7, 1), (4, 4), (1, 7), (99, 4), (96, 7), (93, 10), (5, 10), (0, 3)]
    answers = iter((4, 0))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda *_: next(answers))
        with pytest.raises(OSError, match="No space left on device") as full:
            disk.write_all(5, content)
    assert full.value.errno == errno.ENOSPC


def test_a_forked_child_closes_what_its_parent_has_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_open", set())
    opened = [disk.open_file(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT), disk.open_folder(str(tmp_path))]
    assert disk._open == set(opened)
    disk._close_inherited()
    assert disk._open == set()
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    folder = disk.open_folder(str(tmp_path))
    disk.sync_folder(str(tmp_path))
    assert disk._open == {folder}
    disk.close_file(folder)
    assert disk._open == set()


# -- summaries ---------------------------------------------------------------------------------------------------------


HEADER = Header("session-file", 1, "s", "", "", 5.0)


def content_of(*events: Event | None, header: bytes | None = None) -> bytes:
    """A file of entries, each an append of its own; `None` stands for damaged bytes."""
    place = get_session_paths("/", "s")
    lines = [encode_header(HEADER) if header is None else header]
    for seq, event in enumerate(events, 1):
        line = b"damaged\n"
        if event is not None:
            line = encode_line(encode_body(Entry(seq, seq / 2, event, f"e-{seq}")), place.seed)
        lines.append(line)
    return b"".join(lines)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "s.session"


HELLO, MORE, NAMED = MessageAdded(user("Hello")), MessageAdded(user("More")), SessionConfigured({"title": "Named"})
LARGE = Custom("large", "x" * 20_000)


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ((), (0, 0.0, "", "")),
        ((Custom("x"),), (1, 0.5, "", "")),
        ((Custom("x"), HELLO, MORE), (3, 1.5, "Hello", "")),
        ((HELLO, NAMED, MORE), (3, 1.5, "Hello", "Named")),
        ((NAMED, SessionConfigured({"title": "Again"})), (2, 1.0, "", "Again")),
        ((HELLO, *[LARGE] * 9), (10, 5.0, "Hello", "")),
        ((*[LARGE] * 12, HELLO), (13, 6.5, "Hello", "")),
        ((*[LARGE] * 14, HELLO), (15, 7.5, "", "")),  # too far from the beginning for a title
    ],
)
def test_a_summary_has_the_number_and_time_of_the_last_entry_and_the_titles(
    log: Path, events: tuple[Event, ...], found: tuple[Any, ...]
) -> None:
    log.write_bytes(content_of(*events))
    assert summarize_file(str(log)) == FileSummary("s", HEADER, 5.0, *found)


@pytest.mark.parametrize(
    ("upto", "found"),
    [
        (0, (0, 0.0, "", "")),
        (1, (1, 0.5, "", "")),
        (2, (2, 1.0, "Hello", "")),
        (3, (3, 1.5, "Hello", "Named")),
        (4, (4, 2.0, "Hello", "Again")),
        (9, (5, 2.5, "Hello", "Again")),
    ],
)
def test_a_summary_of_the_first_entries_knows_nothing_of_those_after_them(
    log: Path, upto: int, found: tuple[Any, ...]
) -> None:
    log.write_bytes(content_of(Custom("x"), HELLO, NAMED, SessionConfigured({"title": "Again"}), MORE))
    assert summarize_file(str(log), upto) == FileSummary("s", HEADER, 5.0, *found)


def test_without_a_header_a_session_is_known_by_its_name_and_as_old_as_its_first_entry(log: Path) -> None:
    log.write_bytes(content_of(None, HELLO, MORE, header=b""))
    assert summarize_file(str(log)) == FileSummary("s", None, 1.0, 3, 1.5, "Hello")
    assert summarize_file(str(log), 2) == FileSummary("s", None, 0.0, 2, 1.0, "Hello")
    log.write_bytes(b"")
    assert summarize_file(str(log)) is None
    hashed = log.with_name("x=" + "0" * 64 + ".session")
    for content in (content_of(HELLO, header=b""), content_of(HELLO)):
        hashed.write_bytes(content)
        with pytest.raises(StoreError, match=r"^it does not say of which session it is: read that session by its id"):
            summarize_file(str(hashed))


def test_the_shared_entries_that_a_deleted_session_left_are_summarized_by_their_header(log: Path) -> None:
    remnant = log.with_name("=00.shared")
    remnant.write_bytes(content_of(HELLO, MORE))
    assert summarize_file(str(remnant)) == FileSummary("s", HEADER, 5.0, 2, 1.0, "Hello")


def test_a_word_is_found_also_where_two_pieces_of_a_file_meet(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_LARGE_CHUNK", 10)
    for at in range(25):
        log.write_bytes(b"x" * at + b"word" + b"y" * (25 - at))
        descriptor = os.open(log, os.O_RDONLY)
        try:
            assert catalogue._contains_bytes(descriptor, 29, b"word")
            assert not catalogue._contains_bytes(descriptor, 29, b"work")
        finally:
            os.close(descriptor)


# -- locks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The pauses that were made, which take no time."""
    made: list[float] = []
    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", made.append)
        yield made


@pytest.mark.parametrize("take_over", [False, True])
def test_a_session_that_is_locked_is_told_with_its_holder(tmp_path: Path, pauses: list[float], take_over: bool) -> None:
    place = get_session_paths(str(tmp_path), "s")
    before = set(disk._open)
    assert not is_session_locked(place)
    assert read_lock_record(place) == LockRecord()
    lock = take_lock(place)
    assert is_session_locked(place)
    me = describe_this_process(3.0)
    for holder, pauses_made in ((me, 0), (None, 200)):
        lock.write_record(LockRecord(4, 7, holder))
        assert read_lock_record(place) == lock.record == LockRecord(4, 7, holder)
        with pytest.raises((SessionBusy, UnsupportedByStore)) as busy:
            take_lock(place, take_over=True) if take_over else take_lock(place)
        assert isinstance(busy.value, UnsupportedByStore if take_over else SessionBusy)
        driven = f"session 's' is being driven by {holder or 'another process'}"
        assert str(busy.value) == (
            f"{driven}, and the lock that it has on its file cannot be taken from a process that lives: end that one, "
            "or keep sessions in a store of 'sqlite:' or 'postgresql:', where they can be taken over"
            if take_over
            else f"{driven}: end that run, or open another session"
        )
        assert pauses == [0.005] * pauses_made
        assert Path(place.lock).stat().st_size == 512
    lock.close()
    assert not is_session_locked(place)
    again = take_lock(place)
    assert again.record == LockRecord(4, 7, None)
    assert again.is_in_place
    Path(place.lock).unlink()
    assert not again.is_in_place
    again.close()
    assert disk._open == before


def test_a_lock_that_others_hold_for_too_long_is_given_up(
    tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_lock, "_PATIENCE", 3)
    with session_lock.lock_folder(str(tmp_path)):
        before = set(disk._open)
        with pytest.raises(StoreError) as held, session_lock.lock_folder(str(tmp_path)):
            pytest.fail("it is locked")
        assert disk._open == before
    text = f"another process has held {str(tmp_path)!r} for too long: continue or end it, then try again"
    assert str(held.value) == text
    assert pauses == [0.005] * 3
    with session_lock.lock_folder(str(tmp_path)):
        pass


# -- manifests ---------------------------------------------------------------------------------------------------------


def test_a_manifest_has_the_size_and_digest_of_every_file(tmp_path: Path) -> None:
    before = set(disk._open)
    with pytest.raises(StoreError, match=r"is no complete backup, because it has no 'backup.manifest': give the"):
        read_manifest(str(tmp_path))
    (tmp_path / "b").write_bytes(b"abc")
    (tmp_path / "a").write_bytes(b"")
    write_manifest(str(tmp_path), ["b", "a"])
    empty = FileDigest(0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    abc = FileDigest(3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    assert read_manifest(str(tmp_path)) == {"a": empty, "b": abc}
    assert digest_file(str(tmp_path / "b")) == abc
    with pytest.raises(FileExistsError):
        write_manifest(str(tmp_path), [])
    path = tmp_path / "backup.manifest"
    content = path.read_bytes()
    for damaged in (content + b"x", content[:-1], b""):
        path.write_bytes(damaged)
        with pytest.raises(StoreError) as refused:
            read_manifest(str(tmp_path))
        assert str(refused.value) == f"the manifest {str(path)!r} is damaged: use another backup"
    assert disk._open == before


def test_a_backup_is_compared_with_its_manifest_file_by_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
    files = {name: digest_file(str(tmp_path / name)) for name in ("a", "b")}
    check_manifest_files(str(tmp_path), files, ["b", "a"])
    advice = (
        "Use another backup if nobody has used it as a store since; if that is what happened, back it up as one: "
        "`perdure backup --store file:DIR PATH`"
    )
    for names, problem in ((["a"], "'b' is missing"), (["a", "b", "c"], "'c' has come into it")):
        with pytest.raises(StoreError) as refused:
            check_manifest_files(str(tmp_path), files, names)
        assert str(refused.value) == f"the backup {str(tmp_path)!r} is not as it was made: {problem}. {advice}"
    (tmp_path / "b").write_bytes(b"c")
    with pytest.raises(StoreError) as refused:
        check_manifest_files(str(tmp_path), files, ["a", "b"])
    assert str(refused.value) == f"the backup {str(tmp_path)!r} is not as it was made: 'b' has other content. {advice}"
