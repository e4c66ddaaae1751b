"""`perdure mcp`: list, add and remove MCP servers, look at their tools, call them, log in, and approve changes."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure._cli.terminal.frame import make_frame, quote_unless_plain
from perdure._cli.terminal.log import redirect_warnings
from perdure._cli.terminal.output import TerminalOutput, line_width, to_ascii_json, to_one_line, warn
from perdure._core.values.error import ConfigError

from . import mcp_files
from .config import show_rows
from .mcp_serve import serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure._mcp.pins import ToolChange
    from perdure._mcp.servers import McpServers

T = TypeVar("T")

_json_option = click.option("--json", "as_json", is_flag=True, help="Print each row as a line of JSON.")
_json_result_option = click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
_name_argument = click.argument("name")


@click.group(invoke_without_command=True)
@click.pass_context
def mcp(context: click.Context) -> None:
    """Use MCP servers, and serve agents and tools over MCP.

    Your servers are in mcp.json in ~/.perdure, those of a project in .mcp.json and perdure.toml. Servers of a project
    are used only after you trust the file (perdure trust .mcp.json). perdure run uses all of them.
    """
    if context.invoked_subcommand is None:
        TerminalOutput().write(context.get_help() + "\n")


@mcp.command("list")
@_json_option
def list_servers(*, as_json: bool) -> None:
    """List the MCP servers in the configuration of this folder and of the user. None is started.

    perdure doctor starts those that are used, and says which of them cannot be.
    """
    known, screen = mcp_files.list_known_servers(config=_load_config()), TerminalOutput()
    logins = mcp_files.open_login_file().load()
    width = max((len(each.name) for each in known), default=0)
    for each in known:
        if as_json:
            row = {"name": each.name, "state": each.state, "source": each.source, "path": each.path}
            reached = {"reached": each.how_reached, "logged_in": each.name in logins}
            _write_json(screen, {**row, **reached, "problem": mcp_files.find_missing_program(each.table)})
        else:
            mark = "  (logged in)" if each.name in logins else ""
            row_text = f"{each.state:9}  {each.source:7}  {each.name:{width}}  {each.how_reached}{mark}"
            screen.write(to_one_line(row_text, line_width(sys.stdout)) + "\n")
    for each in known if not as_json else ():
        if each.state == "used" and (problem := mcp_files.find_missing_program(each.table)):
            warn(to_one_line(f"MCP server {each.name!r} cannot be started: {problem}"))
    if not known and not as_json:
        screen.note("there is no MCP server here; add one: perdure mcp add NAME -- COMMAND")
    for path in dict.fromkeys([each.path for each in known if each.state == "untrusted"]):
        screen.note(to_one_line(f"to use the servers of {path}: perdure trust {path}"))


@mcp.command()
@_name_argument
@click.argument("command", nargs=-1)
@click.option("--url", metavar="URL", help="URL of a server over HTTP, instead of COMMAND.")
@click.option("--transport", type=click.Choice(["http", "sse"]), default="http", help="Transport of --url.")
@click.option("--env", "-e", multiple=True, metavar="NAME=VALUE", help="Variable for COMMAND; VALUE may be ${NAME}.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="Header for --url; VALUE may be ${NAME}.")
@click.option("--project", is_flag=True, help="Add it to .mcp.json of this folder, for everybody in the project.")
@click.option("--no-try", is_flag=True, help="Do not connect to it.")
@_json_result_option
def add(name: str, command: tuple[str, ...], **options: Any) -> None:
    """Add the MCP server NAME: the program COMMAND, or a server at --url.

    Then it is connected to once, to see whether it can be used. It stays in the file if it cannot.
    """
    url = options["url"]
    if bool(url) == bool(command):
        raise click.UsageError("give either a command, as in `perdure mcp add NAME -- COMMAND`, or --url")
    table: dict[str, Any] = {"type": options["transport"], "url": url} if url else {"command": command[0]}
    if command[1:]:
        table["args"] = list(command[1:])
    for option, key, is_wrong in (("env", "env", bool(url)), ("header", "headers", not url)):
        if options[option] and is_wrong:
            raise click.UsageError(f"--{option} is for a server with {'a command' if option == 'env' else '--url'}")
        if options[option]:
            table[key] = dict([_split_pair(option, each) for each in options[option]])
    _check_settings(name, table)
    path = mcp_files.PROJECT_FILE if options["project"] else mcp_files.get_user_servers_path()
    mcp_files.add_server_to_file(path, name, table)
    problem = "" if options["no_try"] else _try_server(name, path)
    result = {"name": name, "path": path, **({"problem": problem} if problem else {})}
    _print_result(result, f"server {name!r} is in {path}", as_json=options["as_json"])
    if problem:
        warn(
            to_one_line(
                f"MCP server {name!r} cannot be used: {problem}; it stays in {path} until perdure mcp remove {name}"
            )
        )
    if options["project"]:
        TerminalOutput().note(f"to use it: perdure trust {path}")


@mcp.command()
@_name_argument
@click.option("--project", is_flag=True, help="Remove it from .mcp.json of this folder.")
@_json_result_option
def remove(name: str, *, project: bool, as_json: bool) -> None:
    """Remove the MCP server NAME, its login and the record of its approved tools."""
    path = mcp_files.PROJECT_FILE if project else mcp_files.get_user_servers_path()
    if not mcp_files.remove_server_from_file(path, name):
        raise ConfigError(f"there is no server {name!r} in {path!r}; see perdure mcp list")
    mcp_files.open_login_file().remove(name)
    mcp_files.open_pin_file().forget(name)
    _print_result({"name": name, "path": path}, f"server {name!r} is removed from {path}", as_json=as_json)


@mcp.command()
@_name_argument
@_json_option
def tools(name: str, *, as_json: bool) -> None:
    """Connect to the MCP server NAME, and list its tools. Those that have changed are off until you approve them."""

    async def list_tools(servers: "McpServers") -> tuple[list[Any], list["ToolChange"]]:
        return await servers.load_tools(name), servers.changes.get(name, [])

    with redirect_warnings(_show_nothing):  # changes are printed below
        found, changes = _with_server(name, list_tools)
    screen = TerminalOutput()
    for each in found:
        if as_json:
            row = {"name": each.name, "description": each.description, "effect": each.effect}
            _write_json(screen, {**row, "parameters": each.parameters.json_schema})
        else:
            screen.write(to_one_line(f"{each.name}  {each.description}", line_width(sys.stdout)) + "\n")
    for change in changes:
        if as_json:
            _write_json(screen, {"name": change.tool or "*", "off": change.kind, "difference": change.difference})
        else:
            screen.note(
                to_one_line(f"{change.tool or 'all tools'}: off ({change.kind}); see perdure mcp approve {name}")
            )
    if not found and not changes and not as_json:
        screen.note(to_one_line(f"server {name!r} has no tools"))


@mcp.command("call")
@_name_argument
@click.argument("tool")
@click.argument("arguments", required=False, default="{}")
@_json_option
@click.pass_context
def call_tool(context: click.Context, /, name: str, tool: str, arguments: str, *, as_json: bool) -> None:
    """Call TOOL of the MCP server NAME with ARGUMENTS, a JSON object. The exit code is 1 if the call fails."""
    import msgspec

    try:
        given = msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise click.UsageError(f"the arguments are no JSON object ({error})") from None

    async def call(servers: "McpServers") -> Any:
        from perdure._core.permission.gate import allow_all
        from perdure._runtime.agent.agent import Agent

        wanted = tool if tool.startswith(f"{name}__") else f"{name}__{tool}"
        found = await servers.load_tools(name)
        if wanted not in [each.name for each in found]:
            known = ", ".join([each.name.removeprefix(f"{name}__") for each in found]) or "none"
            raise ConfigError(f"server {name!r} has no tool {tool!r} that may be used; there is {known}")
        agent = Agent("demo", tools=found, permission=allow_all)  # whoever types the call has agreed to it
        async with agent:
            return await agent.session().call(wanted, given)

    result = _with_server(name, call)
    screen = TerminalOutput()
    if as_json:
        _write_json(screen, {"status": result.status.value, "text": result.text, "structured": result.render})
    else:
        screen.write(result.text + "\n")
    context.exit(1 if result.is_error else 0)


@mcp.command()
@_name_argument
@click.option("--client-id", default="", help="Id of a client that you have registered there.")
@click.option("--scope", default="", help="Scopes to ask for, separated by spaces.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Port of the redirect address on this machine.")
@click.option("--no-browser", is_flag=True, help="Only print the address to open.")
@_json_result_option
def login(name: str, *, client_id: str, scope: str, port: int, no_browser: bool, as_json: bool) -> None:
    """Log in to the MCP server NAME over OAuth, in your browser.

    The tokens are stored in ~/.perdure, for you alone. PERDURE_MCP_CLIENT_SECRET has the secret of --client-id, if any.
    """
    from perdure._mcp.login.flow import log_in

    server, screen = mcp_files.find_server(name, config=_load_config()), TerminalOutput()

    def open_url(url: str) -> None:
        screen.note(f"open this address to log in:\n{url}")
        if not no_browser:
            import webbrowser

            webbrowser.open(url)

    secret = os.environ.get("PERDURE_MCP_CLIENT_SECRET", "") if client_id else ""
    logins = mcp_files.open_login_file()
    asyncio.run(log_in(server, logins, open_url, client_id=client_id, client_secret=secret, scope=scope, port=port))
    _print_result({"name": name, "logged_in": True}, f"logged in to {name!r}", as_json=as_json)


@mcp.command()
@_name_argument
@_json_result_option
def logout(name: str, *, as_json: bool) -> None:
    """Delete the stored login to the MCP server NAME."""
    done = mcp_files.open_login_file().remove(name)
    text = f"the login to {name!r} is {'forgotten' if done else 'not there'}"
    _print_result({"name": name, "logged_in": False, "was_logged_in": done}, text, as_json=as_json)


@mcp.command()
@_name_argument
@click.argument("tool_names", nargs=-1, metavar="[TOOL]...")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_json_option
@click.pass_context
def approve(context: click.Context, /, name: str, tool_names: tuple[str, ...], *, yes: bool, as_json: bool) -> None:
    """Show how the tools of the MCP server NAME have changed, and approve the changes, of all or of TOOL."""

    async def find_changes(servers: "McpServers") -> "tuple[McpServers, list[ToolChange]]":
        await servers.load_tools(name)
        return servers, servers.changes.get(name, [])

    with redirect_warnings(_show_nothing):  # changes are printed below
        servers, found = _with_server(name, find_changes)
    changes = [each for each in found if not tool_names or each.tool in {*tool_names, ""}]
    screen = TerminalOutput()
    if not changes:
        screen.note(to_one_line(f"nothing of server {name!r} waits for approval"))
        return
    for change in changes if as_json else ():
        _write_json(screen, {"name": change.tool or "*", "off": change.kind, "difference": change.difference})
    is_asked = not yes and sys.stdin.isatty()
    is_seen = as_json or _show_changes(screen, changes, pages=is_asked)
    if not yes and not is_asked:
        raise click.UsageError("there is no terminal to ask at; use --yes to approve the changes above")
    if is_asked and not (is_seen and click.confirm("Approve what is shown above?", err=True)):
        context.exit(1)

    asyncio.run(servers.pin_seen_tools(name, tool_names or None))  # and not what the server would list now
    screen.note(to_one_line(f"the changes of {name!r} are approved"))


mcp.add_command(serve)


def _show_changes(screen: TerminalOutput, changes: "Sequence[ToolChange]", *, pages: bool) -> bool:
    """Show how tools have changed, in rows that their texts cannot imitate; return False if the user stops before the
    last page.
    """
    frame = make_frame(sys.stdout)
    for change in changes:
        frame.add_label(f"{quote_unless_plain(change.tool) if change.tool else 'the whole server'}: {change.kind}")
        if change.difference:
            frame.add_text("difference", change.difference + "\n")
    return show_rows(screen.write, sys.stdout, frame.rows, pages=pages, refuse="do not approve it")


def _show_nothing(_: str) -> None:
    """Print no warning."""


def _load_config() -> Any:
    """Return the project's perdure.toml, if there is one that can be used; its errors are not our subject."""
    from perdure._cli.run.options import AgentOptions
    from perdure._cli.run.trusted_config import read_config

    try:
        return read_config(AgentOptions(), os.curdir)
    except ConfigError as error:
        TerminalOutput().note(to_one_line(str(error)))
        return None


