"""Table of the features of each generation of Anthropic models: thinking modes, sampling parameters, signatures.

A profile names its dialect. Without one, it is derived from the model's name, which contains the generation.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Literal, TypeAlias

from msgspec import Struct

ThinkingMode: TypeAlias = Literal["none", "budget", "adaptive"]
"""How a model thinks: not at all; within a token budget; or as it decides, guided by an effort."""


class AnthropicModelFeatures(Struct, frozen=True, kw_only=True):
    """Features of one generation of Anthropic models: thinking mode, token budgets, sampling parameters, signatures."""

    thinking: ThinkingMode = "budget"
    """How thinking is requested."""
    budgets: bool = True
    """True if the model accepts a token budget for thinking."""
    sampling: bool = True
    """True if the model accepts `temperature` or `top_p`."""
    signed: bool = True
    """True if thinking without a signature is refused."""
    needs_thinking: bool = False
    """True if turns of the assistant without thinking are refused: those of other models get a placeholder."""


DIALECTS: Mapping[str, AnthropicModelFeatures] = {
    "plain": AnthropicModelFeatures(thinking="none", budgets=False),
    "budget": AnthropicModelFeatures(),
    "adaptive": AnthropicModelFeatures(thinking="adaptive"),
    "adaptive_only": AnthropicModelFeatures(thinking="adaptive", budgets=False, sampling=False),
    "unsigned": AnthropicModelFeatures(signed=False),  # compatible servers that do not sign thinking
    "thinking_required": AnthropicModelFeatures(signed=False, needs_thinking=True),
}
"""All dialects by name."""

_BY_MODEL: tuple[tuple[str, str], ...] = (
    (r"claude-(opus-4-[7-9]|[a-z]+-([5-9]|\d\d)\b)", "adaptive_only"),
    (r"claude-[a-z]+-4-6", "adaptive"),
    (r"claude-(3-(5|haiku|sonnet|opus)|2|instant)", "plain"),
    (r"claude", "budget"),
    (r"deepseek-(v[4-9]|flash|pro|reasoner)|kimi-(k2-[5-9]|k2-thinking|k[3-9]|for-coding)|mimo", "thinking_required"),
)


def get_model_features(name: str, model: str) -> AnthropicModelFeatures:
    """Return the features of the dialect called `name`, or, if there is no such dialect, those that fit `model`."""
    return DIALECTS.get(name) or _get_dialect_by_model(model)


@cache
def _get_dialect_by_model(model: str) -> AnthropicModelFeatures:
    plain = model.lower().replace(".", "-")
    found = next((name for pattern, name in _BY_MODEL if re.search(pattern, plain)), "unsigned")
    return DIALECTS[found]
