"""Where a store's file may lie."""

import os
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.core.error import ConfigError
from perdure.stores import private_paths
from perdure.stores.private_paths import file_system_type_at, find_network_file_system, make_path_absolute
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
            private_paths.create_folder(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()  # or the next one would take it for one that lasts
    private_paths.create_folder(str(tmp_path / "new"))
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
