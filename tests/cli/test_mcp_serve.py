"""`perdure mcp serve`: as a process, over stdio and HTTP, with the official SDK's client."""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client, StdioServerParameters

from perdure import ConfigError
from perdure._cli.services.mcp_serve import _find_tokens, read_tokens
from perdure._cli.terminal.output import TerminalOutput
from perdure._cli.terminal.signals import SignalHandler
from tests.doubles import until
from tests.mcp_server.served_tools import WAIT_SECONDS, connected

ROOT = Path(__file__).parents[2]


def environment(tmp_path):
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "PERDURE_HOME": str(tmp_path / "home"), "PERDURE_MODEL": "demo", "HOME": str(tmp_path)}


async def test_a_client_starts_it_and_calls_the_tools_and_the_agent(tmp_path):
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "perdure", "mcp", "serve", "--offer", "both"],
        cwd=str(tmp_path),
        env={**environment(tmp_path), "PYTHONPATH": str(ROOT / "src")},
    )
    async with Client(program) as connected_client:
        client: Any = connected_client
        names = [each.name for each in (await client.list_tools()).tools]
        assert "calculate" in names
        assert (await client.call_tool("calculate", {"expression": "6 * 7"})).content[0].text == "42"
        answer = await client.call_tool(names[0], {"task": "Calculate 6 * 7"})
        assert "42" in answer.content[0].text


