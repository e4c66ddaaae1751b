"""How fast Windlass starts."""

import os
import subprocess
import sys

import pytest

BUDGET_MS = 110
ASYNCIO_MS = 77
"""What `import asyncio` takes on the machine that the budget was set on; a slower machine gets a larger budget."""


def cpu_ms(code: str, tries: int = 7) -> float:
    """The CPU time of a fresh interpreter that runs this code, at its best."""
    best = float("inf")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
    for _ in range(tries):
        process = subprocess.Popen([sys.executable, "-c", code], env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{code!r} failed"
        best = min(best, (usage.ru_utime + usage.ru_stime) * 1000)
    return best


@pytest.mark.budget
def test_importing_an_agent_and_a_tool_stays_within_its_budget():
    bare = cpu_ms("pass")
    allowed = BUDGET_MS * max(1.0, (cpu_ms("import asyncio") - bare) / ASYNCIO_MS)
    taken = cpu_ms("from windlass import Agent, tool") - bare
    assert taken <= allowed, f"{taken:.0f} ms over bare Python, {allowed:.0f} allowed"
