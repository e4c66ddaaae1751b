"""`perdure mcp serve`: serve the agent of this folder, or its tools, to MCP clients."""

import asyncio
import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any

import click

from perdure._cli.home import store_option
from perdure._cli.run.command import add_agent_options, take_agent_options
from perdure._cli.terminal.output import TerminalOutput
from perdure._core.values.error import ConfigError

if TYPE_CHECKING:
    from perdure._cli.run.options import AgentOptions

_MAX_BYTES = 1024 * 1024


@click.command()
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard input and output.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8_808, show_default=True, help="Port; 0 for a free one."
)
@click.option("--tokens", metavar="FILE", help="File with a line `NAME TOKEN` for each client; for its owner alone.")
@click.option("--allow-remote", is_flag=True, help="Listen where other machines can reach it; needs encryption.")
@click.option("--allowed-host", multiple=True, metavar="NAME", help="Name by which clients reach the server.")
@click.option("--certificate", metavar="FILE", default="", help="Certificate of the server, in PEM format.")
@click.option("--key", metavar="FILE", default="", help="Key of the certificate.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front of the server encrypts.")
@click.option(
    "--offer",
    type=click.Choice(["agent", "tools", "both"]),
    default="agent",
    show_default=True,
    help="What clients can call: the agent as one tool, its tools, or both.",
)
@click.option("--model", "-m", metavar="PROVIDER:MODEL", help="Model to ask.  [default: as for perdure run]")
@click.option("--role", metavar="NAME", help="Role of the agent: NAME.md in the folder roles.")
@click.option("--yes", is_flag=True, help="Allow every tool call without asking.")
@add_agent_options
@store_option
@click.pass_context
def serve(context: click.Context, /, **options: Any) -> None:
    """Serve the agent of this folder, or its tools, to MCP clients.

    The agent is that of perdure run. Clients start the command and talk to it over standard input and output; with
    --http they send requests to http://HOST:PORT/mcp, each with a token: Authorization: Bearer TOKEN. Without --tokens,
    a token for this process is made and printed. Each client has its own sessions, by the name of its token.

    Calls that need permission wait for perdure answer, unless perdure.toml decides about them.
    """
    names = ("http", "host", "port", "tokens", "allow_remote", "allowed_host", "certificate", "key", "behind_proxy")
    network = {name: options.pop(name) for name in names}
    offer, yes = options.pop("offer"), options.pop("yes")
    wish = take_agent_options(options)
    context.exit(asyncio.run(_serve(wish, network, offer, yes=yes)))


async def _serve(wish: "AgentOptions", network: dict[str, Any], offer: Any, *, yes: bool) -> int:
    """Serve until the client goes, or the process gets a signal to end; return the exit code."""
    from perdure._cli.run.assembly import collect_agent_parts
    from perdure._cli.terminal.signals import SignalHandler
    from perdure._mcp.server.agents import ServedAgent
    from perdure._mcp.server.serving import serve_http, serve_stdio

    parts, screen = collect_agent_parts(wish), TerminalOutput(quiet=not network["http"])
    agent = parts.build_agent(permission=parts.build_gate(None, yes=yes, wait=True), answer_timeout_seconds=0.0)
    with SignalHandler(screen.note) as interrupts:
        served = ServedAgent(agent=interrupts.wrap_agent(agent), offer=offer)
        if network["http"]:
            work = serve_http(
                served,
                tokens=_find_tokens(network["tokens"], screen),
                host=network["host"],
                port=network["port"],
                hosts=network["allowed_host"],
                allow_remote=network["allow_remote"],
                certificate_file=network["certificate"],
                key_file=network["key"],
                behind_proxy=network["behind_proxy"],
                on_started=lambda url: screen.note(f"serving at {url}"),
            )
        else:
            work = serve_stdio(served)
        serving = asyncio.ensure_future(work)

        async def stop() -> None:
            serving.cancel()

        async def stop_on_shutdown() -> None:
            await interrupts.wait_for_shutdown()
            serving.cancel()

        interrupts.on_interrupt(stop)
        stopping = asyncio.ensure_future(stop_on_shutdown())
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        stopping.cancel()
        return interrupts.exit_with(interrupts.exit_code)


def _find_tokens(path: str | None, screen: TerminalOutput) -> dict[str, str]:
    """Return the tokens of clients from a file; without one, a new token for this process, which is printed."""
    if path is not None:
        return read_tokens(path)
    import secrets

    token = secrets.token_urlsafe(32)
    screen.note(f"token of this process: {token}")
    return {"local": token}


def read_tokens(path: str) -> dict[str, str]:
    """Read the tokens of MCP clients from a file of lines `NAME TOKEN`. Raises `ConfigError` if others can read it."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as in the other commands
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigError(f"others can use {path!r}, so it is not used: chmod 600 it, and make new tokens")
            text = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"the tokens cannot be read: {error}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[0] in found:  # noqa: PLR2004 - a name and a token
            raise ConfigError(f"{path}:{number}: write a name of its own and a token, separated by a space")
        found[words[0]] = words[1]
    return found
