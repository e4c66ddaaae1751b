"""Who answers. Models are opened by name, `"provider:model"`, or given as objects. Above: the assembly. Below: `core`.

A provider's module is imported when a model of it is first opened. Those that are known are in `catalog.py`, and
`register` adds others.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from perdure.core.error import ConfigError
from perdure.core.model import Model, Price, info_of

if TYPE_CHECKING:
    from perdure.net.transport import Transport

    from .availability import Offer
    from .catalog import WireName
    from .throttle import Throttle

__all__ = [
    "ModelFactory",
    "catalogue",
    "open_model",
    "openai_compatible",
    "price_of",
    "providers",
    "register",
    "set_price",
]

ModelFactory: TypeAlias = Callable[[str], Model]
"""Makes a model, given what follows `provider:` in its name; that is empty when the provider stands alone."""

_SEPARATORS = ":/"


def open_model(
    spec: str | Model,
    *,
    api_key: str = "",
    base_url: str = "",
    attempts: int | None = None,
    profile: Mapping[str, Any] | None = None,
    throttle: "Throttle | None" = None,
    transport: "Transport | None" = None,
) -> Model:
    """The model of this name, or the model itself. Raises `ConfigError` when it is neither.

    A name is `provider:model` or `provider/model`; a provider alone means its usual model, and `https://host/v1#model`
    any address that speaks chat completions. `api_key` and `base_url` take the place of what the environment says,
    `attempts` is how often a request is made when an error may pass, `profile` has fields of a `Profile` that you know
    better than the catalogue, `throttle` limits of its own, in place of those that all models with one key share, and
    `transport` a way of its own to the network: other deadlines, or somebody who looks at what is sent.
    """
    options = _options(
        api_key=api_key,
        base_url=base_url,
        attempts=attempts,
        profile=profile,
        throttle=throttle,
        transport=transport,
    )
    given: Any = spec
    if not isinstance(given, str):
        return _itself(given, options)
    if "://" in given:
        address, _, served = given.partition("#")
        return openai_compatible(address, served, **options)
    provider, name = _parted(given)
    factory = _factories.get(provider.lower())
    if factory is None:
        return _known(provider, name, given, options)
    if options:
        raise ConfigError(f"open_model({given!r}, {_named(options)}): a registered provider is given a name alone")
    model: Any = factory(name)
    if not callable(getattr(model, "stream", None)):
        raise ConfigError(f"the provider {provider!r} opened {given!r} as {model!r}, which has no stream(request)")
    return cast("Model", model)


def openai_compatible(
    base_url: str, model: str, *, wire: "WireName" = "openai_chat", provider: str = "", **options: Any
) -> Model:
    """A model at any address, spoken to as `wire` says: `openai_chat`, `openai_responses`, `anthropic` or `gemini`.

    `provider` is what the author of its messages is called, the host by default. The other options are those of
    `open_model`. What `perdure probe` has learned about the address is used.
    """
    from .opening import Options, open_address

    if wire not in {"openai_chat", "openai_responses", "anthropic", "gemini"}:
        advice = "use 'openai_chat', 'openai_responses', 'anthropic' or 'gemini'"
        raise ConfigError(f"openai_compatible(wire={wire!r}): {advice}")
    return open_address(base_url, model, wire, Options(**_options(**options)), provider)


def register(provider: str, factory: ModelFactory, *, replace: bool = False) -> None:
    """Open `"<provider>:<name>"` by `factory(name)` from now on. A name in use is kept unless `replace` is given."""
    name: Any = provider
    if not isinstance(name, str) or not name or set(name) & set(_SEPARATORS) or name != name.strip():
        raise ConfigError(f"register({name!r}): a provider's name is text without colons, slashes or spaces around it")
    made: Any = factory
    if not callable(made):
        raise ConfigError(f"register({name!r}, {made!r}): the second argument is a function from a name to a model")
    if name.lower() in map(str.lower, providers()) and not replace:
        raise ConfigError(f"register({name!r}): there is such a provider already; pass replace=True to take its place")
    _factories[name.lower()] = factory


def providers() -> list[str]:
    """The names of all providers, in order."""
    from .catalog import names

    return sorted({*names(), *_factories})


def catalogue() -> "list[Offer]":
    """Every provider, with whether it can be used here and now, and why not. The network is not used."""
    from .availability import Offer, offers

    known = [each for each in offers() if each.name not in _factories]
    return known + [Offer(name=each, title=each, available=True, why="registered") for each in sorted(_factories)]


def price_of(provider: str, model: str) -> Price | None:
    """What a model costs, by the list of `genai-prices` or as `set_price` said; `None` when that is not known."""
    from perdure.models.price import price_of as looked_up

    return looked_up(provider, model)


def set_price(provider: str, model: str, price: Price | None) -> None:
    """Say what a model costs: for models that are opened from now on, and whatever else is known."""
    from perdure.models.price import set_price as keep

    keep(provider, model, price)


def _itself(given: Any, options: Mapping[str, Any]) -> Model:
    if isinstance(given, type) or not callable(getattr(given, "stream", None)):
        raise ConfigError(
            f"{given!r} is no model: give a name such as 'demo' or 'provider:model', or an object with stream(request)"
        )
    if options:
        raise ConfigError(f"open_model({given!r}, {_named(options)}): options go with the name of a model")
    info_of(given)  # refuses one that says something else about itself
    return cast("Model", given)


def _known(provider: str, name: str, spec: str, options: Mapping[str, Any]) -> Model:
    from .catalog import find, refuse_unknown
    from .opening import Options, open_known

    row = find(provider)
    if row is None:
        refuse_unknown(provider, spec, list(_factories))
    return open_known(row, name, Options(**options))


def _parted(spec: str) -> tuple[str, str]:
    """The provider and the model of a name: what stands before and behind the first colon or slash."""
    places = [place for each in _SEPARATORS if (place := spec.find(each)) >= 0]
    first = min(places, default=len(spec))
    return spec[:first], spec[first + 1 :]


def _options(**given: Any) -> dict[str, Any]:
    """Those that were really given."""
    return {name: value for name, value in given.items() if value is not None and value != ""}


def _named(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}=…" for name in options)


_factories: dict[str, ModelFactory] = {}
"""What was registered, by name in small letters; it comes before the catalogue."""
