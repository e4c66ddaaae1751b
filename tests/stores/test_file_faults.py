"""What is there after a process was killed, a disk was full or failed, a file was taken away."""

import asyncio
import errno
import itertools
import os
import stat
import sys
from pathlib import Path

import pytest

from perdure import ConfigError, StoreError
from perdure._core.values import faults
from perdure._stores.file import disk as file_access
from perdure._stores.file import log_file as file_log
from perdure._stores.file import repair as file_repair
from perdure.events import Custom, Entry
from perdure.stores import FileStore, Post
from tests.seeds import SEED
from tests.small_disk import mounted, remount
from tests.stores.material import child, entries


async def append(store, lease, batch, *, sync):
    """As a driver does it."""
    if not store.append_now(lease, batch, sync=sync):
        await store.append(lease, batch, sync=sync)


@pytest.fixture
def armed():
    """Arms fault points for one test."""
    yield faults.arm
    faults.disarm()


# -- processes that die ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("immediate", [True, False])
async def test_an_append_that_fails_before_the_commit_leaves_nothing(files, armed, immediate):
    lease = await files.acquire("s")
    armed({"store.append.before_commit": "raise@1"})
    with pytest.raises(faults.FaultInjected):
        await append(files, lease, entries(1), sync=not immediate)
    assert await files.read("s") == []
    await files.append(lease, entries(1), sync=True)


@pytest.mark.parametrize("immediate", [True, False])
async def test_an_append_that_fails_after_the_commit_can_be_repeated(files, armed, immediate):
    lease = await files.acquire("s")
    armed({"store.append.after_commit": "raise@1"})
    with pytest.raises(faults.FaultInjected):
        await append(files, lease, entries(1), sync=not immediate)
    assert await files.read("s") == entries(1)
    await files.append(lease, entries(1), sync=True)
    assert await files.read("s") == entries(1)


def test_whatever_was_acknowledged_survives_kill_9(folder):
    """Twenty drivers, each killed while it appends, at random times and on both sides of a commit."""
    seed = str(SEED)
    with child("kill_rounds", folder, 20, seed) as process:
        output, errors = process.communicate(timeout=50)
    assert process.returncode == 0, f"seed {seed}: {errors}"
    acknowledged = int(output)
    assert acknowledged > 20
    stored = asyncio.run(FileStore(folder).read("s"))
    assert len(stored) == stored[-1].seq >= acknowledged, f"seed {seed}"


def test_a_forked_child_may_not_use_the_store_but_one_of_its_own(folder):
    with child("fork", folder) as process:
        output, errors = process.communicate(timeout=30)
    assert output.split() == ["0", "2"], errors


async def test_a_session_is_free_when_its_driver_dies_though_a_fork_of_it_lives(folder, files):
    with child("leave_child", folder) as process:
        assert await asyncio.to_thread(process.stdout.readline) == "forked\n", process.stderr.read()
        process.kill()
        process.wait(30)
        assert (await files.acquire("s")).fence == 2
        process.stdin.close()


# -- disks that fail ---------------------------------------------------------------------------------------------------


async def test_a_barrier_is_synced_and_a_plain_append_is_not(files, monkeypatch):
    lease = await files.acquire("s")
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    await files.append(lease, entries(1), sync=False)
    assert files.append_now(lease, entries(2), sync=False)
    assert synced == []
    await files.append(lease, entries(3), sync=True)
    assert synced == [files._logs["s"]._descriptor]


async def test_a_new_session_is_made_to_last_with_the_names_of_its_files(files, monkeypatch):
    synced: list[str] = []
    monkeypatch.setattr(file_log, "sync_folder", synced.append)
    await files.release(await files.acquire("s"))
    await files.acquire("s")
    assert synced == [files._path]


async def test_a_write_that_is_only_done_in_part_is_gone_on_with(files, monkeypatch):
    lease = await files.acquire("s")
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:7]))
    await append(files, lease, entries(1, 3), sync=False)
    monkeypatch.undo()
    assert await files.read("s") == entries(1, 3)


