"""Auto-continue: a model that announces something and stops is told to go on."""

import pytest
from hypothesis import given

from perdure import Agent, ConfigError, tool
from perdure._core.run.answers import announces_action
from perdure.engines import auto_continue
from perdure.events import AutoContinued, MessageAdded
from perdure.testing import Recorder, ScriptedModel, call
from tests.core.material import texts

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def look() -> str:
    """Look around."""
    return "nothing to see"


async def run(*replies, tools=(look,), accept=auto_continue):
    model, recorder = ScriptedModel(*replies), Recorder()
    agent: Agent[None] = Agent(model, tools=tools, output_validators=[accept()], watchers=[recorder])
    return await agent.run("Go"), recorder


@pytest.mark.parametrize(
    "text",
    [
        "I will look at the file.",
        "I'll now run the tests",
        "I’ll now run the tests",  # noqa: RUF001 - as many models write it
        "Let me look:",
        "Fine. Let me now look…",
        "I am going to look around!",
        "That failed.\nI'm going to try again...",
        "The file is there. Next, I will read it.",
        "Done with that! Now I will go on.",
        "Proceeding to the next step.",
        "I was right.\n\nAbout to delete it.",
        "LET ME SEE.",
    ],
)
def test_a_closing_sentence_that_promises_an_action_announces_it(text):
    assert announces_action(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "It is done.",
        "I will look at the file. It is done.",
        "I will look.\nIt is done",
        "Shall I go on, or let me wait?",
        "I will delete it, if you agree?",
        "Let me know if you need anything else.",
        "Now I understand the problem.",
        "A goodwill gesture was outlet meant.",
    ],
)
def test_a_closing_sentence_that_ends_asks_or_takes_leave_announces_nothing(text):
    assert not announces_action(text)


@given(texts)
def test_any_text_can_be_looked_at(text):
    assert not announces_action(f"{text}\nIt is done.")
    assert announces_action(f"{text}\nI will do it.")


async def test_a_model_that_announces_and_stops_is_told_to_go_on():
    outcome, recorder = await run("I will look.", call("look"), "Nothing there.")
    assert (outcome.status, outcome.text) == ("done", "Nothing there.")
    told = outcome.messages[2]
    assert (told.role, told.text, told.origin) == ("user", "Please continue.", "auto_continue")
    assert [event.count for event in recorder.of(AutoContinued)] == [1]


async def test_the_log_tells_of_it_before_the_message():
    _, recorder = await run("I will look.", "Nothing there.")
    kinds = [type(event) for event in recorder.events]
    place = kinds.index(AutoContinued)
    assert kinds[place + 1] is MessageAdded


async def test_it_happens_at_most_twice_a_run():
    outcome, recorder = await run("I will look.", "I will look soon.", "I will look later.")
    assert (outcome.status, outcome.text) == ("done", "I will look later.")
    assert [event.count for event in recorder.of(AutoContinued)] == [1, 2]


async def test_how_often_and_in_which_words_can_be_said():
    outcome, _ = await run("I will.", "I will.", accept=lambda: auto_continue(max_times=1, text="Do it."))
    assert [message.text for message in outcome.messages] == ["Go", "I will.", "Do it.", "I will."]


async def test_every_run_counts_anew():
    model = ScriptedModel("I will.", "Done.", "I will.", "Done.")
    session = Agent(model, tools=[look], output_validators=[auto_continue(max_times=1)]).session()
    for _ in range(2):
        assert (await session.run("Go")).text == "Done."


async def test_a_model_without_tools_has_nothing_to_go_on_with():
    outcome, recorder = await run("I will look.", tools=())
    assert outcome.text == "I will look."
    assert recorder.of(AutoContinued) == []


async def test_an_answer_stands():
    outcome, recorder = await run("It is done.")
    assert outcome.text == "It is done."
    assert recorder.of(AutoContinued) == []


@pytest.mark.parametrize("options", [{"max_times": 0}, {"max_times": "2"}, {"text": " "}, {"text": None}], ids=str)
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigError, match=r"auto_continue\(max_times=.*give a number from 1 on, and non-empty text"):
        auto_continue(**options)
