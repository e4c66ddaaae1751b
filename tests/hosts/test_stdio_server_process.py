"""A server program over its standard streams: lines, errors, and an end of everything that it started."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import ConfigError
from perdure._io.processes import stdio_server
from perdure._io.processes.stdio_server import StdioServerProcess
from tests.doubles import until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs supervised programs")


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Any]]:
    started: list[StdioServerProcess] = []

    async def start_shell(script: str, *, folder: str = "", most: int = 1_000, **env: str) -> StdioServerProcess:
        env = {"PATH": "/usr/bin:/bin", **env}
        process = await StdioServerProcess.start(["/bin/sh", "-c", script], folder=folder, env=env, max_line_bytes=most)
        started.append(process)
        return process

    yield start_shell
    for each in started:
        await each.close()


async def read_all(process: StdioServerProcess) -> list[bytes]:
    """Read lines up to the end."""
    lines: list[bytes] = []
    async with asyncio.timeout(20):
        while line := await process.read_line():
            lines.append(line)
    return lines


async def test_lines_are_read_up_to_the_end_and_the_last_may_be_incomplete(start, tmp_path):
    process = await start('pwd; echo "$FIRST"; printf end', folder=str(tmp_path), FIRST="a=b")
    assert await read_all(process) == [f"{tmp_path}\n".encode(), b"a=b\n", b"end"]
    assert await process.read_line() == b""


async def test_lines_are_written_to_the_program_until_it_is_closed(start):
    process = await start('read x; echo "got $x"; read y; echo "and $y"; cat >/dev/null')
    await process.write(b"one\ntwo\n")
    async with asyncio.timeout(20):
        assert [await process.read_line(), await process.read_line()] == [b"got one\n", b"and two\n"]
        await process.close()
    with pytest.raises(BrokenPipeError, match=r"^the program has ended$"):
        await process.write(b"three\n")
    await process.close()  # has no effect


async def test_a_line_that_is_too_long_is_an_error(start):
    process = await start("printf %2000s x; echo")
    with pytest.raises(ValueError, match="limit"):
        async with asyncio.timeout(20):
            await process.read_line()


async def test_the_end_of_what_a_program_writes_as_errors_is_kept(start, monkeypatch):
    monkeypatch.setattr(stdio_server, "MOST_ERROR_BYTES", 20)
    process = await start("echo 'first line of errors' >&2; echo ' the last line ' >&2; echo done; cat >/dev/null")
    assert await process.read_line() == b"done\n"
    await until(lambda: "the last line" in process.error_text)
    assert process.error_text == "ors\n the last line"


async def test_a_program_that_ends_with_its_input_is_not_sent_a_signal(start, tmp_path):
    process = await start("trap 'echo asked >> noted' TERM; cat; echo tidied >> noted", folder=str(tmp_path))
    async with asyncio.timeout(20):
        await process.close()
    assert (tmp_path / "noted").read_text() == "tidied\n"


async def test_a_program_that_goes_on_is_ended_with_all_that_it_started(start, monkeypatch):
    monkeypatch.setattr(stdio_server, "EXIT_SECONDS", 0.01)
    process = await start("setsid sleep 60 & echo $!; exec sleep 60")
    async with asyncio.timeout(20):
        child = int(await process.read_line())
        await process.close()
    for pid in (child, process.pid):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_the_output_of_a_program_that_ends_is_taken_so_that_it_can_end(start, tmp_path):
    process = await start("cat >/dev/null; head -c 1000000 /dev/zero; echo over > noted", folder=str(tmp_path))
    async with asyncio.timeout(20):
        await process.close()
    assert (tmp_path / "noted").read_text() == "over\n"


async def test_a_close_that_is_cancelled_ends_the_program_nevertheless(start, tmp_path):
    process = await start("cat; echo over > noted", folder=str(tmp_path))
    closing = asyncio.ensure_future(process.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (tmp_path / "noted").read_text() == "over\n"


async def test_a_start_that_is_cancelled_leaves_no_program(monkeypatch):
    started: list[StdioServerProcess] = []
    begin = stdio_server._start

    async def note_start(*args: Any) -> StdioServerProcess:
        starting.cancel()
        process = await begin(*args)
        started.append(process)
        return process

    monkeypatch.setattr(stdio_server, "_start", note_start)
    starting = asyncio.ensure_future(
        StdioServerProcess.start(["/bin/sh", "-c", "cat"], folder="", env={}, max_line_bytes=100)
    )
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


def list_open_files() -> set[str]:
    gc.collect()  # what an earlier test has left is closed now, and not in between
    return {each.name for each in Path("/proc/self/fd").iterdir()}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
async def test_a_program_in_a_folder_that_does_not_exist_leaves_nothing_open(tmp_path):
    before = list_open_files()
    with pytest.raises(FileNotFoundError):
        await StdioServerProcess.start(["cat"], folder=str(tmp_path / "none"), env={}, max_line_bytes=100)
    assert list_open_files() <= before


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
async def test_a_program_that_was_closed_leaves_nothing_open_though_another_process_has_its_pipes(start):
    before = list_open_files()
    process = await start("setsid sleep 60 & echo $!; cat")
    async with asyncio.timeout(20):
        outside = int(await process.read_line())
        assert os.getsid(process.pid) == process.pid
        os.kill(process.pid, signal.SIGKILL)  # so that it cannot end what the program has started
        await process.close()
    try:
        assert process._process._transport.is_closing()
        await until(lambda: list_open_files() <= before)
        await until(lambda: len(asyncio.all_tasks()) == 1)
    finally:
        os.kill(outside, signal.SIGKILL)


async def test_a_system_without_supervised_programs_says_how_to_reach_a_server(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(os, "name", "nt")
        with pytest.raises(ConfigError) as raised:
            await StdioServerProcess.start(["cat"], folder="", env={}, max_line_bytes=100)
    assert str(raised.value) == "server programs are started on Linux and macOS only: reach the server by its URL"