class FailingWrites:
    """A disk that takes some bytes, and then fails in one way or another."""

    def __init__(self, room: int, *, silent: bool = False) -> None:
        self.room = room
        self.silent = silent
        self.real = os.write

    def __call__(self, descriptor, data):
        count = self.real(descriptor, bytes(data)[: self.room]) if self.room else 0
        self.room -= count
        if count or self.silent:
            return count
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("sync", [True, False])
async def test_an_append_that_does_not_fit_leaves_nothing(folder, files, monkeypatch, sync, silent):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=sync)
    before = (folder / "s.session").read_bytes()
    for room in (0, 1, 50, 150):
        monkeypatch.setattr(os, "write", FailingWrites(room, silent=silent))
        with pytest.raises(StoreError, match=r"the disk is full, and nothing of this was stored: make room"):
            await append(files, lease, entries(2, 3), sync=sync)
        monkeypatch.undo()
        assert (folder / "s.session").read_bytes() == before
    await append(files, lease, entries(2, 3), sync=sync)
    assert await files.read("s") == entries(1, 4)


async def test_an_interrupted_write_leaves_nothing(files, monkeypatch):
    lease = await files.acquire("s")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.append_now(lease, entries(1), sync=False)
    monkeypatch.undo()
    assert files.append_now(lease, entries(1), sync=False)
    assert await files.read("s") == entries(1)


def fail(*_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_a_write_that_cannot_be_taken_back_is_written_anew(folder, files, monkeypatch):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=True)
    monkeypatch.setattr(os, "write", FailingWrites(50))
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(StoreError, match="the disk is full"):
        files.append_now(lease, entries(2), sync=False)
    monkeypatch.undo()
    assert not files.append_now(lease, entries(2), sync=False)
    before = (folder / "s.session").stat().st_ino
    await files.append(lease, entries(2), sync=False)
    assert await files.read("s") == entries(1, 2)
    assert (folder / "s.session").stat().st_ino != before
    assert not (folder / "s.quarantine").exists()


async def test_a_sync_that_failed_is_never_believed_again(folder, files, files_at, monkeypatch):
    """The file is written anew: the system may have dropped what it could not write, and say nothing the next time."""
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=True)
    await files.append(lease, entries(2), sync=False)
    first = files._logs["s"]._descriptor
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StoreError, match=r"the disk reported an error: check the disk"):
        await files.append(lease, entries(3), sync=True)
    assert await files.read("s") == entries(1, 2)
    with pytest.raises(StoreError, match=r"the disk reported an error"):
        await files.append(lease, entries(3), sync=True)
    monkeypatch.undo()
    synced: list[int] = []
    monkeypatch.setattr(file_repair, "sync_data", synced.append)
    await files.append(lease, entries(3), sync=True)
    assert len(synced) == 1
    assert files._logs["s"]._descriptor != first
    assert file_access._open == {files._logs["s"]._descriptor, files._logs["s"]._lock._descriptor}
    await files.aclose()
    assert await files_at(folder).read("s") == entries(1, 3)
    assert not list(folder.glob("*.tmp"))


async def fail_to_sync(store, lease, batch, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(StoreError, match="the disk reported an error"):
            await store.append(lease, batch, sync=True)


@pytest.mark.parametrize("who", ["the same store", "another store"])
async def test_nor_is_it_believed_by_whoever_has_the_session_next(folder, files, files_at, monkeypatch, who):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=False)
    await fail_to_sync(files, lease, entries(2), monkeypatch)
    await files.release(lease)
    before = (folder / "s.session").stat().st_ino
    store = files if who == "the same store" else files_at(folder)
    lease = await store.acquire("s")
    await store.append(lease, entries(2), sync=True)
    assert (folder / "s.session").stat().st_ino != before
    assert await store.read("s") == entries(1, 2)


async def test_what_was_synced_at_the_end_is_not_written_anew(folder, files, files_at):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=False)
    await files.append(lease, entries(2), sync=True)
    await files.release(lease)
    before = (folder / "s.session").stat().st_ino
    store = files_at(folder)
    await store.append(await store.acquire("s"), entries(3), sync=True)
    assert (folder / "s.session").stat().st_ino == before


