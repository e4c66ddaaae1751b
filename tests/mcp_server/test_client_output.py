"""What an MCP server writes to its client on stdio: whole messages, and nothing more once the client is gone."""

import contextlib
import os
import sys
from collections.abc import Generator

from perdure._mcp.server.stdio import ClientOutput


@contextlib.contextmanager
def piped_output() -> Generator[int]:
    """Put a pipe in the place of standard output for a while; gives its other end."""
    sys.stdout.flush()
    kept, (read, write) = os.dup(1), os.pipe()
    os.dup2(write, 1)
    os.close(write)
    try:
        yield read
    finally:
        os.dup2(kept, 1)
        os.close(kept)


async def test_messages_arrive_and_what_tools_print_does_not():
    with piped_output() as pipe:
        output = ClientOutput(on_gone=lambda: None)
        written = await output.write("öne\n")
        os.write(1, b"printed\n")
        await output.flush()
        output.restore()
        os.write(1, b"two\n")
        shown = os.read(pipe, 100).decode()
    assert (written, shown) == (4, "öne\ntwo\n")
    os.close(pipe)
    os.close(output._private)


async def test_a_client_that_is_gone_is_noticed_once():
    gone: list[bool] = []
    with piped_output() as pipe:
        output = ClientOutput(on_gone=lambda: gone.append(True))
        os.close(pipe)
        for _ in range(3):
            await output.write("x" * 100_000)
        output.restore()
    os.close(output._private)
    assert gone == [True]
