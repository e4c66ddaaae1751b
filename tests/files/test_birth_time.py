"""When a file or folder was made."""

import os
import time

import pytest

from perdure._io.files import linux_calls
from perdure._io.files.linux_calls import read_birth_time_ns


@pytest.fixture
def folder(tmp_path):
    (made := tmp_path / "made").mkdir()
    if read_birth_time_ns(str(made)) is None:
        pytest.skip("this file system does not tell")
    return made


def test_it_is_now_for_what_was_just_made_and_stays_as_it_is(folder):
    born = read_birth_time_ns(str(folder))
    assert born is not None
    assert abs(born - time.time_ns()) < 60 * 10**9
    (folder / "file").touch()
    os.utime(folder, (0, 0))
    folder.chmod(0o700)
    moved = folder.rename(folder.with_name("moved"))
    assert read_birth_time_ns(str(moved)) == born


def test_another_folder_at_the_same_path_has_another_one(folder):
    born = {read_birth_time_ns(str(folder))}
    for _ in range(100_000):
        folder.rmdir()
        folder.mkdir()
        born.add(read_birth_time_ns(str(folder)))
        if len(born) > 1:  # the clock of the file system goes in steps
            return
    pytest.fail("all have the same")


def test_a_missing_path_is_an_error_and_a_system_that_does_not_tell_is_none(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        read_birth_time_ns(str(tmp_path / "missing"))
    monkeypatch.setattr(linux_calls, "_libc", None)
    if not hasattr(tmp_path.stat(), "st_birthtime"):
        assert read_birth_time_ns(str(tmp_path)) is None
