"""Find out which providers can be used on this machine, and what is missing for the others.

The network is not used: a key that is set may still be wrong, and a server may not be running.
"""

# ruff: noqa: PTH111, PTH113 - pathlib would cost every start milliseconds
import os
from importlib.util import find_spec

from msgspec import Struct

from perdure._core.values.error import ConfigError
from perdure._models.endpoint.auth import ApiKey

from .base_url import resolve_base_url
from .entry import Provider
from .providers import PROVIDERS


class ProviderStatus(Struct, frozen=True, kw_only=True):
    """Status of one provider: if its models can be opened on this machine, and why or why not."""

    name: str
    title: str
    available: bool
    """True if one of its models can be opened."""
    why: str
    """Reason why it is available, or what to set so that it is."""
    default_model: str = ""
    """Model that its name alone opens; empty if a model has to be named."""
    wire: str = ""
    """Name of its wire; empty for registered providers."""
    base_url: str = ""
    """Base URL that would be used."""
    variables: tuple[str, ...] = ()
    """Environment variables that may contain its key."""
    aliases: tuple[str, ...] = ()
    """Other names that open it."""
    page: str = ""
    """Web page where to get a key, or the program."""


def get_provider_status(provider: Provider) -> ProviderStatus:
    """Check if a built-in provider can be used on this machine; return its status, with what to set if it cannot."""
    key = ApiKey(provider.key_variables)
    try:
        url = (
            resolve_base_url(provider, provider.default_model, "", key.variable_name)
            if provider.base_url or key
            else ""
        )
    except ConfigError as error:
        url, available, why = "", False, str(error).partition(": ")[2]
    else:
        available, why = _CHECKS.get(provider.wire, _check_api_key)(provider, key)
    return ProviderStatus(
        name=provider.name,
        title=provider.title,
        available=available,
        why=why,
        default_model=provider.default_model,
        wire=provider.wire,
        base_url=url,
        variables=provider.key_variables,
        aliases=provider.aliases,
        page=provider.key_help_url,
    )


def list_catalog_statuses() -> list[ProviderStatus]:
    """Return the availability of every built-in provider, in the order of the catalogue."""
    return [get_provider_status(each) for each in PROVIDERS]


def _check_api_key(provider: Provider, key: ApiKey) -> tuple[bool, str]:
    if key:
        return True, f"{key.variable_name} is set"
    if not provider.needs_key:
        return True, "needs no key"
    return False, f"set {' or '.join(provider.key_variables)}"


def _check_aws(provider: Provider, key: ApiKey) -> tuple[bool, str]:
    if find_spec("botocore") is None:
        return False, "pip install 'perdure[bedrock]'"
    if key:
        return True, f"{key.variable_name} is set"
    if any(os.path.isfile(os.path.expanduser(f"~/.aws/{each}")) for each in ("credentials", "config")):
        return True, "~/.aws has credentials or settings"
    # A role of the machine would also do, but finding out needs the network.
    return False, f"set {' or '.join(provider.key_variables)}, or run `aws configure`"


def _check_local_weights(_provider: Provider, _key: ApiKey) -> tuple[bool, str]:
    from perdure._models.local.weights import get_install_command

    return (False, needed) if (needed := get_install_command()) else (True, "runs in this process")


def _check_codex_login(_provider: Provider, _key: ApiKey) -> tuple[bool, str]:
    from perdure._models.wires.codex import get_login_path

    if os.path.isfile(get_login_path()):
        return True, "the Codex CLI is logged in"
    return False, "log in with `codex login`"


def _check_nothing(_provider: Provider, _key: ApiKey) -> tuple[bool, str]:
    return True, "always available"


def _check_google(provider: Provider, key: ApiKey) -> tuple[bool, str]:
    from perdure._models.wires.google_environment import TOKEN_VARIABLE, get_adc_path

    if key.variable_name == TOKEN_VARIABLE:
        return True, f"{TOKEN_VARIABLE} is set"
    if find_spec("google") is None or find_spec("google.auth") is None:
        return False, "pip install 'perdure[vertex]'"
    if key:
        return True, f"{key.variable_name} is set"
    if os.path.isfile(get_adc_path()):
        return True, "gcloud has application default credentials"
    # The service account of a machine would also do, but finding out needs the network.
    return False, f"set {' or '.join(provider.key_variables)}, or run `gcloud auth application-default login`"


_CHECKS = {
    "bedrock": _check_aws,
    "vertex": _check_google,
    "local": _check_local_weights,
    "codex": _check_codex_login,
    "demo": _check_nothing,
}
