"""Who answers. Models are opened by name, `"provider:model"`, or given as objects. Above: the assembly. Below: `core`.

A provider's module is imported when a model of it is first opened.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from windlass.core.error import ConfigError
from windlass.core.model import Model, info_of

__all__ = ["ModelFactory", "open_model", "providers", "register"]

ModelFactory: TypeAlias = Callable[[str], Model]
"""Makes a model, given what follows `provider:` in its name; that is empty when the provider stands alone."""


def open_model(spec: str | Model) -> Model:
    """The model of this name, or the model itself. Raises `ConfigError` when it is neither."""
    given: Any = spec
    if not isinstance(given, str):
        if isinstance(given, type) or not callable(getattr(given, "stream", None)):
            raise ConfigError(
                f"{given!r} is no model: give a name such as 'demo' or 'provider:model', or an object with "
                f"stream(request)"
            )
        info_of(given)  # refuses one that says something else about itself
        return cast("Model", given)
    provider, _, name = given.partition(":")
    factory = _factories.get(provider)
    if factory is None:
        raise ConfigError(
            f"there is no model provider {provider!r} (in {given!r}); there is {', '.join(providers())}. "
            f"windlass.models.register adds one"
        )
    model: Any = factory(name)
    if not callable(getattr(model, "stream", None)):
        raise ConfigError(f"the provider {provider!r} opened {given!r} as {model!r}, which has no stream(request)")
    return cast("Model", model)


def register(provider: str, factory: ModelFactory, *, replace: bool = False) -> None:
    """Open `"<provider>:<name>"` by `factory(name)` from now on. A name in use is kept unless `replace` is given."""
    name: Any = provider
    if not isinstance(name, str) or not name or ":" in name or name != name.strip():
        raise ConfigError(f"register({name!r}): a provider's name is text without colons or spaces around it")
    made: Any = factory
    if not callable(made):
        raise ConfigError(f"register({name!r}, {made!r}): the second argument is a function from a name to a model")
    if name in _factories and not replace:
        raise ConfigError(f"register({name!r}): there is such a provider already; pass replace=True to take its place")
    _factories[name] = factory


def providers() -> list[str]:
    """The names of all providers, in order."""
    return sorted(_factories)


def _demo(name: str) -> Model:
    from .demo import DemoModel

    return DemoModel(name) if name else DemoModel()


_factories: dict[str, ModelFactory] = {"demo": _demo}