async def test_a_sync_that_failed_meanwhile_in_another_store_is_not_believed(folder, files, files_at, monkeypatch):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=False)
    await files.release(lease)
    other = files_at(folder)
    monkeypatch.setattr(
        file_log.FileLog, "_rewrite_file", lambda _log: None
    )  # as if it had been sound, and nothing written
    lease = await other.acquire("s")
    await fail_to_sync(other, lease, entries(1), monkeypatch)
    await other.release(lease)
    monkeypatch.undo()
    before = (folder / "s.session").stat().st_ino
    await files.append(await files.acquire("s"), entries(2), sync=True)
    assert (folder / "s.session").stat().st_ino != before


async def test_posts_are_kept_until_what_took_them_is_written_anew(folder, files, monkeypatch):
    lease = await files.acquire("s")
    await files.post("s", Post("e-1", "steer"))
    await files.append(lease, entries(1), sync=False)
    await fail_to_sync(files, lease, entries(2), monkeypatch)
    before = (folder / "s.session").stat().st_ino
    await files.release(lease)
    assert not (folder / "s.posts").exists()
    assert (folder / "s.session").stat().st_ino != before


@pytest.mark.parametrize("driven", [True, False])
async def test_a_fork_does_not_rely_on_what_failed_to_sync(folder, files, monkeypatch, driven):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=False)
    await fail_to_sync(files, lease, entries(2), monkeypatch)
    if not driven:
        await files.release(lease)
    before = (folder / "s.session").stat().st_ino
    await files.fork("s", "t")
    assert (folder / "s.session").stat().st_ino != before
    assert await files.read("t") == entries(1)


async def test_what_another_process_drives_can_be_forked(folder, files, files_at):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=False)
    other = files_at(folder)
    await other.fork("s", "t")
    assert await other.read("t") == entries(1)


async def test_a_file_that_is_damaged_when_a_sync_has_failed_is_not_written_on(folder, files, monkeypatch, caplog):
    lease = await files.acquire("s")
    await files.append(lease, entries(1, 3), sync=True)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StoreError):
        await files.append(lease, entries(4), sync=True)
    monkeypatch.undo()
    content = bytearray((folder / "s.session").read_bytes())
    content[-30] ^= 1
    (folder / "s.session").write_bytes(content)
    with pytest.raises(StoreError, match="was damaged by an error of the disk: open the session again"):
        await files.append(lease, entries(4), sync=True)
    await files.release(lease)
    lease = await files.acquire("s")
    assert await files.read("s") == entries(1, 2)
    await files.append(lease, entries(4), sync=True)
    assert "entries are missing: 3;" in caplog.text


@pytest.mark.parametrize("sync", [True, False])
async def test_whichever_call_to_the_disk_fails_the_log_is_what_was_acknowledged(folder, files_at, monkeypatch, sync):
    """The N-th call fails, for each N that there is, and the driver goes on as if nothing had happened."""
    for nth in itertools.count(1):
        session_id = f"{sync}{nth}"
        store = files_at(folder)
        calls = itertools.count(1)
        failed: list[object] = []

        def failing(real, *, calls=calls, failed=failed, nth=nth):
            def call(*arguments):
                if next(calls) == nth:
                    failed.append(real)
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return real(*arguments)

            return call

        for name in ("write", "pwrite", "fdatasync", "fsync", "ftruncate", "replace"):
            monkeypatch.setattr(os, name, failing(getattr(os, name)))
        lease = acknowledged = None
        for _ in range(3):
            try:
                lease = lease or await store.acquire(session_id)
                head = len(acknowledged or [])
                await append(store, lease, entries(head + 1, 2), sync=sync)
                acknowledged = entries(1, head + 2)
            except StoreError as error:
                assert "disk" in str(error)  # noqa: PT017 - it may also succeed
        monkeypatch.undo()
        assert await store.read(session_id) == acknowledged
        await store.aclose()
        assert await files_at(folder).read(session_id) == acknowledged
        if not failed:
            assert nth > 4
            return


