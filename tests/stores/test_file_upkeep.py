"""Looking after a folder of sessions: what it takes, what goes, and a copy of it."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from perdure import ConfigError, StoreError
from perdure._core.values.clock import SystemClock
from perdure._stores.file.layout import encode_line
from perdure._stores.file.maintenance import restore_folder
from perdure.events import Custom, Entry
from perdure.stores import FileStore, MaintainableStore, Post, StoreSize
from tests.stores.material import entries

DAY = 24 * 3600


class Later(SystemClock):
    """A clock that is two days ahead."""

    def now(self) -> float:
        return time.time() + 2 * DAY


async def keep(store, session_id, count=2):
    lease = await store.acquire(session_id)
    await store.append(lease, entries(1, count), sync=True)
    await store.release(lease)


# -- size --------------------------------------------------------------------------------------------------------------


async def test_the_size_is_that_of_all_files_and_of_each_session(folder, files: FileStore):
    assert isinstance(files, MaintainableStore)
    assert (await files.size()).total_bytes == 0
    await keep(files, "s", 5)
    await keep(files, "x" * 300, 1)
    await files.fork("s", "t")
    await files.release(await files.acquire("empty"))
    (folder / "notes.txt").write_bytes(b"not ours")
    (folder / "new.session").write_bytes(encode_line(b'{"perdure":"session-file","format":9}', 0))
    (folder / "headless.session").write_bytes(b"x" * 10)
    size = await files.size()
    own = sum(path.stat().st_size for path in folder.iterdir() if path.name != "notes.txt")
    assert (size.total_bytes, size.free_bytes, size.search_bytes) == (own, 0, 0)
    assert size.sessions.keys() == {"s", "x" * 300, "t", "headless"}
    assert size.sessions["t"] == 0
    assert size.sessions["s"] > size.sessions["x" * 300] > 0


async def test_what_a_vacuum_would_remove_is_free(folder, files):
    await keep(files, "s")
    (folder / "s.quarantine").write_bytes(b"x" * 1000)
    (folder / "s.session.00.tmp").write_bytes(b"x" * 100)
    assert (await files.size()).free_bytes == 0
    later = FileStore(folder, clock=Later())
    assert (await later.size()).free_bytes == 1100
    await later.vacuum()
    assert (await later.size()).free_bytes == 0
    await later.aclose()


# -- vacuum ------------------------------------------------------------------------------------------------------------


async def test_a_vacuum_removes_what_was_left_more_than_a_day_ago(folder, files):
    await keep(files, "s")
    left = ["s.session.00.tmp", "s.posts.01.erase", "s.quarantine", "=00.shared.02.tmp"]
    for name in (*left, "notes.tmp"):
        (folder / name).write_bytes(b"left")
    (folder / "s.session.03.erase").hardlink_to(folder / "s.session")
    await files.vacuum()
    assert {*left, "s.session.03.erase"} <= {path.name for path in folder.iterdir()}
    later = FileStore(folder, clock=Later())
    await later.vacuum()
    assert sorted(path.name for path in folder.iterdir()) == ["notes.tmp", "s.lock", "s.session"]
    assert await later.read("s") == entries(1, 2)
    await later.aclose()


async def test_a_vacuum_removes_posts_that_were_taken_where_nobody_drives(folder, files, files_at):
    for name in ("idle", "driven", "new"):
        await files.post(name, Post("p", "steer"))
    for name in ("idle", "driven"):
        lease = await files.acquire(name)
        await files.append(lease, [Entry(1, 1.0, Custom("taken"), "p")], sync=False)
    content = (folder / "driven.posts").read_bytes()
    await files.release(files._logs["idle"].lease)
    (folder / "idle.posts").write_bytes(content.replace(b"driven", b"idle"))
    store = files_at(folder)
    (folder / "idle.posts").unlink()
    await store.post("idle", Post("later", "steer"))
    await store.vacuum()
    assert [path.name for path in sorted(folder.glob("*.posts"))] == ["driven.posts", "idle.posts", "new.posts"]
    assert await store.posts("new") == [Post("p", "steer")]


async def test_a_vacuum_goes_on_behind_a_mailbox_that_it_cannot_read(folder, files, caplog):
    await keep(files, "s")
    await files.post("s", Post("p", "steer"))
    (folder / "s.lock").unlink()
    (folder / "s.lock").mkdir()
    with pytest.raises(StoreError):
        await files.vacuum()
    (folder / "s.lock").rmdir()
    (folder / "s.session").write_bytes(encode_line(b'{"perdure":"session-file","format":9}', 0))
    await files.vacuum()
    assert "the mailbox of session 's' is left as it is" in caplog.text


async def test_a_vacuum_finishes_what_somebody_who_was_killed_had_begun(folder, files):
    await keep(files, "s", 4)
    await files.fork("s", "t", at=2)
    await files.delete("s")
    (trunk,) = folder.glob("=*.shared")
    os.rename(folder / "t.session", folder / "t.away")  # noqa: PTH104 - as if it had just been deleted
    await files.vacuum()
    assert not trunk.exists()


async def test_a_vacuum_of_nothing_makes_nothing(folder, files):
    await files.vacuum()
    assert not folder.exists()


# -- backup ------------------------------------------------------------------------------------------------------------


async def test_a_backup_can_be_opened_and_driven(folder, files, files_at, tmp_path):
    await keep(files, "s", 3)
    await files.fork("s", "t", at=2)
    await keep(files, "gone", 3)
    await files.fork("gone", "orphan", at=2)
    await files.delete("gone")
    await files.post("s", Post("p", "steer"))
    (folder / "s.quarantine").write_bytes(b"set aside")
    (folder / "s.session.00.tmp").write_bytes(b"left")
    lease = await files.acquire("s")
    await files.backup(str(tmp_path / "deep" / "copy"))
    await files.append(lease, entries(4), sync=True)
    copy = files_at(tmp_path / "deep" / "copy")
    assert [len(await copy.read(name)) for name in ("s", "t", "orphan")] == [3, 2, 2]
    assert await copy.posts("s") == [Post("p", "steer")]
    assert (await copy.info("t")).parent == "s"
    assert (tmp_path / "deep" / "copy" / "s.quarantine").read_bytes() == b"set aside"
    assert not list((tmp_path / "deep" / "copy").glob("*.tmp"))
    lease = await copy.acquire("s")
    await copy.append(lease, entries(4), sync=True)
    await copy.release(lease)
    await copy.delete("s")
    assert await copy.read("t") == entries(1, 2)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "deep" / "copy").iterdir()}
    assert modes == {0o600}


async def test_a_backup_leaves_out_the_beginning_of_an_append(folder, files, files_at, tmp_path, caplog):
    lease = await files.acquire("s")
    await files.append(lease, entries(1, 2), sync=True)
    with (folder / "s.session").open("ab") as file:
        file.write(b'70 0000beef+{"seq":3,')
    await files.backup(str(tmp_path / "copy"))
    copy = files_at(tmp_path / "copy")
    await copy.acquire("s")
    assert await copy.read("s") == entries(1, 2)
    assert caplog.messages == []


async def test_what_is_damaged_is_copied_as_it_is(folder, files, files_at, tmp_path):
    await keep(files, "s", 3)
    content = (folder / "s.session").read_bytes().replace(b'"e-2"', b'"e-9"')
    (folder / "s.session").write_bytes(content)
    (folder / "headless.session").write_bytes(b"x" + content[1:])
    (folder / "new.session").write_bytes(encode_line(b'{"perdure":"session-file","format":9}', 0))
    await files.backup(str(tmp_path / "copy"))
    for name in ("s.session", "headless.session", "new.session"):
        assert (tmp_path / "copy" / name).read_bytes() == (folder / name).read_bytes()
    copy = files_at(tmp_path / "copy")
    await copy.acquire("s")
    assert await copy.read("s") == await files.read("s") == [*entries(1), *entries(3)]


async def test_a_backup_to_a_place_where_something_is_is_refused(files, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match="there is something at"):
        await files.backup(str(tmp_path / "there"))


async def test_a_backup_that_fails_leaves_nothing(files, tmp_path, monkeypatch):
    await keep(files, "s")
    (tmp_path / "target").mkdir()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("perdure._stores.file.maintenance.rewrite_file", fail)
    with pytest.raises(StoreError, match="the disk is full"):
        await files.backup(str(tmp_path / "target" / "copy"))
    assert list((tmp_path / "target").iterdir()) == []


async def test_a_backup_of_nothing_has_a_manifest_and_no_session(files, files_at, tmp_path):
    await files.backup(str(tmp_path / "copy"))
    assert await files_at(tmp_path / "copy").list() == []
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["backup.manifest"]


# -- verified restores -------------------------------------------------------------------------------------------------


@pytest.fixture
async def backup(files, tmp_path):
    """A backup with a log and a mailbox."""
    lease = await files.acquire("s")
    await files.append(lease, entries(1, 5), sync=True)
    await files.release(lease)
    await files.post("s", Post("p", "steer", "hello", 1.0))
    await files.post("unborn", Post("q", "steer", "hello", 1.0))
    await files.backup(str(tmp_path / "backup"))
    return tmp_path / "backup"


def change_one_bit(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


async def test_a_backup_that_was_used_as_a_store_is_refused_with_advice(backup, files_at, tmp_path):
    store = files_at(backup)
    await store.acquire("s")
    await store.aclose()
    with pytest.raises(StoreError, match=r"'s.lock' has other content. .* back it up as one"):
        restore_folder(str(backup), str(tmp_path / "new"))
    (backup / "s.posts").unlink()
    with pytest.raises(StoreError, match=r"'s.posts' is missing"):
        restore_folder(str(backup), str(tmp_path / "new"))
    (backup / "more.session").write_bytes(b"")
    with pytest.raises(StoreError, match=r"'more.session' has come into it"):
        restore_folder(str(backup), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


async def test_a_damaged_or_newer_manifest_is_refused(backup, tmp_path):
    manifest = backup / "backup.manifest"
    manifest.write_bytes(encode_line(b'{"perdure":"backup","format":1}', 0))
    with pytest.raises(StoreError, match="is of another version"):
        restore_folder(str(backup), str(tmp_path / "new"))
    change_one_bit(manifest)
    with pytest.raises(StoreError, match=r"the manifest .* is damaged"):
        restore_folder(str(backup), str(tmp_path / "new"))


async def test_a_backup_without_a_manifest_is_refused(backup, tmp_path):
    (backup / "backup.manifest").unlink()
    with pytest.raises(StoreError, match=r"is no complete backup, because it has no 'backup.manifest'"):
        restore_folder(str(backup), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_read_is_an_error_of_the_store(tmp_path):
    (tmp_path / "backup" / "backup.manifest").mkdir(parents=True)
    with pytest.raises(StoreError, match="no regular file"):
        restore_folder(str(tmp_path / "backup"), str(tmp_path / "new"))


@pytest.mark.parametrize("is_free", [False, True])
async def test_what_is_left_is_free_when_it_is_older_than_a_day(folder: Any, files: FileStore, is_free: bool) -> None:
    await keep(files, "s")
    left = [folder / name for name in ("s.quarantine", "s.session.00.tmp", "s.posts.00.erase")]
    for path in left:
        path.write_bytes(b"left")
    times = [max(path.stat().st_mtime, path.stat().st_ctime) for path in left]
    now = max(times) + DAY + 1.0 if is_free else min(times) + DAY

    class Then(SystemClock):
        def now(self) -> float:
            return now

    store = FileStore(folder, clock=Then())
    own = {path.name: path.stat().st_size for path in folder.iterdir()}
    session = own["s.session"] - len((folder / "s.session").read_bytes().split(b"\n", 1)[0]) - 1
    assert await store.size() == StoreSize(sum(own.values()), 12 if is_free else 0, 0, {"s": session})
    await store.aclose()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("other", "'s.session' has other content"),
        ("longer", "'s.session' has other content"),
        ("missing", "'s.session' is missing"),
        ("more", "'t.session' has come into it"),
    ],
)
async def test_a_backup_that_has_changed_in_any_way_is_refused(backup: Any, change: str, problem: str) -> None:
    path = backup / "s.session"
    if change == "other":
        change_one_bit(path)
    elif change == "longer":
        path.write_bytes(path.read_bytes() + b"x")
    elif change == "missing":
        path.unlink()
    else:
        path.with_name("t.session").write_bytes(path.read_bytes())
    with pytest.raises(StoreError, match=problem):
        restore_folder(str(backup), str(backup.with_name("new")))
    assert not backup.with_name("new").exists()
    assert not list(backup.parent.glob("new.*"))


async def test_a_copy_that_a_bad_disk_has_changed_is_not_left_behind(
    backup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_and_change(source: str, target: str) -> None:
        shutil.copy(source, target)
        if target.endswith("s.session"):
            change_one_bit(Path(target))

    monkeypatch.setattr("perdure._stores.file.maintenance._copy_bytes", copy_and_change)
    with pytest.raises(StoreError, match=r"'s.session' has other content"):
        restore_folder(str(backup), str(backup.with_name("new")))
    assert sorted(path.name for path in backup.parent.iterdir()) == ["backup", "sessions"]


async def test_nothing_is_restored_where_something_is(backup: Any) -> None:
    target = backup.with_name("new")
    target.write_text("mine")
    with pytest.raises(ConfigError) as refused:
        restore_folder(str(backup), str(target))
    assert str(refused.value) == (f"there is something at {str(target)!r} already: back up to a path where nothing is")
    assert target.read_text() == "mine"


async def test_a_backup_has_every_file_of_the_store_and_nothing_else(
    folder: Any, files: FileStore, tmp_path: Any
) -> None:
    await keep(files, "s", 4)
    await files.post("s", Post("p", "steer", "hello", 1.0))
    await files.fork("s", "t", at=2)
    await keep(files, "gone", 2)
    await files.fork("gone", "u")
    await files.delete("gone")
    (trunk,) = folder.glob("=*.shared")
    for name in ("s.quarantine", "notes.txt", "s.session.00.tmp", "s.session.01.erase"):
        (folder / name).write_bytes(b"x")
    lease = await files.acquire("s")
    await files.backup(str(tmp_path / "copy"))
    copied = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    assert sorted(copied) == sorted(
        [
            *("backup.manifest", "s.lock", "s.session", "s.posts", "s.forked", "s.quarantine"),
            *("t.lock", "t.session", "u.lock", "u.session", trunk.name),
        ]
    )
    for name in ("s.session", "t.session", "u.session", "s.posts", "s.quarantine", "s.forked", trunk.name):
        assert copied[name] == (folder / name).read_bytes()
    store = FileStore(tmp_path / "copy")
    assert (await store.acquire("s")).fence == lease.fence + 1  # nobody drives the copy
    assert await store.read("u") == entries(1, 2)
    await store.aclose()
