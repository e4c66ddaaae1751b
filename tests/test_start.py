"""How fast Windlass starts."""

import os
import subprocess
import sys

import pytest

BUDGET_MS = 110
ASYNCIO_MS = 77
"""What `import asyncio` takes on the machine that the budget was set on; a slower machine gets a larger budget."""
ROUNDS = 10
"""How often each is measured, in turn, so that whatever else the machine does falls on all alike; the best counts."""


def cpu_ms(code: str) -> float:
    """The CPU time of a fresh interpreter that runs this code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{code!r} failed"
    return (usage.ru_utime + usage.ru_stime) * 1000


@pytest.mark.budget
def test_importing_an_agent_and_a_tool_stays_within_its_budget():
    codes = ["pass", "import asyncio", "from windlass import Agent, tool"]
    rounds = [[cpu_ms(code) for code in codes] for _ in range(ROUNDS)]
    bare, asyncio, windlass = (min(times) for times in zip(*rounds, strict=True))
    allowed = BUDGET_MS * max(1.0, (asyncio - bare) / ASYNCIO_MS)
    taken = windlass - bare
    assert taken <= allowed, f"{taken:.0f} ms over bare Python, {allowed:.0f} allowed"
