"""Where a provider is, by the variables that people already have."""

import pytest

from perdure import ConfigError
from perdure._models.catalogue.base_url import (
    get_first_env_value,
    get_host,
    get_wire_base_url,
    is_loopback,
    is_provider_url,
    normalize_base_url,
    resolve_base_url,
)
from perdure._models.catalogue.providers import PROVIDERS, find_provider


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for variable in {name for each in PROVIDERS for name in each.url_variables}:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nowhere")
    google = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS")
    for variable in (
        "AZURE_OPENAI_API_VERSION",
        "OPENAI_API_VERSION",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        *google,
    ):
        monkeypatch.delenv(variable, raising=False)


def address(provider, model="m", **options):
    row = find_provider(provider)
    assert row is not None
    return resolve_base_url(row, model, **options)


def test_a_provider_is_where_it_always_is_unless_somebody_says_otherwise(monkeypatch):
    assert address("openai") == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1/")
    assert address("openai") == "https://gateway.example/v1"
    assert address("openai", given="http://localhost:9/v1") == "http://localhost:9/v1"


def test_a_key_may_be_good_at_one_place_only():
    assert address("glm", key_variable="ZAI_API_KEY") == "https://api.z.ai/api/paas/v4"
    assert address("glm", key_variable="ZHIPUAI_API_KEY") == "https://open.bigmodel.cn/api/paas/v4"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://localhost:11434/v1"),
        ("0.0.0.0:8080", "http://localhost:8080/v1"),
        (":8080", "http://localhost:8080/v1"),
        ("gpu", "http://gpu:11434/v1"),
        ("gpu:99", "http://gpu:99/v1"),
        ("http://gpu:99", "http://gpu:99/v1"),
        ("https://ollama.example", "https://ollama.example/v1"),
        ("http://gpu:99/v1/", "http://gpu:99/v1"),
    ],
)
def test_ollama_is_found_by_what_its_server_listens_to(monkeypatch, host, url):
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert address("ollama") == url
    assert address("ollama-native") == url.removesuffix("/v1")


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("", "https://aiplatform.googleapis.com/v1/projects/p/locations/global"),
        ("global", "https://aiplatform.googleapis.com/v1/projects/p/locations/global"),
        ("us-east5", "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com/v1/projects/p/locations/eu"),
    ],
)
def test_vertex_is_found_by_project_and_location(monkeypatch, location, host):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", location)
    assert address("vertex") == host


