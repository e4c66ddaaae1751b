"""From a name to a model: a provider, an address, a key and a profile, put together. Above: `models/__init__.py`.
Below: the catalogue, the wires, `endpoint.py`.

Everything that can be wrong is told here, when the model is described, and names what to set.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.core import check
from perdure.core.error import ConfigError
from perdure.core.model import Model
from perdure.core.wrap import retried

from .address import address_of, base_for, checked_url, host_of, is_own
from .auth import Auth
from .capability import facts
from .catalog import PROVIDERS, Provider, WireName, find, refuse_unknown
from .key import Key, header_for
from .price import price_of
from .profile import Profile
from .profiles import kept_profile, plain_url
from .think_tags import thinking_aloud

if TYPE_CHECKING:
    from .listing import Listed
    from .wire import Wire

ATTEMPTS = 4
"""How often a request that may succeed later is made, unless somebody says otherwise."""


class Options(Struct, frozen=True, kw_only=True):
    """What may be said besides the name of a model."""

    api_key: str = ""
    """The key, instead of the one in the environment."""
    base_url: str = ""
    """Where to ask, instead of where the provider is."""
    attempts: int = ATTEMPTS
    """How often to ask when an error may pass. 1: never again."""
    profile: Mapping[str, Any] = {}
    """Fields of a `Profile` that are known better."""
    throttle: Any = None
    """A `Throttle`, instead of the one that all models with this key share."""
    transport: Any = None
    """A `Transport`, instead of the one that all models share: `Http(Deadlines(…))`, or `tapped(Http(), …)`."""

    def __post_init__(self) -> None:
        for name in ("api_key", "base_url"):
            check.text("open_model", name, getattr(self, name))
        check.whole_number("open_model", "attempts", self.attempts, 1)
        if unknown := sorted(set(self.profile) - set(Profile.__struct_fields__)):
            fields = ", ".join(Profile.__struct_fields__)
            raise ConfigError(f"open_model(profile={{{unknown[0]!r}: …}}): a profile has the fields {fields}")


def open_known(provider: Provider, model: str, options: Options) -> Model:
    """A model of a provider of the catalogue."""
    name = model or provider.default_model
    if not name:
        _refuse_nameless(provider)
    if provider.wire in {"demo", "local"}:
        return _open_here(provider, model, options)
    url, auth = reached(provider, name, options)
    return assembled(_adapted(provider, url), name, url, auth, options)


def _open_here(provider: Provider, model: str, options: Options) -> Model:
    """A model in this process, which needs neither an address nor a key."""
    if options != Options():
        raise ConfigError(f"{provider.name!r} answers in this process, and takes no options but its name")
    if provider.wire == "demo":
        from .demo import DemoModel

        return DemoModel(model or provider.default_model)
    from .local import open_local

    return open_local(model)


def open_address(base_url: str, model: str, wire: WireName, options: Options, provider: str = "") -> Model:
    """A model at any address that speaks one of the wires."""
    if not model.strip():
        raise ConfigError(f"{base_url!r}: say which model, as in open_model('https://host/v1#model')")
    url = checked_url(base_url)
    known = None if provider else _known_at(url, wire)
    if known is not None:
        return open_known(known, model, options)
    kept = kept_profile(url, model)
    spoken = kept.wire if kept else wire
    row = Provider(
        name=provider or host_of(url),
        title=url,
        wire=spoken,
        base_url=url,
        key_needed=False,
        own_window=True,
    )
    variables = (kept.key_variable,) if kept and kept.key_variable else ()
    auth = Key(variables, header=header_for(spoken), given=options.api_key)
    return assembled(row, model, url, auth, options)


def _known_at(url: str, wire: WireName) -> Provider | None:
    """The provider of the catalogue whose address this is; of several, the one that speaks this wire."""
    there = [each for each in PROVIDERS if each.base_url and plain_url(each.base_url) == plain_url(url)]
    return next((each for each in there if each.wire == wire), there[0] if there else None)


def assembled(provider: Provider, model: str, url: str, auth: Auth, options: Options) -> Model:
    """An endpoint with all that belongs around it."""
    from .endpoint import Endpoint

    kept = kept_profile(url, model)
    profile = _profile(provider, model, url, {**(kept.profile if kept else {}), **options.profile})
    wire = kept.wire if kept else provider.wire
    base = base_for(url, wire)
    opened: Model = Endpoint(
        wire_of(wire), profile, base_url=base, auth=auth, throttle=options.throttle, transport=options.transport
    )
    if profile.tools == "json":
        from .json_tools import json_tools

        opened = json_tools(opened)
    return retried(thinking_aloud(opened), attempts=options.attempts)


def wire_of(name: WireName) -> "Wire":
    """The wire of this name."""
    from importlib import import_module

    module: Any = import_module(f"perdure.models.{name}")
    wire: Wire = module.WIRE
    return wire


def _profile(provider: Provider, model: str, url: str, better: Mapping[str, Any]) -> Profile:
    """What is known of a model: of its family, of its provider, of this address, and what somebody knows better."""
    fields: dict[str, Any] = {"provider": provider.name, "model": model, "dialect": provider.dialect, **facts(model)}
    if provider.marked and re.search(provider.marked, model.lower()):
        fields["cache"] = "marked"
    if provider.own_window:
        fields |= {"context_tokens": None, "max_output_tokens": None}
    try:
        profile = msgspec.convert({**fields, **provider.profile, **better}, Profile)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"open_model(profile={dict(better)!r}): {error}") from error
    if profile.price is None and (provider.many_places or is_own(provider, url)):
        return replace(profile, price=price_of(provider.name, model))
    return profile


def _adapted(provider: Provider, url: str) -> Provider:
    """Whoever answers in OpenAI's place most likely speaks chat completions, in their plain form."""
    if provider.name in {"openai", "openai-chat"} and not is_own(provider, url):
        return replace(provider, wire="openai_chat", dialect="", profile={}, own_window=True)
    return provider


