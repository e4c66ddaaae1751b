"""Commands on this machine, in a sandbox and without one: what they get, what they return, and how they end."""

# ruff: noqa: ASYNC240 - what a command has left is looked at when it has ended
import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure import ConfigError, ToolError
from perdure._io.processes.tree import list_descendants
from perdure._tools.shell import command, local
from perdure.hosts import LocalShell, ShellCommand
from perdure.tools import CommandLimits

CONFINED = pytest.param("require", marks=pytest.mark.needs("bubblewrap"))


@pytest.fixture(params=[CONFINED, "off"])
async def shell(request, tmp_path):
    async with LocalShell(tmp_path, sandbox=request.param) as opened:
        yield opened


async def run(shell, line="", **details):
    return await asyncio.wait_for(shell.run(ShellCommand(line=line, **details)), 30)


async def test_a_command_returns_both_streams_and_its_exit_code(shell):
    result = await run(shell, "echo out; echo err >&2; exit 3")
    assert (str(result.stdout), str(result.stderr), result.exit_code) == ("out\n", "err\n", 3)
    assert (result.ending, result.is_error) == ("exit", True)


async def test_a_system_without_process_descriptors_waits_for_a_command_too(shell, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    result = await run(shell, "exec >/dev/null 2>&1; sleep 0.2; exit 4")  # it ends after its output
    assert (result.exit_code, result.ending) == (4, "exit")


async def test_words_are_run_without_a_shell(shell):
    result = await run(shell, argv=("echo", "$HOME; $(id) *"))
    assert str(result.stdout) == "$HOME; $(id) *\n"
    assert (await run(shell, argv=("no-such-program",))).exit_code == 127


async def test_a_command_gets_standard_input_or_none(shell):
    assert str((await run(shell, "cat", stdin="given")).stdout) == "given"
    assert str((await run(shell, "cat")).stdout) == ""


async def test_the_environment_is_exactly_what_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    for sandbox in ("auto", "off"):
        async with LocalShell(tmp_path, sandbox=sandbox, env={"PATH": "/usr/bin:/bin", "A": "b"}) as shell:
            names = dict(line.split("=", 1) for line in str((await run(shell, argv=("env",))).stdout).splitlines())
            assert {**names, "PWD": ""} == {"PATH": "/usr/bin:/bin", "A": "b", "PWD": ""}


async def test_a_command_runs_in_a_folder_below_the_root_and_nowhere_else(shell, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "out").symlink_to("/")
    assert str((await run(shell, "pwd", folder="sub")).stdout) == f"{tmp_path}/sub\n"
    for folder in ("..", "/", "out", "missing", "sub/../.."):
        with pytest.raises(ToolError, match="folder"):
            await run(shell, "pwd", folder=folder)


async def test_a_command_is_ended_at_its_deadline_with_all_that_it_started(shell):
    marker = f"31{os.getpid()}"
    result = await run(shell, f"sleep {marker} & sleep {marker}", timeout_seconds=0.2)
    assert result.ending == "timeout"
    assert not processes_with(marker)


async def test_what_ignores_the_first_signal_is_killed(shell, monkeypatch):
    monkeypatch.setattr(command, "GRACE_SECONDS", 0.1)
    marker = f"32{os.getpid()}"
    begun = time.monotonic()
    result = await run(
        # On a machine that is busy it takes a while until the signal is ignored.
        shell,
        f"trap '' TERM; sleep {marker} & setsid sleep {marker} & wait; sleep {marker}",
        timeout_seconds=1.5,
    )
    assert (result.ending, result.exit_code) == ("timeout", 137)
    assert time.monotonic() - begun < 30
    assert not processes_with(marker)


async def test_a_command_that_obeys_the_first_signal_may_clean_up(shell, tmp_path):
    line = "trap 'echo cleaned > done; exit' TERM; touch ready; while true; do sleep 0.05; done"
    call = asyncio.ensure_future(run(shell, line))
    await until((tmp_path / "ready").exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (tmp_path / "done").read_text() == "cleaned\n"


async def test_a_background_command_that_is_stopped_at_once_is_gone(shell):
    marker = f"41{os.getpid()}"
    for delay in (0, 0.002, 0.004, 0.006, 0.01):
        job = await shell.start(ShellCommand(argv=("sleep", marker)))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), delay)
        assert (await shell.stop(job)).exit_code is not None
        await until(lambda: not processes_about(marker))


async def test_a_cancelled_command_is_gone_when_the_call_ends(shell):
    marker = f"33{os.getpid()}"
    call = asyncio.ensure_future(run(shell, f"sleep {marker}"))
    await until(lambda: processes_with(marker))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not processes_with(marker)


async def test_nothing_outlives_its_command(shell):
    marker = f"34{os.getpid()}"
    result = await run(shell, f"(setsid sleep {marker} >/dev/null 2>&1 &) ; echo done")
    assert str(result.stdout) == "done\n"
    await until(lambda: not processes_with(marker))


