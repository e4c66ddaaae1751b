"""A running command: what it returns, how it ends, and that nothing of it stays open."""

import asyncio
import gc
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import ConfigError
from perdure._tools.shell import command as running_command
from perdure._tools.shell.command import RunningCommand, SpoolLimits
from perdure.hosts import ShellCommand
from tests.doubles import until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs supervised programs")


@pytest.fixture
async def start(tmp_path: Path) -> Any:
    started: list[RunningCommand] = []

    def start_command(script: str, *, timeout: float = 20.0, keep: int = 1_000, spool: int = 2_000, **more: Any) -> Any:
        command = ShellCommand(line=script, timeout_seconds=timeout, **more)
        kept = SpoolLimits(keep, str(tmp_path / "spool"), spool)
        words = ["/bin/sh", "-c", script]
        env = {"PATH": "/usr/bin:/bin", "FIRST": "a=b"}
        started.append(RunningCommand.start_supervised(words, command, str(tmp_path), env, kept=kept))
        return started[-1]

    yield start_command
    for each in started:
        await each.end("stopped")


async def finish(command: RunningCommand) -> tuple[int, str, str, str]:
    """Wait for the end; return the exit code, both streams and how it ended."""
    async with asyncio.timeout(20):
        result = await command.wait()
    assert 0 < result.seconds < 20
    return result.exit_code, str(result.stdout), str(result.stderr), result.ending


async def test_a_command_returns_its_streams_and_its_exit_code(start):
    command = start('cat; echo " $FIRST"; echo problem >&2; exit 3', stdin="given \ud800")
    assert not command.has_ended
    assert await finish(command) == (3, "given \ufffd\ufffd\ufffd a=b\n", "problem\n", "exit")
    assert command.has_ended
    assert await finish(start("kill -TERM $$")) == (143, "", "", "exit")


async def test_new_output_is_taken_once(start):
    command = start("echo one; read x; echo two")
    taken = []
    async with asyncio.timeout(20):
        while not command.has_ended:
            taken.append(command.take_output())
            await command.wait_for_end(0.01)
    taken.append(command.take_output())
    assert "".join([str(each.stdout) for each in taken]) == "one\ntwo\n"
    assert [each.exit_code for each in taken[:-1]] == [None] * (len(taken) - 1)
    assert (taken[-1].exit_code, taken[-1].ending) == (0, "exit")
    again = command.take_output()
    assert (str(again.stdout), str(again.stderr), again.exit_code) == ("", "", 0)


async def test_a_command_is_ended_when_its_time_is_over(start):
    assert await finish(start("exec sleep 60", timeout=0.05)) == (137, "", "", "timeout")


async def test_an_end_that_is_cancelled_waits_until_all_is_gone(start):
    command = start("echo ready; exec sleep 60")
    ending = asyncio.ensure_future(command.end("stopped"))
    await asyncio.sleep(0)
    for _ in range(2):
        ending.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert command.has_ended
    assert (await finish(command))[3] == "stopped"


async def test_the_first_reason_to_end_a_command_is_the_one_that_is_told(start):
    command = start("exec sleep 60")
    await asyncio.gather(command.end("stopped"), command.end("timeout"))
    assert (await finish(command))[3] == "stopped"
    await command.end("timeout")  # has no effect
    assert (await finish(command))[3] == "stopped"


async def test_a_wait_for_the_end_is_no_longer_than_it_says(start):
    command = start("exec sleep 60")
    await command.wait_for_end(0)
    await command.wait_for_end(-1)
    await command.wait_for_end(0.01)
    assert not command.has_ended


async def test_a_command_that_writes_too_much_is_ended(start):
    code, out, _, ending = await finish(start("while true; do echo xxxxxxxxxxxxxxx; done", keep=100, spool=1_600))
    assert (code in {137, 141}, ending) == (True, "output")  # by SIGKILL, or before by SIGPIPE
    assert out.startswith("xxx")


async def test_output_that_was_not_read_when_a_command_ended_is_waited_for(start, monkeypatch):
    async def wait_without_reading(process: Any) -> None:
        process.wait(20)

    monkeypatch.setattr(running_command, "wait_for_exit", wait_without_reading)
    assert await finish(start("echo said; echo told >&2; exit 3")) == (3, "said\n", "told\n", "exit")


def list_open_files() -> set[str]:
    gc.collect()  # what an earlier test has left is closed now, and not in between
    return {each.name for each in Path("/proc/self/fd").iterdir()}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
@pytest.mark.parametrize("script", ["echo out; exit 3", "exec >&- 2>&-; exit 0", "setsid sleep 60 & exit 0"])
async def test_nothing_stays_open_when_a_command_has_ended(start, script):
    await finish(start("true"))
    before = list_open_files()
    command = start(script)
    assert list_open_files() > before
    await finish(command)
    await until(lambda: list_open_files() <= before)
    await until(lambda: len(asyncio.all_tasks()) == 1)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
async def test_a_command_that_cannot_be_started_leaves_nothing_open(tmp_path):
    before = list_open_files()
    kept = SpoolLimits(10, str(tmp_path / "spool"), 20)
    with pytest.raises(FileNotFoundError):
        RunningCommand.start_supervised(["true"], ShellCommand(line="true"), str(tmp_path / "none"), {}, kept=kept)
    with pytest.raises(FileNotFoundError):
        running_command._spawn_announced(["/none/at/all"], "", str(tmp_path), {})
    assert list_open_files() <= before


async def test_a_process_without_pipes_is_refused(tmp_path):
    process: Any = SimpleNamespace(stdout=None, stderr=None)
    with pytest.raises(ConfigError, match=r"^the process was started without pipes for its output$"):
        RunningCommand(process, 1, SpoolLimits(10, str(tmp_path / "spool"), 20))
