"""Where a store's file may lie."""

import io
import os
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ConfigError
from perdure._stores import files
from perdure._stores.files import file_system_type_at, find_network_file_system, make_path_absolute
from perdure.testing import ScriptedModel

MOUNTS = """\
rootfs / rootfs rw 0 0
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /mnt/nfs nfs4 rw 0 0
tmpfs /mnt/nfs/local tmpfs rw 0 0
//box/share /mnt/with\\040blank cifs rw 0 0
user@host: /mnt/ssh fuse.sshfs rw 0 0
short
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/home/x.db", "ext4"),
        ("/proc/x.db", "proc"),
        ("/mnt/nfs", "nfs4"),
        ("/mnt/nfs/deep/x.db", "nfs4"),
        ("/mnt/nfs2/x.db", "ext4"),
        ("/mnt/nfs/local/x.db", "tmpfs"),
        ("/mnt/with blank/x.db", "cifs"),
        ("/mnt/ssh/x.db", "fuse.sshfs"),
    ],
)
def test_the_innermost_and_latest_mount_counts(path, kind):
    assert file_system_type_at(path, MOUNTS) == kind


def test_without_a_table_of_mounts_nothing_is_known():
    assert file_system_type_at("/x", "") == ""


def test_a_folder_of_this_machine_is_no_network(tmp_path):
    assert find_network_file_system(str(tmp_path / "new" / "x.db")) == ""


def test_a_path_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_path_absolute("a/../x.db") == make_path_absolute(Path("x.db")) == str(tmp_path / "x.db")


@pytest.mark.parametrize("path", ["", "  ", "a\0b", None, 3, b"x.db"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ConfigError, match="pass the path"):
        make_path_absolute(path)


def test_a_folder_whose_name_may_not_last_is_not_left_there(tmp_path, monkeypatch):
    def fail(_descriptor):
        raise OSError(5, "the disk fails")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="the disk fails"):
            files.create_folder(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()  # or the next one would take it for one that lasts
    files.create_folder(str(tmp_path / "new"))
    assert (tmp_path / "new").is_dir()


async def begin_session(address: str) -> None:
    async with Agent(ScriptedModel("Here."), store=address) as agent:
        await agent.session("s").run("Hi")


@pytest.mark.parametrize("address", ["sqlite:data/shop.db", "file:data"])
async def test_a_first_start_makes_the_folder_of_the_store(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await begin_session(address)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("address", ["sqlite:no/such/shop.db", "file:no/such", "file:no/such/folder"])
async def test_a_folder_in_a_folder_that_does_not_exist_is_refused_and_nothing_is_made(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    missing = r"there is no folder '\S+/no(/such)?': create it, or correct the path"
    with pytest.raises(ConfigError, match=missing):
        await begin_session(address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["sqlite:shop.db", "file:shop"])
async def test_a_backup_in_a_folder_that_cannot_be_made_is_refused(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await begin_session(address)
    async with Agent(ScriptedModel(), store=address) as agent:
        store: Any = agent.store
        await store.backup(str(tmp_path / "monday" / "copy"))
        with pytest.raises(ConfigError, match="there is no folder"):
            await store.backup(str(tmp_path / "no" / "such" / "copy"))
    assert not (tmp_path / "no").exists()


def test_without_a_table_of_mounts_no_network_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise FileNotFoundError(2, "none")

    monkeypatch.setattr(files, "open", fail, raising=False)
    assert find_network_file_system("/mnt/nfs/x.db") == ""


@pytest.mark.parametrize(
    ("path", "kind"), [("/mnt/nfs/x.db", "nfs4"), ("/mnt/ssh/x.db", "fuse.sshfs"), ("/mnt/nfs/local/x", ""), ("/x", "")]
)
def test_only_the_kind_of_a_network_is_told(monkeypatch: pytest.MonkeyPatch, path: str, kind: str) -> None:
    def open_mounts(path: str, **options: Any) -> io.StringIO:
        assert (path, options) == ("/proc/self/mounts", {"encoding": "utf-8", "errors": "surrogateescape"})
        return io.StringIO(MOUNTS)

    monkeypatch.setattr(files, "open", open_mounts, raising=False)
    assert find_network_file_system(path) == kind
    if kind:
        for check in (files.check_file_path, files.check_folder_path):
            with pytest.raises(ConfigError) as refused:
                check(path)
            assert str(refused.value) == (
                f"{path!r} lies on a network file system ({kind}), where writes of several processes cannot be kept "
                "apart: choose a path on a local disk"
            )


def test_a_file_is_made_for_its_owner_alone_and_left_as_it_is_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "data" / "x.db"
    files.create_file(str(path))
    assert [place.stat().st_mode & 0o777 for place in (path.parent, path)] == [0o700, 0o600]
    path.write_text("mine")
    path.chmod(0o644)
    files.create_file(str(path))
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("mine", 0o644)


def test_a_file_or_folder_that_another_process_makes_first_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data" / "x.db"
    path.parent.mkdir()
    path.write_text("theirs")
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    files.create_file(str(path))
    monkeypatch.setattr(os.path, "isdir", lambda folder: folder != str(path.parent))
    files.create_folder(str(path.parent))
    assert path.read_text() == "theirs"


def test_a_folder_lasts_once_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    closed: list[int] = []
    close = os.close

    def note_and_close(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr(os, "close", note_and_close)
    files.create_folder(str(tmp_path / "new"))
    files.create_folder(str(tmp_path / "new"))
    assert synced == [tmp_path.stat().st_ino]
    assert len(closed) == 1


def test_a_path_that_is_not_what_it_should_be_is_refused_with_what_to_pass(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for check, path, problem in (
        (
            files.check_file_path,
            tmp_path,
            f"is a folder: pass the path of a file, such as '{tmp_path}/sessions.db'",
        ),
        (files.check_file_path, tmp_path / "pipe", "is not a regular file: choose another path"),
        (
            files.check_folder_path,
            tmp_path / "file",
            "is a file: pass the path of a folder, which is made if it is new",
        ),
    ):
        with pytest.raises(ConfigError) as refused:
            check(str(path))
        assert str(refused.value) == f"'{path}' {problem}"
    for check, path in (
        (files.check_file_path, tmp_path / "file"),
        (files.check_file_path, tmp_path / "new"),
        (files.check_folder_path, tmp_path),
        (files.check_folder_path, tmp_path / "new"),
    ):
        check(str(path))
