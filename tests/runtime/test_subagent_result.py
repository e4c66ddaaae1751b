"""What the model is told about the end of a subagent."""

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Outcome, Output, ToolOutput, Usage, assistant, user
from perdure._runtime.subagents.result import (
    build_subagent_result,
    describe_problem,
    extract_answer,
    get_last_text,
)


@dataclass
class Plan:
    title: str


RENDER = {"child": "c1", "steps": 3, "usage": {"input_tokens": 7, "output_tokens": 2}}


def ended(status: Any, reason: str = "", text: str = "", **more: Any) -> Outcome[Any]:
    return Outcome(status=status, reason=reason, text=text, turns=3, usage=Usage(7, 2), **more)


@pytest.mark.parametrize(
    ("outcome", "content", "is_error"),
    [
        (ended("done", text=" Blue. "), "Blue.", False),
        (ended("done"), "painter finished without an answer.", False),
        (ended("stopped", "terminated", "Blue."), "Blue.", False),
        (ended("stopped", "stop_condition", "Blue."), "Blue.", False),
        (
            ended("stopped", "repeat", "Bl"),
            "painter was stopped (repeat) before it was done. Its output until then:\nBl",
            True,
        ),
        (
            ended("limit", "max_turns"),
            "painter reached a limit (max_turns) before it was done. It had produced no output.",
            True,
        ),
        (
            ended("cancelled", text="Bl"),
            "painter was cancelled before it was done. Its output until then:\nBl",
            True,
        ),
        (
            ended("failed", error=ValueError("no paint")),
            "painter failed (no paint). It had produced no output.",
            True,
        ),
        (ended("failed"), "painter failed (). It had produced no output.", True),
    ],
)
def test_the_answer_of_a_subagent_or_what_kept_it_from_one(outcome: Outcome[Any], content: str, is_error: bool) -> None:
    assert build_subagent_result("painter", outcome, child_path="c1") == ToolOutput(
        content, render=RENDER, is_error=is_error
    )


def test_nothing_is_said_of_an_outcome_without_a_problem() -> None:
    outcomes = [ended("done"), ended("stopped"), ended("stopped", "terminated"), ended("stopped", "stop_condition")]
    assert [describe_problem(each) for each in outcomes] == ["", "", "", ""]


@pytest.mark.parametrize(
    ("outcome", "content", "is_error"),
    [
        (ended("done", output=Plan("Oslo")), '{"title":"Oslo"}', False),
        (ended("done", new_messages=[user("Go"), assistant('{"title": "Oslo"}')]), '{"title":"Oslo"}', False),
        (
            ended("done", text="Oslo!", new_messages=[user("Go"), assistant("{}")]),
            "planner did not answer with a Plan (title: missing; it is required). Its output until then:\nOslo!",
            True,
        ),
        (
            ended("limit", "max_turns", "Os"),
            "planner reached a limit (max_turns) before it was done. Its output until then:\nOs",
            True,
        ),
    ],
)
def test_a_subagent_with_an_output_type_has_to_answer_with_it(
    outcome: Outcome[Any], content: str, is_error: bool
) -> None:
    assert build_subagent_result("planner", outcome, Output(Plan), "c1") == ToolOutput(
        content, render=RENDER, is_error=is_error
    )


def test_the_last_words_are_those_of_the_last_reply_that_has_any() -> None:
    messages = [assistant("One."), assistant(" Two. "), user("And?"), assistant("  ")]
    assert get_last_text(messages) == "Two."
    assert get_last_text([user("And?")]) == ""
    assert extract_answer(ended("done", text="  ", new_messages=messages)) == "Two."
    assert extract_answer(ended("done", text=" Three. ", new_messages=messages)) == "Three."
