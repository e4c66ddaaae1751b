"""Where a provider is, by the environment variables that people already have. Above: `opening.py`. Below: `catalog.py`.

Three providers write their address in a way of their own; everybody else's is taken as it stands.
"""

import os
import re
from collections.abc import Callable, Mapping

from perdure.core.error import ConfigError

from .catalog import Provider

_API_VERSIONS = ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_OLLAMA_PORT = 11434
_LOOPBACK = re.compile(r"https?://(localhost|127(\.\d+){3}|\[::1\])([:/?]|$)", re.IGNORECASE)


def address_of(provider: Provider, model: str, given: str = "", key_variable: str = "") -> str:
    """The base address for this model: as given, as the environment says, or the provider's own.

    `key_variable` is where the key was found; some keys are good at one place only.
    """
    said = given or first_set(provider.url_variables)
    url = said or provider.key_urls.get(key_variable) or provider.base_url
    if not url:
        raise ConfigError(
            f"{provider.name}:{model}: nobody has said where {provider.title} is: set {provider.url_variables[0]} to "
            f"its address, or pass base_url=…"
        )
    adapt = _OWN_WAYS.get(provider.name, _as_it_is)
    return checked_url(adapt(url, model, not said))


def is_own(provider: Provider, url: str) -> bool:
    """Whether this is where the provider itself is."""
    return url in {provider.base_url, *provider.key_urls.values()}


def is_loopback(url: str) -> bool:
    """Whether this address is on this machine."""
    return _LOOPBACK.match(url) is not None


def base_for(url: str, wire: str) -> str:
    """The base of this wire at an address that people copy: Anthropic's has its version in the path below it."""
    return url.removesuffix("/v1") if wire == "anthropic" else url


def host_of(url: str) -> str:
    """Who is meant by an address: its host, and the port if there is one."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2]


def checked_url(url: str) -> str:
    """The address without a slash at its end. Raises `ConfigError` when it is none."""
    if not re.match(r"https?://[^/?#\s]+[^#\s]*$", url):
        raise ConfigError(f"base_url={url!r} is no address: give one such as 'https://host/v1'")
    return url.rstrip("/")


def first_set(variables: tuple[str, ...]) -> str:
    """The value of the first of these variables that has one."""
    return next((value for each in variables if (value := os.environ.get(each, "").strip())), "")


def _as_it_is(url: str, _model: str, _default: bool) -> str:  # noqa: FBT001 - one of three of the same form
    return url


def _azure(url: str, model: str, _default: bool) -> str:  # noqa: FBT001 - as above
    """A resource alone is asked by its versionless interface, or by the version that is set."""
    from urllib.parse import quote

    resource = url.rstrip("/")
    if re.match(r"https?://[^/]+/.", resource):
        return resource  # somebody knows better
    version = first_set(_API_VERSIONS)
    if re.match(r"20\d\d-", version):
        return f"{resource}/openai/deployments/{quote(model, safe='')}?api-version={quote(version)}"
    return f"{resource}/openai/v1"


def _ollama(url: str, _model: str, _default: bool) -> str:  # noqa: FBT001 - as above
    """`OLLAMA_HOST` is what its server listens to: perhaps a name alone, perhaps every address of the machine."""
    scheme, separator, rest = url.rpartition("://")
    host, _, path = rest.partition("/")
    host = re.sub(r"^(0\.0\.0\.0|\[::\]|)(?=:|$)", "localhost", host)
    if not separator and not re.search(r":\d+$", host):
        host = f"{host}:{_OLLAMA_PORT}"
    return f"{scheme or 'http'}://{host}/{path.rstrip('/') or 'v1'}"


def _bedrock(url: str, _model: str, default: bool) -> str:  # noqa: FBT001 - as above
    """Each region has an address."""
    region = first_set(_REGIONS)
    return url.replace("us-east-1", region) if default and region else url


_OWN_WAYS: Mapping[str, Callable[[str, str, bool], str]] = {"azure": _azure, "ollama": _ollama, "bedrock": _bedrock}
