"""Build a model from its name: find its provider, base URL, key and profile, and add retries.

All configuration errors are raised here, when the model is opened, and say what to set.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import Model
from perdure._core.model.wrappers import retried
from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import convert

from .catalogue.base_url import get_host, get_wire_base_url, is_provider_url, normalize_base_url, resolve_base_url
from .catalogue.entry import Provider, WireName
from .catalogue.families import get_capability_fields
from .catalogue.prices import price_of
from .catalogue.providers import PROVIDERS, find_provider, raise_unknown_provider
from .catalogue.saved_profiles import SavedProfile, load_profile, normalize_url
from .endpoint.auth import ApiKey, Auth, key_header_for
from .endpoint.profile import Profile
from .endpoint.think_tags import with_think_tags

if TYPE_CHECKING:
    from .endpoint.model_list import ListedModel

DEFAULT_ATTEMPTS = 4
"""Default number of attempts for a request that fails with a retryable error."""
_DEFAULT_WIRE: WireName = "openai_chat"
"""API format of a URL about which nothing else is known."""
_OPENAI_WIRES = frozenset({"openai_chat", "openai_responses"})
"""API formats that share the names of their dialects."""


class ModelOptions(Struct, frozen=True, kw_only=True):
    """Options of `open_model`: API key, base URL, attempts, profile, throttle and transport."""

    api_key: Any = ""
    """API key, or a function that returns one, overriding the environment."""
    base_url: str = ""
    """Base URL, overriding the provider's own."""
    attempts: int = DEFAULT_ATTEMPTS
    """Total attempts for a request that fails with a retryable error. 1: no retries."""
    profile: Mapping[str, Any] = {}
    """Fields of a `Profile` that override the catalogue."""
    throttle: Any = None
    """`Throttle` instead of the one that all models with this key share."""
    transport: Any = None
    """`Transport` instead of the shared one: `HttpTransport(Deadlines(…))`, or `tapped(HttpTransport(), …)`."""

    def __post_init__(self) -> None:
        if not callable(self.api_key):
            checks.require_text("open_model", "api_key", self.api_key)
        checks.require_text("open_model", "base_url", self.base_url)
        checks.require_int("open_model", "attempts", self.attempts, 1)
        if unknown := sorted(set(self.profile) - set(Profile.__struct_fields__)):
            fields = ", ".join(Profile.__struct_fields__)
            raise ConfigError(f"open_model(profile={{{unknown[0]!r}: …}}): unknown field; a profile has {fields}")


def open_catalog_model(provider: Provider, model: str, options: ModelOptions, wire: WireName | None = None) -> Model:
    """Open a model of a built-in provider of the catalogue, with the API format `wire` if it is given."""
    name = model or provider.default_model
    if not name:
        _raise_missing_model_name(provider)
    if provider.wire in {"demo", "local"}:
        return _open_in_process(provider, model, options)
    url, auth = resolve_url_and_auth(provider, name, options)
    adapted = _adapt_to_model(_adapt_to_url(provider, url), name)
    return build_model(adapted, name, url, auth, options, chosen_wire=wire)


def _open_in_process(provider: Provider, model: str, options: ModelOptions) -> Model:
    """Open a model that runs in this process, which needs no URL and no key."""
    if options != ModelOptions():
        raise ConfigError(f"{provider.name!r} runs in this process, and takes no options besides its name")
    if provider.wire == "demo":
        from .local.demo_model import DemoModel

        return DemoModel(model or provider.default_model)
    from .local import open_local

    return open_local(model)


def open_url_model(
    base_url: str, model: str, wire: WireName | None, options: ModelOptions, provider: str = ""
) -> Model:
    """Open a model at any base URL; `wire` names the API format to use there, if the caller chose one."""
    if not model.strip():
        raise ConfigError(f"{base_url!r}: name a model, as in open_model('https://host/v1#model')")
    url = normalize_base_url(base_url)
    known = None if provider else _find_provider_at(url, wire)
    if known is not None:
        return open_catalog_model(known, model, replace(options, base_url=known.base_url), wire)
    kept = _load_profile(url, model, wire)
    spoken = kept.wire if kept else wire or _DEFAULT_WIRE
    row = Provider(
        name=provider or get_host(url),
        title=url,
        wire=spoken,
        base_url=url,
        needs_key=False,
        window_set_by_server=True,
    )
    variables = (kept.key_variable,) if kept and kept.key_variable else ()
    auth = ApiKey(variables, header=key_header_for(spoken), given=options.api_key)
    return build_model(row, model, url, auth, options, chosen_wire=wire)


def _find_provider_at(url: str, wire: WireName | None) -> Provider | None:
    """Return the built-in provider with this URL, with this API format if it is given.

    Several may have one URL. If none has the format, the first is adapted to it: it keeps its name, keys and prices.
    """
    there = [each for each in PROVIDERS if each.base_url and normalize_url(each.base_url) == normalize_url(url)]
    if not there:
        return None
    found = next((each for each in there if each.wire == (wire or _DEFAULT_WIRE)), None)
    if found is not None or wire is None:
        return found or there[0]
    dialect = there[0].dialect if there[0].wire in _OPENAI_WIRES and wire in _OPENAI_WIRES else ""
    return replace(there[0], wire=wire, dialect=dialect, profile={}, key_header=key_header_for(wire))


