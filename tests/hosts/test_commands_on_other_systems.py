"""Commands where the system lacks what Linux and Python 3.13 have: names are taken away, in processes of their own."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from perdure._io.processes import supervisor, tree
from perdure._io.processes.stdio_server import StdioServerProcess
from perdure._tools.shell import command as running_command
from perdure._tools.shell.command import RunningCommand, SpoolLimits
from perdure.hosts import ShellCommand

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it simulates other systems")

SUPERVISOR = """
import os, runpy, sys
for name in {missing!r}:
    delattr(os, name)
sys.platform = "darwin"  # so no prctl: orphans are not adopted
if {has_no_proc!r}:
    def list_nothing(path, listdir=os.listdir):
        if path == "/proc":
            raise FileNotFoundError(path)
        return listdir(path)
    os.listdir = list_nothing
sys.argv = [{real!r}, *sys.argv[1:]]
runpy.run_path({real!r}, run_name="__main__")
"""
IMPORTS = """
import os, signal, sys
for name in ("SIGCHLD", "SIGKILL", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGSTOP", "SIGCONT", "SIGUSR1"):
    delattr(signal, name)
for name in ("O_NOFOLLOW", "waitid", "pidfd_open", "killpg", "fork"):
    delattr(os, name)
import perdure, perdure._work.goals, perdure._work.judging.graders, perdure._work.judging.evals
import perdure._tools.shell.command
import perdure._io.processes.stdio_server, perdure.mcp
print("imported")
"""


@pytest.fixture(params=[False, True], ids=["with /proc", "with ps"])
def other_supervisor(request: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """The supervisor as on a Mac with Python 3.11."""
    real = supervisor.__file__
    text = SUPERVISOR.format(missing=["waitid", "pidfd_open"], has_no_proc=request.param, real=real)
    (tmp_path / "supervisor.py").write_text(text)
    monkeypatch.setattr(supervisor, "__file__", str(tmp_path / "supervisor.py"))


@pytest.fixture(params=["missing", "forbidden"])
def no_descriptors(request: Any, monkeypatch: Any) -> None:
    """A system without process descriptors."""

    def refuse(pid: int) -> int:
        raise PermissionError(errno.EPERM, f"not permitted for {pid}")

    if request.param == "missing":
        monkeypatch.delattr(os, "pidfd_open")
    else:
        monkeypatch.setattr(os, "pidfd_open", refuse)


def start(folder: Path, script: str, seconds: float = 20.0) -> RunningCommand:
    command = ShellCommand(line=script, timeout_seconds=seconds)
    kept = SpoolLimits(10_000, str(folder / "spool"), 20_000)
    words = ["/bin/sh", "-c", script]
    return RunningCommand.start_supervised(words, command, str(folder), {"PATH": "/usr/bin:/bin"}, kept=kept)


async def finish(command: RunningCommand) -> tuple[int, str, str]:
    async with asyncio.timeout(20):
        result = await command.wait()
    return result.exit_code, str(result.stdout), result.ending


def has_ended(pid: int) -> bool:
    """True once a process is gone, or waits only for somebody to reap it."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_everything_that_needs_no_command_is_imported_where_posix_names_are_absent():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("imported\n", "")


@pytest.mark.usefixtures("other_supervisor")
async def test_a_command_ends_with_its_exit_code_without_waitid(tmp_path):
    assert await finish(start(tmp_path, "echo out; exit 7")) == (7, "out\n", "exit")


@pytest.mark.usefixtures("no_descriptors")
async def test_a_command_ends_with_its_exit_code_without_process_descriptors(tmp_path):
    assert await finish(start(tmp_path, "echo out; exit 7")) == (7, "out\n", "exit")
    assert await finish(start(tmp_path, "sleep 60", seconds=0.1)) == (137, "", "timeout")


@pytest.mark.usefixtures("other_supervisor")
async def test_children_that_ignore_the_first_signal_are_killed_where_orphans_are_not_adopted(tmp_path):
    ignoring = "(trap '' TERM; echo $$ >/dev/null; while :; do sleep 0.2; done) & echo $!; wait"
    command = start(tmp_path, f"trap 'exit 0' TERM; {ignoring}")
    while not (out := str(command.take_output().stdout)).strip():
        await command.wait_for_end(0.01)
    await command.end("stopped")
    assert has_ended(int(out))


@pytest.mark.usefixtures("other_supervisor")
async def test_an_orphan_in_another_session_is_followed_where_orphans_are_not_adopted(tmp_path, monkeypatch):
    command = start(tmp_path, "setsid sh -c 'echo $$; exec sleep 60' & sleep 1.5; exit 3")
    code, out, _ = await finish(command)
    assert code == 3
    assert has_ended(int(out))


@pytest.mark.usefixtures("no_descriptors")
async def test_commands_that_run_keep_neither_others_nor_name_lookups_waiting(tmp_path):
    running = [start(tmp_path, "exec sleep 60") for _ in range(12)]
    try:
        async with asyncio.timeout(10):
            assert await finish(start(tmp_path, "echo quick")) == (0, "quick\n", "exit")
            assert await asyncio.to_thread(lambda: "looked up") == "looked up"
        assert tree._poller._thread is not None
    finally:
        for command in running:
            await command.end("stopped")


async def test_an_error_of_the_watcher_ends_the_command_with_the_reason(tmp_path, monkeypatch):
    async def fail(_process: object) -> None:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(running_command, "wait_for_exit", fail)
    command = start(tmp_path, "exec sleep 60")
    async with asyncio.timeout(20):
        result = await command.wait()
    assert "could not be watched: OSError: [Errno 38] not here" in str(result.stderr)


ESCAPE = (
    "(trap '' HUP; while :; do sleep 0.2; done) </dev/null >/dev/null 2>&1 & echo $!; sleep 0.1; kill -9 $PPID; wait"
)


async def test_what_a_command_leaves_that_has_killed_its_supervisor_ends(tmp_path):
    code, out, _ = await finish(start(tmp_path, ESCAPE))
    assert code == 128 + signal.SIGKILL
    assert has_ended(int(out))


async def test_what_a_server_leaves_that_has_killed_its_supervisor_ends_with_its_connection():
    words = ["/bin/sh", "-c", ESCAPE]
    server = await StdioServerProcess.start(words, folder="", env={"PATH": "/usr/bin:/bin"}, max_line_bytes=1000)
    orphan = int(await server.read_line())
    await server.close()
    assert has_ended(orphan)
