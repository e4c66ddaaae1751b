"""Table of the Converse API (Bedrock) features that models of each company (Anthropic, Amazon, …) support.

A profile names its dialect. Without one, it is derived from the model's name, which starts with the maker.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Literal, TypeAlias

from msgspec import Struct

ThinkingMode: TypeAlias = Literal["none", "claude", "nova", "effort"]
"""How thinking is requested: not at all; as at Anthropic; by Nova's effort; by `reasoning_effort`."""


class BedrockModelFeatures(Struct, frozen=True, kw_only=True):
    """Converse API features that a group of Bedrock models supports, such as thinking and citations."""

    thinking: ThinkingMode = "none"
    """How thinking is requested."""
    status: bool = False
    """True if a tool result has a field that marks an error. Otherwise its text has to."""
    marks_tools: bool = False
    """True if a cache marker may follow the tools."""
    one_call_at_a_time: bool = False
    """True if parallel tool calls can be disabled."""
    citations: bool = False
    """True if it can be asked to cite documents."""


DIALECTS: Mapping[str, BedrockModelFeatures] = {
    "claude": BedrockModelFeatures(
        thinking="claude", status=True, marks_tools=True, one_call_at_a_time=True, citations=True
    ),
    "nova": BedrockModelFeatures(status=True),
    "nova_2": BedrockModelFeatures(thinking="nova", status=True),
    "gpt_oss": BedrockModelFeatures(thinking="effort"),
    "other": BedrockModelFeatures(),
}
"""All dialects by name."""

_BY_MODEL: tuple[tuple[str, str], ...] = (
    (r"claude", "claude"),
    (r"nova-2", "nova_2"),
    (r"nova", "nova"),
    (r"gpt-oss", "gpt_oss"),
)


def get_model_features(name: str, model: str) -> BedrockModelFeatures:
    """Return the features of the dialect called `name`, or, if there is no such dialect, those that fit `model`."""
    return DIALECTS.get(name) or _get_dialect_by_model(model)


@cache
def _get_dialect_by_model(model: str) -> BedrockModelFeatures:
    found = next((name for pattern, name in _BY_MODEL if re.search(pattern, model.lower())), "other")
    return DIALECTS[found]
