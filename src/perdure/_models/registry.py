"""Open models by name (`"provider:model"`), register providers, and look up providers and prices.

A provider's module is imported when one of its models is first opened. The built-in providers are in
`catalogue/providers.py`, and `register` adds others.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from perdure._core.model.protocol import Model, Price, model_info
from perdure._core.values import checks
from perdure._core.values.error import ConfigError

if TYPE_CHECKING:
    from perdure._io.http.transport import Transport

    from .catalogue.entry import WireName
    from .catalogue.status import ProviderStatus
    from .endpoint.auth import TokenSource
    from .endpoint.throttle import Throttle

__all__ = [
    "ModelFactory",
    "list_provider_statuses",
    "open_model",
    "openai_compatible",
    "price_of",
    "providers",
    "register",
    "set_price",
]

ModelFactory: TypeAlias = Callable[[str], Model]
"""Function that builds a model from the text after `provider:` in its name, which is empty for a bare provider name."""

_SEPARATORS = ":/"


def open_model(
    spec: str | Model,
    *,
    api_key: "str | TokenSource" = "",
    base_url: str = "",
    attempts: int | None = None,
    profile: Mapping[str, Any] | None = None,
    throttle: "Throttle | None" = None,
    transport: "Transport | None" = None,
) -> Model:
    """Return the model named `provider:model`, or `spec` itself if it is a model. Raises `ConfigError` for anything
    else.

    A name is `provider:model` or `provider/model`; a provider alone means its default model, and
    `https://host/v1#model` any URL that serves chat completions. `api_key` and `base_url` override the environment
    variables; the key may be a function that returns a token, which is called for each request. `attempts` is how often
    a request is made in total when it fails with a retryable error. `profile` overrides fields of the catalogue's
    `Profile`. `throttle` replaces the rate limits that all models with one key share, and `transport` the shared HTTP
    client: to set other timeouts, or to record what is sent.
    """
    options = _drop_unset(
        api_key=api_key,
        base_url=base_url,
        attempts=attempts,
        profile=profile,
        throttle=throttle,
        transport=transport,
    )
    given: Any = spec
    if not isinstance(given, str):
        return _check_model_object(given, options)
    if "://" in given:
        address, _, served = given.partition("#")
        return openai_compatible(address, served, **options)
    provider, name = _split_spec(given)
    factory = _factories.get(provider.lower())
    if factory is None:
        return _open_catalog_model(provider, name, given, options)
    if options:
        raise ConfigError(
            f"open_model({given!r}, {_format_option_names(options)}): a registered provider takes no options"
        )
    model: Any = factory(name)
    if not callable(getattr(model, "stream", None)):
        checks.close_coroutine(model)
        raise ConfigError(f"the provider {provider!r} opened {given!r} as {model!r}, which has no stream(request)")
    return cast("Model", model)


def openai_compatible(
    base_url: str, model: str, *, wire: "WireName | None" = None, provider: str = "", **options: Any
) -> Model:
    """Open a model at any base URL; `wire` names the API format to use there.

    `wire` is `openai_chat`, `openai_responses`, `anthropic`, `gemini` or `ollama`. Without it, the format is the one
    that the catalogue or a saved profile has for this URL, and chat completions for any other. `provider` is the
    provider name recorded with its messages, the host by default. The other options are those of `open_model`. A
    profile that `perdure probe` has saved for this URL is used.
    """
    from .builder import ModelOptions, open_url_model

    if wire not in {None, "openai_chat", "openai_responses", "anthropic", "gemini", "ollama"}:
        advice = "use 'openai_chat', 'openai_responses', 'anthropic', 'gemini' or 'ollama'"
        raise ConfigError(f"openai_compatible(wire={wire!r}): {advice}")
    return open_url_model(base_url, model, wire, ModelOptions(**_drop_unset(**options)), provider)


def register(provider: str, factory: ModelFactory, *, replace: bool = False) -> None:
    """Register a provider: from now on `"<provider>:<name>"` opens `factory(name)`.

    Raises `ConfigError` if the name is taken, unless `replace` is given.
    """
    name: Any = provider
    if not isinstance(name, str) or not name or set(name) & set(_SEPARATORS) or name != name.strip():
        raise ConfigError(f"register({name!r}): a provider's name has no colons, slashes or surrounding spaces")
    made: Any = factory
    if not callable(made) or checks.is_async_function(made):
        advice = "the second argument must be a plain function, name -> model"
        raise ConfigError(f"register({name!r}, {made!r}): {advice}")
    if name.lower() in map(str.lower, providers()) and not replace:
        raise ConfigError(f"register({name!r}): this provider exists already; pass replace=True to replace it")
    _factories[name.lower()] = factory


def providers() -> list[str]:
    """Return the names of all providers, sorted."""
    from .catalogue.providers import list_provider_names

    return sorted({*list_provider_names(), *_factories})


def list_provider_statuses() -> "list[ProviderStatus]":
    """Return every provider with its availability on this machine, and the reason. Does not use the network."""
    from .catalogue.status import ProviderStatus, list_catalog_statuses

    known = [each for each in list_catalog_statuses() if each.name not in _factories]
    return known + [
        ProviderStatus(name=each, title=each, available=True, why="registered") for each in sorted(_factories)
    ]


def price_of(provider: str, model: str) -> Price | None:
    """Return the price of a model, as set by `set_price` or listed by `genai-prices`; `None` if it is unknown."""
    from .catalogue.prices import price_of as looked_up

    return looked_up(provider, model)


def set_price(provider: str, model: str, price: Price | None) -> None:
    """Set the price of a model, for models opened from now on. It overrides `genai-prices`."""
    from .catalogue.prices import set_price as keep

    keep(provider, model, price)


def _check_model_object(given: Any, options: Mapping[str, Any]) -> Model:
    if isinstance(given, type) or not callable(getattr(given, "stream", None)):
        raise ConfigError(
            f"{given!r} is not a model: give a name such as 'demo' or 'provider:model', or an object that has "
            f"stream(request)"
        )
    if checks.is_async_function(given.stream):
        raise ConfigError(f"{given!r}: its stream is an async function: let it yield events, as an async generator")
    if options:
        raise ConfigError(f"open_model({given!r}, {_format_option_names(options)}): options need the name of a model")
    model_info(given)  # raises if its `info` is not a ModelInfo
    return cast("Model", given)


def _open_catalog_model(provider: str, name: str, spec: str, options: Mapping[str, Any]) -> Model:
    from .builder import ModelOptions, open_catalog_model
    from .catalogue.providers import find_provider, raise_unknown_provider

    row = find_provider(provider)
    if row is None:
        raise_unknown_provider(provider, spec, list(_factories))
    return open_catalog_model(row, name, ModelOptions(**options))


def _split_spec(spec: str) -> tuple[str, str]:
    """Split a model name into provider and model, at the first colon or slash."""
    places = [place for each in _SEPARATORS if (place := spec.find(each)) >= 0]
    first = min(places, default=len(spec))
    return spec[:first], spec[first + 1 :]


def _drop_unset(**given: Any) -> dict[str, Any]:
    """Return the options that are neither `None` nor empty."""
    return {name: value for name, value in given.items() if value is not None and value != ""}


def _format_option_names(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}=…" for name in options)


_factories: dict[str, ModelFactory] = {}
"""Registered providers by lower-case name. They take precedence over the catalogue."""
