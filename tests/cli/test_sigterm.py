"""SIGTERM ends `perdure run` in good order: at random moments, during slow tools, and with tools that do not end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.architecture.source import ROOT
from tests.cli.process import PATIENCE, STAND_INS, await_text
from tests.cli.sigterm import MOST_SECONDS
from tests.seeds import SEED

INTERRUPTED = 20
LONG_INTERRUPTED = 1_500
"""So many runs are ended in the middle; others have come to their end before the signal came."""
STUBBORN = {
    "wait": ("tool wait {}", 0, "run_waiting"),
    "insist": ("tool insist {}", 0, "run_waiting"),
    "deaf": ("tool deaf {}", 0, "run_waiting"),
    "sleep": ("tool sleep {}", 0, "run_waiting"),
    "block": ("blocking", 143, "tool_started"),
}
"""Tools that do not end; what tells that they have begun, the exit code, and the last event of the log."""


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_nothing_is_lost_by_a_sigterm_at_any_moment(tmp_path):
    long = os.environ.get("PERDURE_SEARCH") == "long"
    wanted = LONG_INTERRUPTED if long else INTERRUPTED
    command = [sys.executable, "-m", "tests.cli.sigterm", tmp_path, str(wanted), str(SEED)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr.decode()
    findings = json.loads(done.stdout)
    assert findings["wrong"] == []
    assert findings["seen"]["saw waiting"] == wanted
    assert findings["slowest_seconds"] < MOST_SECONDS


SIGNALLED_BEFORE_IT_BEGINS = """
import os, runpy, signal
from perdure._cli.terminal.signals import SignalHandler

wrap_agent = SignalHandler.wrap_agent

def wrap_and_signal(self, agent):
    os.kill(os.getpid(), signal.SIGTERM)
    return wrap_agent(self, agent)

SignalHandler.wrap_agent = wrap_and_signal
runpy.run_module("perdure", run_name="__main__")
"""


def test_a_run_that_has_not_begun_does_not_begin_and_says_so(shell):
    program = (sys.executable, "-c", SIGNALLED_BEFORE_IT_BEGINS)
    done = shell.run("run", "-s", "late", "hello", program=program)
    assert (done.returncode, done.stdout) == (0, "")
    assert "the run was stopped before it began: start it again" in done.stderr
    assert "late" not in shell.run("sessions", "list").stdout


def test_a_tool_that_does_not_end_holds_it_up_no_longer(shell):
    found: dict[str, tuple[int, float]] = {}

    def end(name: str) -> None:
        begun, _, _ = STUBBORN[name]
        with shell.started("run", "--model", f"odd:{name}", "-s", name, "go", program=STAND_INS) as process:
            await_text(process.stderr.fileno(), begun)
            sent = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
            found[name] = (process.returncode, time.monotonic() - sent)

    threads = [threading.Thread(target=end, args=[name]) for name in STUBBORN]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert {name: code for name, (code, _) in found.items()} == {name: code for name, (_, code, _) in STUBBORN.items()}
    assert {name: seconds for name, (_, seconds) in found.items() if not 10 <= seconds < MOST_SECONDS} == {}
    for name, (_, _, kind) in STUBBORN.items():
        entries = [json.loads(line) for line in shell.run("sessions", "show", name, "--json").stdout.splitlines()]
        last = entries[-1]["event"]
        assert (name, last["kind"]) == (name, kind)
        assert shell.run("run", "-q", "-s", name, "Calculate 6 * 7").returncode == 0
