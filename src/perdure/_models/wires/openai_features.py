"""Table of what OpenAI's own models refuse, by generation: sampling parameters, and tools while they think.

It applies where OpenAI's models are served with OpenAI's own limits: at OpenAI, Azure and GitHub.
"""

import re
from functools import cache
from typing import Literal, TypeAlias

from msgspec import Struct

from perdure._core.model.protocol import Settings

SamplingSupport: TypeAlias = Literal["always", "unless_thinking", "never"]
"""When a model accepts `temperature` and `top_p`."""


class OpenAIModelFeatures(Struct, frozen=True, kw_only=True):
    """Features of one generation of OpenAI's models: sampling parameters, and tools while it thinks."""

    sampling: SamplingSupport = "always"
    """When it accepts `temperature` and `top_p`."""
    thinks_with_tools: bool = True
    """True if chat completions accept functions while it thinks. Otherwise the effort has to be `none`."""
    thinks_unasked: bool = True
    """True if it thinks when no effort is set."""

    def accepts_sampling(self, settings: Settings) -> bool:
        """Return True if a request with these settings may have `temperature` or `top_p`."""
        is_thinking = settings.reasoning_effort not in (None, "none")
        return self.sampling == "always" or (self.sampling == "unless_thinking" and not is_thinking)


_BY_MODEL: tuple[tuple[str, OpenAIModelFeatures], ...] = (
    (r"(?:gpt-[5-9][\d.-]*|^)chat", OpenAIModelFeatures()),
    (r"gpt-5(?!.*(?:codex|pro))[.-][1-3](?!\d)", OpenAIModelFeatures(sampling="unless_thinking", thinks_unasked=False)),
    (
        r"gpt-5(?!.*(?:codex|pro))[.-]4(?!\d)",
        OpenAIModelFeatures(sampling="unless_thinking", thinks_with_tools=False, thinks_unasked=False),
    ),
    (
        r"gpt-(?:5[.-](?:[4-9]|[1-9]\d)(?!\d)|[6-9]|1\d)",
        OpenAIModelFeatures(sampling="never", thinks_with_tools=False),
    ),
    (r"gpt-5|^o\d|codex", OpenAIModelFeatures(sampling="never")),
)
"""Features by a pattern in the name; the first that matches applies. Models of no row refuse nothing."""
_ANY = OpenAIModelFeatures()


@cache
def get_openai_model_features(model: str) -> OpenAIModelFeatures:
    """Return the features of an OpenAI model by its name; for any other model, those that refuse nothing."""
    name = model.lower().rpartition("/")[2]
    return next((features for pattern, features in _BY_MODEL if re.search(pattern, name)), _ANY)
