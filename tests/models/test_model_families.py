"""What a model can do is told by its family, whoever serves it."""

import re

import pytest

from perdure.models.model_families import MODEL_FAMILIES, find_model_family, get_capability_fields, normalize_model_name

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
