"""`perdure attend`: sessions that were cut off, or that got an answer or a message, are continued."""

import json
import signal
from pathlib import Path

import pytest

from perdure import Outcome, ProviderDown
from perdure._cli.work.attend import _OutcomePrinter
from perdure._core.values import faults
from scripts.json_outputs import list_problems

KILLED = {faults.FAULTS_VARIABLE: "loop.intent_stored=kill"}


def test_sessions_that_were_cut_off_are_finished_and_told(shell):
    for name in ("a", "b"):
        result = shell.run("run", "--session", name, "Calculate 6 * 7", environment=KILLED)
        assert result.returncode == -signal.SIGKILL
    result = shell.run("attend", "--once")
    assert result.returncode == 0
    assert sorted(result.stderr.split("\n")[:2]) == ["session a: done", "session b: done"]
    for name in ("a", "b"):
        assert "says: 42" in shell.run("sessions", "show", name).stdout
    again = shell.run("attend", "--once", "-q")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_only_sessions_of_the_prefix_are_continued(shell):
    for name in ("mine-1", "other"):
        shell.run("run", "--session", name, "Calculate 6 * 7", environment=KILLED)
    attended = shell.run("attend", "--once", "--prefix", "mine", "--json")
    assert attended.stderr == ""
    assert [*list_problems("attend", attended.stdout)] == []
    ended = json.loads(attended.stdout)
    assert (ended["session_id"], ended["status"], ended["error"]) == ("mine-1", "done", None)
    assert "the last run was cut off" in shell.run("sessions", "show", "other").stderr


def test_a_session_that_cannot_be_continued_is_told_and_does_not_stop_it(shell):
    for name in ("a", "b"):
        shell.run("run", "--session", name, "Calculate 6 * 7", environment=KILLED)
    result = shell.run("attend", "--once", environment={faults.FAULTS_VARIABLE: "run.opened=raise@1"})
    assert result.stderr.count("done") == 1


def test_it_ends_cleanly_when_it_is_told_to(shell):
    shell.run("run", "--session", "a", "Calculate 6 * 7", environment=KILLED)
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        with shell.started("attend", "--prefix", "a" if number == signal.SIGTERM else "nothing") as process:
            if number == signal.SIGTERM:
                assert process.stderr.readline() == b"session a: done\n"
            else:
                wait_until_it_handles_signals(process.pid)
            process.send_signal(number)
            assert process.wait(20) == code


def wait_until_it_handles_signals(pid: int) -> None:
    """Wait until the process handles SIGTERM itself."""
    while True:
        with Path(f"/proc/{pid}/status").open(encoding="ascii") as file:
            caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
        if caught >> (signal.SIGTERM - 1) & 1:
            return


@pytest.mark.parametrize(
    ("outcome", "line", "row"),
    [
        (
            Outcome(session_id="s", run_id="r", status="done", turns=2),
            "session s: done",
            {"status": "done", "reason": "", "turns": 2, "error": None},
        ),
        (
            Outcome(session_id="s", run_id="r", status="limit", reason="max_turns", turns=1),
            "session s: limit (max_turns)",
            {"status": "limit", "reason": "max_turns", "turns": 1, "error": None},
        ),
        (
            Outcome(session_id="s", run_id="r", status="failed", error=ProviderDown("no\nroute")),
            "error: session s: failed: no␊route",
            {"status": "failed", "reason": "", "turns": 0, "error": "ProviderDown: no\nroute"},
        ),
    ],
)
def test_how_a_run_ended_is_a_line_for_people_or_for_programs(capsys, outcome, line, row):
    _OutcomePrinter(quiet=False, as_json=False).print_outcome(outcome)
    assert capsys.readouterr() == ("", f"{line}\n")
    _OutcomePrinter(quiet=True, as_json=False).print_outcome(outcome)
    assert capsys.readouterr() == ("", f"{line}\n" if outcome.error else "")
    _OutcomePrinter(quiet=False, as_json=True).print_outcome(outcome)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out) == {"session_id": "s", "run_id": "r", "cost_usd": outcome.cost_usd, **row}
