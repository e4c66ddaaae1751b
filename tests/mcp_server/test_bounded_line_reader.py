"""Lines of standard input: whole, too long, and after the end."""

import io

from perdure.mcp_server.bounded_line_reader import BoundedLineReader


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