async def test_a_process_that_holds_the_pipe_open_does_not_delay_the_result(shell):
    marker = f"35{os.getpid()}"
    begun = time.monotonic()
    await run(shell, f"sleep {marker} & echo started")
    assert time.monotonic() - begun < 30
    await until(lambda: not processes_with(marker))


async def test_long_output_is_its_beginning_and_its_end_and_a_file_has_all_of_it(shell):
    result = await run(shell, "seq 1 50000")
    assert result.stdout.head.startswith("1\n2\n")
    assert result.stdout.tail.endswith("49999\n50000\n")
    assert Path(result.stdout.spool_file).read_text() == "".join(f"{each}\n" for each in range(1, 50_001))
    kept = len(result.stdout.head) + len(result.stdout.tail)
    assert kept == 65_536
    assert result.stdout.omitted_bytes + kept == Path(result.stdout.spool_file).stat().st_size
    assert f"{result.stdout.omitted_bytes:,} bytes, {result.stdout.omitted_lines:,} lines omitted" in str(result.stdout)


async def test_a_command_can_read_the_spool_file_of_another(shell):
    spooled = (await run(shell, "seq 1 50000")).stdout.spool_file
    assert str((await run(shell, argv=("grep", "-c", "777", spooled))).stdout).strip() == "95"


async def test_spool_files_are_for_their_owner_alone_and_are_removed(tmp_path):
    async with LocalShell(tmp_path, sandbox="off") as shell:
        spooled = Path((await run(shell, "seq 1 50000")).stdout.spool_file)
        assert spooled.stat().st_mode & 0o777 == 0o600
        assert spooled.parent.stat().st_mode & 0o777 == 0o700
    assert not spooled.parent.exists()


async def test_a_command_that_writes_too_much_is_ended(tmp_path):
    limits = CommandLimits(spool_bytes=1_000_000, output_bytes=2_000)
    for sandbox in ("auto", "off"):
        async with LocalShell(tmp_path, sandbox=sandbox, limits=limits) as shell:
            result = await run(shell, "yes")
            assert result.ending == "output"
            assert Path(result.stdout.spool_file).stat().st_size <= 1_000_000


async def test_output_that_is_no_text_is_shown_as_far_as_it_can_be(shell):
    assert str((await run(shell, "printf 'a\\377b'")).stdout) == "a\ufffdb"


# -- in the background -------------------------------------------------------------------------------------------------


async def test_a_background_command_is_polled_until_it_ends(shell, tmp_path):
    job = await shell.start(ShellCommand(line="echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 4"))
    seen = ""
    async with asyncio.timeout(20):
        while not seen:
            seen = (await shell.poll(job, wait_seconds=0.02)).stdout
    (tmp_path / "go").touch()
    output = await shell.poll(job, wait_seconds=10)
    assert (seen, output.stdout) == ("one\n", "two\n")
    assert output.exit_code == 4
    assert (await shell.poll(job)).stdout == ""


async def test_a_background_command_is_stopped_with_all_that_it_started(shell):
    marker = f"36{os.getpid()}"
    job = await shell.start(ShellCommand(line=f"sleep {marker} & sleep {marker}"))
    await until(lambda: len(processes_with(marker)) >= 2)
    output = await asyncio.wait_for(shell.stop(job), 10)
    assert (output.ending, output.exit_code is None) == ("stopped", False)
    assert not processes_with(marker)
    assert (await shell.stop(job)).exit_code == output.exit_code


async def test_closing_ends_background_commands(tmp_path):
    marker = f"37{os.getpid()}"
    async with LocalShell(tmp_path) as shell:
        await shell.start(ShellCommand(line=f"sleep {marker}"))
        await until(lambda: processes_with(marker))
    assert not processes_with(marker)


async def test_long_output_of_a_background_command_is_returned_in_pieces(tmp_path):
    async with LocalShell(tmp_path, sandbox="off", limits=CommandLimits(output_bytes=100)) as shell:
        job = await shell.start(ShellCommand(line="echo begun; until [ -e go ]; do sleep 0.02; done; seq 1 1000"))
        first = ""
        async with asyncio.timeout(20):
            while not first:
                first = (await shell.poll(job, wait_seconds=0.02)).stdout
        (tmp_path / "go").touch()
        rest = await shell.poll(job, wait_seconds=10)
    assert first == "begun\n"
    assert "omitted" in rest.stdout
    assert rest.stdout.endswith("999\n1000\n")


async def test_an_unknown_job_is_an_error_that_names_the_known_ones(shell):
    job = await shell.start(ShellCommand(line="true"))
    with pytest.raises(ToolError, match=job):
        await shell.poll("job_x")


