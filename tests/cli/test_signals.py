"""Ctrl-C, SIGTERM and SIGHUP: the first ends the run in good order, the second ends the process.

SIGTERM at random moments and against stubborn tools is in `test_sigterm.py`.
"""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from perdure._cli.terminal.signals import SignalHandler
from tests.cli.process import PATIENCE, STAND_INS, await_text

INTERRUPTING = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize("name", ["perdure._cli.main", "click", "perdure._cli.services.trust"])
@pytest.mark.parametrize("start", [["-m", "perdure"], ["-c", "from perdure._cli.entry import main; main()"]])
def test_ctrl_c_while_the_command_is_imported_prints_no_traceback(tmp_path, start, name):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(name=name), encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *start, "--version"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_that_is_ignored_stays_so_while_the_command_is_imported(tmp_path):
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    (tmp_path / "sitecustomize.py").write_text(ignoring + INTERRUPTING.format(name="click"), encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "perdure", "--version"]
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=env, capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_while_the_model_speaks(shell, number):
    with shell.started("run", "--model", "odd:stuck", "--session", "s", "go", program=STAND_INS) as process:
        await_text(process.stdout.fileno(), "thinking")
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    is_ctrl_c = number == signal.SIGINT
    assert process.returncode == (130 if is_ctrl_c else 0)
    told = errors.decode()
    quits = "cancelling the run; interrupt once more" if is_ctrl_c else "shutting down: tools get 10 seconds"
    assert quits in told
    shown = shell.run("sessions", "show", "s", "--json").stdout
    if is_ctrl_c:
        assert "error: the run was cancelled; finished work is kept\n" in told
        assert "go on with: perdure run --session s" in told
        assert '"status":"cancelled","reason":"cancelled"' in shown
    else:
        assert "warning: the run was stopped; finish it with: perdure resume s\n" in told
        assert '"kind":"run_waiting"' in shown
        assert "the last run was cut off; finish it with: perdure resume s" in shell.run("sessions", "show", "s").stderr


def test_ctrl_c_cancels_the_run_while_a_tool_works(shell):
    with shell.started("run", "--model", "odd:wait", "--session", "s", "go", program=STAND_INS) as process:
        await_text(process.stderr.fileno(), "tool wait {}")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    shown = shell.run("sessions", "show", "s")
    assert "  wait cancelled: The run was cancelled while this ran." in shown.stdout
    assert "cut off" not in shown.stderr


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGTERM, signal.SIGINT, 130),
        (signal.SIGINT, signal.SIGHUP, 129),
    ],
)
def test_the_second_signal_quits_at_once(shell, first, second, code):
    with shell.started("run", "--model", "odd:insist", "--session", "s", "go", program=STAND_INS) as process:
        await_text(process.stderr.fileno(), "tool insist {}")
        process.send_signal(first)
        await_text(process.stderr.fileno(), "at once")
        process.send_signal(second)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "the last run was cut off" in shell.run("sessions", "show", "s").stderr


def test_ctrl_c_at_the_terminal_cancels_the_run(shell):
    with shell.terminal("run", "--model", "odd:stuck", "--session", "s", "go", program=STAND_INS) as terminal:
        terminal.await_text("thinking")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "error: the run was cancelled" in terminal.seen


def test_ctrl_c_while_a_prompt_is_read_quits(shell):
    with shell.terminal("run", "-") as terminal:
        terminal.await_text("type the prompt; end it with Ctrl-D on an empty line")
        terminal.type("half a line\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.seen


def test_a_prompt_is_written_at_the_terminal(shell):
    with shell.terminal("run", "-") as terminal:
        terminal.await_text("type the prompt")
        terminal.type("Calculate 6 * 7\n\x04")
        assert terminal.end() == 0
    assert "The tool calculate says: 42" in terminal.seen


def test_a_signal_that_is_ignored_stays_ignored(shell):
    ignoring = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *STAND_INS)
    with shell.started("run", "--model", "odd:stuck", "go", program=ignoring) as process:
        await_text(process.stdout.fileno(), "thinking")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


def test_a_terminal_that_is_closed_ends_the_run_in_good_order(shell):
    with shell.terminal("run", "--model", "odd:endless", "--session", "s", "go", program=STAND_INS) as terminal:
        terminal.await_text("more and more")
        terminal.hang_up()
        assert terminal.process.wait(PATIENCE) in {0, 74}  # the first that it notices is the signal or the output
    shown = shell.run("sessions", "show", "s", "--json").stdout
    assert '"kind":"run_waiting"' in shown or '"status":"cancelled"' in shown  # it is left, or cancelled for its output


async def test_ctrl_c_that_came_before_the_run_stops_it_when_it_begins():
    told: list[str] = []
    stopped = asyncio.Event()

    async def stop() -> None:
        stopped.set()

    before = signal.getsignal(signal.SIGINT)
    with SignalHandler(told.append) as interrupts:
        assert not interrupts.is_interrupted
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        interrupts.on_interrupt(stop)
        async with asyncio.timeout(30):
            await stopped.wait()
        assert (interrupts.is_interrupted, interrupts.is_shutdown, interrupts.exit_code) == (True, False, 130)
    assert len(told) == 1
    assert signal.getsignal(signal.SIGINT) is before


async def test_a_shutdown_that_came_before_the_run_is_told_once_and_is_no_failure():
    told: list[str] = []
    with SignalHandler(told.append) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        assert (interrupts.is_interrupted, interrupts.is_shutdown, interrupts.exit_code) == (True, True, 0)
    assert told == ["shutting down: tools get 10 seconds; a second signal quits at once"]
