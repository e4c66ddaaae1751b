"""How fast Perdure starts."""

import os
import subprocess
import sys

import pytest

ASYNCIO_SHARE = 2.0
"""What starting may cost, in imports of asyncio: a ratio, because how long both take is the machine's affair. The
figure in milliseconds is measured by `make bench`."""
HEAVY = {"aiohttp", "apsw", "click", "jsonschema_rs", "psycopg", "pydantic", "rich", "sqlite3"}
"""What is imported when it is first used, and not before."""
ROUNDS = 10
"""How often each is measured at least, in turn, so that whatever else the machine does falls on all alike; the best
counts."""
MOST_ROUNDS = 60
"""How often each is measured at most: on a busy machine the best of a few is not the best there is."""


def cpu_ms(code: str) -> float:
    """The CPU time of a fresh interpreter that runs this code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{code!r} failed"
    return (usage.ru_utime + usage.ru_stime) * 1000


@pytest.mark.budget
def test_importing_an_agent_and_a_tool_costs_little_more_than_asyncio():
    codes = ["pass", "import asyncio", "from perdure import Agent, tool"]
    rounds: list[list[float]] = []
    ratio = perdure = bare = float("inf")
    while len(rounds) < ROUNDS or (ratio > ASYNCIO_SHARE and len(rounds) < MOST_ROUNDS):
        rounds.append([cpu_ms(code) for code in codes])
        bare, asyncio, perdure = (min(times) for times in zip(*rounds, strict=True))
        ratio = (perdure - bare) / (asyncio - bare)
    assert ratio <= ASYNCIO_SHARE, f"{perdure - bare:.0f} ms over bare Python, {ratio:.2f} times asyncio's"


def test_nothing_heavy_is_imported_before_it_is_used():
    code = "import sys; from perdure import Agent, tool; Agent('demo'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY & set(loaded)