async def test_there_are_only_so_many_background_commands(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure._tools.shell.local.MOST_JOBS", 1)
    monkeypatch.setattr("perdure._tools.shell.local._KEPT_JOBS", 1)
    async with LocalShell(tmp_path, sandbox="off") as shell:
        job = await shell.start(ShellCommand(line="sleep 60"))
        with pytest.raises(ToolError, match="stop one first"):
            await shell.start(ShellCommand(line="true"))
        await shell.stop(job)
        await shell.stop(await shell.start(ShellCommand(line="true")))
        await shell.start(ShellCommand(line="true"))
        with pytest.raises(ToolError):
            await shell.poll(job)


# -- the end of this process -------------------------------------------------------------------------------------------

HOST = """
import asyncio, os, sys
from perdure.hosts import LocalShell
from perdure.hosts import ShellCommand
async def main():
    shell = LocalShell(sys.argv[1], sandbox=sys.argv[2])
    sleep = f"sleep {sys.argv[3]}"
    await shell.start(ShellCommand(line=f"{sleep} & setsid {sleep} & trap '' TERM; {sleep}"))
    await shell.start(ShellCommand(line=f"(setsid {sleep} &); {sleep}"))
    print("ready", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def start_host(*arguments):
    return subprocess.Popen([sys.executable, "-c", HOST, *arguments], stdout=subprocess.PIPE)


@pytest.mark.budget
@pytest.mark.parametrize("sandbox", [CONFINED, "off"])
async def test_a_host_that_is_killed_leaves_no_process_after_two_seconds(tmp_path, sandbox):
    marker = f"38{os.getpid()}"
    host = start_host(str(tmp_path), sandbox, marker)
    with host.stdout:
        assert host.stdout.readline() == b"ready\n"
        await until(lambda: len(processes_with(marker)) >= 5)
        host.send_signal(signal.SIGKILL)
        host.wait()
    begun = time.monotonic()
    await until(lambda: not processes_with(marker))
    assert time.monotonic() - begun < 2


DYING_HOST = """
import asyncio, os, signal, sys, threading
from perdure.hosts import LocalShell
from perdure.hosts import ShellCommand
async def main():
    shell = LocalShell(sys.argv[1], sandbox=sys.argv[2])
    delay = float(sys.argv[4])
    if delay:
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
    await shell.start(ShellCommand(argv=("sleep", sys.argv[3])))
    if not delay:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("delay", [0, 0.004, 0.008, 0.012, 0.02])
@pytest.mark.parametrize("sandbox", [CONFINED, "off"])
async def test_a_host_that_dies_while_a_command_starts_leaves_no_process(tmp_path, sandbox, delay):
    marker = f"40{os.getpid()}{int(delay * 1000):03}{len(sandbox)}"
    words = [sys.executable, "-c", DYING_HOST, str(tmp_path), sandbox, marker, str(delay)]
    host = await asyncio.create_subprocess_exec(*words)
    assert await asyncio.wait_for(host.wait(), 30) == -signal.SIGKILL
    await until(lambda: not processes_about(marker))


LEAVING_HOST = """
import asyncio, sys
from perdure.hosts import LocalShell
from perdure.hosts import ShellCommand
async def main():
    shell = LocalShell(sys.argv[1], sandbox=sys.argv[2])
    sleep = f"sleep {sys.argv[3]}"
    await shell.start(ShellCommand(line=f"{sleep} & setsid {sleep} & touch started; {sleep}"))
    while not __import__("os").path.exists(sys.argv[1] + "/started"):
        await asyncio.sleep(0.01)
asyncio.run(main())
print("left", flush=True)
sys.stdin.read()
"""


def start_leaving_host(*arguments):
    words = [sys.executable, "-c", LEAVING_HOST, *arguments]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize("sandbox", [CONFINED, "off"])
async def test_an_event_loop_that_is_closed_leaves_no_process_of_a_shell_that_was_not(tmp_path, sandbox):
    marker = f"39{os.getpid()}"
    host = start_leaving_host(str(tmp_path), sandbox, marker)
    with host.stdin, host.stdout:
        assert host.stdout.readline() == b"left\n"
        await until(lambda: not processes_with(marker))  # while the host still lives
        host.kill()
    host.wait()


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"root": "/"},
        {"root": "~"},
        {"root": "missing"},
        {"sandbox": "yes"},
        {"network": 1},
        {"env": {"A=": "b"}},
        {"env": {"A": 5}},
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options):
    given = {"root": tmp_path, **options}
    given["root"] = Path(given["root"]).expanduser()
    with pytest.raises(ConfigError):
        LocalShell(**given)


@pytest.mark.parametrize(
    "details", [{}, {"argv": ("a",), "line": "b"}, {"line": "a\0"}, {"line": "a", "timeout_seconds": 0}]
)
def test_a_command_that_makes_no_sense_is_refused(details):
    with pytest.raises(ConfigError):
        ShellCommand(**details)


