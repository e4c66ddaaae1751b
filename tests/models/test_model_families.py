"""What a model can do is told by its family, whoever serves it."""

import re

import pytest

from perdure._models.catalogue.families import (
    MODEL_FAMILIES,
    find_model_family,
    get_capability_fields,
    normalize_model_name,
)

SONNET = (
    "claude-sonnet-4-5",
    "claude-sonnet-4-5-20250929",
    "anthropic/claude-sonnet-4.5",
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "claude-sonnet-4-5@20250929",
    "anthropic/claude-sonnet-4.5:thinking",
)


@pytest.mark.parametrize("model", SONNET)
def test_one_model_has_the_same_facts_under_all_of_its_names(model):
    assert get_capability_fields(model) == get_capability_fields("claude-sonnet-4-5")
    assert get_capability_fields(model)["context_tokens"] == 200_000
    assert get_capability_fields(model)["documents"]


@pytest.mark.parametrize(
    ("model", "context", "takes"),
    [
        ("claude-sonnet-5-5", 1_000_000, "images documents"),
        ("claude-opus-4-1", 200_000, "images documents"),
        ("gpt-6.1-sol", 1_000_000, "images documents"),
        ("gpt-5.4-mini", 400_000, "images documents"),
        ("gpt-5-2025-08-07", 400_000, "images documents"),
        ("gpt-4.1-mini", 1_047_576, "images documents"),
        ("gpt-4", 8_192, ""),
        ("openai/gpt-oss-120b", 131_072, ""),
        ("openai.gpt-oss-120b-1:0", 131_072, ""),
        ("o4-mini", 200_000, "images documents"),
        ("gemini-3.8-flash", 1_048_576, "images documents audio video"),
        ("qwen3:4b", 40_960, ""),
        ("Qwen/Qwen3-VL-8B-Instruct", 262_144, "images"),
        ("meta.llama3-1-70b-instruct-v1:0", 131_072, ""),
        ("amazon.nova-lite-v1:0", 300_000, "images documents video"),
        ("glm-4.5v", 64_000, "images"),
        ("grok-4.7", 500_000, "images"),
        ("mistral-medium-latest", 131_072, "images"),
        ("deepseek-v4-flash", 1_000_000, ""),
    ],
)
def test_a_family_is_found_by_its_name(model, context, takes):
    family = find_model_family(model)
    assert (family.context_tokens, family.media_kinds) == (context, takes)


def test_a_model_that_nobody_knows_reads_text_and_its_window_is_left_open():
    assert get_capability_fields("a-model-of-tomorrow") == {
        "images": False,
        "documents": False,
        "audio": False,
        "video": False,
        "context_tokens": None,
        "max_output_tokens": None,
    }


def test_models_whose_schemas_are_their_own_say_so_wherever_they_are_served():
    assert get_capability_fields("moonshotai/kimi-k2.6")["schema"] == "kimi"


def test_every_pattern_is_one_and_stands_once():
    patterns = [each.pattern for each in MODEL_FAMILIES]
    assert len(patterns) == len(set(patterns))
    assert all(re.compile(each) for each in patterns)


def test_a_family_only_takes_what_there_is():
    known = {"images", "documents", "audio", "video"}
    assert all(set(each.media_kinds.split()) <= known for each in MODEL_FAMILIES)


def test_who_serves_a_model_is_no_part_of_its_plain_name():
    assert normalize_model_name("us.meta.llama4-Scout") == "llama4-scout"
    assert normalize_model_name("moonshotai/Kimi-K2.6:free") == "kimi-k2-6"


