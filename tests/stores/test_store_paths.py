"""Where a store's file may lie."""

import os
from pathlib import Path

import pytest

from perdure.core.error import ConfigError
from perdure.stores import store_paths
from perdure.stores.store_paths import file_system_type_at, find_network_file_system, resolve_store_path

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
    assert resolve_store_path("a/../x.db") == resolve_store_path(Path("x.db")) == str(tmp_path / "x.db")


@pytest.mark.parametrize("path", ["", "  ", "a\0b", None, 3, b"x.db"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ConfigError, match="pass the path"):
        resolve_store_path(path)


def test_a_folder_whose_name_may_not_last_is_not_left_there(tmp_path, monkeypatch):
    def fail(_descriptor):
        raise OSError(5, "the disk fails")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="the disk fails"):
            store_paths.create_folder(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()  # or the next one would take it for one that lasts
    store_paths.create_folder(str(tmp_path / "new"))
    assert (tmp_path / "new").is_dir()
