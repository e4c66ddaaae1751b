"""What families of models can do, whoever serves them. Data, and how a name is found in it. Above: `opening.py`.
Below: `profile.py`.

The first family whose pattern is found in a model's name holds. What stands here is what the makers publish, and
rather too little than too much; what is not known is `None`, and is learned when a provider says that a request was
too long. A profile that a probe has written (`profiles.py`) wins over all of this.
"""

import re
from typing import Any

from msgspec import Struct

_K = 1024
_M = 1024 * 1024


class Family(Struct, frozen=True, kw_only=True):
    """Models that can do the same."""

    pattern: str
    """A regular expression, searched for in the plain name (`plain_name`)."""
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    """How much it reads, and writes, at once."""
    takes: str = ""
    """What it can look at besides text: any of `images documents audio video`."""
    schema: str = ""
    """Which JSON Schema it understands, if that depends on the model and not on who serves it."""


FAMILIES: tuple[Family, ...] = (
    # -- Anthropic
    Family(
        pattern=r"claude-(fable|opus|sonnet|haiku)-[5-9]",
        context_tokens=1_000_000,
        max_output_tokens=64_000,
        takes="images documents",
    ),
    Family(
        pattern=r"claude-(opus-4-[6-9]|sonnet-4-[6-9])",
        context_tokens=1_000_000,
        max_output_tokens=64_000,
        takes="images documents",
    ),
    Family(
        pattern=r"claude-(opus-4-5|sonnet-4|haiku-4|3-7|4-sonnet)",
        context_tokens=200_000,
        max_output_tokens=64_000,
        takes="images documents",
    ),
    Family(
        pattern=r"claude-(opus-4|4-opus)", context_tokens=200_000, max_output_tokens=32_000, takes="images documents"
    ),
    Family(pattern=r"claude-3-5", context_tokens=200_000, max_output_tokens=8_192, takes="images documents"),
    Family(pattern=r"claude-3", context_tokens=200_000, max_output_tokens=4_096, takes="images"),
    # -- OpenAI
    Family(pattern=r"gpt-oss", context_tokens=128 * _K, max_output_tokens=32 * _K),
    Family(pattern=r"gpt-(4o|audio).*(audio|realtime)|gpt-audio", context_tokens=128_000, takes="audio"),
    Family(pattern=r"gpt-5.*chat", context_tokens=128_000, max_output_tokens=16_384, takes="images"),
    Family(
        pattern=r"gpt-5-[4-9]-(mini|nano)",
        context_tokens=400_000,
        max_output_tokens=128_000,
        takes="images documents",
    ),
    Family(
        pattern=r"gpt-5-[4-9]|gpt-[6-9]",
        context_tokens=1_000_000,
        max_output_tokens=128_000,
        takes="images documents",
    ),
    Family(pattern=r"gpt-5", context_tokens=400_000, max_output_tokens=128_000, takes="images documents"),
    Family(pattern=r"gpt-4-1", context_tokens=1_047_576, max_output_tokens=32_768, takes="images documents"),
    Family(pattern=r"gpt-4o", context_tokens=128_000, max_output_tokens=16_384, takes="images documents"),
    Family(pattern=r"gpt-4-(turbo|vision)", context_tokens=128_000, max_output_tokens=4_096, takes="images"),
    Family(pattern=r"gpt-4", context_tokens=8_192, max_output_tokens=4_096),
    Family(pattern=r"gpt-3-5", context_tokens=16_385, max_output_tokens=4_096),
    Family(pattern=r"^o(1-mini|1-preview)", context_tokens=128_000, max_output_tokens=32_768),
    Family(pattern=r"^o3-mini", context_tokens=200_000, max_output_tokens=100_000),
    Family(pattern=r"^o[134]|codex-mini", context_tokens=200_000, max_output_tokens=100_000, takes="images documents"),
    # -- Google
    Family(
        pattern=r"gemini-1-5-pro", context_tokens=2 * _M, max_output_tokens=8_192, takes="images documents audio video"
    ),
    Family(pattern=r"gemini-(1|2-0)", context_tokens=_M, max_output_tokens=8_192, takes="images documents audio video"),
    Family(
        pattern=r"gemini-(2-5|[3-9]|flash|pro)",
        context_tokens=_M,
        max_output_tokens=64 * _K,
        takes="images documents audio video",
    ),
    Family(pattern=r"gemma-?4", context_tokens=256 * _K, takes="images"),
    Family(pattern=r"gemma-?3n", context_tokens=32 * _K, takes="images"),
    Family(pattern=r"gemma-?3", context_tokens=128 * _K, takes="images"),
    Family(pattern=r"gemma", context_tokens=8_192),
    # -- xAI
    Family(pattern=r"grok-4-(fast|1-fast)", context_tokens=2_000_000, takes="images"),
    Family(pattern=r"grok-4-(20|3)", context_tokens=1_000_000, takes="images"),
    Family(pattern=r"grok-4-[4-9]", context_tokens=500_000, takes="images"),
    Family(pattern=r"grok-(4|[5-9])", context_tokens=256_000, takes="images"),
    Family(pattern=r"grok-(code|build)", context_tokens=256_000),
    Family(pattern=r"grok-2-vision", context_tokens=32 * _K, takes="images"),
    Family(pattern=r"grok", context_tokens=128 * _K),
    # -- Mistral
    Family(pattern=r"mistral-large-[4-9]", context_tokens=_M, takes="images"),
    Family(
        pattern=r"(mistral-(large|small)|ministral-\w+)-(2512|26\d\d)|mistral-medium-3-[5-9]",
        context_tokens=256 * _K,
        takes="images",
    ),
    Family(pattern=r"pixtral|mistral-(medium|small)", context_tokens=128 * _K, takes="images"),
    Family(pattern=r"codestral", context_tokens=256_000),
    Family(pattern=r"voxtral", context_tokens=32 * _K, takes="audio"),
    Family(pattern=r"mistral-(large|nemo)|ministral|devstral|magistral", context_tokens=128 * _K),
    Family(pattern=r"mi[sx]tral", context_tokens=32 * _K),
    # -- open weights
    Family(pattern=r"deepseek-(v[4-9]|flash)", context_tokens=1_000_000),
    Family(pattern=r"deepseek", context_tokens=128_000),
    Family(pattern=r"kimi-k[3-9]", context_tokens=_M, takes="images", schema="kimi"),
    Family(pattern=r"kimi-k2-[5-9]", context_tokens=256 * _K, takes="images", schema="kimi"),
    Family(pattern=r"kimi-k2-(thinking|0905)", context_tokens=256 * _K, schema="kimi"),
    Family(pattern=r"kimi-vl|kimi-latest", context_tokens=128 * _K, takes="images", schema="kimi"),
    Family(pattern=r"kimi", context_tokens=128 * _K, schema="kimi"),
    Family(pattern=r"moonshot-v1", schema="kimi"),
    Family(pattern=r"glm-(4-1v|4-5v|[4-9](-\d)?v)", context_tokens=64_000, takes="images"),
    Family(pattern=r"glm-5-[2-9]", context_tokens=1_000_000),
    Family(pattern=r"glm-(4-[67]|5)", context_tokens=200_000),
    Family(pattern=r"glm", context_tokens=128_000),
    Family(pattern=r"minimax-m[3-9]", context_tokens=1_000_000, takes="images"),
    Family(pattern=r"minimax-m2", context_tokens=200 * _K),
    Family(pattern=r"mimo-v2-6", context_tokens=1_000_000),
    Family(pattern=r"mimo", context_tokens=256 * _K),
    Family(pattern=r"qwen-?3-[5-9]", context_tokens=256 * _K, takes="images"),
    Family(pattern=r"qwen-?3.*(vl|omni)", context_tokens=256 * _K, takes="images"),
    Family(pattern=r"qwen-?3.*(coder|next|max|2507)", context_tokens=256 * _K),
    Family(pattern=r"qwen-?3", context_tokens=40 * _K),
    Family(pattern=r"qwen.*vl", context_tokens=32 * _K, takes="images"),
    Family(pattern=r"qw(en|q)", context_tokens=32 * _K),
    Family(pattern=r"llama-?4|llama-3-2-(11|90)b", context_tokens=128 * _K, takes="images"),
    Family(pattern=r"llama-?3-[1-9]", context_tokens=128 * _K),
    Family(pattern=r"llama-?3", context_tokens=8_192),
    Family(pattern=r"nemotron.*vl|nemotron.*omni", context_tokens=128 * _K, takes="images"),
    Family(pattern=r"nemotron", context_tokens=128 * _K),
    Family(pattern=r"nova-(2|premier)", context_tokens=1_000_000, takes="images documents video"),
    Family(pattern=r"nova-micro", context_tokens=128_000, max_output_tokens=5_000),
    Family(pattern=r"nova", context_tokens=300_000, max_output_tokens=5_000, takes="images documents video"),
    Family(pattern=r"command-(a|r)", context_tokens=128_000),
    Family(pattern=r"phi-4-multimodal", context_tokens=128 * _K, takes="images audio"),
    Family(pattern=r"phi-4-mini", context_tokens=128 * _K),
    Family(pattern=r"phi-4", context_tokens=16 * _K),
    Family(pattern=r"smollm", context_tokens=8_192),
)
"""Every family that is known; the first that fits holds, so the special ones stand before the general ones."""

