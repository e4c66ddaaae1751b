"""Fault points: harmless until armed, and then exact."""

import ast
import os
import signal
import subprocess
import sys

import pytest

from perdure import ConfigError
from perdure._core.values import faults
from tests.architecture.source import SOURCE

POINT = "store.append.before_commit"
OTHER = "store.append.after_commit"


@pytest.fixture(autouse=True)
def disarmed():
    """Leave no point armed for the next test."""
    yield
    faults.disarm()


@pytest.fixture
def signals(monkeypatch):
    """What the process would have sent to itself."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    return sent


def test_a_point_that_is_not_armed_does_nothing(signals):
    faults.fault_point(POINT)
    faults.arm({OTHER: "raise"})
    faults.fault_point(POINT)
    assert signals == []


def test_an_armed_point_raises_each_time_it_is_passed():
    faults.arm({POINT: "raise"})
    for _ in range(3):
        with pytest.raises(faults.FaultInjected, match=POINT):
            faults.fault_point(POINT)


def test_a_counted_fault_happens_at_that_passing_and_at_no_other():
    faults.arm({POINT: "raise@3"})
    faults.fault_point(POINT)
    faults.fault_point(POINT)
    with pytest.raises(faults.FaultInjected):
        faults.fault_point(POINT)
    faults.fault_point(POINT)


@pytest.mark.parametrize(("action", "number"), [("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)])
def test_kill_and_stop_are_signals_to_the_process_itself(signals, action, number):
    faults.arm({POINT: action})
    faults.fault_point(POINT)
    assert signals == [(os.getpid(), number)]


def test_arming_replaces_what_was_armed_before():
    faults.arm({POINT: "raise"})
    faults.arm({OTHER: "raise"})
    faults.fault_point(POINT)
    with pytest.raises(faults.FaultInjected):
        faults.fault_point(OTHER)


def test_text_arms_several_points():
    faults.arm_from_text(f" {POINT} = raise , {OTHER}=raise@2,")
    with pytest.raises(faults.FaultInjected):
        faults.fault_point(POINT)
    faults.fault_point(OTHER)
    with pytest.raises(faults.FaultInjected):
        faults.fault_point(OTHER)


def test_empty_text_disarms_every_point():
    faults.arm({POINT: "raise"})
    faults.arm_from_text("")
    faults.fault_point(POINT)


@pytest.mark.parametrize("action", ["", "explode", "kill@", "kill@0", "kill@-1", "raise@x", "raise@1@2", "@3"])
def test_an_action_that_makes_no_sense_is_refused_and_leaves_all_as_it_was(action):
    faults.arm({OTHER: "raise"})
    with pytest.raises(ConfigError, match="kill, raise, stop"):
        faults.arm({POINT: action})
    with pytest.raises(faults.FaultInjected):
        faults.fault_point(OTHER)


def test_a_misspelt_point_is_refused_with_the_names_there_are():
    with pytest.raises(ConfigError, match=f"'stor.append'.*{POINT}"):
        faults.arm({"stor.append": "kill"})


def test_the_environment_arms_a_process_before_it_starts():
    point = f"faults.fault_point({POINT!r})"
    program = f"from perdure._core.values import faults\n{point}\nprint('once', flush=True)\n{point}"
    child = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, faults.FAULTS_VARIABLE: f"{POINT}=kill@2"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (child.returncode, child.stdout) == (-signal.SIGKILL, "once\n"), child.stderr


def test_the_names_are_those_of_the_points_in_the_source():
    """A new `faults.fault_point("x.y")` needs a line in `faults.POINTS`, and a line there a place in the source."""
    passed = {
        node.args[0].value
        for path in SOURCE.rglob("*.py")
        if "fault_point" in (text := path.read_text("utf-8"))  # parsing all of them would take seconds
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "fault_point"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "faults"
        and isinstance(node.args[0], ast.Constant)
    }
    assert passed == set(faults.list_fault_points())
