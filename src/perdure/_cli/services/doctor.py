"""`perdure doctor`: check the Python version, packages, SQLite, store, MCP servers, models and terminal.

Each check examines one thing and prints its state and what to do. Nothing is changed.
"""

# ruff: noqa: PTH110, PTH112, PTH116, PTH120 - pathlib would cost every start milliseconds
import os
import sys
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import click

from perdure._cli.home import run_with_store
from perdure._cli.terminal.output import TerminalOutput, to_ascii_json, to_one_line
from perdure._io.home.paths import get_home_file_path

PACKAGES: Final = ("msgspec", "jsonschema-rs", "click")
SAFE_SQLITE: Final = (3, 51, 3)
"""First SQLite version without the bug that can damage a write-ahead log."""
MAX_COUNTED_SESSIONS: Final = 10_000
"""Limit on the sessions of the store that are counted."""

_SANDBOX: Final = "install bubblewrap, or allow single commands with --allow"
_LABELS: Final = {"ok": "PASS", "warn": "WARN", "fail": "FAIL"}


class CheckResult(NamedTuple):
    """Result of one check of `perdure doctor`: its name, status, finding and advice."""

    name: str
    status: Literal["ok", "warn", "fail"]
    finding: str
    advice: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print each check as a line of JSON.")
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Check that everything Perdure needs is installed and usable. The exit code is 1 if not.

    Each line is PASS, WARN or FAIL, what was found, and what to do. MCP servers that are used here are connected to.
    """
    import msgspec

    screen = TerminalOutput()
    failed = False
    for check in run_checks():
        failed = failed or check.status == "fail"
        screen.write((to_ascii_json(msgspec.json.encode(check._asdict())) if as_json else _format_check(check)) + "\n")
    context.exit(int(failed))


def run_checks() -> Iterator[CheckResult]:
    """Run the checks of `perdure doctor` one after the other, and yield the result of each."""
    from perdure._version import __version__

    yield _check_python()
    yield CheckResult("perdure", "ok", __version__)
    for name in PACKAGES:
        yield _check_package(name)
    yield _check_sqlite()
    yield _check_event_loop()
    yield from _check_store(get_home_file_path("sessions.db"))
    yield _check_chat()
    yield _check_commands()
    yield from _check_servers()
    yield from _check_models()
    yield _check_terminal()


def _format_check(check: CheckResult) -> str:
    advice = f"; {check.advice}" if check.advice else ""
    return to_one_line(f"{_LABELS[check.status]}  {check.name}: {check.finding}{advice}")


def _check_python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - it may have been installed by force
        return CheckResult("python", "fail", version, "install Python 3.11 or later")
    return CheckResult("python", "ok", f"{version} ({sys.executable})")


def _check_package(name: str) -> CheckResult:
    version = _installed_version(name)
    if version is None:
        return CheckResult(name, "fail", "is not installed", f"pip install {name}")
    return CheckResult(name, "ok", version)


def _installed_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _check_sqlite() -> CheckResult:
    try:
        import apsw
    except ImportError as error:
        return CheckResult("apsw", "fail", f"cannot be imported ({error})", "pip install apsw")
    library = apsw.sqlite_lib_version()
    finding = f"{apsw.apsw_version()} with SQLite {library}"
    if tuple(map(int, library.split("."))) < SAFE_SQLITE:
        wanted = ".".join(map(str, SAFE_SQLITE))
        return CheckResult(
            "apsw", "warn", finding, f"versions before {wanted} can damage a log: pip install --upgrade apsw"
        )
    return CheckResult("apsw", "ok", finding)


def _check_event_loop() -> CheckResult:
    uvloop = _installed_version("uvloop")
    return CheckResult("event loop", "ok", f"asyncio; uvloop {uvloop or 'is not installed, and not needed'}")


def _check_store(path: str) -> Iterator[CheckResult]:
    """Check the default store, without creating it."""
    from perdure._core.values.error import PerdureError
    from perdure._stores.files import find_network_file_system

    if kind := find_network_file_system(path):
        finding = f"{path} lies on a network file system ({kind})"
        yield CheckResult("store", "fail", finding, "set PERDURE_HOME to a folder on a local disk")
        return
    if not os.path.exists(path):
        yield _check_new_store(path)
        return
    if os.stat(path).st_mode & 0o077:
        yield CheckResult("store", "warn", f"other users may read {path}", f"chmod 600 {path}")
    try:
        count = len(run_with_store(f"sqlite:{path}", lambda store: store.list(limit=MAX_COUNTED_SESSIONS)))
    except PerdureError as error:
        yield CheckResult("store", "fail", str(error), "restore a backup with perdure restore, or set PERDURE_HOME")
    else:
        yield CheckResult(
            "store", "ok", f"{path}, sessions kept: {count}{' or more' if count == MAX_COUNTED_SESSIONS else ''}"
        )


def _check_new_store(path: str) -> CheckResult:
    folder = os.path.dirname(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
        return CheckResult("store", "ok", f"{path}, which the first session will create")
    return CheckResult(
        "store", "fail", f"{path} cannot be created in {folder}", "set PERDURE_HOME to a folder of your own"
    )


def _check_models() -> Iterator[CheckResult]:
    """Check the models that can be opened. Local servers are not contacted: `perdure models` does that."""
    from perdure._core.values.error import PerdureError
    from perdure._models.registry import list_provider_statuses, open_model

    for offer in list_provider_statuses():
        if offer.available and (offer.default_model or not offer.wire):
            try:
                open_model(offer.name)
            except PerdureError as error:
                yield CheckResult(f"model {offer.name}", "warn", str(error), "perdure models explains each provider")
            else:
                yield CheckResult(f"model {offer.name}", "ok", "can be used")


def _check_chat() -> CheckResult:
    """Check that the packages of the chat are installed."""
    missing = [name for name in ("prompt_toolkit", "rich") if _installed_version(name) is None]
    if missing:
        advice = "pip install 'perdure[chat]'; until then, perdure chat --plain"
        return CheckResult(
            "chat", "warn", f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed", advice
        )
    return CheckResult("chat", "ok", "can be used: perdure")


def _check_commands() -> CheckResult:
    """Check whether agents can run commands, and whether there is a sandbox for them."""
    from perdure._tools.sandbox.bubblewrap import find_bubblewrap
    from perdure._tools.shell.parser import has_parser

    if os.name != "posix":
        return CheckResult("commands", "ok", "agents run none on this system")
    if not has_parser():
        return CheckResult("commands", "ok", "agents run none", "to let them: pip install 'perdure[shell]'")
    if problem := find_bubblewrap()[1]:
        return CheckResult("commands", "warn", f"no sandbox, so that each command is asked about: {problem}", _SANDBOX)
    return CheckResult("commands", "ok", "run in a sandbox (bubblewrap)")


def _check_servers() -> Iterator[CheckResult]:
    """Connect to the MCP servers that are used in this folder, all at once."""
    import asyncio

    from perdure._cli.run.options import AgentOptions
    from perdure._cli.run.trusted_config import read_config
    from perdure._core.values.error import ConfigError

    from .mcp_files import find_server_problems, list_known_servers, load_used_servers

    try:
        config = read_config(AgentOptions(), os.curdir)
        if not any(each.state == "used" for each in list_known_servers(config=config)):
            return
        servers = load_used_servers(config=config)
    except ConfigError as error:
        yield CheckResult("configuration", "fail", str(error), "repair the file")
        return
    for name, problem in asyncio.run(find_server_problems(servers)).items():
        if problem:
            yield CheckResult(f"MCP server {name}", "fail", problem, f"repair it, or perdure mcp remove {name}")
        else:
            yield CheckResult(f"MCP server {name}", "ok", "can be used")


def _check_terminal() -> CheckResult:
    import shutil

    streams = {"input": sys.stdin, "output": sys.stdout, "errors": sys.stderr}
    at_terminal = ", ".join([name for name, stream in streams.items() if stream.isatty()]) or "nothing"
    columns = shutil.get_terminal_size().columns
    encoding = sys.stdout.encoding.lower()
    finding = f"{at_terminal} at a terminal, TERM={os.environ.get('TERM', '')}, {columns} columns, {encoding}"
    if encoding.replace("-", "") != "utf8":
        return CheckResult("terminal", "warn", finding, "set LANG to a UTF-8 locale, or letters are shown as numbers")
    return CheckResult("terminal", "ok", finding)
