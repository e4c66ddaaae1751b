"""What can be used here and now, and what to set for the rest."""

import pytest

from perdure._models import registry
from perdure._models.catalogue import status as availability
from perdure._models.catalogue.providers import PROVIDERS
from perdure.models import list_provider_statuses, register
from perdure.testing import ScriptedModel


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch, tmp_path):
    for variable in {name for each in PROVIDERS for name in (*each.key_variables, *each.url_variables)}:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(registry, "_factories", {})


def offer(name):
    return next(each for each in list_provider_statuses() if each.name == name)


def test_without_any_key_only_what_needs_none_is_there():
    there = {each.name for each in list_provider_statuses() if each.available}
    assert {"demo", "ollama", "lmstudio", "vllm"} <= there
    assert not there & {"openai", "anthropic", "gemini", "azure", "codex", "bedrock"}


def test_an_offer_says_which_variable_to_set():
    assert offer("gemini").why == "set GEMINI_API_KEY or GOOGLE_API_KEY"
    assert (offer("anthropic").wire, offer("anthropic").variables) == ("anthropic", ("ANTHROPIC_API_KEY",))


def test_an_offer_says_which_variable_is_set(monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    assert (offer("gemini").available, offer("gemini").why) == (True, "GOOGLE_API_KEY is set")
    assert "k" not in offer("gemini").variables


def test_azure_needs_an_address_as_well_as_a_key(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    assert not offer("azure").available
    assert "set AZURE_OPENAI_ENDPOINT" in offer("azure").why
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com")
    assert (offer("azure").available, offer("azure").base_url) == (True, "https://r.openai.azure.com/openai/v1")


def test_a_key_moves_the_address_to_where_it_is_good(monkeypatch):
    monkeypatch.setenv("ZHIPUAI_API_KEY", "k")
    assert offer("glm").base_url == "https://open.bigmodel.cn/api/paas/v4"


def test_vertex_needs_a_project_and_credentials(monkeypatch, tmp_path):
    monkeypatch.delenv("CLOUDSDK_CONFIG", raising=False)
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    assert "set GOOGLE_CLOUD_PROJECT" in offer("vertex").why
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    assert not offer("vertex").available
    assert "gcloud auth application-default login" in offer("vertex").why
    monkeypatch.setenv("VERTEX_ACCESS_TOKEN", "t")
    assert (offer("vertex").available, offer("vertex").why) == (True, "VERTEX_ACCESS_TOKEN is set")
    monkeypatch.delenv("VERTEX_ACCESS_TOKEN")
    folder = tmp_path / ".config" / "gcloud"
    folder.mkdir(parents=True)
    (folder / "application_default_credentials.json").touch()
    assert (offer("vertex").available, offer("vertex").why) == (True, "gcloud has application default credentials")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
    assert (offer("vertex").available, offer("vertex").why) == (True, "GOOGLE_APPLICATION_CREDENTIALS is set")
    monkeypatch.setattr(availability, "find_spec", lambda _: None)
    assert offer("vertex").why == "pip install 'perdure[vertex]'"


def test_codex_is_there_when_its_command_line_is_logged_in(tmp_path):
    assert offer("codex").why == "log in with `codex login`"
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").touch()
    assert offer("codex").available


def test_bedrock_is_there_with_settings_of_aws(tmp_path, monkeypatch):
    assert "aws configure" in offer("bedrock").why
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").touch()
    assert (offer("bedrock").available, offer("bedrock").why) == (True, "~/.aws has credentials or settings")
    monkeypatch.setattr(availability, "find_spec", lambda _: None)
    assert offer("bedrock").why == "pip install 'perdure[bedrock]'"


def test_a_registered_provider_is_listed_and_takes_the_place_of_one_of_the_same_name():
    register("house", lambda _: ScriptedModel())
    register("openai", lambda _: ScriptedModel(), replace=True)
    assert (offer("house").available, offer("house").why) == (True, "registered")
    assert [each.why for each in list_provider_statuses() if each.name == "openai"] == ["registered"]


def test_bedrock_is_there_with_a_key(monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "k")
    assert (offer("bedrock").available, offer("bedrock").why) == (True, "AWS_BEARER_TOKEN_BEDROCK is set")


def test_an_offer_tells_all_of_a_provider():
    gemini = next(each for each in PROVIDERS if each.name == "gemini")
    assert offer("gemini") == availability.ProviderStatus(
        name="gemini",
        title=gemini.title,
        available=False,
        why="set GEMINI_API_KEY or GOOGLE_API_KEY",
        default_model=gemini.default_model,
        wire="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        aliases=gemini.aliases,
        page=gemini.key_help_url,
    )


def test_offers_stand_in_the_order_of_the_catalogue():
    assert [each.name for each in availability.list_catalog_statuses()] == [each.name for each in PROVIDERS]


def test_what_needs_no_key_says_so(tmp_path):
    assert (offer("ollama").available, offer("ollama").why) == (True, "needs no key")
    assert (offer("demo").available, offer("demo").why) == (True, "always available")
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").touch()
    assert offer("codex").why == "the Codex CLI is logged in"


@pytest.mark.parametrize(("command", "available"), [("", True), ("pip install x", False)])
def test_local_weights_are_there_when_nothing_is_to_be_installed(monkeypatch, command, available):
    monkeypatch.setattr("perdure._models.local.weights.get_install_command", lambda: command)
    assert (offer("local").available, offer("local").why) == (available, command or "runs in this process")


@pytest.mark.parametrize(
    ("provider", "missing", "why"),
    [
        ("bedrock", "botocore", "pip install 'perdure[bedrock]'"),
        ("vertex", "google", "pip install 'perdure[vertex]'"),
        ("vertex", "google.auth", "pip install 'perdure[vertex]'"),
    ],
)
def test_a_provider_is_not_there_without_its_package_even_with_a_key(monkeypatch, provider, missing, why):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "k")
    monkeypatch.setattr(availability, "find_spec", lambda name: None if name == missing else object())
    assert (offer(provider).available, offer(provider).why) == (False, why)
