"""The tools ask_user and plan: a person answers, now or days later."""

import pytest

from perdure import Agent
from perdure.testing import ScriptedModel, call
from perdure.toolkits.people_tools import people_tools


async def ask(answer, *calls):
    """Run a call that asks, answer it later, and return the result and the session."""
    agent = Agent(ScriptedModel(*calls, "Done."), tools=people_tools(), answer_timeout_seconds=0)
    session = agent.session()
    outcome = await session.run("Go.")
    if outcome.status == "waiting":
        (question,) = outcome.questions
        await session.answer(question.ask_id, answer)
        outcome = await session.resume()
    assert outcome.status == "done"
    (result,) = [each for message in await session.messages() for each in message.tool_results]
    return result, session


async def test_a_question_is_answered_in_the_users_words():
    result, _ = await ask("Oslo", call("ask_user", question="Where?"))
    assert (result.status, result.text) == ("ok", "Oslo")


@pytest.mark.parametrize("answer", ["red", "something else"])
async def test_a_question_with_options_takes_one_of_them_or_another_answer(answer):
    result, _ = await ask(answer, call("ask_user", question="Which?", options=["red", "blue"]))
    assert result.text == answer


@pytest.mark.parametrize(
    ("answer", "words", "kept"),
    [
        ("approve", "approves the plan", "1. Sail."),
        ("reject", "rejects the plan", None),
        ("First the oars.", "wants changes: First the oars.", None),
    ],
)
async def test_a_plan_is_approved_rejected_or_amended(answer, words, kept):
    result, session = await ask(answer, call("plan", steps="1. Sail."))
    assert words in result.text
    assert await session.kept("plan") == kept


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (call("ask_user", question=" "), "give a question"),
        (call("ask_user", question="Which?", options=["a", "a"]), "each of them once"),
        (call("ask_user", question="Which?", options=[str(each) for each in range(11)]), "up to 10"),
        (call("ask_user", question="Which?", options=[""]), "not empty"),
        (call("plan", steps=""), "give the steps"),
    ],
)
async def test_a_question_that_makes_no_sense_is_not_asked(made, words):
    result, _ = await ask(None, made)
    assert result.status == "error"
    assert words in result.text


async def test_a_question_that_nobody_answers_is_an_error_for_the_model():
    agent = Agent(ScriptedModel(call("plan", steps="1."), "Done."), tools=people_tools())
    session = agent.session()
    outcome = await session.run("Go.")
    assert outcome.status in {"waiting", "done"}
