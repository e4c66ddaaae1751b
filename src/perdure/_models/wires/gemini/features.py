"""Differences between generations of Gemini models (signatures, schemas, thinking), by the version in the name.

The name is the only source: the provider refuses a thinking budget where it expects a level, and either of them for a
model that cannot think.
"""

import re
from typing import Any

from perdure._core.model.protocol import Settings

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?").search
_NEWEST = (99, 0)

_BUDGETS = {"none": 0, "minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Thinking budget in tokens for each effort, for models that take a budget."""
_MIN_PRO_BUDGET = 128
"""Minimum thinking budget of 2.5 Pro, whose thinking cannot be switched off."""


def parse_model_version(model: str) -> tuple[int, int]:
    """Return the version in a model's name: the newest for `gemini-flash-latest`, (0, 0) for other models."""
    if found := _VERSION(model):
        return int(found[1]), int(found[2] or 0)
    return _NEWEST if "gemini" in model and model.endswith("latest") else (0, 0)


def is_signature_required(model: str) -> bool:
    """Return True if the model refuses function calls without a thought signature."""
    return parse_model_version(model) >= (3, 0)


def can_combine_schema_and_tools(model: str) -> bool:
    """Return True if the model accepts an output schema and tools in one request."""
    return parse_model_version(model) >= (3, 0)


def encode_thinking(settings: Settings, model: str) -> dict[str, Any]:
    """Return the `thinkingConfig` for this model; empty if thinking is not set or the model cannot think."""
    version = parse_model_version(model)
    effort = settings.reasoning_effort or ("none" if settings.thinking == "off" else None)
    if version < (2, 5) or not (effort or settings.thinking or settings.reasoning_tokens is not None):
        return {}
    told: dict[str, Any] = {"includeThoughts": effort != "none"}
    if settings.reasoning_tokens is not None:  # never beside a level: both together are refused
        told["thinkingBudget"] = settings.reasoning_tokens
    elif effort is not None and version >= (3, 0):
        told["thinkingLevel"] = _choose_thinking_level(effort, model)
    elif effort is not None:
        told["thinkingBudget"] = max(_BUDGETS[effort], _MIN_PRO_BUDGET) if "pro" in model else _BUDGETS[effort]
    return told


def _choose_thinking_level(effort: str, model: str) -> str:
    """Return the nearest level that the model supports; none switches thinking off, and Pro has no `minimal`."""
    if effort in {"none", "minimal"}:
        return "low" if "pro" in model else "minimal"
    return effort
