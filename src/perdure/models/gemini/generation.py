"""What one generation of Gemini models wants and another does not know. Above: the rest of the wire. Below: `core`.

All of it is read from the name of the model, which is the only thing that tells: the provider refuses a request that
sets a budget for thinking where it wants a level, or any of both for a model that cannot think.
"""

import re
from typing import Any

from perdure.core.model import Settings

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?").search
_NEWEST = (99, 0)

_BUDGETS = {"none": 0, "minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}
"""What an effort is in tokens, for the generation that is told them."""
_LEAST_OF_PRO = 128
"""The smallest budget of 2.5 Pro, which cannot be kept from thinking."""


def generation(model: str) -> tuple[int, int]:
    """The version in a model's name; an alias such as `gemini-flash-latest` is the newest, other models are (0, 0)."""
    if found := _VERSION(model):
        return int(found[1]), int(found[2] or 0)
    return _NEWEST if "gemini" in model and model.endswith("latest") else (0, 0)


def wants_signatures(model: str) -> bool:
    """Whether calls without a signature are refused."""
    return generation(model) >= (3, 0)


def takes_schema_with_tools(model: str) -> bool:
    """Whether replies can be held to a schema while there are functions to be called."""
    return generation(model) >= (3, 0)


def thinking(settings: Settings, model: str) -> dict[str, Any]:
    """How to think, as this model wants to be told; nothing when nobody asked, or the model cannot."""
    version = generation(model)
    effort = settings.reasoning_effort or ("none" if settings.thinking == "off" else None)
    if version < (2, 5) or not (effort or settings.thinking or settings.reasoning_tokens is not None):
        return {}
    told: dict[str, Any] = {"includeThoughts": effort != "none"}
    if settings.reasoning_tokens is not None:  # never beside a level: both together are refused
        told["thinkingBudget"] = settings.reasoning_tokens
    elif effort is not None and version >= (3, 0):
        told["thinkingLevel"] = _level(effort, model)
    elif effort is not None:
        told["thinkingBudget"] = max(_BUDGETS[effort], _LEAST_OF_PRO) if "pro" in model else _BUDGETS[effort]
    return told


def _level(effort: str, model: str) -> str:
    """The nearest level that there is: none is without any thinking, and Pro has no minimal one."""
    if effort in {"none", "minimal"}:
        return "low" if "pro" in model else "minimal"
    return effort
