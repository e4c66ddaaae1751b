"""The lock of a sandbox's working folder: the last command that releases it removes the placeholders."""

import fcntl
import os
from pathlib import Path

import pytest

from perdure._tools.sandbox.bubblewrap import list_placeholder_paths
from perdure._tools.shell import placeholders
from perdure._tools.shell.placeholders import guard_placeholders, remove_leftover_placeholders


def leave_placeholder(root: Path) -> Path:
    """Make one of the empty folders that a sandbox makes to cover a name, and return its path."""
    path = Path(list_placeholder_paths(str(root))[0])
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the locks in a folder of the test's own."""
    folder = tmp_path / "locks"
    folder.mkdir()
    monkeypatch.setattr(placeholders, "make_user_temp_folder", lambda: str(folder))
    return folder


@pytest.fixture
def other_process(tmp_path: Path) -> int:
    """Return the lock file of the folder, opened once more, as another process would."""
    return placeholders._open_lock(str(tmp_path))


def test_the_last_command_in_a_folder_removes_its_placeholders(tmp_path):
    first, second = guard_placeholders(str(tmp_path)), guard_placeholders(str(tmp_path))
    assert first.descriptor == second.descriptor
    path = leave_placeholder(tmp_path)
    first.release()
    assert path.exists()
    first.release()  # has no effect
    assert path.exists()
    second.release()
    assert not path.exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(second.descriptor)


def test_placeholders_stay_while_another_process_runs_a_command_there(tmp_path, other_process):
    fcntl.flock(other_process, fcntl.LOCK_SH)
    guard = guard_placeholders(str(tmp_path))
    path = leave_placeholder(tmp_path)
    guard.release()
    assert path.exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(guard.descriptor)
    remove_leftover_placeholders(str(tmp_path))
    assert path.exists()
    os.close(other_process)
    remove_leftover_placeholders(str(tmp_path))
    assert not path.exists()


def test_a_folder_is_locked_for_other_processes_while_a_command_runs_there(tmp_path, other_process):
    guard = guard_placeholders(str(tmp_path))
    with pytest.raises(BlockingIOError):
        fcntl.flock(other_process, fcntl.LOCK_EX | fcntl.LOCK_NB)
    guard.release()
    fcntl.flock(other_process, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other_process)


def test_the_lock_file_of_a_folder_is_private_and_not_left_open_in_programs(tmp_path):
    guard = guard_placeholders(str(tmp_path))
    assert os.fstat(guard.descriptor).st_mode & 0o777 == 0o600
    assert not os.get_inheritable(guard.descriptor)
    guard.release()


def test_a_lock_file_that_is_a_link_is_not_opened(tmp_path, locks):
    guard_placeholders(str(tmp_path)).release()
    (lock,) = locks.iterdir()
    lock.unlink()
    lock.symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        guard_placeholders(str(tmp_path))
    assert not (tmp_path / "target").exists()
