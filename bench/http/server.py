"""A provider to be measured against: streams chat completions from memory, and costs its clients nothing to think.

    python -m bench.http.server      prints its port, and serves until its input ends

The name of the model says what it does: `turns-50` asks for the tool `add` fifty times after a prompt, and then says
"done"; `talk-1000` says a thousand words, each in a piece of its own; `trickle-20` says twenty, with pauses.
"""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping

WORD = "word "
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"
PAUSE_SECONDS = 0.2
"""Time between two words of a trickle."""
_BURST = 20
"""Pieces after which others get their turn."""


def event(choices: list[object], **more: object) -> bytes:
    """One event of a stream, as one chunk of HTTP."""
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": choices}
    data = b"data: " + json.dumps({**body, **more}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def delta(content: Mapping[str, object], finish: str | None = None) -> bytes:
    """One event with something of the first choice."""
    return event([{"index": 0, "delta": content, "finish_reason": finish}])


def ending(reason: str, output: int) -> bytes:
    """How each answer ends."""
    usage = {"prompt_tokens": 100, "completion_tokens": output, "total_tokens": 100 + output}
    done = b"data: [DONE]\n\n"
    return delta({}, reason) + event([], usage=usage) + b"%x\r\n%s\r\n" % (len(done), done) + _END


TALKED = delta({"content": WORD})


def call(turn: int) -> list[bytes]:
    """The pieces of an answer that asks for the tool."""
    named = {"index": 0, "id": f"call_{turn}", "type": "function", "function": {"name": "add", "arguments": ""}}
    arguments = [{"index": 0, "function": {"arguments": part}} for part in ('{"n"', ": ", f"{turn}}}")]
    pieces = [delta({"role": "assistant", "content": None, "tool_calls": [named]})]
    pieces += [delta({"tool_calls": [part]}) for part in arguments]
    return [*pieces, ending("tool_calls", 10)]


def answer(body: bytes) -> Iterator[bytes]:
    """What a request is answered with, in pieces."""
    request = json.loads(body)
    kind, _, number = request["model"].rpartition("-")
    if kind in {"talk", "trickle"}:
        yield delta({"role": "assistant", "content": ""})
        for _ in range(int(number)):
            yield TALKED
        yield ending("stop", int(number))
        return
    roles = [message["role"] for message in request["messages"]]
    last_prompt = len(roles) - roles[::-1].index("user")
    if roles[last_prompt:].count("tool") < int(number):
        yield from call(roles.count("tool"))
    else:
        yield delta({"role": "assistant", "content": "done"})
        yield ending("stop", 1)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, one after the other."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n", 1)[0])
            body = await reader.readexactly(length)
            writer.write(_HEAD)
            slow = b'"trickle-' in body
            for place, piece in enumerate(answer(body)):
                writer.write(piece)
                if slow:
                    await writer.drain()
                    await asyncio.sleep(PAUSE_SECONDS)
                if not place % _BURST:
                    await writer.drain()
                    await asyncio.sleep(0)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Serve until the input ends: whoever started it is gone then."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
