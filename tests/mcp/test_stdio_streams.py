"""Lines from and to the program of a server, as messages of the SDK."""

import json

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from perdure._mcp.client import transports
from perdure._mcp.client.listing import FloodMeter
from perdure._mcp.client.transports import LineReadStream, LineWriteStream, open_stdio_streams

pytestmark = pytest.mark.packages("mcp")
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
LINE = json.dumps(PING).encode() + b"\n"


class Process:
    """The program of a server: writes these lines, then ends; an error is raised in its place."""

    error_text = ""

    def __init__(self, *lines, write_error=None):
        self._lines = list(lines)
        self._write_error = write_error
        self.reads = 0
        self.written = []
        self.is_closed = False

    async def read_line(self):
        self.reads += 1
        line = self._lines.pop(0) if self._lines else b""
        if isinstance(line, Exception):
            raise line
        return line

    async def write(self, data):
        if self._write_error is not None:
            raise self._write_error
        self.written.append(data)

    async def close(self):
        self.is_closed = True


def read_from(process, most=1_000):
    """A stream from a process, and the list of what was told: the reasons of its end, and floods."""
    told: list[str] = []
    return LineReadStream(process, FloodMeter(told.append, most=most, monotonic=lambda: 1.0), told.append, "s"), told


def as_dict(message):
    return message.message.model_dump(by_alias=True, exclude_unset=True, mode="json")


async def test_each_line_is_a_message_until_the_program_ends():
    process = Process(LINE, b" \n", LINE)
    stream, told = read_from(process)
    async with stream as entered:
        assert entered is stream
        assert [as_dict(each) async for each in stream] == [PING, PING]
    assert told == ["its process has ended"]
    assert process.reads == 4


async def test_a_stream_that_has_ended_reads_no_more_and_tells_its_end_once():
    process = Process()
    stream, told = read_from(process)
    for _ in range(2):
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
    assert (told, process.reads) == (["its process has ended"], 1)


@pytest.mark.parametrize("by_block", [True, False])
async def test_a_closed_stream_reads_nothing_and_tells_nothing(by_block):
    process = Process(LINE)
    stream, told = read_from(process)
    if by_block:
        async with stream:
            pass
    else:
        await stream.aclose()
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    assert (told, process.reads) == ([], 0)


async def test_a_message_that_is_too_long_ends_the_stream():
    process = Process(ValueError("too long"), LINE)
    stream, told = read_from(process)
    for _ in range(2):
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
    assert (told, process.reads) == (["it sent a message that is too long"], 1)


async def test_every_line_counts_as_a_message_of_a_flood():
    stream, told = read_from(Process(b"\n", b"garbage\n", LINE), most=2)
    assert as_dict(await stream.receive()) == PING
    assert told == ["it sent more than 2 messages within 5 seconds"]


async def test_lines_that_are_no_messages_are_passed_over_until_they_are_too_many(monkeypatch, caplog):
    monkeypatch.setattr(transports, "MAX_GARBAGE_LINES", 2)
    nested = b"[" * 100_000 + b"\\ud83d\n"
    process = Process(b"garbage\n", LINE, nested, LINE, b"\xff\n", LINE)
    stream, told = read_from(process)
    assert [as_dict(each) async for each in stream] == [PING, PING]
    assert told == ["it writes to its standard output what is no message"]
    assert process.reads == 5
    assert caplog.messages == ["MCP server 's' wrote to its standard output a line that is no message"]


@pytest.mark.parametrize("escape", [rb"\ud83d", rb"\uD83D"])
async def test_half_of_a_character_is_replaced(escape):
    line = b'{"jsonrpc": "2.0", "id": 1, "result": {"text": "\xc3\xa4 ' + escape + b'"}}\n'
    stream, told = read_from(Process(line))
    assert as_dict(await stream.receive()) == {"jsonrpc": "2.0", "id": 1, "result": {"text": "ä ?"}}
    assert told == []


def message(**fields):
    return SessionMessage(jsonrpc_message_adapter.validate_python({**PING, **fields}, by_name=False))


async def test_a_message_is_written_as_one_line():
    process = Process()
    async with LineWriteStream(process) as stream:
        await stream.send(message(params={"text": "a\nä"}))
    (line,) = process.written
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {**PING, "params": {"text": "a\nä"}}


@pytest.mark.parametrize("by_block", [True, False])
async def test_a_closed_stream_writes_nothing(by_block):
    process = Process()
    stream = LineWriteStream(process)
    if by_block:
        async with stream:
            pass
    else:
        await stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.send(message())
    assert process.written == []


async def test_a_program_that_has_ended_breaks_the_stream():
    stream = LineWriteStream(Process(write_error=ConnectionResetError()))
    with pytest.raises(anyio.BrokenResourceError):
        await stream.send(message())


async def test_the_program_is_closed_with_the_streams_also_after_an_error():
    process = Process(LINE)
    told: list[str] = []

    async def start():
        return process

    async def use():
        async with open_stdio_streams(start, told.append, FloodMeter(told.append), "s") as (incoming, outgoing):
            assert as_dict(await incoming.receive()) == PING
            await outgoing.send(message())
            assert not process.is_closed
            raise RuntimeError("of the block")

    with pytest.raises(RuntimeError, match="of the block"):
        await use()
    assert process.is_closed
    assert [json.loads(each) for each in process.written] == [PING]
