"""What is said at the end of one request: by functions of others, which may fail."""

from collections.abc import Coroutine
from typing import Any

import pytest

from perdure import Agent, Extension
from perdure._core.run.requests import label_requests
from perdure.engines import Run
from perdure.events import ErrorRaised, ModelRequested
from perdure.testing import ScriptedModel


def broken(_run: Run) -> str:
    raise ValueError("no clock")


def promised(_run: Run) -> Coroutine[Any, Any, str]:
    async def late() -> str:
        return "never"

    return late()


@pytest.mark.in_memory("events that pass")
@pytest.mark.parametrize(
    ("reminder", "told"),
    [
        (broken, "no clock"),
        (promised, "it has to return text or None, without await: async work belongs between turns"),
        (lambda _run: 5, "returned 5"),
    ],
)
async def test_a_reminder_that_fails_is_told_and_left_out_and_the_run_goes_on(reminder: Any, told: str):
    model = ScriptedModel("Done.")
    time = Extension(name="time", reminders=[reminder, lambda _run: "It is noon.", lambda _run: None])
    events = [each async for each in Agent(model, extensions=[time]).session("s").stream("Go")]
    (error,) = [each for each in events if isinstance(each, ErrorRaised)]
    assert told in error.message
    assert error.where == "a reminder"
    assert [each.text for each in model.requests[0].messages] == ["Go", "It is noon."]


async def test_reminders_that_have_nothing_to_say_add_nothing():
    model = ScriptedModel("Done.")
    await Agent(model, extensions=[Extension(name="time", reminders=[lambda _run: None])]).run("Go")
    assert [each.text for each in model.requests[0].messages] == ["Go"]


async def test_labels_of_a_reminder_are_in_the_log_once_and_come_before_the_calls_that_follow_it():
    def tell(run: Run) -> None:
        label_requests(run, ["private"], "program:diary")

    extension = Extension(name="diary", between_turns=[tell], reminders=[lambda _run: "Oslo"])
    session = Agent(ScriptedModel("One.", "Two."), extensions=[extension]).session("s")
    await session.run("Go")
    await session.run("Go")
    state = await session.read_state()
    assert state.labels == {"private": ("program:diary",)}
    requests = [each.event for each in await session.store.read("s") if isinstance(each.event, ModelRequested)]
    assert [each.labels for each in requests] == [("private",), ()]
