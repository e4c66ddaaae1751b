"""Resolve and normalize the base URL of a provider, from options and environment variables.

Three providers need their URL to be adapted; all others are used as given.
"""

import os
import re
from collections.abc import Callable, Mapping

from perdure._core.values.error import ConfigError

from .entry import Provider

_API_VERSIONS = ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")
_FIRST_AZURE_RESPONSES = "2025-03-01"
"""First API version of Azure that has the Responses API."""
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_OLLAMA_PORT = 11434
_LOOPBACK = re.compile(r"https?://(localhost|127(\.\d+){3}|\[::1\])([:/?]|$)", re.IGNORECASE)


def resolve_base_url(provider: Provider, model: str, given: str = "", key_variable: str = "") -> str:
    """Return the base URL for this model: `given`, or the one in the environment, or the provider's own.

    `key_variable` is the environment variable with the key; some keys are only valid at one URL.
    """
    said = given or get_first_env_value(provider.url_variables)
    url = said or provider.key_urls.get(key_variable) or provider.base_url
    if not url:
        raise ConfigError(
            f"{provider.name}:{model}: the base URL of {provider.title} is not set: set "
            f"{provider.url_variables[0]}, or pass base_url=…"
        )
    adapt = _URL_ADAPTERS.get(provider.name, _keep_url)
    return normalize_base_url(adapt(url, model, not said))


def is_provider_url(provider: Provider, url: str) -> bool:
    """Return True if `url` is the provider's own base URL, not a custom one."""
    return url in {provider.base_url, *provider.key_urls.values()}


def is_loopback(url: str) -> bool:
    """Return True if the host of this URL is the local machine."""
    return _LOOPBACK.match(url) is not None


def get_wire_base_url(url: str, wire: str) -> str:
    """Return the base URL as the API format `wire` needs it: without a final `/v1` for Anthropic and Ollama."""
    return url.removesuffix("/v1") if wire in {"anthropic", "ollama"} else url


def get_host(url: str) -> str:
    """Return the host of a URL, with the port if there is one."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2]


def normalize_base_url(url: str) -> str:
    """Return the URL without a trailing slash. Raises `ConfigError` if it is invalid."""
    if not re.match(r"https?://[^/?#\s]+[^#\s]*$", url):
        raise ConfigError(f"base_url={url!r} is not a URL: give one such as 'https://host/v1'")
    return url.rstrip("/")


def get_first_env_value(variables: tuple[str, ...]) -> str:
    """Return the value of the first of these environment variables that is set; empty if none is."""
    return next((value for each in variables if (value := os.environ.get(each, "").strip())), "")


def _keep_url(url: str, _model: str, _default: bool) -> str:  # noqa: FBT001 - the signature of all adapters
    return url


def _adapt_azure_url(url: str, model: str, _default: bool) -> str:  # noqa: FBT001 - as above
    """Complete an Azure resource URL: with the path of the configured API version, or of the versionless API."""
    from urllib.parse import quote

    return _complete_azure_url(url, f"/deployments/{quote(model, safe='')}", "")


def _adapt_azure_responses_url(url: str, _model: str, _default: bool) -> str:  # noqa: FBT001 - as above
    """Complete an Azure resource URL for the Responses API, where the body names the deployment in every version."""
    return _complete_azure_url(url, "", _FIRST_AZURE_RESPONSES)


def _complete_azure_url(url: str, path: str, first_version: str) -> str:
    """Complete an Azure resource URL. Versions before `first_version` lack the API: then the versionless is used."""
    from urllib.parse import quote

    resource = url.rstrip("/")
    if re.match(r"https?://[^/]+/.", resource):
        return resource  # it has a path: use it as given
    version = get_first_env_value(_API_VERSIONS)
    if re.match(r"20\d\d-", version) and version >= first_version:
        return f"{resource}/openai{path}?api-version={quote(version)}"
    return f"{resource}/openai/v1"


def _adapt_ollama_url(url: str, _model: str, _default: bool) -> str:  # noqa: FBT001 - as above
    """Convert `OLLAMA_HOST`, the address that the server listens on, to a URL."""
    scheme, separator, rest = url.rpartition("://")
    host, _, path = rest.partition("/")
    host = re.sub(r"^(0\.0\.0\.0|\[::\]|)(?=:|$)", "localhost", host)
    if not separator and not re.search(r":\d+$", host):
        host = f"{host}:{_OLLAMA_PORT}"
    return f"{scheme or 'http'}://{host}/{path.rstrip('/') or 'v1'}"


def _adapt_native_ollama_url(url: str, model: str, default: bool) -> str:  # noqa: FBT001 - as above
    """Return the address of the server, without the path of its chat completions."""
    return _adapt_ollama_url(url, model, default).removesuffix("/v1")


def _adapt_bedrock_url(url: str, _model: str, default: bool) -> str:  # noqa: FBT001 - as above
    """Replace the region in the default URL by the configured one."""
    region = get_first_env_value(_REGIONS)
    return url.replace("us-east-1", region) if default and region else url


def _adapt_vertex_url(url: str, model: str, _default: bool) -> str:  # noqa: FBT001 - as above
    """Complete the URL of Vertex AI with the project and the location, unless it names them."""
    if "/projects/" in url:
        return url
    from perdure._models.wires.google_environment import find_location, find_project

    project, location = find_project(), find_location()
    if not project:
        raise ConfigError(f"vertex:{model}: the project is not set: set GOOGLE_CLOUD_PROJECT, or pass base_url=…")
    host = url.replace("https://aiplatform.", _get_vertex_host(location), 1)
    return f"{host}/projects/{project}/locations/{location}"


def _get_vertex_host(location: str) -> str:
    """Return the host part of the Vertex AI URL for a location: a region, a multi-region, or `global`."""
    if location == "global":
        return "https://aiplatform."
    return f"https://aiplatform.{location}.rep." if location in {"us", "eu"} else f"https://{location}-aiplatform."


_URL_ADAPTERS: Mapping[str, Callable[[str, str, bool], str]] = {
    "azure": _adapt_azure_url,
    "azure-responses": _adapt_azure_responses_url,
    "ollama": _adapt_ollama_url,
    "ollama-native": _adapt_native_ollama_url,
    "bedrock": _adapt_bedrock_url,
    "vertex": _adapt_vertex_url,
}
