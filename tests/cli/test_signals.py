"""Ctrl-C, SIGTERM and SIGHUP: the first ends the run in good order, the second ends the process.

SIGTERM at random moments and against stubborn tools is in `test_sigterm.py`.
"""

import asyncio
import signal

import pytest

from perdure.cli.signals import SignalHandler
from tests.cli.process import PATIENCE, STAND_INS, await_text


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
