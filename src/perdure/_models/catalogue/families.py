"""Table of model families with their context windows and supported media, at any provider.

The first family applies whose pattern matches the model's name. The figures are published by the makers, and rather too
low than too high. Unknown ones are `None`, and are learned when a provider reports that a request was too long. A
profile that a probe has saved (`saved_profiles.py`) overrides all of this.
"""

import re
from typing import Any

from msgspec import Struct

_K = 1024
_M = 1024 * 1024


class ModelFamily(Struct, frozen=True, kw_only=True):
    """Group of models with the same context window, output limit and supported media."""

    pattern: str
    """Regular expression, searched for in the normalized name (`normalize_model_name`)."""
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    """Context window, and maximum length of a reply, in tokens."""
    media_kinds: str = ""
    """Media accepted besides text: any of `images documents audio video`."""
    schema: str = ""
    """JSON Schema dialect, if it depends on the model and not on the provider."""


MODEL_FAMILIES: tuple[ModelFamily, ...] = (
    # -- Anthropic
    ModelFamily(
        pattern=r"claude-(fable|opus|sonnet|haiku)-[5-9]",
        context_tokens=1_000_000,
        max_output_tokens=64_000,
        media_kinds="images documents",
    ),
    ModelFamily(
        pattern=r"claude-(opus-4-[6-9]|sonnet-4-[6-9])",
        context_tokens=1_000_000,
        max_output_tokens=64_000,
        media_kinds="images documents",
    ),
    ModelFamily(
        pattern=r"claude-(opus-4-5|sonnet-4|haiku-4|3-7|4-sonnet)",
        context_tokens=200_000,
        max_output_tokens=64_000,
        media_kinds="images documents",
    ),
    ModelFamily(
        pattern=r"claude-(opus-4|4-opus)",
        context_tokens=200_000,
        max_output_tokens=32_000,
        media_kinds="images documents",
    ),
    ModelFamily(pattern=r"claude-3-5", context_tokens=200_000, max_output_tokens=8_192, media_kinds="images documents"),
    ModelFamily(pattern=r"claude-3", context_tokens=200_000, max_output_tokens=4_096, media_kinds="images"),
    # -- OpenAI
    ModelFamily(pattern=r"gpt-oss", context_tokens=128 * _K, max_output_tokens=32 * _K),
    ModelFamily(pattern=r"gpt-(4o|audio).*(audio|realtime)|gpt-audio", context_tokens=128_000, media_kinds="audio"),
    ModelFamily(pattern=r"gpt-5.*chat", context_tokens=128_000, max_output_tokens=16_384, media_kinds="images"),
    ModelFamily(
        pattern=r"gpt-5-[4-9]-(mini|nano)",
        context_tokens=400_000,
        max_output_tokens=128_000,
        media_kinds="images documents",
    ),
    ModelFamily(
        pattern=r"gpt-5-[4-9]|gpt-[6-9]",
        context_tokens=1_000_000,
        max_output_tokens=128_000,
        media_kinds="images documents",
    ),
    ModelFamily(pattern=r"gpt-5", context_tokens=400_000, max_output_tokens=128_000, media_kinds="images documents"),
    ModelFamily(pattern=r"gpt-4-1", context_tokens=1_047_576, max_output_tokens=32_768, media_kinds="images documents"),
    ModelFamily(pattern=r"gpt-4o", context_tokens=128_000, max_output_tokens=16_384, media_kinds="images documents"),
    ModelFamily(pattern=r"gpt-4-(turbo|vision)", context_tokens=128_000, max_output_tokens=4_096, media_kinds="images"),
    ModelFamily(pattern=r"gpt-4", context_tokens=8_192, max_output_tokens=4_096),
    ModelFamily(pattern=r"gpt-3-5", context_tokens=16_385, max_output_tokens=4_096),
    ModelFamily(pattern=r"^o(1-mini|1-preview)", context_tokens=128_000, max_output_tokens=32_768),
    ModelFamily(pattern=r"^o3-mini", context_tokens=200_000, max_output_tokens=100_000),
    ModelFamily(
        pattern=r"^o[134]|codex-mini", context_tokens=200_000, max_output_tokens=100_000, media_kinds="images documents"
    ),
    # -- Google
    ModelFamily(
        pattern=r"gemini-1-5-pro",
        context_tokens=2 * _M,
        max_output_tokens=8_192,
        media_kinds="images documents audio video",
    ),
    ModelFamily(
        pattern=r"gemini-(1|2-0)",
        context_tokens=_M,
        max_output_tokens=8_192,
        media_kinds="images documents audio video",
    ),
    ModelFamily(
        pattern=r"gemini-(2-5|[3-9]|flash|pro)",
        context_tokens=_M,
        max_output_tokens=64 * _K,
        media_kinds="images documents audio video",
    ),
    ModelFamily(pattern=r"gemma-?4", context_tokens=256 * _K, media_kinds="images"),
    ModelFamily(pattern=r"gemma-?3n", context_tokens=32 * _K, media_kinds="images"),
    ModelFamily(pattern=r"gemma-?3", context_tokens=128 * _K, media_kinds="images"),
    ModelFamily(pattern=r"gemma", context_tokens=8_192),
    # -- xAI
    ModelFamily(pattern=r"grok-4-(fast|1-fast)", context_tokens=2_000_000, media_kinds="images"),
    ModelFamily(pattern=r"grok-4-(20|3)", context_tokens=1_000_000, media_kinds="images"),
    ModelFamily(pattern=r"grok-4-[4-9]", context_tokens=500_000, media_kinds="images"),
    ModelFamily(pattern=r"grok-(4|[5-9])", context_tokens=256_000, media_kinds="images"),
    ModelFamily(pattern=r"grok-(code|build)", context_tokens=256_000),
    ModelFamily(pattern=r"grok-2-vision", context_tokens=32 * _K, media_kinds="images"),
    ModelFamily(pattern=r"grok", context_tokens=128 * _K),
    # -- Mistral
    ModelFamily(pattern=r"mistral-large-[4-9]", context_tokens=_M, media_kinds="images"),
    ModelFamily(
        pattern=r"(mistral-(large|small)|ministral-\w+)-(2512|26\d\d)|mistral-medium-3-[5-9]",
        context_tokens=256 * _K,
        media_kinds="images",
    ),
    ModelFamily(pattern=r"pixtral|mistral-(medium|small)", context_tokens=128 * _K, media_kinds="images"),
    ModelFamily(pattern=r"codestral", context_tokens=256_000),
    ModelFamily(pattern=r"voxtral", context_tokens=32 * _K, media_kinds="audio"),
    ModelFamily(pattern=r"mistral-(large|nemo)|ministral|devstral|magistral", context_tokens=128 * _K),
    ModelFamily(pattern=r"mi[sx]tral", context_tokens=32 * _K),
    # -- open weights
    ModelFamily(pattern=r"deepseek-(v[4-9]|flash)", context_tokens=1_000_000),
    ModelFamily(pattern=r"deepseek", context_tokens=128_000),
    ModelFamily(pattern=r"kimi-k[3-9]", context_tokens=_M, media_kinds="images", schema="kimi"),
    ModelFamily(pattern=r"kimi-k2-[5-9]", context_tokens=256 * _K, media_kinds="images", schema="kimi"),
    ModelFamily(pattern=r"kimi-k2-(thinking|0905)", context_tokens=256 * _K, schema="kimi"),
    ModelFamily(pattern=r"kimi-vl|kimi-latest", context_tokens=128 * _K, media_kinds="images", schema="kimi"),
    ModelFamily(pattern=r"kimi", context_tokens=128 * _K, schema="kimi"),
    ModelFamily(pattern=r"moonshot-v1", schema="kimi"),
    ModelFamily(pattern=r"glm-(4-1v|4-5v|[4-9](-\d)?v)", context_tokens=64_000, media_kinds="images"),
    ModelFamily(pattern=r"glm-5-[2-9]", context_tokens=1_000_000),
    ModelFamily(pattern=r"glm-(4-[67]|5)", context_tokens=200_000),
    ModelFamily(pattern=r"glm", context_tokens=128_000),
    ModelFamily(pattern=r"minimax-m[3-9]", context_tokens=1_000_000, media_kinds="images"),
    ModelFamily(pattern=r"minimax-m2", context_tokens=200 * _K),
    ModelFamily(pattern=r"mimo-v2-6", context_tokens=1_000_000),
    ModelFamily(pattern=r"mimo", context_tokens=256 * _K),
    ModelFamily(pattern=r"qwen-?3-[5-9]", context_tokens=256 * _K, media_kinds="images"),
    ModelFamily(pattern=r"qwen-?3.*(vl|omni)", context_tokens=256 * _K, media_kinds="images"),
    ModelFamily(pattern=r"qwen-?3.*(coder|next|max|2507)", context_tokens=256 * _K),
    ModelFamily(pattern=r"qwen-?3", context_tokens=40 * _K),
    ModelFamily(pattern=r"qwen.*vl", context_tokens=32 * _K, media_kinds="images"),
    ModelFamily(pattern=r"qw(en|q)", context_tokens=32 * _K),
    ModelFamily(pattern=r"llama-?4|llama-3-2-(11|90)b", context_tokens=128 * _K, media_kinds="images"),
    ModelFamily(pattern=r"llama-?3-[1-9]", context_tokens=128 * _K),
    ModelFamily(pattern=r"llama-?3", context_tokens=8_192),
    ModelFamily(pattern=r"nemotron.*vl|nemotron.*omni", context_tokens=128 * _K, media_kinds="images"),
    ModelFamily(pattern=r"nemotron", context_tokens=128 * _K),
    ModelFamily(pattern=r"nova-(2|premier)", context_tokens=1_000_000, media_kinds="images documents video"),
    ModelFamily(pattern=r"nova-micro", context_tokens=128_000, max_output_tokens=5_000),
    ModelFamily(pattern=r"nova", context_tokens=300_000, max_output_tokens=5_000, media_kinds="images documents video"),
    ModelFamily(pattern=r"command-(a|r)", context_tokens=128_000),
    ModelFamily(pattern=r"phi-4-multimodal", context_tokens=128 * _K, media_kinds="images audio"),
    ModelFamily(pattern=r"phi-4-mini", context_tokens=128 * _K),
    ModelFamily(pattern=r"phi-4", context_tokens=16 * _K),
    ModelFamily(pattern=r"smollm", context_tokens=8_192),
)
"""All known families. The first match applies, so special ones are listed before general ones."""

