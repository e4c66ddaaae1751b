"""Folders for temporary files are removed although their process was killed, and never while it lives."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure._io.processes.private_folder import PrivateFolder, remove_stale_folders
from perdure.hosts import LocalShell, ShellCommand

PREFIX = "perdure-test-"
MAKE = f"""
import sys
from perdure._io.processes.private_folder import PrivateFolder
folder = PrivateFolder({PREFIX!r})
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def owner(place: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a folder."""
    pipe, env = subprocess.PIPE, {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen([sys.executable, "-c", MAKE], stdin=pipe, stdout=pipe, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().rstrip("\n"))
        finally:
            process.kill()


def test_a_folder_is_removed_on_demand_and_with_its_object(place: Path) -> None:
    folder = PrivateFolder(PREFIX)
    assert Path(folder.path).stat().st_mode & 0o777 == 0o700
    folder.remove()
    folder.remove()
    other = PrivateFolder(PREFIX)
    del other
    assert list(place.iterdir()) == []


def test_a_folder_is_removed_by_the_next_process_if_its_own_was_killed(place: Path) -> None:
    with owner(place) as (process, path):
        (path / "spool").write_text("output", encoding="utf-8")
        mine = PrivateFolder(PREFIX)
        assert path.exists()
        process.kill()
        process.wait()
        assert path.exists()
        other = PrivateFolder(PREFIX)
        assert sorted(map(str, place.iterdir())) == sorted([mine.path, other.path])


def test_nothing_else_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = place / "target"
    target.mkdir()
    (place / f"{PREFIX}link").symlink_to(target)
    (place / f"{PREFIX}file").touch()
    (place / "other").mkdir()
    remove_stale_folders(PREFIX, str(place))
    assert len(list(place.iterdir())) == 4
    (place / f"{PREFIX}of-another-user").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 4711)
        remove_stale_folders(PREFIX, str(place))
    assert (place / f"{PREFIX}of-another-user").exists()
    remove_stale_folders(PREFIX, str(place))
    assert not (place / f"{PREFIX}of-another-user").exists()


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = tempfile.mkdtemp, list[str]()

    def make(**options: Any) -> str:
        made.append(real(**options))
        if len(made) == 1:
            remove_stale_folders(PREFIX, str(place))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    folder = PrivateFolder(PREFIX)
    assert folder.path == made[1]
    assert list(place.iterdir()) == [Path(folder.path)]


def test_a_folder_that_cannot_be_locked_has_a_name_that_nobody_else_removes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def refuse(*_: Any, **__: Any) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        patch.setattr(os, "open", refuse)
        folder = PrivateFolder(PREFIX)
    remove_stale_folders(PREFIX, str(place))
    assert list(place.iterdir()) == [Path(folder.path)]
    folder.remove()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("sandbox", ["off", "auto"])
async def test_spool_folders_of_a_killed_program_are_gone_when_the_next_runs_a_command(
    place: Path, sandbox: Any
) -> None:
    program = f"""
import asyncio, os, signal
from perdure.hosts import LocalShell
from perdure.hosts import ShellCommand

async def main():
    shell = LocalShell({str(place / "work")!r}, sandbox={sandbox!r})
    await shell.run(ShellCommand(line="echo hello"))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    (place / "work").mkdir()
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), env={**os.environ, "TMPDIR": str(place)}
    )
    assert await asyncio.wait_for(killed.wait(), 60) == -signal.SIGKILL
    left = list_shell_folders(place)
    assert left
    async with LocalShell(place / "work", sandbox=sandbox) as shell:
        await shell.run(ShellCommand(line="echo hello"))
        assert not left & list_shell_folders(place)
    assert list_shell_folders(place) == set()


def list_shell_folders(place: Path) -> set[Path]:
    return set(place.glob("perdure-shell-*"))


def test_folders_that_a_command_has_made_very_deep_hinder_nobody(place: Path) -> None:
    deep = "/".join(["d"] * 1500)
    for _ in range(2):  # the second one finds what the first has left, if Python cannot go down so far
        folder = PrivateFolder(PREFIX)
        subprocess.run(["mkdir", "-p", f"{folder.path}/{deep}"], check=True)
        folder.remove()
    subprocess.run(["rm", "-rf", *place.iterdir()], check=True)