def _load_profile(url: str, model: str, wire: WireName | None) -> SavedProfile | None:
    """Load the saved profile of a model; `None` if there is none, or if it is about another API format than `wire`."""
    kept = load_profile(url, model)
    return kept if kept is None or wire in {None, kept.wire} else None


def build_model(
    provider: Provider, model: str, url: str, auth: Auth, options: ModelOptions, *, chosen_wire: WireName | None = None
) -> Model:
    """Build a model reached over HTTP, wrapped with retries, think tags and, if its profile says so, JSON tool mode.

    `chosen_wire` is the API format that the caller has chosen, which a saved profile does not change.
    """
    from .endpoint.http_model import HttpModel
    from .endpoint.wire import load_wire

    kept = _load_profile(url, model, chosen_wire)
    profile = _build_profile(provider, model, url, {**(kept.profile if kept else {}), **options.profile})
    wire = kept.wire if kept else provider.wire
    base = get_wire_base_url(url, wire)
    opened: Model = HttpModel(
        load_wire(wire), profile, base_url=base, auth=auth, throttle=options.throttle, transport=options.transport
    )
    if profile.tools == "json":
        from .endpoint.json_tools import json_tools

        opened = json_tools(opened)
    return retried(with_think_tags(opened), attempts=options.attempts)


def _build_profile(provider: Provider, model: str, url: str, overrides: Mapping[str, Any]) -> Profile:
    """Build a model's profile (capabilities and limits) from its name, its provider, its URL and the `overrides`."""
    fields: dict[str, Any] = {
        "provider": provider.name,
        "model": model,
        "dialect": provider.dialect,
        **get_capability_fields(model),
    }
    if provider.cache_marked_models and re.search(provider.cache_marked_models, model.lower()):
        fields["cache"] = "marked"
    if provider.document_models and re.search(provider.document_models, model.lower()):
        fields["documents"] = True
    if provider.window_set_by_server:
        fields |= {"context_tokens": None, "max_output_tokens": None}
    try:
        profile = convert({**fields, **provider.profile, **overrides}, Profile)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"open_model(profile={dict(overrides)!r}): {error}") from error
    if profile.price is None and (provider.same_at_any_url or is_provider_url(provider, url)):
        return replace(profile, price=price_of(provider.name, model))
    return profile


def _adapt_to_url(provider: Provider, url: str) -> Provider:
    """Return the provider; OpenAI at a custom URL is switched to plain chat completions."""
    if provider.name in {"openai", "openai-chat"} and not is_provider_url(provider, url):
        return replace(provider, wire="openai_chat", dialect="", profile={}, window_set_by_server=True)
    return provider


def _adapt_to_model(provider: Provider, model: str) -> Provider:
    """Return the provider; Vertex AI is switched to the schema dialect and the prompt cache of Claude for Claude."""
    if provider.wire == "vertex":
        from .wires.vertex import is_claude

        if is_claude(model):
            return replace(provider, profile={"schema": "anthropic"}, cache_marked_models=".", dialect="")
    return provider


# -- base URL and key --------------------------------------------------------------------------------------------------


def resolve_url_and_auth(provider: Provider, model: str, options: ModelOptions) -> tuple[str, Auth]:
    """Return the base URL and authentication for a provider. Raises `ConfigError` if either is missing."""
    if provider.wire == "codex":
        from perdure._io.http.pooled import get_shared_transport

        from .wires.codex import CodexAuth

        login = CodexAuth(get_shared_transport())
        login.check()
        return resolve_base_url(provider, model, options.base_url), login
    if provider.wire == "bedrock":
        from .wires.bedrock.aws import BedrockAuth

        if callable(options.api_key):
            raise ConfigError(f"{provider.name}: api_key has to be a text; AWS credentials are renewed by themselves")
        return resolve_base_url(provider, model, options.base_url), BedrockAuth(token=options.api_key)
    if provider.wire == "vertex":
        from .wires.vertex import GoogleAuth

        return resolve_base_url(provider, model, options.base_url), GoogleAuth(token=options.api_key)
    key = ApiKey(provider.key_variables, header=provider.key_header, given=options.api_key)
    url = resolve_base_url(provider, model, options.base_url, key.variable_name)
    if provider.needs_key and not key and (is_provider_url(provider, url) or provider.same_at_any_url):
        # At a custom URL a key may not be needed.
        raise ConfigError(
            f"{provider.name}:{model} needs an API key, and none is set: set {' or '.join(provider.key_variables)} "
            f"(get one at {provider.key_help_url}), or pass api_key=…"
        )
    return url, key


async def list_provider_models(name: str) -> "list[ListedModel] | None":
    """Fetch the models that a built-in provider serves; `None` if it publishes no list."""
    from perdure._io.http.pooled import get_shared_transport

    from .endpoint.model_list import fetch_model_list

    provider = find_provider(name)
    if provider is None:
        raise_unknown_provider(name, name, [])
    if provider.wire in {"bedrock", "codex", "vertex", "local", "demo"}:
        return None
    url, auth = resolve_url_and_auth(provider, provider.default_model or provider.example_model, ModelOptions())
    return await fetch_model_list(url, auth, get_shared_transport())


def _raise_missing_model_name(provider: Provider) -> NoReturn:
    raise ConfigError(
        f"{provider.name!r} alone names no model, and {provider.title} has no default model: name one, as in "
        f"'{provider.name}:{provider.example_model}'"
    )
