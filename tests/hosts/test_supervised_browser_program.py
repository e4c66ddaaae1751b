"""The program between the driver and a browser: it runs the browser below a supervisor, and removes its folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure._io.processes import supervisor as process_supervisor
from perdure._tools.browser import supervised
from perdure._tools.browser.supervised import load_supervisor

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a browser, with the pipe in it."""
    folder = tmp_path / "browser"
    folder.mkdir()
    os.mkfifo(folder / "control")
    return folder


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start_program(script: str, **variables: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-I", "-S", supervised.__file__]
        process = subprocess.Popen(
            [*program, str(folder / "control"), str(folder), "/bin/sh", "-c", script],
            env={**variables, "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start_program
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate()


def test_a_browser_gets_the_variables_and_its_exit_code_is_passed_on(folder, start):
    control = os.open(folder / "control", os.O_RDWR)
    browser = start('echo "$FIRST"; echo "$SECOND" >&2; exit 9', FIRST="a=b", SECOND="two")
    assert browser.communicate(timeout=10) == (b"a=b\n", b"two\n")
    assert browser.returncode == 9
    assert not folder.exists()
    os.close(control)


def test_a_browser_that_a_signal_ended_has_the_exit_code_that_a_shell_would_give(folder, start):
    control = os.open(folder / "control", os.O_RDWR)
    browser = start("kill -KILL $$")
    assert browser.communicate(timeout=10) == (b"", b"")
    assert browser.returncode == 128 + signal.SIGKILL
    os.close(control)


def test_a_browser_ends_and_its_folder_is_removed_when_its_host_closes_the_pipe(folder, start):
    control = os.open(folder / "control", os.O_RDWR)
    (folder / "profile").mkdir()
    (folder / "profile/state").write_text("x")
    browser = start("trap 'echo tidied; exit 0' TERM; echo ready; sleep 60 & wait")
    assert browser.stdout.readline() == b"ready\n"
    os.close(control)
    assert browser.communicate(timeout=10) == (b"tidied\n", b"")
    assert browser.returncode == 128 + signal.SIGKILL
    assert not folder.exists()


def test_a_browser_whose_host_is_gone_already_ends_at_once(folder, start):
    assert start("sleep 60").communicate(timeout=10) == (b"", b"")
    assert not folder.exists()


def test_a_browser_ends_when_the_group_of_its_starter_is_killed_and_its_pipe_closed(folder, start):
    control = os.open(folder / "control", os.O_RDWR)
    browser = start("trap 'echo tidied; exit 0' TERM; echo ready; sleep 60 & wait")
    assert browser.stdout.readline() == b"ready\n"
    os.killpg(browser.pid, signal.SIGKILL)
    assert browser.wait(timeout=10) == -signal.SIGKILL
    assert folder.exists()  # what does the work is in another group
    os.close(control)
    assert browser.stdout.read() == b"tidied\n"


def test_the_folder_of_a_browser_may_be_gone_at_its_end(folder, start):
    control = os.open(folder / "control", os.O_RDWR)
    browser = start('rm -r "$FOLDER"; exit 9', FOLDER=str(folder))
    assert browser.communicate(timeout=10) == (b"", b"")
    assert browser.returncode == 9
    os.close(control)


def test_the_supervisor_is_loaded_from_its_file():
    supervisor = load_supervisor()
    assert supervisor.__name__ == "process_supervisor"
    assert Path(supervisor.__file__ or "").resolve() == Path(process_supervisor.__file__).resolve()
    assert supervisor.GRACE_SECONDS == 2.0


def test_a_supervisor_that_cannot_be_imported_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.spec_from_file_location", lambda *_: None)
    with pytest.raises(ImportError, match=r"supervisor\.py' cannot be imported$"):
        load_supervisor()
