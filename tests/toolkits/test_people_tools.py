"""The tools ask_user and plan: a person answers, now or days later."""

import pytest

from perdure import Agent
from perdure.testing import ScriptedModel, call
from perdure.tools import people_tools

WRONG_OPTIONS = "give up to 10 options, each of them once and not empty"


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
    ("answer", "text", "kept"),
    [
        ("approve", "The user approves the plan: carry it out.", "1. Sail."),
        ("reject", "The user rejects the plan: do not carry it out. Ask what is wanted instead.", None),
        ("First the oars.", "The user wants changes: First the oars.\nAmend the plan, and ask again.", None),
    ],
)
async def test_a_plan_is_approved_rejected_or_amended(answer, text, kept):
    result, session = await ask(answer, call("plan", steps="1. Sail."))
    assert (result.status, result.text) == ("ok", text)
    assert await session.kept("plan") == kept


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (call("ask_user", question=" "), "give a question"),
        (call("ask_user", question="Which?", options=["a", "a"]), WRONG_OPTIONS),
        (call("ask_user", question="Which?", options=[str(each) for each in range(11)]), WRONG_OPTIONS),
        (call("ask_user", question="Which?", options=["a", " "]), WRONG_OPTIONS),
        (call("plan", steps=" "), "give the steps of the plan"),
    ],
)
async def test_a_question_that_makes_no_sense_is_not_asked(made, words):
    result, _ = await ask(None, made)
    assert (result.status, result.text) == ("error", words)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (call("ask_user", question="Where?"), "decide yourself, and say what you assumed"),
        (call("ask_user", question="Where?", options=["a", "b"]), "decide yourself, and say what you assumed"),
        (call("plan", steps="1."), "do not carry out the plan"),
    ],
)
async def test_a_question_that_nobody_can_answer_is_an_error_for_the_model(made, text):
    agent = Agent(ScriptedModel(made, "Done."), tools=people_tools(), interactive=False)
    outcome = await agent.run("Go.")
    (result,) = [each for message in outcome.new_messages for each in message.tool_results]
    reason = "no questions can be asked in this run: it is not interactive"
    assert (outcome.status, result.status, result.text) == (
        "done", "error", f"the user did not answer ({reason}): {text}",
    )  # fmt: skip


async def test_what_a_person_sees_of_a_question_is_its_text_and_its_options():
    options = [str(each) for each in range(10)]
    calls = [call("ask_user", question="Which?", options=options), call("plan", steps=" 1. Sail. ")]
    agent = Agent(ScriptedModel(*calls, "Done."), tools=people_tools(), answer_timeout_seconds=0)
    session = agent.session()
    shown = []
    outcome = await session.run("Go.")
    while outcome.status == "waiting":
        (question,) = outcome.questions
        shown.append((question.text, question.input, question.output))
        await session.answer(question.ask_id, "x")
        outcome = await session.resume()
    plan = "1. Sail.\n\nShall the agent carry out this plan? Any other answer is sent to it."
    assert shown == [
        (text, {
            "question": text,
            "options": [{"value": each, "label": each, "description": ""} for each in choices],
            "other": True,
        }, {"type": "string"})
        for text, choices in (("Which?", options), (plan, ["approve", "reject"]))
    ]  # fmt: skip