EXAMPLES: list[tuple[str, int | None, int | None, str]] = [
    ("claude-sonnet-5-5", 1_000_000, 64_000, "images documents"),
    ("claude-opus-4-6", 1_000_000, 64_000, "images documents"),
    ("claude-haiku-4-5", 200_000, 64_000, "images documents"),
    ("claude-opus-4-1", 200_000, 32_000, "images documents"),
    ("claude-3-5-haiku-latest", 200_000, 8_192, "images documents"),
    ("claude-3-haiku", 200_000, 4_096, "images"),
    ("gpt-oss-20b", 131_072, 32_768, ""),
    ("gpt-4o-audio-preview", 128_000, None, "audio"),
    ("gpt-5.2-chat-latest", 128_000, 16_384, "images"),
    ("gpt-5.4-nano", 400_000, 128_000, "images documents"),
    ("gpt-5.5", 1_000_000, 128_000, "images documents"),
    ("gpt-5-mini", 400_000, 128_000, "images documents"),
    ("gpt-4.1-nano", 1_047_576, 32_768, "images documents"),
    ("gpt-4o-mini", 128_000, 16_384, "images documents"),
    ("gpt-4-turbo", 128_000, 4_096, "images"),
    ("gpt-4", 8_192, 4_096, ""),
    ("gpt-3.5-turbo", 16_385, 4_096, ""),
    ("o1-mini", 128_000, 32_768, ""),
    ("o3-mini", 200_000, 100_000, ""),
    ("o3", 200_000, 100_000, "images documents"),
    ("gemini-1.5-pro", 2_097_152, 8_192, "images documents audio video"),
    ("gemini-2.0-flash", 1_048_576, 8_192, "images documents audio video"),
    ("gemini-2.5-pro", 1_048_576, 65_536, "images documents audio video"),
    ("gemma-4-31b", 262_144, None, "images"),
    ("gemma-3n-e4b", 32_768, None, "images"),
    ("gemma3:12b", 131_072, None, "images"),
    ("gemma2:9b", 8_192, None, ""),
    ("grok-4-fast", 2_000_000, None, "images"),
    ("grok-4.20", 1_000_000, None, "images"),
    ("grok-4.5", 500_000, None, "images"),
    ("grok-4", 256_000, None, "images"),
    ("grok-code-fast-1", 256_000, None, ""),
    ("grok-2-vision", 32_768, None, "images"),
    ("grok-3", 131_072, None, ""),
    ("mistral-large-4", 1_048_576, None, "images"),
    ("mistral-large-2512", 262_144, None, "images"),
    ("pixtral-12b", 131_072, None, "images"),
    ("codestral-latest", 256_000, None, ""),
    ("voxtral-small", 32_768, None, "audio"),
    ("magistral-medium", 131_072, None, ""),
    ("mixtral-8x7b", 32_768, None, ""),
    ("deepseek-v4-pro", 1_000_000, None, ""),
    ("deepseek-chat", 128_000, None, ""),
    ("kimi-k3", 1_048_576, None, "images"),
    ("kimi-k2.6", 262_144, None, "images"),
    ("kimi-k2-thinking", 262_144, None, ""),
    ("kimi-latest", 131_072, None, "images"),
    ("kimi-k2", 131_072, None, ""),
    ("moonshot-v1-8k", None, None, ""),
    ("glm-4.5v", 64_000, None, "images"),
    ("glm-5.2", 1_000_000, None, ""),
    ("glm-4.6", 200_000, None, ""),
    ("glm-4.5-air", 128_000, None, ""),
    ("minimax-m3", 1_000_000, None, "images"),
    ("minimax-m2.1", 204_800, None, ""),
    ("mimo-v2.6", 1_000_000, None, ""),
    ("mimo-v2-flash", 262_144, None, ""),
    ("qwen3.5-plus", 262_144, None, "images"),
    ("qwen3-vl-8b", 262_144, None, "images"),
    ("qwen3-coder", 262_144, None, ""),
    ("qwen3:4b", 40_960, None, ""),
    ("qwen2.5-vl-7b", 32_768, None, "images"),
    ("qwq-32b", 32_768, None, ""),
    ("llama-4-scout", 131_072, None, "images"),
    ("llama3.1:8b", 131_072, None, ""),
    ("llama3:8b", 8_192, None, ""),
    ("nemotron-nano-12b-vl", 131_072, None, "images"),
    ("nemotron-3-super", 131_072, None, ""),
    ("nova-premier", 1_000_000, None, "images documents video"),
    ("nova-micro", 128_000, 5_000, ""),
    ("nova-lite", 300_000, 5_000, "images documents video"),
    ("command-a-03", 128_000, None, ""),
    ("phi-4-multimodal", 131_072, None, "images audio"),
    ("phi-4-mini", 131_072, None, ""),
    ("phi-4", 16_384, None, ""),
    ("smollm2", 8_192, None, ""),
]
"""A model of each family, its window, the longest reply, and the media that it takes."""


@pytest.mark.parametrize(("model", "context", "output", "takes"), EXAMPLES)
def test_what_a_model_of_each_family_can_do(model, context, output, takes):
    kinds = {kind: kind in takes.split() for kind in ("images", "documents", "audio", "video")}
    fields = get_capability_fields(model)
    assert fields.pop("schema", "") == ("kimi" if model.startswith(("kimi", "moonshot")) else "")
    assert fields == {**kinds, "context_tokens": context, "max_output_tokens": output}


def test_there_is_an_example_of_every_family():
    assert {find_model_family(model).pattern for model, *_ in EXAMPLES} == {each.pattern for each in MODEL_FAMILIES}