_UNKNOWN = Family(pattern="")
_PREFIX = re.compile(r"^(?:[a-z-]+\.)+(?=[a-z])")
_SUFFIX = re.compile(r"@.*$|:(?:free|nitro|floor|extended|thinking|online|exacto)$")


def plain_name(model: str) -> str:
    """A model's name without who serves it, and with one way of writing versions.

    `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, `anthropic/claude-sonnet-4.5` and `claude-sonnet-4-5@20250929` are
    of one family.
    """
    name = _SUFFIX.sub("", model.lower().rsplit("/", 1)[-1])
    return _PREFIX.sub("", name).replace(".", "-").replace("_", "-")


def family_of(model: str) -> Family:
    """What is known of this model: perhaps nothing."""
    name = plain_name(model)
    return next((each for each in FAMILIES if re.search(each.pattern, name)), _UNKNOWN)


def facts(model: str) -> dict[str, Any]:
    """What is known of this model, as fields of a `Profile`.

    A model that nobody knows is taken to read text alone: a note about a picture can be answered, a refused request
    cannot.
    """
    family = family_of(model)
    takes = family.takes.split()
    known: dict[str, Any] = {kind: kind in takes for kind in ("images", "documents", "audio", "video")}
    known["context_tokens"] = family.context_tokens
    known["max_output_tokens"] = family.max_output_tokens
    if family.schema:
        known["schema"] = family.schema
    return known
