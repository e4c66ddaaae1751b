"""The command that resumes an evaluation, and the signals that stop its runs."""

import asyncio
import os
import signal

import click
import pytest

from perdure import Agent
from perdure._cli.work.eval_run import EvaluationSignals, list_given_options
from perdure.testing import ScriptedModel, pause


@click.command()
@click.argument("dataset")
@click.option("-c", "--case", "cases", multiple=True)
@click.option("--limit-seconds", type=float, default=9.0)
@click.option("-q", "--quiet", is_flag=True)
@click.option("--coding/--no-coding", "-y/-n", default=None)
@click.option("--resume", is_flag=True)
@click.option("--model", envvar="THE_MODEL")
def command(**_):
    """Stands for the command whose options are repeated."""


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["a.toml"], []),
        (["a.toml", "-c", "one", "--case", "two words"], ["--case", "one", "--case", "two words"]),
        (["-q", "a.toml", "--limit-seconds", "500"], ["--limit-seconds", "500.0", "--quiet"]),
        (["a.toml", "-y"], ["--coding"]),
        (["a.toml", "-n"], ["--no-coding"]),
        (["a.toml", "--resume", "--quiet"], ["--quiet"]),
    ],
)
def test_the_options_that_the_user_gave_are_repeated_by_their_long_names(monkeypatch, arguments, given):
    monkeypatch.setenv("THE_MODEL", "from the environment")
    context = command.make_context("eval", arguments)
    assert list_given_options(context, without=("resume",)) == given


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_is_noted_and_decides_the_exit_code(number):
    before = signal.getsignal(number)
    notes: asyncio.Queue[str] = asyncio.Queue()
    with EvaluationSignals(notes.put_nowait) as signals:
        assert notes.empty()
        os.kill(os.getpid(), number)
        assert await notes.get() == "stopping: what is finished is kept; a second signal quits at once"
        assert signals.exit_code == 128 + number
    assert notes.empty()
    assert signal.getsignal(number) == before


async def test_a_signal_stops_the_runs_of_an_agent():
    held = pause()
    with EvaluationSignals(lambda _: None) as signals:
        async with signals.wrap_agent(Agent(ScriptedModel([held]))) as agent:
            running = asyncio.ensure_future(agent.run("hello"))
            await held.wait_reached()
            os.kill(os.getpid(), signal.SIGTERM)
            outcome = await running
    assert (outcome.status, outcome.reason) == ("cancelled", "shutdown")