def _with_server(name: str, work: "Callable[[McpServers], Awaitable[T]]") -> T:
    """Run `work` with one server, and close the connection."""
    server = mcp_files.find_server(name, config=_load_config())

    async def main() -> T:
        servers = mcp_files.build_mcp_servers(server)
        try:
            return await work(servers)
        finally:
            await servers.pool.close()

    return asyncio.run(main())


def _try_server(name: str, path: str) -> str:
    """Connect to a server of a file; return what keeps it from being used, and an empty text if nothing does."""
    from perdure._config.mcp_servers import load_mcp_servers

    try:
        servers = [each for each in load_mcp_servers(path) if each.name == name]
    except ConfigError as error:  # a variable is not set
        return str(error)
    if path == mcp_files.get_user_servers_path():
        servers = mcp_files.place_own_servers(servers)
    return asyncio.run(mcp_files.find_server_problems(servers))[name]


def _check_settings(name: str, table: dict[str, Any]) -> None:
    """Raise `ConfigError` if a server could not be made of these settings; variables may be unset."""
    from perdure._mcp.settings import McpServer

    transport = table.get("type", "stdio")
    McpServer(name=name, transport=transport, **{key: value for key, value in table.items() if key != "type"})


def _split_pair(option: str, text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise click.UsageError(f"--{option} {text!r}: write NAME=VALUE")
    return name, value


def _print_result(done: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print what was done: a line of JSON, or a note."""
    if as_json:
        _write_json(TerminalOutput(), done)
    else:
        TerminalOutput().note(to_one_line(text))


def _write_json(screen: TerminalOutput, value: Any) -> None:
    import msgspec

    screen.write(to_ascii_json(msgspec.json.encode(value)) + "\n")
