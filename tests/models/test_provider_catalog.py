"""The table of providers is whole, and a name finds its row however it is written."""

from pathlib import Path

import pytest

from perdure import ConfigError, ProviderDown, Settings, user
from perdure._models.catalogue.providers import PROVIDERS, find_provider, list_provider_names, raise_unknown_provider
from perdure._models.wires.codex import get_codex_profile
from perdure._models.wires.openai_chat.dialect import get_dialect
from perdure.models import Profile, Request, open_model, price_of
from tests.models.canned import CannedResponse, CannedTransport
from tests.models.histories import TOOLS

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
    "azure-responses",
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


@pytest.mark.parametrize(
    ("field", "value", "names"),
    [
        (
            "needs_key",
            False,
            ["vertex", "bedrock", "codex", "ollama", "ollama-native", "lmstudio", "vllm", "local", "demo"],
        ),
        ("is_free", True, ["ollama", "ollama-native", "lmstudio", "local", "demo"]),
        (
            "same_at_any_url",
            True,
            ["vertex", "bedrock", "azure", "azure-responses", "ollama", "ollama-native", "lmstudio", "vllm"],
        ),
        ("window_set_by_server", True, ["featherless", "ollama", "ollama-native", "lmstudio", "vllm", "local"]),
    ],
)
def test_some_providers_need_no_key_cost_nothing_or_are_what_their_server_makes_of_them(field, value, names):
    assert [each.name for each in PROVIDERS if getattr(each, field) is value] == names


def test_what_the_models_of_a_provider_can_do_differs_from_others_in_few_fields():
    assert [each.name for each in PROVIDERS if each.profile.get("strict_tools")] == [
        "openai",
        "openai-chat",
        "azure",
        "azure-responses",
        "codex",
    ]
    without = {each.name: sorted(name for name, can in each.profile.items() if can is False) for each in PROVIDERS}
    assert {name: fields for name, fields in without.items() if fields} == {"gemini-chat": ["documents", "video"]}


def test_a_model_of_codex_is_described_in_the_catalogue_as_when_it_is_opened():
    codex = find_provider("codex")
    assert codex is not None
    opened = get_codex_profile()
    assert {name: getattr(opened, name) for name in codex.profile} == codex.profile
    assert (opened.model, opened.dialect) == (codex.default_model, "codex")


@pytest.mark.parametrize("model", ["maker/gpt-4o", "4o", ""])
def test_a_model_whose_maker_is_not_known_by_its_name_is_answered_with_common_providers(model):
    with pytest.raises(ConfigError) as caught:
        raise_unknown_provider(model, model, [])
    assert str(caught.value) == (
        f"unknown model provider {model!r}; there are openai, anthropic, gemini, openrouter, ollama and others. "
        "`perdure models` lists all providers, perdure.models.register adds one, and "
        "openai_compatible(base_url, model) needs none"
    )


async def test_azure_is_asked_by_responses_with_the_deployment_in_the_body():
    transport = CannedTransport(CannedResponse(b"{}", "application/json", 500))
    resource = "https://resource.openai.azure.com"
    model = open_model("azure-responses:gpt-5.6", api_key="k", base_url=resource, attempts=1, transport=transport)
    settings = Settings(temperature=0.2, reasoning_effort="high")
    asked = Request(messages=(user("Hi!"),), tools=TOOLS, settings=settings)
    with pytest.raises(ProviderDown):
        [event async for event in model.stream(asked)]
    ((url, headers, _),) = transport.posted
    assert url == "https://resource.openai.azure.com/openai/v1/responses"
    assert headers["api-key"] == "k"
    (body,) = transport.bodies
    assert (body["model"], body["reasoning"]["effort"]) == ("gpt-5.6", "high")
    assert not {"temperature", "top_p"} & body.keys()
    assert body["tools"]
