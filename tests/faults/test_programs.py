"""A program that the model wrote is killed with its process at every place: no effect of its calls happens twice."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call
from perdure.tools import code_mode

pytestmark = [pytest.mark.faults, pytest.mark.packages("pydantic_monty")]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0
POINTS = ("loop.intent_stored", "loop.effect_done", "loop.result_stored", "question.asked", "question.answered")
"""The places of the short form: around an effect, and around a question."""


def sweep(folder: Path, step: int, *points: str, seconds: float = PATIENCE) -> tuple[list[str], int]:
    """What went wrong, and the number of kills."""
    command = [sys.executable, "-m", "tests.faults.program_session", str(folder), str(step), *points]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=True).stdout
    *wrong, count = out.splitlines()
    return wrong, int(count.removeprefix("kills "))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.timeout(300)  # many processes, one after the other, perhaps on a busy machine
def test_a_program_that_is_killed_repeats_no_effect(tmp_path, point):
    wrong, kills = sweep(tmp_path, 4, point)
    assert wrong == []
    assert kills >= 1


@pytest.mark.skipif(os.environ.get("PERDURE_SEARCH") != "long", reason="the long form of the test above")
@pytest.mark.timeout(900)
def test_a_program_that_is_killed_at_every_place_repeats_no_effect(tmp_path):
    wrong, kills = sweep(tmp_path, 1, seconds=800)
    assert wrong == []
    assert kills >= 100


@pytest.mark.skipif(os.environ.get("PERDURE_SEARCH") != "long", reason="it waits longer than a program may compute")
async def test_the_time_of_calls_does_not_count_as_time_of_the_program():
    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(7)  # real time: the interpreter has a clock of its own
        return "waited"

    model = ScriptedModel(call("run_program", code="await wait()"), "Done.")
    agent = Agent(model, tools=[wait], extensions=[code_mode(max_seconds=5)], store="memory:")
    outcome = await agent.session("s").run("Go")
    assert [each.text for message in outcome.messages for each in message.tool_results] == ["waited"]
