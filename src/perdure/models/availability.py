"""Which providers can be used here and now, and why not the others. Above: `perdure models`, callers. Below: the
catalogue.

Nothing is asked over the network: a key that is there may still be a wrong one, a server may not be running.
"""

# ruff: noqa: PTH111, PTH113 - pathlib would cost every start milliseconds
import os
from importlib.util import find_spec

from msgspec import Struct

from perdure.core.error import ConfigError

from .address import address_of
from .catalog import PROVIDERS, Provider
from .key import Key


class Offer(Struct, frozen=True, kw_only=True):
    """A provider, as seen from here."""

    name: str
    title: str
    available: bool
    """Whether a model of it can be opened."""
    why: str
    """What makes it available, or what to set so that it is."""
    default_model: str = ""
    """What its name alone means; empty when a model has to be named."""
    wire: str = ""
    """How it is spoken to; empty for providers that somebody registered."""
    base_url: str = ""
    """Where it would be asked."""
    variables: tuple[str, ...] = ()
    """The environment variables that may hold its key."""
    aliases: tuple[str, ...] = ()
    """Other names that open it."""
    page: str = ""
    """Where a key, or the program, comes from."""


def offer_of(provider: Provider) -> Offer:
    """How a provider of the catalogue looks from here."""
    key = Key(provider.key_variables)
    try:
        url = address_of(provider, provider.default_model, "", key.found) if provider.base_url or key else ""
    except ConfigError as error:
        url, available, why = "", False, str(error).partition(": ")[2]
    else:
        available, why = _LOOK.get(provider.wire, _look_for_key)(provider, key)
    return Offer(
        name=provider.name,
        title=provider.title,
        available=available,
        why=why,
        default_model=provider.default_model,
        wire=provider.wire,
        base_url=url,
        variables=provider.key_variables,
        aliases=provider.aliases,
        page=provider.key_page,
    )


def offers() -> list[Offer]:
    """Every provider of the catalogue, in its order."""
    return [offer_of(each) for each in PROVIDERS]


def _look_for_key(provider: Provider, key: Key) -> tuple[bool, str]:
    if key:
        return True, f"{key.found} is set"
    if not provider.key_needed:
        return True, "needs no key"
    return False, f"set {' or '.join(provider.key_variables)}"


def _look_for_aws(provider: Provider, key: Key) -> tuple[bool, str]:
    if find_spec("botocore") is None:
        return False, "pip install 'perdure[bedrock]'"
    if key:
        return True, f"{key.found} is set"
    if any(os.path.isfile(os.path.expanduser(f"~/.aws/{each}")) for each in ("credentials", "config")):
        return True, "there are settings in ~/.aws"
    # A role of the machine would do as well, and only asking would tell.
    return False, f"set {' or '.join(provider.key_variables)}, or run `aws configure`"


def _look_for_weights(_provider: Provider, _key: Key) -> tuple[bool, str]:
    from .local import missing

    return (False, needed) if (needed := missing()) else (True, "runs in this process")


def _look_for_login(_provider: Provider, _key: Key) -> tuple[bool, str]:
    from .codex import login_path

    if os.path.isfile(login_path()):
        return True, "its command line is logged in"
    return False, "log in with `codex login`"


def _always(_provider: Provider, _key: Key) -> tuple[bool, str]:
    return True, "always there"


_LOOK = {"bedrock": _look_for_aws, "local": _look_for_weights, "codex": _look_for_login, "demo": _always}
