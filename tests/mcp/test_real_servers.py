"""Servers that nobody here wrote, of both generations of the protocol: list, call, cancel, crash, reconnect."""

# ruff: noqa: ASYNC220, ASYNC221 - what is started here takes no time
import asyncio
import os
import signal
import socket
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import EffectNotStarted
from perdure._io.processes.tree import list_descendants
from perdure.mcp import FateUnknown, McpServer, McpServers
from scripts.mcp_servers import node_program, python_program
from tests.mcp.servers import wait_until

pytestmark = pytest.mark.packages("mcp")
of_npm = pytest.mark.needs("mcp_servers_of_npm")
of_pypi = pytest.mark.needs("mcp_servers_of_pypi")
LONG_CALL = ("trigger-long-running-operation", {"duration": 60, "steps": 600})


def everything(**settings):
    command = str(node_program("mcp-server-everything"))
    return McpServer(name="every", command=command, start_timeout_seconds=60, **settings)


def text_of(result):
    return "\n".join(each.text for each in result.content)


async def connect_and_list(*servers):
    opened = McpServers(*servers)
    await opened.__aenter__()
    assert opened.problems == {}
    return opened


def find_server_process(program):
    """The process of a server that this test has started."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in list_descendants(os.getpid())}
    (pid,) = [pid for pid, words in commands.items() if program.encode() in words and b"supervisor.py" not in words]
    return pid


async def cancel_crash_and_reconnect(client, crash, restart=None):
    """Cancel a call, crash the server during another, and go on."""
    progress = []
    cancelled = asyncio.ensure_future(client.call_tool(*LONG_CALL, on_progress=lambda *each: progress.append(each)))
    await wait_until(lambda: progress)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert text_of(await client.call_tool("echo", {"message": "still there"})) == "Echo: still there"
    seen = len(progress)
    lost = asyncio.ensure_future(client.call_tool(*LONG_CALL, on_progress=lambda *each: progress.append(each)))
    await wait_until(lambda: len(progress) > seen)
    await crash()
    with pytest.raises(FateUnknown):
        await lost
    if restart is not None:
        with pytest.raises(EffectNotStarted):
            await client.call_tool("echo", {"message": "x"})
        await restart()
    assert text_of(await client.call_tool("echo", {"message": "back"}, is_read=True)) == "Echo: back"


async def cancel_crash_and_call_again(client, program, tool, arguments):
    """Cancel a call that was sent, crash the server, and call once more; return the text of the last result."""
    connection = await client._connect()
    cancelled = asyncio.ensure_future(client.call_tool(tool, arguments, is_read=True))
    await wait_until(lambda: connection.is_busy or cancelled.done())
    cancelled.cancel()
    await asyncio.wait([cancelled])
    before = text_of(await client.call_tool(tool, arguments, is_read=True))
    assert before
    os.kill(find_server_process(program), signal.SIGKILL)
    return text_of(await client.call_tool(tool, arguments, is_read=True))


@of_npm
async def test_everything_over_pipes():
    servers = await connect_and_list(everything())
    try:
        names = [each.name for each in servers.list_ready_tools()]
        assert {"every__echo", "every__get-sum", "every__trigger-long-running-operation"} <= set(names)
        client = servers.pool.get_client("every")
        assert "5" in text_of(await client.call_tool("get-sum", {"a": 2, "b": 3}))
        structured = await client.call_tool("get-structured-content", {"location": "New York"})
        assert "temperature" in structured.structured_content
        assert (await client.call_tool("get-tiny-image", {})).content[1].type == "image"
        resources = await client.list_resources()
        assert (await client.read_resource(str(resources[0].uri))).contents
        assert "simple-prompt" in [each.name for each in await client.list_prompts()]
        assert (await client.get_prompt("simple-prompt")).messages

        async def crash():
            os.kill(find_server_process("mcp-server-everything"), signal.SIGKILL)

        await cancel_crash_and_reconnect(client, crash)
    finally:
        await servers.__aexit__()


async def is_listening(port):
    """Whether connections to a port of loopback are accepted."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@asynccontextmanager
async def served(kind):
    """Serve `everything` on a port of loopback; yield its settings, and functions that crash and restart it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []

    async def start():
        command = ["node", str(node_program("mcp-server-everything")), kind]
        null = subprocess.DEVNULL
        env = {**os.environ, "PORT": str(port)}
        running.append(subprocess.Popen(command, env=env, stdin=null, stdout=null, stderr=null))
        async with asyncio.timeout(60):
            while not await is_listening(port):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)

    async def crash():
        running[-1].kill()
        running[-1].wait()

    await start()
    url = f"http://127.0.0.1:{port}"
    old, new = {"transport": "sse", "url": f"{url}/sse"}, {"transport": "http", "url": f"{url}/mcp"}
    settings: Any = old if kind == "sse" else new
    try:
        yield McpServer(name="every", **settings), crash, start
    finally:
        await crash()


@of_npm
@pytest.mark.parametrize("kind", ["streamableHttp", "sse"])
async def test_everything_over_http(kind):
    async with served(kind) as (server, crash, start):
        servers = await connect_and_list(server)
        try:
            assert "every__echo" in [each.name for each in servers.list_ready_tools()]
            await cancel_crash_and_reconnect(servers.pool.get_client("every"), crash, start)
        finally:
            await servers.__aexit__()


@of_npm
async def test_filesystem(tmp_path):
    (tmp_path / "a.txt").write_text("content", "utf-8")
    command = str(node_program("mcp-server-filesystem"))
    server = McpServer(name="files", command=command, args=(str(tmp_path),), start_timeout_seconds=60)
    servers = await connect_and_list(server)
    try:
        client = servers.pool.get_client("files")
        assert text_of(await client.call_tool("read_text_file", {"path": str(tmp_path / "a.txt")})) == "content"
        outside = await client.call_tool("read_text_file", {"path": "/etc/passwd"})
        assert outside.is_error
        arguments = {"path": str(tmp_path / "a.txt")}
        again = await cancel_crash_and_call_again(client, "mcp-server-filesystem", "read_text_file", arguments)
        assert again == "content"
    finally:
        await servers.__aexit__()


@of_pypi
async def test_git_time_and_fetch_speak_the_stateless_protocol(tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)

    def server(name, *args):
        command = str(python_program(f"mcp-server-{name}"))
        return McpServer(name=name, command=command, args=args, start_timeout_seconds=60, trust_hints=True)

    servers = await connect_and_list(server("git", "--repository", str(tmp_path)), server("time"), server("fetch"))
    try:
        offered = {each.name: each for each in servers.list_ready_tools()}
        assert {"git__git_log", "time__get_current_time", "fetch__fetch"} <= offered.keys()
        assert offered["git__git_log"].effect == "read"
        assert offered["git__git_commit"].effect == "at_most_once"
        clock = servers.pool.get_client("time")
        for name, tool, arguments, expected in (
            ("git", "git_log", {"repo_path": str(tmp_path)}, "first"),
            ("time", "get_current_time", {"timezone": "UTC"}, "UTC"),
            ("fetch", "fetch", {"url": "http://127.0.0.1:1/"}, "Refused to fetch"),
        ):
            client = servers.pool.get_client(name)
            assert expected in await cancel_crash_and_call_again(client, f"mcp-server-{name}", tool, arguments), name
        connection = await clock._connect()
        assert (await connection.wait_until_ready()).protocol_version == "2026-07-28"
    finally:
        await servers.__aexit__()
