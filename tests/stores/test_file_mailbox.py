"""The posts in a store of files: who may post when, what survives, what is damaged, what goes."""

import asyncio
import fcntl
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import StoreError
from perdure._stores.file import disk, scan
from perdure._stores.file import lock as file_lock
from perdure._stores.file import mailbox as file_mailbox
from perdure._stores.file import repair as file_repair
from perdure._stores.file.layout import SessionPaths, encode_line, get_mailbox_paths, get_session_paths
from perdure._stores.file.scan import Header, encode_header
from perdure.events import Custom, Entry
from perdure.stores import FileStore, Post
from tests.seeds import SEED, chance
from tests.stores.material import child, entries

LONG = os.environ.get("PERDURE_SEARCH") == "long"
COUNT = 12


def post(number: int) -> Post:
    return Post(f"p-{number}", "steer", {"text": f"number {number}"}, float(number))


def taking(seq: int, *numbers: int) -> list[Entry]:
    return [Entry(seq + place, 1.0, Custom("taken"), f"p-{number}") for place, number in enumerate(numbers)]


def line_ends(content: bytes) -> list[int]:
    return [place + 1 for place, byte in enumerate(content) if byte == 10]


def open_files() -> list[str]:
    """The paths of the files that this process has open."""
    return [str(link.resolve()) for link in Path("/proc/self/fd").iterdir()]


def mine(*arguments):
    return child(*arguments, programs="file_children")


