"""`perdure doctor`: is everything here that is needed? Above: `main.py`. Below: whatever there is to look at.

Each check looks at one thing and says how it is and what to do. It changes nothing.
"""

# ruff: noqa: PTH110, PTH112, PTH116, PTH120 - pathlib would cost every start milliseconds
import os
import sys
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import click

from .home import home_file, use_store
from .screen import Screen, json_line, one_line

PACKAGES: Final = ("msgspec", "jsonschema-rs", "click")
SAFE_SQLITE: Final = (3, 51, 3)
"""From this version on SQLite is without the error that could damage a write-ahead log."""
MANY: Final = 10_000
"""Sessions that are counted."""


class Check(NamedTuple):
    """What was looked at, how it is, and what to do about it."""

    name: str
    status: Literal["ok", "warn", "fail"]
    finding: str
    advice: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Write each check as a line of JSON.")
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Look whether everything is here that Perdure needs. The exit code is 1 if something is not."""
    import msgspec

    screen = Screen()
    failed = False
    for check in checks():
        failed = failed or check.status == "fail"
        screen.say((json_line(msgspec.json.encode(check._asdict())) if as_json else _line(check)) + "\n")
    context.exit(int(failed))


def checks() -> Iterator[Check]:
    """Everything that is looked at, one after the other."""
    from perdure._version import __version__

    yield _python()
    yield Check("perdure", "ok", __version__)
    for name in PACKAGES:
        yield _package(name)
    yield _sqlite()
    yield _event_loop()
    yield from _store(home_file("sessions.db"))
    yield from _models()
    yield _terminal()


def _line(check: Check) -> str:
    advice = f"; {check.advice}" if check.advice else ""
    return one_line(f"{check.status:4}  {check.name}: {check.finding}{advice}")


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - it may have been installed by force
        return Check("python", "fail", version, "install Python 3.11 or later")
    return Check("python", "ok", f"{version} ({sys.executable})")


def _package(name: str) -> Check:
    version = _version(name)
    if version is None:
        return Check(name, "fail", "is not installed", f"pip install {name}")
    return Check(name, "ok", version)


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _sqlite() -> Check:
    try:
        import apsw
    except ImportError as error:
        return Check("apsw", "fail", f"cannot be imported ({error})", "pip install apsw")
    library = apsw.sqlite_lib_version()
    finding = f"{apsw.apsw_version()} with SQLite {library}"
    if tuple(map(int, library.split("."))) < SAFE_SQLITE:
        wanted = ".".join(map(str, SAFE_SQLITE))
        return Check("apsw", "warn", finding, f"versions before {wanted} can damage a log: pip install --upgrade apsw")
    return Check("apsw", "ok", finding)


def _event_loop() -> Check:
    uvloop = _version("uvloop")
    return Check("event loop", "ok", f"asyncio; uvloop {uvloop or 'is not installed, and not needed'}")


def _store(path: str) -> Iterator[Check]:
    """The default store, without making it."""
    from perdure.core.error import PerdureError
    from perdure.stores.place import network_file_system

    if kind := network_file_system(path):
        finding = f"{path} lies on a network file system ({kind})"
        yield Check("store", "fail", finding, "set PERDURE_HOME to a folder on a local disk")
        return
    if not os.path.exists(path):
        yield _new_store(path)
        return
    if os.stat(path).st_mode & 0o077:
        yield Check("store", "warn", f"others may read {path}", f"chmod 600 {path}")
    try:
        count = len(use_store(f"sqlite:{path}", lambda store: store.list(limit=MANY)))
    except PerdureError as error:
        yield Check("store", "fail", str(error))
    else:
        yield Check("store", "ok", f"{path}, sessions kept: {count}{' or more' if count == MANY else ''}")


def _new_store(path: str) -> Check:
    folder = os.path.dirname(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
        return Check("store", "ok", f"{path}, which the first session will make")
    return Check("store", "fail", f"{path} cannot be made in {folder}", "set PERDURE_HOME to a folder of your own")


def _models() -> Iterator[Check]:
    """Those that can be used, and those that somebody registered. A server that wants no key has to be asked, and the
    doctor asks nobody: `perdure models` does.
    """
    from perdure.core.error import PerdureError
    from perdure.models import catalogue, open_model

    for offer in catalogue():
        if offer.available and (offer.default_model or not offer.wire):
            try:
                open_model(offer.name)
            except PerdureError as error:
                yield Check(f"model {offer.name}", "warn", str(error))
            else:
                yield Check(f"model {offer.name}", "ok", "can be used")


def _terminal() -> Check:
    import shutil

    streams = {"input": sys.stdin, "output": sys.stdout, "errors": sys.stderr}
    at_terminal = ", ".join([name for name, stream in streams.items() if stream.isatty()]) or "nothing"
    columns = shutil.get_terminal_size().columns
    encoding = sys.stdout.encoding.lower()
    finding = f"{at_terminal} at a terminal, TERM={os.environ.get('TERM', '')}, {columns} columns, {encoding}"
    if encoding.replace("-", "") != "utf8":
        return Check("terminal", "warn", finding, "set LANG to a UTF-8 locale, or letters are shown as numbers")
    return Check("terminal", "ok", finding)
