"""What a run passes: the functions of one synced append, and of one run over HTTP, as `probe.py` records them."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scripts.house.checkout import PACKAGE
from scripts.house.figure import Figure, count

OWN = Path(__file__).resolve().parent.parent.parent
PROBE = Path(__file__).with_name("probe.py")
MODEL = "talk-3"
"""What the server of `bench/http` is asked for: an answer of three words."""
SECONDS = 120
"""A checkout that takes longer cannot be measured."""
MOST_CHARACTERS = 80
"""Length at which the reason why something cannot be measured is cut off."""


class NotMeasured(Exception):
    """The program could not be run in the checkout; the message says why, in one line."""


class Passed(NamedTuple):
    """What the program has passed, as `file:function`."""

    functions: list[str]
    below: list[str]
    """Those of them that work for the store."""
    attempts: int
    """How often the store was told to append."""


def figures(root: Path) -> Iterator[Figure]:
    """Yield the functions and files of an append and of a run.

    Functions of an append are those that the store's folder defines, those that it calls, and all on other threads,
    until `Run.emit` returns. An attempt is a call of a function `append…` of the store by anything that is not the
    store's. The disk is made slow, as on a quick one a store may take another way.
    """
    try:
        append = run_probe(root, "append")
    except NotMeasured as error:
        yield Figure("synced append on SQLite", f"not measured: {error}", "<= 20")
    else:
        yield Figure("synced append on SQLite: functions", count(len(append.below)), "<= 20", append.below)
        yield Figure("  files", count(count_files(append.below)))
        yield Figure("  attempts", count(append.attempts), "1")
        yield Figure("  functions with those of the run", count(len(append.functions)), "", append.functions)
    try:
        with serve() as port:
            run = run_probe(root, "run", f"http://127.0.0.1:{port}/v1#{MODEL}")
    except NotMeasured as error:
        yield Figure("first run_sync over HTTP", f"not measured: {error}", "<= 230")
    else:
        yield Figure("first run_sync over HTTP: functions", count(len(run.functions)), "<= 230", run.functions)
        yield Figure("  files", count(count_files(run.functions)), "<= 45")


def count_files(functions: list[str]) -> int:
    """Return the number of files that these functions are in."""
    return len({each.partition(":")[0] for each in functions})


def find_python(root: Path) -> str:
    """Return the interpreter of a checkout, or this one if it has no environment."""
    places = [root / ".venv" / "bin" / "python", root / ".venv" / "Scripts" / "python.exe"]
    return str(next((place for place in places if place.exists()), sys.executable))


def run_probe(root: Path, *arguments: str) -> Passed:
    """Run the program on a checkout, away from the settings of whoever measures; return what it passed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(f"{PACKAGE.upper()}_")}
    with tempfile.TemporaryDirectory(prefix="perdure-house-") as folder:
        environment = {**kept, "PYTHONPATH": str(root / "src"), "PERDURE_HOME": folder, "OPENAI_API_KEY": "none"}
        command = [find_python(root), "-P", str(PROBE), *arguments]  # -P: no module of this folder is in its way
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotMeasured(shorten(str(error))) from error
    if done.returncode:
        raise NotMeasured(shorten(done.stderr))
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if Path(found["home"]) != root / "src" / PACKAGE:
        raise NotMeasured(f"it would be that of {found['home']}")
    return Passed(found["functions"], found["below"], found["attempts"])


def shorten(text: str) -> str:
    """Return the last line of a text, or the beginning of it."""
    line = (text.strip().splitlines() or ["no reason was given"])[-1]
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"


@contextlib.contextmanager
def serve() -> Iterator[int]:
    """Run the server of `bench/http` as another process, and yield its port. It ends with this process."""
    command = [sys.executable, "-m", "bench.http.server"]
    with subprocess.Popen(command, cwd=OWN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        if server.stdin is None or server.stdout is None:
            raise NotMeasured("the server has no pipes")
        try:
            port = server.stdout.readline().strip()
            if not port:
                raise NotMeasured("the server of bench/http did not start")
            yield int(port)
        finally:
            server.stdin.close()
