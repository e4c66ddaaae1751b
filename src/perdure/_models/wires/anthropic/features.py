"""Features of each generation of Anthropic models, and the thinking and output limit chosen by them. No I/O."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from perdure._core.model.protocol import Request, Settings
from perdure._core.values.message import Message, Thinking, ToolCall
from perdure._models.endpoint.profile import Profile

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


DEFAULT_OUTPUT_TOKENS = 8192
"""Output limit if the settings have none and that of the model is not known."""
MIN_THINKING_TOKENS = 1024
"""Minimum number of thinking tokens; less is refused."""

_BUDGETS = {"minimal": MIN_THINKING_TOKENS, "low": 2048, "medium": 8192, "high": 24576}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_OFF = {"type": "disabled"}
_FREE_CHOICES = frozenset({None, "auto", "none"})


class ThinkingAndOutputLimit(Struct, frozen=True):
    """Output limit and thinking parameters that are sent with one request to an Anthropic model."""

    max_tokens: int
    """Output limit, thinking included."""
    thinking: Mapping[str, Any] | None = None
    """Value of the field `thinking`; `None` leaves it to the model."""
    effort: str = ""
    """Effort, for models that accept one."""

    @property
    def is_thinking(self) -> bool:
        """True if thinking is requested."""
        return self.thinking is not None and self.thinking["type"] != "disabled"


def choose_thinking_parameters(
    request: Request, profile: Profile, features: AnthropicModelFeatures
) -> ThinkingAndOutputLimit:
    """Choose the output limit and the thinking parameters for a request to an Anthropic model."""
    settings = request.settings
    most = _get_output_limit(settings, profile)
    if features.thinking == "none" or not (wanted := _get_thinking_request(settings)):
        off = features.thinking == "adaptive" and _is_thinking_off(settings)
        return ThinkingAndOutputLimit(most, _OFF if off else None)
    if settings.tool_choice not in _FREE_CHOICES or not _can_think(request, profile):
        # A call cannot be forced on a model that thinks. Nor may one begin to think in the middle of a turn; it is
        # the conversation that decides then, since a caller that forces a call depends on it.
        return ThinkingAndOutputLimit(most, _OFF if features.thinking == "adaptive" else None)
    if features.budgets and (features.thinking == "budget" or settings.reasoning_tokens):
        return _plan_thinking_budget(settings, profile, most)
    shown = {"type": "adaptive", "display": "summarized"}  # the newest models show no thinking unless asked to
    return ThinkingAndOutputLimit(most, shown, _choose_effort(settings) if wanted != "on" else "")


def _get_output_limit(settings: Settings, profile: Profile) -> int:
    able = profile.max_output_tokens
    asked = settings.max_output_tokens or able or DEFAULT_OUTPUT_TOKENS
    return min(asked, able) if able else asked


def _is_thinking_off(settings: Settings) -> bool:
    return settings.reasoning_effort == "none" or settings.reasoning_tokens == 0 or settings.thinking == "off"


def _get_thinking_request(settings: Settings) -> str:
    """Return the setting that requests thinking: `tokens`, an effort, or `on`; empty if none does."""
    if _is_thinking_off(settings):
        return ""
    if settings.reasoning_tokens:
        return "tokens"
    return settings.reasoning_effort or ("on" if settings.thinking == "on" else "")


def _choose_effort(settings: Settings) -> str:
    if settings.reasoning_effort:
        return _EFFORTS[settings.reasoning_effort]
    tokens = settings.reasoning_tokens or 0
    return next((_EFFORTS[name] for name, budget in _BUDGETS.items() if tokens <= budget), "high")


def _plan_thinking_budget(settings: Settings, profile: Profile, most: int) -> ThinkingAndOutputLimit:
    wanted = settings.reasoning_tokens or _BUDGETS[settings.reasoning_effort or "medium"]
    if settings.max_output_tokens is None and profile.max_output_tokens is None:
        most += wanted  # so that there is as much room for the answer as without thinking
    if settings.reasoning_tokens is None or wanted >= most:
        wanted = min(wanted, most * 4 // 5)
    budget = max(MIN_THINKING_TOKENS, wanted)
    if budget >= most:  # no room to think
        return ThinkingAndOutputLimit(most)
    return ThinkingAndOutputLimit(most, {"type": "enabled", "budget_tokens": budget})


def _can_think(request: Request, profile: Profile) -> bool:
    """Return True if the provider accepts thinking in the current turn.

    A turn that started without thinking, because another model wrote it or because thinking was off, has to end
    without.
    """
    first = _find_first_reply(request.messages)
    if first is None or not any(type(part) is ToolCall for part in first.parts):
        return True
    if request.settings.echo_reasoning is False or not profile.is_author(first.provider, first.model):
        return False
    return any(type(part) is Thinking and (part.signature or part.data) for part in first.parts)


def _find_first_reply(messages: Sequence[Message]) -> Message | None:
    """Return the first reply of the current turn. A user message right after tool results belongs to the same turn."""
    first: Message | None = None
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "assistant":
            first = message
        elif message.role != "tool" and (place == 0 or messages[place - 1].role != "tool"):
            break
    return first
