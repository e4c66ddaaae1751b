"""How the models that speak this wire differ from one another. Data. Above: `thinking.py`, `encode.py`. Below: nothing.

A profile names its dialect. One that does not is told by the model's name, which says of which generation it is.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Literal, TypeAlias

from msgspec import Struct

ThinkingForm: TypeAlias = Literal["none", "budget", "adaptive"]
"""It cannot think; it is given a number of tokens to think; or it decides itself, and is told how hard to try."""


class Dialect(Struct, frozen=True, kw_only=True):
    """What a generation of models takes."""

    thinking: ThinkingForm = "budget"
    """How it is told to think."""
    budgets: bool = True
    """Whether it takes a number of tokens for thinking at all."""
    sampling: bool = True
    """Whether it takes a temperature, or `top_p`."""
    signed: bool = True
    """Whether thinking that has no signature is refused."""


DIALECTS: Mapping[str, Dialect] = {
    "plain": Dialect(thinking="none", budgets=False),
    "budget": Dialect(),
    "adaptive": Dialect(thinking="adaptive"),
    "adaptive_only": Dialect(thinking="adaptive", budgets=False, sampling=False),
    "unsigned": Dialect(signed=False),  # servers of others that do not sign what their models think
}
"""Every dialect by its name."""

_BY_MODEL: tuple[tuple[str, str], ...] = (
    (r"claude-(opus-4-[7-9]|[a-z]+-([5-9]|\d\d)\b)", "adaptive_only"),
    (r"claude-[a-z]+-4-6", "adaptive"),
    (r"claude-(3-(5|haiku|sonnet|opus)|2|instant)", "plain"),
    (r"claude", "budget"),
)


def dialect_of(name: str, model: str) -> Dialect:
    """The dialect of this name, or else of this model."""
    return DIALECTS.get(name) or _by_model(model)


@cache
def _by_model(model: str) -> Dialect:
    plain = model.lower().replace(".", "-")
    found = next((name for pattern, name in _BY_MODEL if re.search(pattern, plain)), "unsigned")
    return DIALECTS[found]
