"""What is exactly at a limit of a provider is accepted, and what is beyond it is refused."""

from typing import Any

import pytest

from perdure._models.wires import anthropic, bedrock, gemini, openai_chat, openai_responses
from perdure._models.wires.anthropic.features import MIN_THINKING_TOKENS
from perdure._models.wires.anthropic.lint import MAX_CACHE_MARKERS
from perdure._models.wires.openai_chat.lint import MAX_TOOLS
from perdure.models import Profile

BODIES: dict[Any, dict[str, Any]] = {
    openai_responses.WIRE: {"model": "m", "input": [{"role": "user", "content": "hi"}]},
    openai_chat.WIRE: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    anthropic.WIRE: {"model": "m", "max_tokens": 5_000, "messages": [{"role": "user", "content": "hi"}]},
    bedrock.WIRE: {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
    gemini.WIRE: {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
PROVIDERS = {
    openai_responses.WIRE: "openai",
    openai_chat.WIRE: "openai",
    anthropic.WIRE: "anthropic",
    bedrock.WIRE: "bedrock",
    gemini.WIRE: "google",
}


def think(budget: int, most: int) -> dict[str, Any]:
    return {"max_tokens": most, "thinking": {"type": "enabled", "budget_tokens": budget}}


def think_at_bedrock(budget: int, most: int) -> dict[str, Any]:
    thinking = {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return {"inferenceConfig": {"maxTokens": most}, "additionalModelRequestFields": thinking}


def mark(count: int) -> dict[str, Any]:
    return {"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * count}


def mark_at_bedrock(count: int) -> dict[str, Any]:
    return {"system": [each for _ in range(count) for each in ({"text": "x"}, {"cachePoint": {"type": "default"}})]}


def offer(count: int) -> dict[str, Any]:
    functions = [{"name": f"f{number}", "parameters": {"type": "object"}} for number in range(count)]
    return {"tools": [{"type": "function", "function": each} for each in functions]}


@pytest.mark.parametrize(
    ("wire", "fits", "refused"),
    [
        (openai_responses.WIRE, {"prompt_cache_key": "x" * 64}, {"prompt_cache_key": "x" * 65}),
        (openai_responses.WIRE, {"max_output_tokens": 16}, {"max_output_tokens": 15}),
        (openai_chat.WIRE, offer(MAX_TOOLS), offer(MAX_TOOLS + 1)),
        (anthropic.WIRE, {"max_tokens": 1}, {"max_tokens": 0}),
        (anthropic.WIRE, {"temperature": 0}, {"temperature": -0.1}),
        (anthropic.WIRE, {"temperature": 1}, {"temperature": 1.1}),
        (anthropic.WIRE, think(MIN_THINKING_TOKENS, 5_000), think(MIN_THINKING_TOKENS - 1, 5_000)),
        (anthropic.WIRE, think(4_999, 5_000), think(5_000, 5_000)),
        (anthropic.WIRE, {**think(2_000, 5_000), "top_p": 0.95}, {**think(2_000, 5_000), "top_p": 0.94}),
        (anthropic.WIRE, mark(MAX_CACHE_MARKERS), mark(MAX_CACHE_MARKERS + 1)),
        (bedrock.WIRE, {"inferenceConfig": {"maxTokens": 1}}, {"inferenceConfig": {"maxTokens": 0}}),
        (bedrock.WIRE, {"inferenceConfig": {"temperature": 0}}, {"inferenceConfig": {"temperature": -0.1}}),
        (bedrock.WIRE, {"inferenceConfig": {"temperature": 1}}, {"inferenceConfig": {"temperature": 1.1}}),
        (bedrock.WIRE, think_at_bedrock(4_999, 5_000), think_at_bedrock(5_000, 5_000)),
        (bedrock.WIRE, mark_at_bedrock(MAX_CACHE_MARKERS), mark_at_bedrock(MAX_CACHE_MARKERS + 1)),
        (
            gemini.WIRE,
            {"generationConfig": {"stopSequences": [*"abcde"]}},
            {"generationConfig": {"stopSequences": [*"abcdef"]}},
        ),
        (gemini.WIRE, {"generationConfig": {"seed": 2**31 - 1}}, {"generationConfig": {"seed": 2**31}}),
        (gemini.WIRE, {"generationConfig": {"seed": -(2**31)}}, {"generationConfig": {"seed": -(2**31) - 1}}),
    ],
)
def test_a_request_at_a_limit_breaks_no_rule_and_one_beyond_it_does(
    wire: Any, fits: dict[str, Any], refused: dict[str, Any]
) -> None:
    profile = Profile(provider=PROVIDERS[wire], model="m")
    assert [*wire.lint({**BODIES[wire], **fits}, profile)] == []
    assert len([*wire.lint({**BODIES[wire], **refused}, profile)]) == 1