_UNKNOWN = ModelFamily(pattern="")
_PREFIX = re.compile(r"^(?:[a-z-]+\.)+(?=[a-z])")
_SUFFIX = re.compile(r"@.*$|:(?:free|nitro|floor|extended|thinking|online|exacto)$")


def normalize_model_name(model: str) -> str:
    """Return a model's name without its provider, and with its version in one spelling.

    `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, `anthropic/claude-sonnet-4.5` and `claude-sonnet-4-5@20250929` are
    the same family.
    """
    name = _SUFFIX.sub("", model.lower().rsplit("/", 1)[-1])
    return _PREFIX.sub("", name).replace(".", "-").replace("_", "-")


def find_model_family(model: str) -> ModelFamily:
    """Return the family of a model by its name, from the table of families; an empty one if it is unknown."""
    name = normalize_model_name(model)
    return next((each for each in MODEL_FAMILIES if re.search(each.pattern, name)), _UNKNOWN)


def get_capability_fields(model: str) -> dict[str, Any]:
    """Return the capabilities of this model as fields of a `Profile`.

    An unknown model is assumed to read only text: the model can respond to a note about an image, but a rejected
    request is lost.
    """
    family = find_model_family(model)
    takes = family.media_kinds.split()
    known: dict[str, Any] = {kind: kind in takes for kind in ("images", "documents", "audio", "video")}
    known["context_tokens"] = family.context_tokens
    known["max_output_tokens"] = family.max_output_tokens
    if family.schema:
        known["schema"] = family.schema
    return known
