"""Ctrl-C, SIGTERM and SIGHUP: the first ends the run in good order, the second ends the process."""

import asyncio
import signal

import pytest

from tests.cli.process import PATIENCE, STAND_INS, await_text
from windlass.cli.interrupt import Interrupts


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_cancels_the_run_while_the_model_speaks(shell, number, code):
    with shell.started("run", "--model", "odd:stuck", "--session", "s", "go", program=STAND_INS) as process:
        await_text(process.stdout.fileno(), "thinking")
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    told = errors.decode()
    assert "ending the run in good order; interrupt once more to quit at once\n" in told
    assert "error: the run was cancelled; what was finished is kept\n" in told
    assert "go on with: windlass run --session s" in told
    assert '"status":"cancelled"' in shell.run("sessions", "show", "s", "--json").stdout


def test_a_signal_cancels_the_run_while_a_tool_works(shell):
    with shell.started("run", "--model", "odd:wait", "--session", "s", "go", program=STAND_INS) as process:
        await_text(process.stderr.fileno(), "tool wait {}")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    shown = shell.run("sessions", "show", "s")
    assert "  wait cancelled: The run was cancelled while this ran." in shown.stdout
    assert "cut off" not in shown.stderr


def test_the_second_signal_quits_at_once(shell):
    with shell.started("run", "--model", "odd:insist", "--session", "s", "go", program=STAND_INS) as process:
        await_text(process.stderr.fileno(), "tool insist {}")
        process.send_signal(signal.SIGINT)
        await_text(process.stderr.fileno(), "ending the run in good order")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "the last run was cut off" in shell.run("sessions", "show", "s").stderr


def test_ctrl_c_at_the_terminal_cancels_the_run(shell):
    with shell.terminal("run", "--model", "odd:stuck", "--session", "s", "go", program=STAND_INS) as terminal:
        terminal.await_text("thinking")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "error: the run was cancelled" in terminal.seen


def test_ctrl_c_while_a_prompt_is_read_quits(shell):
    with shell.terminal("run", "-") as terminal:
        terminal.await_text("write the prompt; Ctrl-D on a line of its own ends it")
        terminal.type("half a line\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.seen


def test_a_prompt_is_written_at_the_terminal(shell):
    with shell.terminal("run", "-") as terminal:
        terminal.await_text("write the prompt")
        terminal.type("Calculate 6 * 7\n\x04")
        assert terminal.end() == 0
    assert "The tool calculate says: 42" in terminal.seen


def test_a_signal_that_is_ignored_stays_ignored(shell):
    ignoring = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh", *STAND_INS)
    with shell.started("run", "--model", "odd:stuck", "go", program=ignoring) as process:
        await_text(process.stdout.fileno(), "thinking")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 143


async def test_a_signal_that_came_before_the_run_stops_it_when_it_begins():
    told: list[str] = []
    stopped = asyncio.Event()

    async def stop() -> None:
        stopped.set()

    before = signal.getsignal(signal.SIGTERM)
    with Interrupts(told.append) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        interrupts.on_first(stop)
        async with asyncio.timeout(5):
            await stopped.wait()
    assert interrupts.exit_code == 143
    assert len(told) == 1
    assert signal.getsignal(signal.SIGTERM) is before