@pytest.fixture
def without_syncs(monkeypatch):
    """For tests that lose no power, and repair many files."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


@pytest.fixture
def mailbox(folder):
    """The content of a good mailbox of session `s`."""

    async def write() -> bytes:
        store = FileStore(folder)
        for number in range(COUNT):
            await store.post("s", post(number))
        await store.aclose()
        return (folder / "s.posts").read_bytes()

    return asyncio.run(write())


# -- who may post ------------------------------------------------------------------------------------------------------


async def test_anybody_can_post_while_a_driver_has_the_log(folder, files, files_at):
    await files.acquire("s")
    assert await files_at(folder).post("s", post(1))
    assert await files.posts("s") == [post(1)]


async def test_whoever_only_asks_for_posts_makes_nothing(folder, files):
    assert await files.posts("s") == []
    assert not folder.exists()


async def test_a_post_is_on_the_disk_before_it_is_acknowledged(folder, files, monkeypatch):
    done = []
    for module, name in ((file_mailbox, "sync_data"), (file_mailbox, "sync_folder"), (file_repair, "sync_data")):
        monkeypatch.setattr(module, name, lambda _, name=name: done.append(name))
    await files.post("s", post(1))
    await files.post("s", post(2))
    assert done == ["sync_data", "sync_folder"] * 2
    before = (folder / "s.posts").stat().st_ino
    assert not await files.post("s", post(2))  # whoever posted it first may have died before it was on the disk
    assert done[4:] == ["sync_data", "sync_folder"]
    assert (folder / "s.posts").stat().st_ino != before  # it is written anew: its sync may have failed
    assert (folder / "s.posts").stat().st_mode & 0o777 == 0o600


async def test_a_mailbox_that_somebody_holds_for_ever_is_named(folder, files, monkeypatch):
    await files.post("s", post(1))
    monkeypatch.setattr(file_lock, "_PATIENCE", 3)
    with (folder / "s.posts").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match=r"has held .*s\.posts' for too long"):
            await files.post("s", post(2))
    assert await files.post("s", post(2))


def test_processes_that_post_at_once_lose_nothing(folder):
    with mine("post", folder, "a", 20) as one, mine("post", folder, "b", 20) as two:
        for process in (one, two):
            output, errors = process.communicate(timeout=30)
            assert output.split() == ["20", "10"], errors
    found = [each.id for each in asyncio.run(FileStore(folder).posts("s"))]
    assert len(found) == len(set(found)) == 50


def test_what_was_posted_survives_kill_9(folder):
    """Ten processes, each killed while it posts."""
    with mine("kill_posters", folder, 10, SEED) as process:
        output, errors = process.communicate(timeout=50)
    assert process.returncode == 0, errors
    told = output.split()
    found = [each.id for each in asyncio.run(FileStore(folder).posts("s"))]
    assert len(found) == len(set(found))
    assert set(told) <= set(found)
    assert len(told) > 10


# -- posts that are taken ----------------------------------------------------------------------------------------------


async def test_posts_that_were_taken_leave_the_mailbox_when_the_lease_is_given_back(folder, files, files_at):
    for number in range(4):
        await files.post("s", post(number))
    lease = await files.acquire("s")
    await files.append(lease, taking(1, 0, 2), sync=False)
    assert (folder / "s.posts").read_bytes().count(b'"p-') == 4
    await files.release(lease)
    assert (folder / "s.posts").read_bytes().count(b'"p-') == 2
    assert await files.posts("s") == [post(1), post(3)]
    assert not await files_at(folder).post("s", post(2))
    assert await files.post("s", post(4))
    lease = await files.acquire("s")
    await files.append(lease, taking(3, 1, 3, 4), sync=True)
    await files.release(lease)
    assert not (folder / "s.posts").exists()
    assert not await files_at(folder).post("s", post(4))
    assert await files_at(folder).posts("s") == []


async def test_the_log_is_on_the_disk_before_a_post_leaves_the_mailbox(folder, files, monkeypatch):
    await files.post("s", post(1))
    lease = await files.acquire("s")
    await files.append(lease, taking(1, 1), sync=False)
    seen = []
    monkeypatch.setattr("perdure._stores.file.log_file.sync_data", lambda _: seen.append((folder / "s.posts").exists()))
    await files.release(lease)
    assert seen == [True]
    assert not (folder / "s.posts").exists()


async def test_a_log_that_cannot_be_synced_keeps_the_posts_and_frees_the_session(folder, files, monkeypatch, caplog):
    await files.post("s", post(1))
    lease = await files.acquire("s")
    await files.append(lease, taking(1, 1), sync=False)

    def fail(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("perdure._stores.file.log_file.sync_data", fail)
    await files.release(lease)
    monkeypatch.undo()
    assert "stay in its mailbox" in caplog.text
    assert (folder / "s.posts").exists()
    assert await files.posts("s") == []
    await files.release(await files.acquire("s"))
    assert not (folder / "s.posts").exists()


async def test_a_post_that_was_taken_is_looked_for_once_by_its_driver(files, monkeypatch):
    await files.post("s", post(1))
    lease = await files.acquire("s")
    await files.append(lease, taking(1, 1), sync=False)
    assert await files.posts("s") == []
    looked = []
    real = files._folder._scan_session

    def look(*arguments):
        looked.append(1)
        return real(*arguments)

    monkeypatch.setattr(files._folder, "_scan_session", look)
    for _ in range(3):
        assert await files.posts("s") == []
    assert looked == []


async def test_a_post_is_taken_though_its_id_needs_escapes(files):
    odd = Post('é"\\\n\U0001f600', "steer")
    await files.post("s", odd)
    lease = await files.acquire("s")
    await files.append(lease, [Entry(1, 1.0, Custom("taken"), odd.id)], sync=False)
    assert await files.posts("s") == []
    assert not await files.post("s", odd)


async def test_a_time_that_is_none_is_kept_as_none(files):
    assert await files.post("s", Post("p", "steer", at=float("nan")))
    assert await files.posts("s") == [Post("p", "steer")]


# -- mailboxes that are damaged ----------------------------------------------------------------------------------------


def lengths(content: bytes) -> list[int]:
    """Those near line ends and each 17th; or all there are."""
    near = {end + offset for end in line_ends(content) for offset in (-2, -1, 0, 1)}
    chosen = set(range(len(content))) if LONG else near | set(range(0, len(content), 17))
    return sorted(chosen & set(range(len(content))))


@pytest.mark.faults
async def test_a_mailbox_cut_off_anywhere_keeps_what_was_whole(folder, mailbox, files_at, without_syncs, caplog):
    ends = line_ends(mailbox)
    for size in lengths(mailbox):
        for path in folder.iterdir():
            path.unlink()
        (folder / "s.posts").write_bytes(mailbox[:size])
        caplog.clear()
        whole = [post(number) for number in range(COUNT) if ends[number + 1] <= size + 1]
        store = files_at(folder)
        assert await store.posts("s") == whole, size
        is_sound = size in {0, *ends}
        assert len(caplog.messages) == (0 if is_sound else 1), size
        assert await store.post("s", post(99))
        assert await store.posts("s") == [*whole, post(99)], size
        assert len(caplog.messages) == (0 if is_sound else 2), size
        if not is_sound and size + 1 not in ends:
            start = max([0, *[end for end in ends if end <= size]])
            assert mailbox[start:size] in (folder / "s.posts.quarantine").read_bytes()
        await store.aclose()
        again = files_at(folder)
        assert await again.posts("s") == [*whole, post(99)], size
        assert len(caplog.messages) == (0 if is_sound else 2), size
        await again.aclose()


@pytest.mark.faults
async def test_a_flipped_byte_in_a_mailbox_costs_at_most_one_post(folder, mailbox, files_at, without_syncs, caplog):
    dice = chance("mailbox")
    ends = line_ends(mailbox)
    for place in range(len(mailbox)) if LONG else range(0, len(mailbox), 23):
        flipped = bytearray(mailbox)
        flipped[place] ^= dice.randint(1, 255)
        (folder / "s.posts").write_bytes(flipped)
        caplog.clear()
        store = files_at(folder)
        hit = sum(end <= place for end in ends) - 1
        left = [post(number) for number in range(COUNT) if number != hit or mailbox[place] == 10]
        assert await store.posts("s") == left, place
        assert len(caplog.messages) == 1, place
        await store.aclose()


async def test_a_file_that_is_no_mailbox_is_left_as_it_is(folder, files):
    folder.mkdir()
    (folder / "s.posts").write_bytes(b"dear diary\n" * 20)
    for refused in (files.post("s", post(1)), files.posts("s")):
        with pytest.raises(StoreError, match="is no file of a session, and has been left as it is"):
            await refused
    assert (folder / "s.posts").read_bytes() == b"dear diary\n" * 20


async def test_the_lines_of_a_log_are_none_of_a_mailbox(folder, files):
    await files.append(await files.acquire("s"), entries(1, 2), sync=True)
    (folder / "s.posts").write_bytes((folder / "s.session").read_bytes())
    assert await files.posts("s") == []


async def test_a_post_that_is_being_written_is_no_damage(folder, files, files_at, caplog):
    await files.post("s", post(1))
    with (folder / "s.posts").open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(b'70 0000beef {"seq":2,')
        writer.flush()
        assert await files_at(folder).posts("s") == [post(1)]
        assert caplog.messages == []


async def test_whichever_call_to_the_disk_fails_posts_are_what_was_acknowledged(folder, files_at, monkeypatch):
    """The N-th call fails, for each N that there is: while posting, taking and letting go."""
    for nth in itertools.count(1):
        session_id, store, acknowledged = f"s{nth}", files_at(folder), set()
        failed: list[Any] = []
        calls = itertools.count(1)

        def failing(real, *, calls=calls, failed=failed, nth=nth):
            def call(*arguments, **options):
                if next(calls) == nth:
                    failed.append(real)
                    raise OSError(5, "Input/output error")
                return real(*arguments, **options)

            return call

        for name in ("write", "pwrite", "fdatasync", "fsync", "ftruncate", "replace", "rename", "link", "unlink"):
            monkeypatch.setattr(os, name, failing(getattr(os, name)))
        taken = None
        for number in range(3):
            try:
                await store.post(session_id, post(number))
                acknowledged.add(f"p-{number}")
            except StoreError:
                pass
        try:
            lease = await store.acquire(session_id)
            await store.append(lease, taking(1, 1), sync=True)
            taken = "p-1"
            await store.release(lease)
        except StoreError:
            pass
        monkeypatch.undo()
        await store.aclose()
        waiting = {each.id for each in await files_at(folder).posts(session_id)}
        assert acknowledged - {taken} <= waiting, failed
        assert taken not in waiting
        if not failed:
            assert nth > 10
            return


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
async def test_a_deleted_mailbox_is_not_left_open(folder, files):
    await files.post("s", post(1))
    await files.delete("s")
    assert [name for name in open_files() if name.startswith(str(folder / "s."))] == []


async def test_an_unreadable_mailbox_does_not_keep_a_session_from_being_deleted(folder, files):
    await files.release(await files.acquire("s"))
    (folder / "s.posts").write_bytes(b"dear diary\n")
    await files.delete("s")
    assert list(folder.iterdir()) == []


async def test_many_who_post_the_same_at_once_are_all_told(folder, files, files_at):
    others = [files, *[files_at(folder) for _ in range(2)]]
    for number in range(3):
        told = await asyncio.gather(*[store.post("s", post(number)) for store in others for _ in range(2)])
        assert told.count(True) == 1
    assert await files.posts("s") == [post(number) for number in range(3)]
    assert [path.name for path in folder.iterdir()] == ["s.posts"]


# -- a mailbox, byte by byte -------------------------------------------------------------------------------------------


@pytest.fixture
def box(tmp_path: Path) -> Iterator[SessionPaths]:
    """Where the mailbox of session `s` would be. What is opened during the test is closed at its end."""
    before = set(disk._open)
    yield get_mailbox_paths(get_session_paths(str(tmp_path), "s"))
    assert disk._open == before


def content_of(box: SessionPaths, *bodies: bytes) -> bytes:
    header = encode_header(Header("session-file", 1, "s", "", "", 5.0))
    return header + b"".join([encode_line(body, box.seed) for body in bodies])


def body_of(seq: int, number: int) -> bytes:
    text = f'{{"seq":{seq},"id":"p-{number}","kind":"steer","at":{number}.0,"body":{{"text":"number {number}"}}}}'
    return text.encode()


def refuse_repair(found: Any) -> None:
    pytest.fail(f"it was repaired: {found.problems}")


def add(box: SessionPaths, number: int, *, is_taken: bool = False) -> bool:
    return file_mailbox.add_post(box, post(number), 5.0, lambda: is_taken, refuse_repair)


def test_a_mailbox_is_a_header_and_a_line_for_each_post(box: SessionPaths) -> None:
    assert add(box, 7)
    assert add(box, 8)
    whole = content_of(box, body_of(1, 7), body_of(2, 8))
    assert Path(box.log).read_bytes() == whole
    assert not add(box, 9, is_taken=True)
    assert Path(box.log).read_bytes() == whole
    before = Path(box.log).stat().st_ino
    assert not add(box, 7)  # it is there, and written again, since a sync of it may have failed
    assert Path(box.log).read_bytes() == whole
    assert Path(box.log).stat().st_ino != before
    assert add(box, 9)
    assert Path(box.log).read_bytes() == content_of(box, body_of(1, 7), body_of(2, 8), body_of(3, 9))
    assert [path.name for path in Path(box.log).parent.iterdir()] == ["s.posts"]


def test_posts_that_were_taken_are_erased_and_the_others_numbered_anew(box: SessionPaths) -> None:
    asked: list[list[str]] = []

    def erase(*taken: str) -> None:
        def find_taken(posts: list[Post]) -> set[str]:
            asked.append([each.id for each in posts])
            return set(taken)

        file_mailbox.erase_taken_posts(box, find_taken, refuse_repair)

    erase("p-1")  # there is no mailbox
    assert (asked, Path(box.log).exists()) == ([], False)
    for number in (1, 2, 3, 4):
        add(box, number)
    before = Path(box.log).stat().st_ino
    erase()
    assert Path(box.log).stat().st_ino == before
    erase("p-1", "p-3")
    assert Path(box.log).read_bytes() == content_of(box, body_of(1, 2), body_of(2, 4))
    erase("p-2", "p-4")
    assert list(Path(box.log).parent.iterdir()) == []
    assert asked == [["p-1", "p-2", "p-3", "p-4"], ["p-1", "p-2", "p-3", "p-4"], ["p-2", "p-4"]]
    Path(box.log).touch()
    erase()
    assert (len(asked), Path(box.log).exists()) == (3, False)


def test_a_damaged_mailbox_is_repaired_before_it_is_written_and_its_repair_is_told_once(box: SessionPaths) -> None:
    told: list[Any] = []
    good = content_of(box, body_of(1, 1))
    for content, created_at in ((good + b"half a line", 5.0), (good[:-1], 5.0), (b"7" + good[1:], 0.0)):
        told.clear()
        Path(box.log).write_bytes(content)
        assert file_mailbox.add_post(box, post(2), 6.0, lambda: False, told.append)
        descriptor = os.open(box.log, os.O_RDONLY)
        try:
            again = scan.scan_file(descriptor, os.fstat(descriptor).st_size, box)
        finally:
            os.close(descriptor)
        assert file_mailbox.decode_posts(again) == [post(1), post(2)]
        assert again.is_sound
        assert len(told) == 1
        assert again.header == Header("session-file", 1, "s", "", "", created_at)
    file_mailbox.erase_mailbox(box)
    assert [path.name for path in Path(box.log).parent.iterdir()] == ["s.posts.quarantine"]
    file_mailbox.erase_mailbox(box)  # which is not there any more


@pytest.mark.parametrize("step", ["write_all", "sync_data"])
def test_a_post_that_the_disk_refuses_is_taken_back(
    box: SessionPaths, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(descriptor: int, data: bytes = b"") -> None:
        os.write(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    add(box, 1)
    monkeypatch.setattr(file_mailbox, step, fail)
    with pytest.raises(OSError, match="No space left on device"):
        add(box, 2)
    assert Path(box.log).read_bytes() == content_of(box, body_of(1, 1))
