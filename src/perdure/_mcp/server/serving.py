"""Serve agents and tools over MCP: `serve_stdio`, `serve_http`, and `build_app` for other ASGI servers."""

import ipaddress
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from perdure._core.values import checks
from perdure._core.values.error import ConfigError

from .agents import Served, list_served_agents
from .clients import ClientLimits, ClientTokens
from .tools import ServedTools

if TYPE_CHECKING:
    from perdure._core.log.store import Store
    from perdure._core.permission.gate import Gate

    from .http_app import McpApp

STDIO_CLIENT: Final = "stdio"
"""The name of the client that has started this process."""
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine that are answered."""
_MAX_PORT: Final = 65_535


async def serve_stdio(
    served: Served,
    *,
    name: str = "perdure",
    instructions: str = "",
    permission: "Gate | None" = None,
    store: "Store | str | None" = None,
    limits: ClientLimits | None = None,
) -> None:
    """Serve agents or tools over MCP to the program that started this process, until it closes standard input.

    Standard output has only messages of the protocol: what tools print goes to standard error.

    Args:
        served: An agent, a toolbox, or a list of tools and agents.
        name: The name of the server, for the client.
        instructions: Text for the client's model about what the tools are for.
        permission: Decides about calls of tools that have no agent. Without one, tools that need permission are denied.
        store: Where sessions of tools that have no agent are stored; by default they are not kept.
        limits: Limits of the client.
    """
    _check_texts(name, instructions)
    limits = limits or ClientLimits()
    agents = list_served_agents(served, permission=permission, store=store)
    _require_sdk()
    from mcp.server.stdio import stdio_server

    from .sdk_server import build_protocol_server
    from .stdio import BoundedLineReader, ClientOutput, reserve_standard_input

    tools = ServedTools(agents, limits=limits, keeps_conversations=False)
    server = build_protocol_server(tools, name=name, local_client=STDIO_CLIENT, instructions=instructions)
    file, standard_input = reserve_standard_input()
    lines: Any = BoundedLineReader(file, limits.max_body_bytes)
    output: Any = ClientOutput(on_gone=lines.end)
    try:
        async with tools.open(), stdio_server(stdin=lines, stdout=output) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        output.restore()
        standard_input.restore()


def build_app(
    served: Served,
    *,
    tokens: ClientTokens | Mapping[str, str],
    hosts: Collection[str] = LOOPBACK_HOSTS,
    origins: Collection[str] = (),
    path: str = "/mcp",
    name: str = "perdure",
    instructions: str = "",
    permission: "Gate | None" = None,
    store: "Store | str | None" = None,
    limits: ClientLimits | None = None,
) -> "McpApp":
    """Build an ASGI app that serves agents or tools over MCP (streamable HTTP).

    Args:
        served: An agent, a toolbox, or a list of tools and agents.
        tokens: The bearer token of each client, by the name of the client. The name is its identity: sessions and
            limits belong to it.
        hosts: The values of the `Host` header that are answered, without a port for every port; others get 421.
        origins: The values of the `Origin` header that are answered; others get 403. Programs send none.
        path: The path of the server.
        name: The name of the server, for the client.
        instructions: Text for the client's model about what the tools are for.
        permission: Decides about calls of tools that have no agent. Without one, tools that need permission are denied.
        store: Where sessions of tools that have no agent are stored; by default they are not kept.
        limits: Limits of each client.
    """
    _check_texts(name, instructions)
    for option, value in (("hosts", hosts), ("origins", origins)):
        if isinstance(value, str) or not all(isinstance(each, str) and each for each in value):
            checks.raise_config_error("build_app", option, value, "give a list of texts")
    if not isinstance(path, str) or not path.startswith("/"):
        checks.raise_config_error("build_app", "path", path, "give a path that begins with '/'")
    known = tokens if isinstance(tokens, ClientTokens) else ClientTokens(tokens)
    agents = list_served_agents(served, permission=permission, store=store)
    _require_sdk()
    from .http_app import McpApp
    from .sdk_server import build_protocol_server

    limits = limits or ClientLimits()
    tools = ServedTools(agents, limits=limits)
    known.on_revoked(tools.cancel_waiting)
    server = build_protocol_server(tools, name=name, local_client="", instructions=instructions)
    return McpApp(server, tools, tokens=known, hosts=hosts, origins=origins, path=path, limits=limits)


async def serve_http(
    served: Served,
    *,
    tokens: ClientTokens | Mapping[str, str],
    host: str = "127.0.0.1",
    port: int = 8_808,
    hosts: Collection[str] = (),
    allow_remote: bool = False,
    certificate_file: str = "",
    key_file: str = "",
    behind_proxy: bool = False,
    on_started: Callable[[str], None] | None = None,
    **options: Any,
) -> None:
    """Serve agents or tools over MCP (streamable HTTP) until this call is cancelled, which ends calls in progress too.

    Every request needs a token, also on this machine: any program, and any web page in a browser here, could send one.

    Args:
        served: An agent, a toolbox, or a list of tools and agents.
        tokens: The bearer token of each client, by the name of the client.
        host: The address to listen on.
        port: The port to listen on; 0 for one that is free.
        hosts: The names by which clients reach the server; on this machine, its usual names are known.
        allow_remote: True to listen on an address that other machines can reach. Then the connection has to be
            encrypted: give `certificate_file` and `key_file`, or `behind_proxy` if a proxy does it.
        certificate_file: The certificate of the server, in PEM format.
        key_file: The key of the certificate.
        behind_proxy: True if a proxy in front of the server encrypts.
        on_started: Called with the URL of the server when it answers.
        options: The other options of `build_app`.
    """
    is_local = _is_loopback(host)
    is_encrypted = bool(certificate_file and key_file)
    _check_reachable(is_local, hosts, allow_remote, is_encrypted or behind_proxy)
    checks.require_int("serve_http", "port", port)
    if port > _MAX_PORT:
        checks.raise_config_error("serve_http", "port", port, f"give a number up to {_MAX_PORT}")
    names = [*hosts, *(LOOPBACK_HOSTS if is_local else ())]
    app = build_app(served, tokens=tokens, hosts=names, **options)
    from .listener import listen, run_http_server

    with listen(host, port) as socket:
        scheme, path = "https" if is_encrypted else "http", options.get("path", "/mcp")
        shown = f"[{host}]" if ":" in host else host
        url = f"{scheme}://{shown}:{socket.getsockname()[1]}{path}"
        await run_http_server(
            app,
            socket,
            certificate_file=certificate_file,
            key_file=key_file,
            on_started=lambda: None if on_started is None else on_started(url),
        )


def _check_texts(name: str, instructions: str) -> None:
    checks.require_text("serve", "name", name, non_empty=True)
    checks.require_text("serve", "instructions", instructions)


def _is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address. Raises `ConfigError` if it is no address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        checks.raise_config_error(
            "serve_http", "host", host, "give an IP address of this machine, such as '127.0.0.1' or '0.0.0.0'"
        )


def _check_reachable(is_local: bool, hosts: Collection[str], allow_remote: bool, is_encrypted: bool) -> None:  # noqa: FBT001 - private
    """Raise `ConfigError` if other machines could reach the server, and that is not meant or not safe."""
    if is_local:
        return
    if not allow_remote:
        raise ConfigError(
            "other machines can reach this address: give allow_remote=True if that is meant, or listen on 127.0.0.1"
        )
    if not is_encrypted:
        raise ConfigError(
            "tokens must not cross a network unencrypted: give certificate_file=… and key_file=…, or behind_proxy=True "
            "if a proxy encrypts"
        )
    if not hosts:
        raise ConfigError("give hosts=[…]: the names by which clients reach this server; all others are refused")


def _require_sdk() -> None:
    """Raise `ConfigError` if the SDK is not installed."""
    from importlib.util import find_spec

    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise ConfigError("an MCP server needs the MCP SDK, which is not installed: pip install 'perdure[mcp]'")