@pytest.fixture
def small_disk(tmp_path):
    """A disk of half a megabyte."""
    with mounted(tmp_path, "512k") as place:
        yield place


async def test_on_a_full_disk_what_was_acknowledged_stays(small_disk):
    store = FileStore(small_disk / "sessions")
    lease = await store.acquire("s")
    acknowledged: list[Entry] = []

    async def append_for_ever():
        for seq in itertools.count(len(acknowledged) + 1):
            batch = [Entry(seq, 1.0, Custom("data", "x" * 1900), f"e-{seq}")]
            await append(store, lease, batch, sync=seq % 3 == 0)
            acknowledged.extend(batch)

    for _ in range(3):
        with pytest.raises(StoreError, match="the disk is full"):
            await append_for_ever()
    assert len(acknowledged) > 10
    assert await store.read("s") == acknowledged
    with pytest.raises(StoreError, match="the disk is full"):
        await store.acquire("another")
    await store.release(lease)
    remount(small_disk, "size=4m")
    lease = await store.acquire("s")
    more = entries(len(acknowledged) + 1)
    await store.append(lease, more, sync=True)
    assert await store.read("s") == [*acknowledged, *more]
    await store.acquire("another")
    await store.aclose()


async def test_on_a_disk_that_can_only_be_read_sessions_can_be_read(small_disk, files_at):
    store = files_at(small_disk / "sessions")
    await store.append(await store.acquire("s"), entries(1), sync=True)
    await store.aclose()
    remount(small_disk, "ro")
    assert await store.read("s") == entries(1)
    assert [info.session_id for info in await store.list()] == ["s"]
    for refused in (store.acquire("s"), store.acquire("new"), store.delete("s")):
        with pytest.raises(StoreError, match=r"cannot be opened or written: check the permissions"):
            await refused


# -- files that are taken away -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["deleted", "replaced", "moved with its folder"])
async def test_a_file_that_is_taken_away_is_not_written_on(folder, files, fate):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=True)
    if fate == "moved with its folder":
        folder.rename(folder.with_name("elsewhere"))
    else:
        (folder / "s.session").unlink()
    if fate == "replaced":
        (folder / "s.session").touch()
    with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
        await files.append(lease, entries(2), sync=True)
    assert await files.read("s") == []


async def test_a_file_that_others_cut_off_is_not_written_on(folder, files):
    lease = await files.acquire("s")
    await files.append(lease, entries(1, 2), sync=True)
    os.truncate(folder / "s.session", 100)
    for sync in (True, False):
        with pytest.raises(StoreError, match="was changed by another process"):
            await append(files, lease, entries(3), sync=sync)
    assert (folder / "s.session").stat().st_size == 100


# -- where it lies -----------------------------------------------------------------------------------------------------


async def test_files_and_a_new_folder_are_for_their_owner_alone(tmp_path, files_at):
    folder = tmp_path / "folder"
    before = os.umask(0)
    try:
        store = files_at(folder)
        await store.append(await store.acquire("s"), entries(1, 3), sync=True)
        await store.aclose()
        content = bytearray((folder / "s.session").read_bytes())
        content[-100] ^= 1
        (folder / "s.session").write_bytes(content)
        await store.acquire("s")
    finally:
        os.umask(before)
    modes = {place.name: stat.S_IMODE(place.stat().st_mode) for place in tmp_path.rglob("*")}
    assert modes.pop("folder") == 0o700
    assert modes == dict.fromkeys(["s.session", "s.lock", "s.quarantine"], 0o600)


async def test_a_folder_that_everybody_may_write_to_is_told(folder, files_at, caplog):
    folder.mkdir()
    folder.chmod(0o777)
    store = files_at(folder)
    await store.acquire("s")
    await store.acquire("t")
    assert len(caplog.messages) == 1
    assert "everybody on this machine can replace the sessions" in caplog.messages[0]