@pytest.mark.parametrize("closed", [["stdout"], ["stdout", "stdin"], ["stdin"]])
async def test_a_client_that_leaves_during_a_call_ends_it_without_a_word(tmp_path, closed):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", "mcp", "serve", "--offer", "both"),
        cwd=tmp_path,
        env={**environment(tmp_path), "PYTHONPATH": str(ROOT / "src")},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdin, stdout, stderr = (cast("Any", each) for each in (process.stdin, process.stdout, process.stderr))

    def send(**message: Any) -> None:
        stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    try:
        send(id=1, method="initialize", params=client)
        assert await asyncio.wait_for(stdout.readline(), WAIT_SECONDS)
        send(method="notifications/initialized")
        for number in range(20):
            arguments = {"name": "calculate", "arguments": {"expression": "6 * 7"}}
            send(id=number + 2, method="tools/call", params=arguments)
        await stdin.drain()
        if "stdout" in closed:
            stdout._transport.close()
        if "stdin" in closed:
            stdin.close()
        assert await asyncio.wait_for(stderr.read(), WAIT_SECONDS) == b""
        assert await asyncio.wait_for(process.wait(), WAIT_SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_over_http_a_token_is_printed_and_a_signal_ends_it(tmp_path):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", "mcp", "serve", "--http", "--port", "0", "--offer", "tools"),
        cwd=tmp_path,
        env={**environment(tmp_path), "PYTHONPATH": str(ROOT / "src")},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    stderr: Any = process.stderr
    try:
        text = ""
        async with asyncio.timeout(WAIT_SECONDS):
            while "serving at" not in text:
                line = await stderr.readline()
                assert line, text
                text += line.decode()
        token, url = re.findall(r"(?:token of this process:|serving at) (\S+)", text)
        async with connected(url, token=token) as client:
            assert (await client.call_tool("calculate", {"expression": "6 * 7"})).content[0].text == "42"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), WAIT_SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_tokens_are_read_from_a_file_of_their_owner(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("# clients\n\nann aaa\nbob bbb\n")
    path.chmod(0o600)
    assert read_tokens(str(path)) == {"ann": "aaa", "bob": "bbb"}
    path.write_text("ann aaa\nann bbb\n")
    with pytest.raises(ConfigError, match="tokens:2: write a name of its own"):
        read_tokens(str(path))
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_tokens(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tokens(str(tmp_path / "none"))


def test_a_server_that_would_not_be_safe_does_not_start(perdure):
    result = perdure("mcp", "serve", "--http", "--host", "0.0.0.0")
    assert result.exit_code == 2
    assert "allow_remote" in result.stderr


def test_without_a_file_a_token_is_made_for_this_process_and_printed(tmp_path, capsys):
    (tmp_path / "tokens").write_text("ann aaa\n")
    (tmp_path / "tokens").chmod(0o600)
    assert _find_tokens(str(tmp_path / "tokens"), TerminalOutput()) == {"ann": "aaa"}
    assert capsys.readouterr().err == ""
    made = _find_tokens(None, TerminalOutput())
    assert list(made) == ["local"]
    assert len(made["local"]) == 43
    assert capsys.readouterr().err == f"token of this process: {made['local']}\n"
    assert _find_tokens(None, TerminalOutput()) != made


@pytest.mark.parametrize(
    ("text", "line"), [("ann\n", 1), ("ann aaa\n\nbob bbb ccc\n", 3), ("# x\n ann aaa\nann bbb\n", 3)]
)
def test_a_line_of_tokens_is_a_name_and_a_token(tmp_path, text, line):
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as raised:
        read_tokens(str(path))
    assert str(raised.value) == f"{path}:{line}: write a name of its own and a token, separated by a space"


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_a_file_of_tokens_that_others_can_use_is_not_used(tmp_path, mode):
    path = tmp_path / "tokens"
    path.write_text("ann aaa\n")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=r"others can use .*, so it is not used: chmod 600 it, and make new tokens"):
        read_tokens(str(path))


def test_http_is_served_as_the_options_say(perdure, tmp_path, monkeypatch):
    served: list[Any] = []

    async def serve_http(what: Any, *, on_started: Any, **options: Any) -> None:
        served.extend([what.offer, options])
        on_started("http://127.0.0.2:99/mcp")

    monkeypatch.setattr("perdure._mcp.server.serving.serve_http", serve_http)
    (tmp_path / "tokens").write_text("ann aaa\n")
    (tmp_path / "tokens").chmod(0o600)
    result = perdure(
        *("mcp", "serve", "--http", "--host", "127.0.0.2", "--port", "99", "--tokens", "tokens", "--offer", "both"),
        *("--allow-remote", "--allowed-host", "a.example", "--allowed-host", "b.example"),
        *("--certificate", "c.pem", "--key", "k.pem", "--behind-proxy"),
    )
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "serving at http://127.0.0.2:99/mcp\n")
    assert served == [
        "both",
        {
            "tokens": {"ann": "aaa"}, "host": "127.0.0.2", "port": 99, "hosts": ("a.example", "b.example"),
            "allow_remote": True, "certificate_file": "c.pem", "key_file": "k.pem", "behind_proxy": True,
        },
    ]  # fmt: skip


def test_over_stdio_nothing_is_printed_and_ctrl_c_ends_it(perdure, monkeypatch):
    events: list[str] = []

    async def serve_stdio(_: Any) -> None:
        if events:
            return  # the client has gone
        os.kill(os.getpid(), signal.SIGINT)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    monkeypatch.setattr("perdure._mcp.server.serving.serve_stdio", serve_stdio)
    result = perdure("mcp", "serve")
    assert (result.exit_code, result.output, events) == (130, "", ["cancelled"])
    result = perdure("mcp", "serve")
    assert (result.exit_code, result.output) == (0, "")


def test_a_shutdown_ends_what_is_served(perdure, monkeypatch):
    handlers: list[SignalHandler] = []
    wait = SignalHandler.wait_for_shutdown

    async def wait_for_shutdown(self: SignalHandler) -> None:
        handlers.append(self)
        await wait(self)

    async def serve_stdio(_: Any) -> None:
        await until(lambda: handlers)
        handlers[0].begin_shutdown()
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.Event().wait()

    monkeypatch.setattr(SignalHandler, "wait_for_shutdown", wait_for_shutdown)
    monkeypatch.setattr("perdure._mcp.server.serving.serve_stdio", serve_stdio)
    assert perdure("mcp", "serve").exit_code == 0
