"""How the models behind this wire differ, whose makers are many. Data. Above: `encode.py`, `block.py`. Below: nothing.

A profile names its dialect. One that does not is told by the model's name, which begins with its maker.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Literal, TypeAlias

from msgspec import Struct

ThinkingWay: TypeAlias = Literal["none", "claude", "nova", "effort"]
"""Cannot be told to think; as at Anthropic; by an effort of its own kind; by `reasoning_effort`."""


class Dialect(Struct, frozen=True, kw_only=True):
    """What the models of one maker take."""

    thinking: ThinkingWay = "none"
    """How they are told to think."""
    status: bool = False
    """Whether a result can be marked as an error. Elsewhere its text has to say so."""
    marks_tools: bool = False
    """Whether the cache may reach to the end of the tools."""
    one_call_at_a_time: bool = False
    """Whether they can be told to make one call at a time."""


DIALECTS: Mapping[str, Dialect] = {
    "claude": Dialect(thinking="claude", status=True, marks_tools=True, one_call_at_a_time=True),
    "nova": Dialect(status=True),
    "nova_2": Dialect(thinking="nova", status=True),
    "gpt_oss": Dialect(thinking="effort"),
    "other": Dialect(),
}
"""Every dialect by its name."""

_BY_MODEL: tuple[tuple[str, str], ...] = (
    (r"claude", "claude"),
    (r"nova-2", "nova_2"),
    (r"nova", "nova"),
    (r"gpt-oss", "gpt_oss"),
)


def dialect_of(name: str, model: str) -> Dialect:
    """The dialect of this name, or else of this model."""
    return DIALECTS.get(name) or _by_model(model)


@cache
def _by_model(model: str) -> Dialect:
    found = next((name for pattern, name in _BY_MODEL if re.search(pattern, model.lower())), "other")
    return DIALECTS[found]
