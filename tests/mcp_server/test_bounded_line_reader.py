"""Lines of standard input: whole, too long, and after the end."""

import asyncio
import gc
import io
import os
import threading

import pytest

from perdure._mcp.server import stdio
from perdure._mcp.server.stdio import BoundedLineReader, reserve_standard_input
from tests.mcp.servers import count_descriptors


async def read_all(data: bytes, max_bytes: int = 16) -> list[str]:
    return [line async for line in BoundedLineReader(io.BytesIO(data), max_bytes)]


async def test_each_line_is_text():
    assert await read_all("one\nzwö\nlast".encode()) == ["one\n", "zwö\n", "last"]
    assert await read_all(b"\xff\n") == ["�\n"]
    assert await read_all(b"") == []


async def test_a_line_that_is_too_long_is_not_kept_and_the_next_is_read():
    lines = await read_all(b"x" * 200_000 + b"\nnext\n")
    assert lines == ['"the message is too long"\n', "next\n"]
    assert await read_all(b"x" * 15 + b"\n") == ["x" * 15 + "\n"]


async def test_more_lines_than_fit_are_read_when_there_is_room():
    assert len(await read_all(b"x\n" * 1_000)) == 1_000


@pytest.mark.parametrize(
    ("line", "is_kept"), [(b"x" * 16, True), (b"x" * 16 + b"\n", True), (b"x" * 17, False), (b"x" * 17 + b"\n", False)]
)
async def test_a_line_of_the_limit_is_read_with_or_without_its_end(line, is_kept):
    assert await read_all(line) == [line.decode() if is_kept else '"the message is too long"\n']


async def test_a_line_that_is_much_too_long_is_left_out_up_to_its_end():
    data = b"x" * (17 + 65_536) + b"\n" + b"y" * (17 + 2 * 65_536 + 5) + b"\nnext"
    assert await read_all(data) == ['"the message is too long"\n'] * 2 + ["next"]


async def test_a_file_that_is_closed_has_ended():
    file = io.BytesIO(b"one\n")
    file.close()
    assert [line async for line in BoundedLineReader(file, 16)] == []


def test_standard_input_is_empty_for_others_and_is_restored():
    reading, writing = os.pipe()
    original = os.dup(0)
    os.dup2(reading, 0)
    try:
        file, standard_input = reserve_standard_input()
        os.write(writing, b"for the server\nfor others\n")
        os.close(writing)
        assert os.read(0, 100) == b""
        assert file.readline() == b"for the server\n"
        standard_input.restore()
        assert os.path.sameopenfile(0, file.fileno())
        assert file.readline() == b"for others\n"
        os.close(file.fileno())
    finally:
        os.dup2(original, 0)
        os.close(original)
        os.close(reading)


class CountingFile(io.BytesIO):
    """A file that notes how many lines were read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.lines = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        self.lines += 1
        return super().readline(size)


async def test_no_more_lines_are_read_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_MAX_WAITING", 3)
    file = CountingFile(b"x\n" * 100)
    taken = 0
    async for line in BoundedLineReader(file, 16):
        taken += 1
        assert line == "x\n"
        assert file.lines <= taken + 3 + 1  # those that wait, and the one that is in the hand
    assert taken == 100


async def test_the_thread_does_not_keep_the_process_from_ending() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        before = set(threading.enumerate())
        reader = BoundedLineReader(file, 16)
        (thread,) = set(threading.enumerate()) - before
        assert (thread.name, thread.daemon) == ("perdure-mcp-stdin", True)
        os.close(writing)
        assert [line async for line in reader] == []
        await asyncio.to_thread(thread.join, 30)


def test_standard_input_is_reserved_without_leaving_a_file_open() -> None:
    original = os.dup(0)
    try:
        gc.collect()  # what an earlier test has left is closed now, and not in between
        before = count_descriptors()
        file, standard_input = reserve_standard_input()
        assert count_descriptors() == before + 1
        standard_input.restore()
        os.close(file.fileno())
    finally:
        os.dup2(original, 0)
        os.close(original)