def test_a_project_may_be_named_by_the_credentials_or_by_the_address(monkeypatch, tmp_path):
    file = tmp_path / "key.json"
    file.write_text('{"type": "service_account", "project_id": "of-the-file"}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    assert address("vertex").endswith("/projects/of-the-file/locations/global")
    given = "https://gateway.example/v1/projects/q/locations/eu"
    assert address("vertex", given=given) == given
    file.write_text("no JSON")
    with pytest.raises(ConfigError, match="set GOOGLE_CLOUD_PROJECT"):
        address("vertex")


def test_azure_is_asked_without_a_version_or_by_the_one_that_is_set(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://resource.openai.azure.com/")
    assert address("azure", "my deployment") == "https://resource.openai.azure.com/openai/v1"
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    assert address("azure", "my deployment") == (
        "https://resource.openai.azure.com/openai/deployments/my%20deployment?api-version=2024-10-21"
    )
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://gateway.example/openai/v1")
    assert address("azure") == "https://gateway.example/openai/v1"


def test_azure_by_responses_has_a_path_without_the_deployment(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://resource.openai.azure.com/")
    assert address("azure-responses", "mine") == "https://resource.openai.azure.com/openai/v1"
    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", "2025-04-01-preview")
    assert address("azure-responses", "mine") == (
        "https://resource.openai.azure.com/openai?api-version=2025-04-01-preview"
    )
    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", "2024-10-21")  # it has no Responses API
    assert address("azure-responses", "mine") == "https://resource.openai.azure.com/openai/v1"
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://gateway.example/openai/v1")
    assert address("azure-responses") == "https://gateway.example/openai/v1"


def test_azure_has_no_address_of_its_own():
    with pytest.raises(ConfigError, match="the base URL of Azure OpenAI is not set: set AZURE_OPENAI_ENDPOINT"):
        address("azure")


def test_bedrock_is_in_the_region_that_is_set(monkeypatch):
    assert address("bedrock") == "https://bedrock-runtime.us-east-1.amazonaws.com"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert address("bedrock") == "https://bedrock-runtime.eu-north-1.amazonaws.com"
    assert address("bedrock", given="https://vpc.example") == "https://vpc.example"


@pytest.mark.parametrize("url", ["", "host/v1", "ftp://host", "https://", "https://host/v1#model", "https://ho st"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match="is not a URL: give one such as 'https://host/v1'"):
        normalize_base_url(url)


def test_an_address_says_whose_it_is():
    openai = find_provider("openai")
    assert openai is not None
    assert is_provider_url(openai, "https://api.openai.com/v1")
    assert not is_provider_url(openai, "https://gateway.example/v1")
    assert get_host("https://user:word@host:8000/v1") == "host:8000"
    assert get_wire_base_url("https://host/v1", "anthropic") == "https://host"
    assert get_wire_base_url("https://host/v1", "openai_chat") == "https://host/v1"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.0.0.1", True),
        ("http://[::1]:8/v1", True),
        ("http://localhost.example", False),
    ],
)
def test_an_address_on_this_machine_is_known(url, here):
    assert is_loopback(url) is here


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("us", "https://aiplatform.us.rep.googleapis.com/v1/projects/p/locations/us"),
        ("europe-west1", "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1"),
    ],
)
def test_a_region_and_a_multi_region_of_vertex_have_hosts_of_their_own(monkeypatch, location, host):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", location)
    assert address("vertex") == host


@pytest.mark.parametrize("version", ["preview", "v1", "1999-01-01"])
def test_a_version_of_azure_that_is_no_date_of_this_century_means_the_versionless_api(monkeypatch, version):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://resource.openai.azure.com")
    monkeypatch.setenv("OPENAI_API_VERSION", version)
    assert address("azure") == "https://resource.openai.azure.com/openai/v1"


@pytest.mark.parametrize(
    ("provider", "told"),
    [
        (
            "azure",
            "azure:m: the base URL of Azure OpenAI is not set: set AZURE_OPENAI_ENDPOINT, or pass base_url=…",
        ),
        ("vertex", "vertex:m: the project is not set: set GOOGLE_CLOUD_PROJECT, or pass base_url=…"),
    ],
)
def test_what_is_missing_is_told_in_full(monkeypatch, tmp_path, provider, told):
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError) as caught:
        address(provider)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("url", "wire", "base"),
    [
        ("https://host/v1", "ollama", "https://host"),
        ("https://host/v1", "gemini", "https://host/v1"),
        ("https://host/v2", "anthropic", "https://host/v2"),
    ],
)
def test_some_wires_have_the_version_in_their_paths(url, wire, base):
    assert get_wire_base_url(url, wire) == base


def test_an_address_has_no_slash_at_its_end_and_may_have_a_query():
    assert normalize_base_url("https://host/v1//") == "https://host/v1"
    assert normalize_base_url("http://host?x=1") == "http://host?x=1"
    assert get_host("https://host") == "host"


def test_of_several_variables_the_first_that_says_something_counts(monkeypatch):
    monkeypatch.setenv("ONE_URL", " ")
    monkeypatch.setenv("TWO_URL", " two ")
    monkeypatch.setenv("THREE_URL", "three")
    assert get_first_env_value(("ZERO_URL", "ONE_URL", "TWO_URL", "THREE_URL")) == "two"
    assert get_first_env_value(()) == ""
