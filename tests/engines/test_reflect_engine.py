"""Reflection: answers are reviewed in private, and revised."""

from typing import Any

import pytest

from perdure import ConfigError, Limits, Output, ProviderDown
from perdure._engines.reflect import NOT_REVIEWED_REASON, NOT_REVISED_REASON, parse_review
from perdure.engines import reflect
from perdure.events import AnswerReviewed
from perdure.testing import Recorder, call
from tests.engines.roles import GOOD, POOR, World, build_agent, last_question, play, said


def test_options_are_checked() -> None:
    options: dict[str, Any]
    for options in ({"max_reflections": 0}, {"acceptance_score": 11}, {"prompt": ""}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            reflect(**options)


async def test_a_poor_answer_is_revised_and_the_review_is_no_part_of_the_conversation() -> None:
    seen, model = Recorder(), play()
    outcome = await build_agent("reflect", model=model, watchers=[seen]).run("Do it")
    assert said(outcome.new_messages) == [
        ("user", "Do it"),
        ("assistant", "A draft."),
        ("assistant", "A better answer."),
    ]
    reviews = seen.of(AnswerReviewed)
    assert [(each.score, each.needs_revision) for each in reviews] == [(3.0, True), (9.0, False)]
    assert reviews[0].assessment == "- too short\nsay more"
    revision = next(each for each in model.requests if "is to be revised" in last_question(each))
    assert "too short" in revision.messages[-1].text
    assert (outcome.turns, outcome.text) == (len(model.requests), "A better answer.")


async def test_a_good_answer_is_accepted_at_once() -> None:
    model = play(review=GOOD)
    outcome = await build_agent("reflect", model=model).run("Do it")
    assert (outcome.text, len(model.requests)) == ("A draft.", 4)


async def test_the_number_of_reviews_is_limited() -> None:
    model = play(review=POOR)
    outcome = await build_agent(reflect(max_reflections=2), model=model).run("Do it")
    assert [text for role, text in said(outcome.new_messages) if role == "assistant"] == [
        "A draft.",
        "A better answer.",
        "A better answer.",
    ]
    assert sum("Review the last" in last_question(each) for each in model.requests) == 2


@pytest.mark.parametrize(
    ("review", "accepted"),
    [
        ('{"score": 8, "needs_revision": true}', True),
        ('{"score": 7.5}', False),
        ('{"needs_revision": true}', False),
        ('{"needs_revision": false, "score": 1}', True),
        ('{"score": 99}', True),
        ("no JSON", True),
        ("[]", True),
        ('{"score": true}', True),
        (ProviderDown("down"), True),
    ],
)
async def test_a_review_decides_by_its_score_and_its_word(review: Any, accepted: bool) -> None:
    seen = Recorder()
    agent = build_agent(reflect(max_reflections=1), model=play(review=lambda _: review), watchers=[seen])
    outcome = await agent.run("Do it")
    assert (outcome.status, outcome.text) == ("done", "A draft." if accepted else "A better answer.")
    assert [each.needs_revision for each in seen.of(AnswerReviewed)] == [not accepted]


@pytest.mark.parametrize(
    ("review", "told"),
    [
        ("no JSON", AnswerReviewed("accepted without a review: it is not the JSON that was asked for")),
        (ProviderDown("down"), AnswerReviewed("accepted without a review: failed ProviderDown")),
        ('{"score": 3, "issues": ["a", "b"], "suggestion": "c"}', AnswerReviewed("- a\n- b\nc", True, 3.0)),
        ('{"needs_revision": false}', AnswerReviewed("", False, None)),
        ('{"needs_revision": true, "score": "x", "suggestion": ""}', AnswerReviewed("", True, None)),
    ],
)
async def test_a_review_is_stored_with_its_assessment_its_decision_and_its_score(review: Any, told: Any) -> None:
    seen = Recorder()
    agent = build_agent(reflect(max_reflections=1), model=play(review=lambda _: review), watchers=[seen])
    await agent.run("Do it")
    [found] = seen.of(AnswerReviewed)
    assert (found.assessment, found.needs_revision, found.score) == (told.assessment, told.needs_revision, told.score)


async def test_a_reviewer_that_does_not_answer_with_json_is_asked_once_more() -> None:
    reviews = iter(["Nice!", POOR])
    outcome = await build_agent(reflect(max_reflections=1), model=play(review=lambda _: next(reviews))).run("Do it")
    assert outcome.text == "A better answer."


async def test_a_reviewer_is_asked_for_json_once_more_and_not_again() -> None:
    model = play(review="Nice!")
    outcome = await build_agent(reflect(max_reflections=1), model=model).run("Do it")
    asked = [last_question(each) for each in model.requests if not each.tools]
    assert sum("This is not the JSON that was asked for" in each for each in asked) == 1
    assert outcome.text == "A draft."


async def test_the_score_from_which_an_answer_is_good_enough_can_be_given() -> None:
    for given, text in ((3, "A draft."), (3.5, "A better answer.")):
        agent = build_agent(reflect(acceptance_score=given, max_reflections=1), model=play(review=POOR))
        assert (await agent.run("Do it")).text == text


async def test_a_review_without_issues_or_a_suggestion_is_an_empty_assessment() -> None:
    seen = Recorder()
    review = '{"score": 3, "issues": "none", "suggestion": ["x"]}'
    await build_agent(reflect(max_reflections=1), model=play(review=review), watchers=[seen]).run("Do it")
    assert [each.assessment for each in seen.of(AnswerReviewed)] == [""]


async def test_an_answer_that_no_turn_is_left_to_review_is_the_answer() -> None:
    outcome = await build_agent("reflect", limits=Limits(max_turns=3)).run("Do it")
    assert (outcome.status, outcome.reason, outcome.text) == ("done", NOT_REVIEWED_REASON, "A draft.")
    outcome = await build_agent("reflect", limits=Limits(max_turns=4)).run("Do it")
    assert (outcome.status, outcome.reason, outcome.text) == ("done", NOT_REVISED_REASON, "A draft.")


async def test_a_run_that_failed_or_reached_a_limit_has_no_answer_to_review() -> None:
    for reply, limits, status in ((ProviderDown("down"), Limits(), "failed"), ("x", Limits(max_turns=1), "limit")):
        model = play(answer=lambda _, reply=reply: reply)  # type: ignore[misc]
        outcome = await build_agent("reflect", model=model, limits=limits).run("Do it", output=list[int])
        assert outcome.status == status
        assert not any("Review the last" in last_question(each) for each in model.requests)


async def test_tools_can_be_called_for_the_revision() -> None:
    world = World()

    def revise(request: Any) -> Any:
        made = [each.text for message in request.messages for each in message.tool_results]
        return "A better answer." if "noted more" in made else call("note", text="more")

    outcome = await build_agent("reflect", world, model=play(revision=revise)).run("Do it")
    assert (outcome.text, world.effects) == ("A better answer.", {"step 1": 1, "step 2": 1, "more": 1})


async def test_a_second_run_of_the_session_has_reviews_of_its_own() -> None:
    seen = Recorder()
    model = play(review=GOOD)
    session = build_agent("reflect", model=model, watchers=[seen]).session("s")
    await session.run("Do it")
    await session.run("And again")
    assert [each.needs_revision for each in seen.of(AnswerReviewed)] == [False, False]


def test_a_review_without_a_word_is_none() -> None:
    assert parse_review('{"issues": []}') is None
    assert parse_review("nothing") is None
    assert parse_review('[{"score": 3}]') is None


def test_a_review_that_is_quoted_beside_another_one_does_not_count() -> None:
    quoted, own = '{"score": 10, "needs_revision": false}', '{"score": 2, "needs_revision": true}'
    assert parse_review(f"The answer says {quoted}. I say {own}.") is None
    assert parse_review(f"I say {own}. It says {quoted}.") is None
    assert parse_review(f"{own}, in short {own} [1]") == parse_review(own)


@pytest.mark.parametrize(("given", "score"), [("9" * 400, 10.0), ("-" + "9" * 400, 0.0), ("7", 7.0)])
def test_a_score_beyond_the_bounds_is_the_highest_or_the_lowest(given: str, score: float) -> None:
    review = parse_review(f'{{"score": {given}, "needs_revision": true}}')
    assert review is not None
    assert (review.score, review.needs_revision) == (score, True)


async def test_an_answer_that_is_given_by_a_tool_is_reviewed_and_revised_too() -> None:
    seen = Recorder()
    values = iter([[1], [1, 2]])

    def answer(_request: Any) -> Any:
        return call("final_answer", value=next(values))

    reviews = iter([POOR, GOOD])
    model = play(answer=answer, revision=answer, review=lambda _: next(reviews))
    outcome = await build_agent("reflect", model=model, watchers=[seen]).run(
        "Count", output=Output(list[int], mode="tool")
    )
    assert (outcome.status, outcome.value) == ("done", [1, 2])
    assert [each.needs_revision for each in seen.of(AnswerReviewed)] == [True, False]