def test_a_limit_is_a_whole_number_above_zero():
    with pytest.raises(ConfigError):
        CommandLimits(processes=0)


def test_a_machine_without_bubblewrap_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure._tools.shell.local.find_bubblewrap", lambda: ((), "bubblewrap is not installed"))
    assert LocalShell(tmp_path).confinement.reason == "bubblewrap is not installed"
    with pytest.raises(ConfigError, match="not installed"):
        LocalShell(tmp_path, sandbox="require")


def processes_with(marker):
    """Return the processes whose last word is the marker."""
    found = []
    for pid in list_descendants(1):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words[1:2]:
            found.append(pid)
    return found


def processes_about(marker):
    """Return the processes with the marker anywhere in their command lines: those that set up the sandbox too."""
    found = []
    for pid in list_descendants(1):
        with contextlib.suppress(OSError):
            found += [pid] if marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() else []
    return [each for each in found if each != os.getpid()]


async def until(condition):
    """Wait until something is true, for a while."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - processes of others tell nobody that they end
            await asyncio.sleep(0.02)


def test_a_command_is_limited_by_prlimit_or_else_by_a_shell(monkeypatch):
    limits = CommandLimits(cpu_seconds=1, memory_bytes=2, file_bytes=3, open_files=4, processes=5)
    monkeypatch.setattr(local, "find_system_program", lambda name: f"/usr/bin/{name}")
    words = ["/usr/bin/prlimit", "--cpu=1", "--data=2", "--fsize=3", "--nofile=4", "--core=0"]
    assert local._limit_prefix(limits, is_confined=True) == [*words, "--nproc=5", "--"]
    assert local._limit_prefix(limits, is_confined=False) == [*words, "--"]
    monkeypatch.setattr(local, "find_system_program", lambda _: None)
    script = 'ulimit -t 1; ulimit -n 4; ulimit -c 0; exec "$@"'
    assert local._limit_prefix(limits, is_confined=True) == ["/bin/sh", "-c", script, "sh"]
    line = ShellCommand(line="ls *")
    assert local._build_argv(line) == ("/bin/bash", "--noprofile", "--norc", "-c", "ls *")


def test_a_system_without_the_shell_of_unix_is_told_what_to_do(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(os, "name", "nt")
        with pytest.raises(ConfigError) as raised:
            LocalShell(tmp_path)
    text = "LocalShell runs commands on Linux and macOS: give shell_tools a ShellBackend of your own"
    assert str(raised.value) == text


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
async def test_a_command_leaves_nothing_open(shell):
    def list_open_files():
        gc.collect()  # what an earlier test has left is closed now, and not in between
        return {each.name for each in Path("/proc/self/fd").iterdir()}

    await run(shell, "true")
    before = list_open_files()
    for details in ({}, {"stdin": "given"}):
        await run(shell, "cat; exit 3", **details)
        await until(lambda: list_open_files() <= before)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(("sandbox", "hidden"), [pytest.param("require", [".env"], marks=CONFINED.marks), ("off", [])])
async def test_secrets_are_hidden_by_a_sandbox_alone(tmp_path, sandbox, hidden):
    (tmp_path / ".env").write_text("KEY=x")
    async with LocalShell(tmp_path, sandbox=sandbox) as shell:
        assert [*shell.list_hidden_paths()] == [str(tmp_path / name) for name in hidden]
        await run(shell, "true")
        (spool,) = shell.confinement.readable
        assert Path(spool).is_dir()
    assert not Path(spool).is_dir()
    assert shell.confinement.readable == ()


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_a_command_that_locks_the_working_folder_does_not_stop_the_next_one(tmp_path, sandbox):
    async with LocalShell(tmp_path, sandbox=sandbox) as shell:
        assert (await run(shell, "echo x > kept; chmod 0 .")).exit_code == 0
        assert str((await run(shell, "cat kept")).stdout) == "x\n"
        job = await shell.start(ShellCommand(line="chmod 0 .; echo locked; sleep 60"))
        async with asyncio.timeout(20):
            while "locked" not in (await shell.poll(job, wait_seconds=0.05)).stdout:
                pass
        assert str((await run(shell, "cat kept")).stdout) == "x\n"
        await shell.stop(job)
        assert os.access(tmp_path, os.R_OK | os.W_OK | os.X_OK)


async def test_a_locked_folder_below_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()

    def refuse(*_words, **_options):
        raise PermissionError(13, "Permission denied", str(tmp_path / "sub"))

    async with LocalShell(tmp_path, sandbox="off") as shell:
        monkeypatch.setattr(subprocess, "Popen", refuse)
        with pytest.raises(ToolError, match="'sub': Permission denied; see whether an earlier command"):
            await run(shell, "ls", folder="sub")
