"""What it costs to start: importing the package in a fresh interpreter, and what installing it brings along.

Bytecode is compiled before anything is measured, as it is on every start of a program but its first.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .measure import Effort, Figure

PACKAGE = "import perdure"
NAMES = "from perdure import Agent, tool"
LOOP = "import asyncio"
BELOW = "import asyncio, msgspec"
"""What the package cannot do without."""
BARE = "pass"


HELP = "import sys; sys.argv[1:] = ['--help']; from perdure._cli.main import main; main()"
FIRST_REQUEST = """
import os, sys
from perdure.models import register

class Model:
    def __init__(self, name): pass
    async def stream(self, request):
        os._exit(0)
        yield

register('stop', Model)
sys.argv[1:] = ['run', '--model', 'stop:x', '--store', 'memory:', 'hi']
from perdure._cli.main import main
main()
"""
"""`perdure run` up to its first request to the model, where the process ends."""
FIRST_PROMPT = """
import os, pty, sys
ours, theirs = pty.openpty()
if os.fork():
    os.close(theirs)
    seen = b''
    while b'ready' not in seen:
        seen += os.read(ours, 65536)
    os.close(ours)
    os.wait()
else:
    os.setsid()
    for number in (0, 1, 2):
        os.dup2(theirs, number)
    os.environ.update(TERM='xterm', PERDURE_MODEL='demo')
    os.execv(sys.executable, [sys.executable, '-m', 'perdure', '--store', 'memory:'])
"""
"""The chat up to its first prompt, at a terminal that is closed then; the interpreter around it is included."""


def cpu_ms(code: str, python: str = sys.executable) -> float:
    """The CPU time of a fresh interpreter that runs this code, from its start to its end, its children included."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERDURE"))}
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(
            [python, "-c", code], env={**environment, "PERDURE_HOME": home}, cwd=home, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if code == FIRST_REQUEST else None,
        )  # fmt: skip
        return _wait_ms(process, code)


def _wait_ms(process: "subprocess.Popen[bytes]", code: str) -> float:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"python -c {code!r} ended with {process.returncode}: run it to see why")
    return (usage.ru_utime + usage.ru_stime) * 1000


def over_bare_ms(codes: tuple[str, ...], starts: int) -> dict[str, float]:
    """Milliseconds that each code takes more than a bare interpreter, the best of several, started in turns."""
    for code in codes:
        cpu_ms(code)  # compiles
    rounds = [[cpu_ms(code) for code in (BARE, *codes)] for _ in range(starts)]
    bare, *best = [min(times) for times in zip(*rounds, strict=True)]
    return {code: time - bare for code, time in zip(codes, best, strict=True)}


def distributions(name: str) -> set[str]:
    """What `pip install` of a distribution brings, itself included, on this platform and without extras."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        current = canonicalize_name(waiting.pop())
        if current in found:
            continue
        found.add(current)
        try:
            needed = map(Requirement, requires(current) or [])
        except PackageNotFoundError:
            continue  # named, and not installed here: it still counts
        waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def figures(effort: Effort) -> Iterator[Figure]:
    """Imports and commands, in CPU time over a bare interpreter, and the number of distributions."""
    took = over_bare_ms((PACKAGE, NAMES, LOOP, BELOW, HELP, FIRST_REQUEST, FIRST_PROMPT), effort.starts)
    for code, explanation in (
        (PACKAGE, "the package alone; names are imported on first use"),
        (NAMES, "the import of every program; asyncio is most of it"),
    ):
        yield Figure(
            f"`{code}`",
            took[code],
            "ms",
            f"CPU of a fresh interpreter over a bare one, the best of {effort.starts}; {explanation}",
            budget=110,
            ratio=took[code] / took[LOOP],
            compared_to="`import asyncio`",
            detail=f"`import asyncio` {took[LOOP]:.0f}" if code == NAMES else "",
        )
    yield Figure(
        "`Agent` and `tool` over asyncio and msgspec",
        took[NAMES] - took[BELOW],
        "ms",
        "the same import, without what `import asyncio, msgspec` takes",
        budget=30,
        detail=f"`{BELOW}` {took[BELOW]:.0f}",
    )
    for name, code, budget, explanation in (
        ("`perdure --help`", HELP, 150, "the whole command"),
        ("`perdure run` to its first request", FIRST_REQUEST, 350, "with the agent assembled, and a session in memory"),
        (
            "the chat to its first prompt",
            FIRST_PROMPT,
            500,
            "at a terminal that is closed then, so its end is included",
        ),
    ):
        about = f"CPU of a fresh interpreter over a bare one, the best of {effort.starts}; {explanation}"
        yield Figure(name, took[code], "ms", about, budget=budget)
    brought = distributions("perdure")
    yield Figure(
        "distributions installed",
        len(brought),
        "",
        f"packages that `pip install perdure` installs: {', '.join(sorted(brought))}",
        budget=20,
    )
