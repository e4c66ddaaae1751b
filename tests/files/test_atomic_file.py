"""A file that is written before it has a name: what others see of it, and what a killed process leaves."""

# ruff: noqa: PTH123, PTH200, PTH208 - descriptors and links are the point
import fcntl
import os
import subprocess
import sys

import pytest

from perdure._io.files import atomic
from perdure._io.files.atomic import open_atomic_file, remove_stale_files
from perdure._io.files.jail import Jail
from perdure.hosts import FileChanged
from tests.doubles import list_open_below


@pytest.fixture(params=["without a name", "with a name"])
def folder(tmp_path, request, monkeypatch):
    """An open folder, on a system that can open files without a name, and on one that cannot."""
    if request.param == "with a name":
        monkeypatch.setattr(atomic, "_UNNAMED", 0)
    elif not atomic._UNNAMED:
        pytest.skip("the system cannot")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def names_in(folder):
    return sorted(os.listdir(folder))


def test_a_free_name_is_taken_and_a_taken_one_is_not(folder, tmp_path):
    with open_atomic_file(folder, "a") as new:
        os.write(new.descriptor, b"new")
        new.take_name()
    assert (tmp_path / "a").read_bytes() == b"new"
    with open_atomic_file(folder, "a") as new, pytest.raises(FileExistsError):
        new.take_name()
    assert names_in(folder) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_file_is_replaced_and_nothing_is_left(folder, tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with open_atomic_file(folder, "a") as new:
        os.write(new.descriptor, b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
        new.replace()
    assert names_in(folder) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_file_that_was_given_up_is_gone(folder):
    with pytest.raises(ValueError, match="no"), open_atomic_file(folder, "a"):
        raise ValueError("no")
    assert names_in(folder) == []


def test_a_name_of_any_length_can_be_replaced(folder, tmp_path):
    name = "\u00e9" * 127  # 254 bytes
    (tmp_path / name).write_bytes(b"old")
    with open_atomic_file(folder, name) as new:
        new.replace()
    assert names_in(folder) == [name]


@pytest.mark.parametrize("kind", ["locked", "folder", "other name"])
def test_only_what_a_killed_process_left_is_removed(folder, tmp_path, kind):
    stale, other = tmp_path / ".perdure-0123456789abcdef.tmp", tmp_path / ".perdure-fedcba9876543210.tmp"
    stale.write_bytes(b"half")
    with open(tmp_path / "a", "wb") as file:
        if kind == "locked":
            os.link(tmp_path / "a", other)
            fcntl.flock(file, fcntl.LOCK_EX)
        elif kind == "folder":
            other.mkdir()
        else:
            other = tmp_path / ".perdure-notes.tmp"
            other.touch()
        remove_stale_files(folder)
    assert names_in(folder) == sorted([other.name, "a"])


def test_a_link_that_a_killed_process_left_is_removed_and_its_target_is_not(folder, tmp_path):
    (tmp_path / "a").write_bytes(b"kept")
    (tmp_path / ".perdure-0123456789abcdef.tmp").symlink_to("a")
    remove_stale_files(folder)
    assert names_in(folder) == ["a"]


def test_a_file_that_is_being_written_is_not_stale(folder):
    with open_atomic_file(folder, "a") as new:
        before = names_in(folder)
        remove_stale_files(folder)
        assert names_in(folder) == before
        new.take_name()
    assert names_in(folder) == ["a"]


def test_the_first_write_to_a_folder_removes_what_was_left_there_and_nothing_in_others(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".perdure-0123456789abcdef.tmp").write_bytes(b"half")
    jail = Jail(tmp_path)
    jail.write(jail.resolve("a"), b"one")
    assert names_in(tmp_path / "sub") == [".perdure-0123456789abcdef.tmp"]
    jail.write(jail.resolve("sub/a"), b"one")
    assert names_in(tmp_path / "sub") == ["a"]


def test_each_folder_is_cleaned_by_the_first_write_to_it(tmp_path):
    (tmp_path / "sub").mkdir()
    for place in (tmp_path, tmp_path / "sub"):
        (place / ".perdure-0123456789abcdef.tmp").write_bytes(b"half")
    jail = Jail(tmp_path)
    jail.write(jail.resolve("sub/a"), b"one")
    assert sorted(each.name for each in tmp_path.rglob("*")) == [".perdure-0123456789abcdef.tmp", "a", "sub"]
    jail.write(jail.resolve("b"), b"one")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "b", "sub"]


def test_a_file_system_that_needs_names_is_written_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_UNNAMED", os.O_DIRECTORY)  # which fails with EISDIR, as old kernels do
    jail = Jail(tmp_path)
    jail.write(jail.resolve("a"), b"one")
    jail.write(jail.resolve("a"), b"two")
    assert ((tmp_path / "a").read_bytes(), os.listdir(tmp_path)) == (b"two", ["a"])
    with pytest.raises(FileChanged):
        jail.write(jail.resolve("a"), b"three", expected="")


@pytest.mark.skipif(not atomic._UNNAMED, reason="the system cannot open files without a name")
def test_a_process_that_is_killed_while_it_writes_leaves_nothing(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    script = f"""
import os, signal
from perdure._io.files.jail import Jail
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
jail = Jail({str(tmp_path)!r})
jail.write(jail.resolve("a"), b"new")
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert (os.listdir(tmp_path), (tmp_path / "a").read_bytes()) == (["a"], b"old")


def test_nothing_stays_open_of_files_that_are_written_given_up_or_stale(folder, tmp_path):
    before = list_open_below(tmp_path)
    for name, work in (("a", "take_name"), ("a", "replace"), ("b", "close")):
        with open_atomic_file(folder, name) as new:
            if work != "close":
                getattr(new, work)()
    (tmp_path / ".perdure-0123456789abcdef.tmp").write_bytes(b"half")
    remove_stale_files(folder)
    assert list_open_below(tmp_path) == before
    assert names_in(folder) == ["a"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"), open_atomic_file(descriptor, "a"):
        pass


def test_a_file_that_another_process_removed_before_it_was_locked_is_made_again(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_UNNAMED", 0)
    lock = fcntl.flock
    removed: list[str] = []

    def remove_first(descriptor, operation):
        if not removed:
            removed.extend(names_in(folder))
            (tmp_path / removed[0]).unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    before = len(list_open_below(tmp_path))
    with open_atomic_file(folder, "a") as new:
        os.write(new.descriptor, b"new")
        assert len(list_open_below(tmp_path)) == before + 1
        new.replace()
    assert (names_in(folder), (tmp_path / "a").read_bytes()) == (["a"], b"new")
