"""What a model is told and what it says, without the values that a redactor knows."""

from typing import Any

import pytest

from perdure import Agent, AuthFailed, Message, Text, assistant, user
from perdure.events import (
    ReplyFinished,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from perdure.models import Request
from perdure.models import assemble_reply as assembled
from perdure.permissions import Redactor, redacted_model
from perdure.testing import ScriptedModel

KEY = "s3cr3t-value"


def knowing():
    redactor = Redactor()
    redactor.learn_value("key", KEY)
    return redactor


def parts_of(events) -> list[Any]:
    return list(assembled(events[:-1], events[-1]).parts)


async def heard(steps):
    model = redacted_model(ScriptedModel(list(steps)), knowing())
    return [event async for event in model.stream(Request(messages=[user("x")]))]


@pytest.mark.parametrize("place", range(1, len(KEY)))
async def test_a_value_is_taken_out_wherever_it_is_split(place):
    halves = (KEY[:place], KEY[place:])
    events = await heard(
        [
            *[ThinkingDelta(f"so {halves[0]}", index=0), ThinkingDelta(f"{halves[1]} it is", "proof", index=0)],
            *[TextDelta(f"The key {halves[0]}"), TextDelta(f"{halves[1]} and s3")],
            *[
                ToolCallDelta("a", "send", f'{{"k":"{halves[0]}', index=0),
                ToolCallDelta("b", "send", '{"k":"s3', index=1),
            ],
            *[ToolCallDelta(arguments=f'{halves[1]}"}}', index=0), ToolCallDelta(arguments='"}', index=1)],
            ReplyFinished(),
        ]
    )
    thinking, text, one, two = parts_of(events)
    assert (thinking.text, thinking.signature) == ("so {{key}} it is", "")
    assert text == Text("The key {{key}} and s3")
    assert (one.arguments, two.arguments) == ('{"k":"{{key}}"}', '{"k":"s3"}')
    assert KEY not in repr(events)


async def test_what_was_held_back_comes_before_the_end_of_the_reply():
    events = await heard(
        [ThinkingDelta("s3c"), TextDelta("s3c"), ToolCallDelta("a", "send", "s3c"), TextDelta("!"), ReplyFinished()]
    )
    assert events == [
        *[ThinkingDelta("s3c"), ToolCallDelta("a", "send", "")][:1],
        TextDelta("s3c"),
        *[ToolCallDelta("a", "send", ""), TextDelta("!"), ToolCallDelta(arguments="s3c"), ReplyFinished()],
    ]


async def test_a_second_call_under_the_same_number_does_not_get_what_the_first_one_held_back():
    events = await heard([ToolCallDelta("a", "x", "s3c"), ToolCallDelta("b", "y", "r3t-value"), ReplyFinished()])
    assert [part.arguments for part in parts_of(events)] == ["s3c", "r3t-value"]


async def test_thinking_keeps_its_proof_when_nothing_was_taken_out():
    events = await heard([ThinkingDelta("fine s3"), ThinkingDelta("", "proof"), ReplyFinished()])
    (thinking,) = parts_of(events)
    assert (thinking.text, thinking.signature) == ("fine s3", "proof")


async def test_a_reply_that_begins_anew_begins_with_nothing():
    retry = RetryScheduled(1, 2, 0.0, "ProviderDown", f"bad {KEY}")
    events = await heard([TextDelta("s3c"), retry, TextDelta("r3t-value"), ReplyFinished()])
    assert events == [
        *[RetryScheduled(1, 2, 0.0, "ProviderDown", "bad {{key}}"), TextDelta("r3t-value"), ReplyFinished()]
    ]


async def test_a_reply_that_is_told_whole_is_scrubbed():
    events = await heard([ReplyFinished(message=assistant(KEY))])
    finished = events[0]
    assert isinstance(finished, ReplyFinished)
    assert finished.message == assistant("{{key}}")


async def test_a_model_is_not_told_a_value_that_a_person_typed():
    model = ScriptedModel("Aye.", "Aye.")
    redactor = knowing()
    agent = Agent(redacted_model(model, redactor), instructions=f"The key is {KEY}.")
    session = agent.session("s")
    await session.run(f"My key is {KEY}.")
    await session.run("Again.")
    assert [each.text for each in model.requests[1].messages] == ["My key is {{key}}.", "Aye.", "Again."]
    assert model.requests[0].instructions == "The key is {{key}}."
    redactor.learn_value("other", "Again.")
    assert redactor.text("Again.") == "{{other}}"


async def test_a_request_without_a_value_is_handed_on_as_it_is():
    seen = []

    class Model:
        def stream(self, request):
            seen.append(request)
            return ScriptedModel("x").stream(request)

    redactor = Redactor()
    model = redacted_model(Model(), redactor)
    request = Request(messages=[user("a"), Message("assistant", (Text("b"),))])
    for learned in (False, True):
        if learned:
            redactor.learn_value("key", KEY)
        assert [event async for event in model.stream(request)]
    assert seen[0] is seen[1] is request


async def test_an_error_of_the_model_is_of_the_same_class_without_the_value():
    for error, told in (
        (AuthFailed("no such key"), "no such key"),
        (AuthFailed(f"wrong key {KEY}"), "wrong key {{key}}"),
    ):
        outcome = await Agent(redacted_model(ScriptedModel(error), knowing())).run("x")
        assert outcome.status == "failed"
        assert isinstance(outcome.error, AuthFailed)
        assert (str(outcome.error), outcome.error.__context__) == (told, None)


@pytest.mark.parametrize("first_id", ["a", ""])
async def test_a_call_that_repeats_its_id_is_one_call(first_id: str) -> None:
    halves = [ToolCallDelta(first_id, "x", "<s3c"), ToolCallDelta("a", "", "r3t-value>")]
    assert await heard([*halves, ReplyFinished()]) == [
        ToolCallDelta(first_id, "x", "<"),
        ToolCallDelta("a", "", "{{key}}>"),
        ReplyFinished(),
    ]


async def test_a_piece_of_thinking_is_passed_on_if_it_has_anything() -> None:
    pieces = [
        ThinkingDelta("fine"),
        ThinkingDelta("", "proof"),
        ThinkingDelta("", data="encrypted"),
        ThinkingDelta("", details={"id": 1}),
    ]
    assert await heard([*pieces, ThinkingDelta(""), ReplyFinished()]) == [*pieces, ReplyFinished()]


async def test_a_piece_of_a_call_is_passed_on_if_it_has_anything() -> None:
    pieces = [
        ToolCallDelta("a", "", ""),
        ToolCallDelta("", "send", ""),
        ToolCallDelta(arguments="{}"),
        ToolCallDelta(signature="proof"),
    ]
    assert await heard([*pieces, ToolCallDelta(), TextDelta(""), ReplyFinished()]) == [*pieces, ReplyFinished()]


async def test_thinking_that_was_changed_has_no_proof_whatever_follows_and_other_thinking_has() -> None:
    events = await heard(
        [
            ThinkingDelta(f"use {KEY}. ", index=0),
            ThinkingDelta("fine", "own proof", index=1),
            ThinkingDelta("more", "proof", index=0),
            ReplyFinished(),
        ]
    )
    assert events == [
        ThinkingDelta("use {{key}}. ", index=0),
        ThinkingDelta("fine", "own proof", index=1),
        ThinkingDelta("more", "", index=0),
        ReplyFinished(),
    ]
