"""How much a model is asked to think."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from perdure import Message, Settings, Text, Thinking, ToolCall, ToolResult, tool_message, user
from perdure._core.values.message import Part
from perdure._models.wires.anthropic.features import (
    DIALECTS,
    ThinkingAndOutputLimit,
    choose_thinking_parameters,
    get_model_features,
)
from perdure.models import Profile, Request

PROFILE = Profile(provider="anthropic", model="claude-haiku-4-5", max_output_tokens=64_000)
UNKNOWN = msgspec.structs.replace(PROFILE, max_output_tokens=None)
CALL, RESULT = ToolCall("c1", "f"), tool_message([ToolResult("c1", "f", (Text("x"),))])


def planned(
    dialect: str = "budget", profile: Profile = PROFILE, messages: Sequence[Message] = (user("Hello"),), **settings: Any
) -> ThinkingAndOutputLimit:
    return choose_thinking_parameters(
        Request(messages=messages, settings=Settings(**settings)), profile, DIALECTS[dialect]
    )


def own(*parts: Part) -> Message:
    return Message("assistant", parts, provider="anthropic", model="claude-haiku-4-5")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-3-haiku-20240307", "plain"),
        ("claude-3-5-sonnet-20240620", "plain"),
        ("claude-3-7-sonnet-latest", "budget"),
        ("claude-sonnet-4-20250514", "budget"),
        ("claude-haiku-4-5", "budget"),
        ("us.anthropic.claude-sonnet-4-6", "adaptive"),
        ("claude-opus-4-7", "adaptive_only"),
        ("claude-sonnet-5", "adaptive_only"),
        ("anthropic/claude-sonnet-5.5", "adaptive_only"),
        ("MiniMax-M3", "unsigned"),
    ],
)
def test_the_name_of_a_model_tells_its_generation(model: str, name: str) -> None:
    assert get_model_features("", model) is DIALECTS[name]
    assert get_model_features("plain", model) is DIALECTS["plain"]


def test_nothing_is_said_about_thinking_unless_it_is_asked_for() -> None:
    assert planned() == ThinkingAndOutputLimit(64_000)
    assert planned(profile=UNKNOWN) == ThinkingAndOutputLimit(8192)
    assert planned(reasoning_effort="none") == ThinkingAndOutputLimit(64_000)
    assert planned("adaptive", reasoning_effort="none").thinking == {"type": "disabled"}
    assert not planned("adaptive", thinking="off").is_thinking


@pytest.mark.parametrize(
    ("settings", "budget"),
    [
        ({"reasoning_effort": "minimal"}, 1024),
        ({"reasoning_effort": "low"}, 2048),
        ({"reasoning_effort": "high"}, 24576),
        ({"thinking": "on"}, 8192),
        ({"reasoning_tokens": 10}, 1024),
        ({"reasoning_tokens": 5000}, 5000),
        ({"reasoning_tokens": 3999, "max_output_tokens": 4000}, 3999),
        ({"reasoning_tokens": 4000, "max_output_tokens": 4000}, 3200),
        ({"reasoning_effort": "high", "max_output_tokens": 2000}, 1600),
    ],
)
def test_a_budget_is_large_enough_and_leaves_room_for_the_answer(settings: Any, budget: int) -> None:
    asked = planned(**settings)
    assert asked.thinking == {"type": "enabled", "budget_tokens": budget}
    assert asked.is_thinking
    assert budget < asked.max_tokens


def test_where_no_limit_is_known_thinking_takes_nothing_from_the_answer() -> None:
    assert planned(profile=UNKNOWN, reasoning_tokens=10_000).max_tokens == 18_192


def test_without_room_for_a_thought_there_is_none() -> None:
    assert planned(reasoning_effort="high", max_output_tokens=1000) == ThinkingAndOutputLimit(1000)


def test_more_than_the_model_can_write_is_not_asked_for() -> None:
    assert planned(max_output_tokens=100_000).max_tokens == 64_000


def test_a_model_that_cannot_think_is_not_asked_to() -> None:
    assert planned("plain", reasoning_effort="high") == ThinkingAndOutputLimit(64_000)


@pytest.mark.parametrize(
    ("settings", "effort"),
    [
        ({"reasoning_effort": "minimal"}, "low"),
        ({"reasoning_effort": "high"}, "high"),
        ({"reasoning_tokens": 3000}, "medium"),
        ({"reasoning_tokens": 90_000}, "high"),
        ({"thinking": "on"}, ""),
    ],
)
def test_a_model_that_decides_itself_is_told_how_hard_to_try(settings: Any, effort: str) -> None:
    asked = planned("adaptive_only", **settings)
    assert (asked.thinking, asked.effort) == ({"type": "adaptive", "display": "summarized"}, effort)


def test_a_model_that_takes_both_is_given_the_tokens_that_were_asked_for() -> None:
    assert planned("adaptive", reasoning_tokens=3000).thinking == {"type": "enabled", "budget_tokens": 3000}


def test_a_model_on_which_a_call_is_forced_does_not_think() -> None:
    assert not planned(reasoning_effort="high", tool_choice="required").is_thinking
    assert planned("adaptive", reasoning_effort="high", tool_choice="f").thinking == {"type": "disabled"}
    assert planned(reasoning_effort="high", tool_choice="none").is_thinking


@pytest.mark.parametrize(
    ("messages", "thinks"),
    [
        ([user("a"), own(Thinking("hm", "sig"), CALL), RESULT], True),
        ([user("a"), own(Thinking(data="xx"), CALL), RESULT, own(CALL), RESULT], True),
        ([user("a"), own(CALL), RESULT], False),
        ([user("a"), own(Thinking("hm"), CALL), RESULT], False),
        ([user("a"), Message("assistant", (Thinking("hm", "sig"), CALL), model="other"), RESULT], False),
        ([user("a"), own(CALL), RESULT, user("and hurry")], False),
        ([user("a"), own(CALL), RESULT, own(Text("done")), user("b")], True),
        ([user("a"), own(Text("half")), user("b")], True),
        ([own(CALL), RESULT], False),
    ],
)
def test_a_turn_that_began_without_a_thought_ends_without_one(messages: list[Message], thinks: bool) -> None:
    assert planned(messages=messages, reasoning_effort="low").is_thinking is thinks


def test_without_its_thoughts_in_the_conversation_a_model_does_not_think_on() -> None:
    messages = [user("a"), own(Thinking("hm", "sig"), CALL), RESULT]
    assert not planned(messages=messages, reasoning_effort="low", echo_reasoning=False).is_thinking