def put(kind: str, path, target) -> None:
    """Something that is no regular file."""
    if kind == "link":
        target.touch()
        path.symlink_to(target)
    elif kind == "dangling link":
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/null")


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder", "device"])
@pytest.mark.parametrize("name", ["s.session", "s.lock", "s.quarantine"])
async def test_what_is_no_regular_file_is_never_used(folder, files, tmp_path, kind, name):
    await files.append(await files.acquire("s"), entries(1, 2), sync=True)
    await files.aclose()
    if name == "s.quarantine":
        os.truncate(folder / "s.session", (folder / "s.session").stat().st_size - 5)
    else:
        (folder / name).unlink()
    target = tmp_path / "target"
    put(kind, folder / name, target)
    with pytest.raises(StoreError, match="no regular file: move that away"):
        await files.acquire("s")
    if name != "s.quarantine":
        with pytest.raises(StoreError, match="no regular file: move that away"):
            await files.read("s")
    assert not target.exists() or target.read_bytes() == b""


async def test_a_file_in_place_of_the_folder_is_refused(tmp_path, files_at):
    (tmp_path / "file").touch()
    store = files_at(tmp_path / "file")
    for refused in (store.acquire("s"), store.read("s"), store.list(), store.delete("s")):
        with pytest.raises(ConfigError, match="is a file: pass the path of a folder"):
            await refused


async def test_a_network_file_system_is_refused(folder, files, monkeypatch):
    monkeypatch.setattr("perdure._stores.files.find_network_file_system", lambda _: "nfs4")
    with pytest.raises(ConfigError, match=r"network file system \(nfs4\).*local disk"):
        await files.acquire("s")
    assert not folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which not even root makes files, such as /proc")
@pytest.mark.parametrize("place", ["/proc/new", "/dev/null/new"])
async def test_a_place_that_cannot_be_written_is_named(files_at, place):
    with pytest.raises((StoreError, ConfigError), match=place):
        await files_at(place).acquire("s")


async def test_a_relative_path_stays_where_it_was_when_the_store_was_made(tmp_path, monkeypatch, files_at):
    monkeypatch.chdir(tmp_path)
    store = files_at("sessions")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await store.acquire("s")
    assert (tmp_path / "sessions" / "s.session").exists()


# -- what is left open -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
async def test_nothing_is_left_open_when_a_store_is_closed(folder):
    def open_files():
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return [link for link in links if str(link.resolve()).startswith(str(folder))]

    store = FileStore(folder)
    for number in range(5):
        await store.append(await store.acquire(f"s{number}"), entries(1), sync=True)
    await store.read("s1")
    await store.list()
    assert store._threads is not None
    threads = set(store._threads._threads)
    assert len(open_files()) == 10
    await store.aclose()
    await store.aclose()
    assert open_files() == []
    assert file_access._open == set()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


async def test_a_closed_store_opens_again_at_the_next_use(files):
    lease = await files.acquire("s")
    await files.aclose()
    assert (await files.acquire("s")).fence == lease.fence + 1


async def test_a_new_file_whose_name_could_not_be_synced_is_written_once_more_before_anything_is_appended(
    folder, files, monkeypatch
):
    lease = await files.acquire("s")
    await files.append(lease, entries(1, 2), sync=True)
    synced: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(file_log, "sync_folder", failing_sync)
        with pytest.raises(StoreError):
            await files.redact(lease, Entry(1, 1.0, Custom("clean"), "e-1"))
    monkeypatch.setattr(file_log, "sync_folder", synced.append)
    await files.append(lease, entries(3), sync=True)
    assert synced == [str(folder)]
    assert (await files.read("s"))[0].event == Custom("clean")


def failing_sync(_folder: str) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_read_that_the_system_cuts_into_single_bytes_is_completed(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, _count, offset: whole(descriptor, 1, offset))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert file_access.read_at(descriptor, 2, 5) == b"23456"
        assert file_access.read_at(descriptor, 8, 5) == b"89"
    finally:
        os.close(descriptor)
