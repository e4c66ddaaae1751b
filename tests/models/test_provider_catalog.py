"""The table of providers is whole, and a name finds its row however it is written."""

from pathlib import Path

import pytest

from perdure.core.error import ConfigError
from perdure.models import price_of
from perdure.models.openai_chat.dialect import get_dialect
from perdure.models.profile import Profile
from perdure.models.provider_catalog import PROVIDERS, find_provider, list_provider_names, raise_unknown_provider

ASKED_FOR = [
    "openai",
    "anthropic",
    "openrouter",
    "gemini",
    "minimax",
    "kimi",
    "glm",
    "mimo",
    "ollama",
    "ollama-native",
    "vertex",
    "lmstudio",
    "bedrock",
    "nvidia",
    "codex",
    "groq",
    "deepseek",
    "mistral",
    "xai",
    "together",
    "cerebras",
    "huggingface",
    "azure",
    "featherless",
    "vllm",
    "local",
    "demo",
]


def test_every_provider_that_people_ask_for_is_there():
    assert set(ASKED_FOR) <= set(list_provider_names())


def test_no_name_means_two_providers():
    every = [name for each in PROVIDERS for name in (each.name, *each.aliases)]
    assert len(every) == len(set(every))
    assert all(name == name.lower() and not set(name) & set(":/ ") for name in every)


@pytest.mark.parametrize(
    ("name", "provider"), [("moonshot", "kimi"), ("ZAI", "glm"), ("Google", "gemini"), ("hf", "huggingface")]
)
def test_a_provider_is_found_by_other_names_whatever_their_case(name, provider):
    found = find_provider(name)
    assert found is not None
    assert found.name == provider


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda each: each.name)
def test_a_row_says_what_is_needed_to_open_a_model(provider):
    assert provider.default_model or provider.example_model
    assert provider.key_variables or not provider.needs_key
    assert set(provider.key_urls) <= set(provider.key_variables)
    assert set(provider.profile) <= set(Profile.__struct_fields__)
    assert provider.base_url or provider.url_variables or provider.wire in {"local", "demo"}
    if provider.wire == "openai_chat":
        assert get_dialect(provider.dialect).name == provider.dialect


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda each: each.name)
def test_the_page_about_models_has_the_same_row(provider):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "models.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{provider.name}` |"))
    _, _, keys, default, wire, _ = [cell.strip() for cell in row.split("|")]
    assert [each for each in provider.key_variables if f"`{each}`" not in keys] == []
    assert (default, wire) == (f"`{provider.default_model}`" if provider.default_model else "(name one)", provider.wire)


@pytest.mark.parametrize("provider", [each for each in PROVIDERS if each.price_id], ids=lambda each: each.name)
def test_a_default_model_is_one_whose_price_is_known(provider):
    if provider.default_model:
        price = price_of(provider.name, provider.default_model)
        assert price is not None
        assert price.output_usd > 0


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("antropic", "did you mean 'anthropic'?"),
        ("gogle", "did you mean 'google'?"),
        ("zzz", "there are openai, anthropic, gemini, openrouter, ollama and others. `perdure models` lists all"),
    ],
)
def test_an_unknown_provider_is_answered_with_the_likely_one_or_a_few(name, hint):
    with pytest.raises(ConfigError) as caught:
        raise_unknown_provider(name, f"{name}:large", [])
    assert f"unknown model provider {name!r} (in '{name}:large'); {hint}" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "likely"),
    [
        ("gpt-4o", "'openai:gpt-4o', 'openai-chat:gpt-4o' or 'codex:gpt-4o'"),
        ("claude-opus-4", "'anthropic:claude-opus-4'"),
        ("qwen3", "'ollama:qwen3' or 'ollama-native:qwen3'"),
    ],
)
def test_a_model_without_its_provider_is_answered_with_the_few_that_serve_it(model, likely):
    with pytest.raises(ConfigError) as caught:
        raise_unknown_provider(model, model, [])
    assert str(caught.value).startswith(
        f"unknown model provider {model!r}; a model is named together with its provider: did you mean {likely}? "
        "`perdure models` lists all providers, "
    )


def test_a_registered_provider_is_among_those_that_are_named():
    with pytest.raises(ConfigError, match="there are mine, openai, anthropic"):
        raise_unknown_provider("zzz", "zzz:large", ["mine"])