# -- where, and with which key -----------------------------------------------------------------------------------------


def reached(provider: Provider, model: str, options: Options) -> tuple[str, Auth]:
    """Where a provider is asked, and what says who is asking. Raises `ConfigError` when either is missing."""
    if provider.wire == "codex":
        from perdure.net.http import shared

        from .codex import CodexAuth

        login = CodexAuth(shared())
        login.check()
        return address_of(provider, model, options.base_url), login
    if provider.wire == "bedrock":
        from .bedrock import BedrockAuth

        return address_of(provider, model, options.base_url), BedrockAuth(token=options.api_key)
    key = Key(provider.key_variables, header=provider.key_header, given=options.api_key)
    url = address_of(provider, model, options.base_url, key.found)
    if provider.key_needed and not key and (is_own(provider, url) or provider.many_places):
        # At another address nobody knows whether one is needed.
        raise ConfigError(
            f"{provider.name}:{model} needs a key, and there is none: set {' or '.join(provider.key_variables)} (keys "
            f"come from {provider.key_page}), or pass api_key=…"
        )
    return url, key


async def listing_of(name: str) -> "list[Listed] | None":
    """The models that a provider of the catalogue has, as it says itself; `None` when it does not."""
    from perdure.net.http import shared

    from .listing import listed_models

    provider = find(name)
    if provider is None:
        refuse_unknown(name, name, [])
    if provider.wire in {"bedrock", "codex", "local", "demo"}:
        return None
    url, auth = reached(provider, provider.default_model or provider.example_model, Options())
    return await listed_models(url, auth, shared())


def _refuse_nameless(provider: Provider) -> NoReturn:
    raise ConfigError(
        f"{provider.name!r} alone names no model, and {provider.title} has no usual one: say which, as in "
        f"'{provider.name}:{provider.example_model}'"
    )
