"""Look up the prices of models, in `genai-prices` (offline) or as set by `set_price`.

Importing `genai-prices` takes a quarter of a second of CPU, most of it for libraries that Perdure does not use. So each
price is looked up once and cached in a file for a day, or until the package is upgraded: a program that opens the same
models again does not import it. Without the extra `perdure[prices]` only prices set by `set_price` are known. The
network is never used.

A provider that charges more for long prompts is counted at its price for short ones.
"""

# ruff: noqa: PTH103, PTH105, PTH116, PTH118, PTH120, PTH123 - pathlib would cost every start milliseconds
import os
import time
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.model.protocol import Price
from perdure._core.values.error import ConfigError
from perdure._io.home.paths import get_user_folder

DAY_SECONDS = 24 * 60 * 60
"""How long a cached price is valid: some prices start on a given day."""
_SAMPLE_TOKENS = 1_000
"""Tokens to ask the price of, rather than a million: higher prices for long prompts start in between."""

_prices_set: dict[tuple[str, str], Price | None] = {}


class _PriceCache(Struct):
    """Content of the cache file: prices of one day and one version of `genai-prices`."""

    version: str = ""
    day: int = 0
    prices: dict[str, Price | None] = {}


def set_price(provider: str, model: str, price: Price | None) -> None:
    """Set the price of a model for models opened afterwards, overriding `genai-prices`; `None` makes it unknown."""
    if price is not None and not isinstance(price, Price):
        raise ConfigError(f"set_price(…, {price!r}): give a Price(input_usd=…, output_usd=…), or None for unknown")
    _prices_set[provider.lower(), model] = price


def price_of(provider: str, model: str) -> Price | None:
    """Return the price of a model at a provider of the catalogue; `None` if it is unknown."""
    from .providers import find_provider

    if (provider.lower(), model) in _prices_set:
        return _prices_set[provider.lower(), model]
    known = find_provider(provider)
    if known is None:
        return None
    if (known.name, model) in _prices_set:
        return _prices_set[known.name, model]
    if known.is_free:
        served_elsewhere = model.endswith("cloud")  # how Ollama marks models that it forwards
        return None if served_elsewhere else Price(input_usd=0.0, output_usd=0.0)
    return _look_up_price(known.price_id, model, int(time.time() // DAY_SECONDS)) if known.price_id else None


@lru_cache(1024)
def _look_up_price(price_id: str, model: str, today: int) -> Price | None:
    """Return a model's price from the cache file, or else from `genai-prices`."""
    version = _get_genai_prices_version()
    if not version:
        return None
    kept, name = _read_cache(version, today), f"{price_id}/{model}"
    if name not in kept.prices:
        kept.prices[name] = _ask_genai_prices(price_id, model)
        _write_cache(kept)
    return kept.prices[name]


def _get_genai_prices_version() -> str:
    """Return a fingerprint of the installed `genai-prices` without importing it; empty if it is not installed."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("genai_prices")
    if spec is None or spec.origin is None:
        return ""
    try:
        found = os.stat(os.path.join(os.path.dirname(spec.origin), "data.py"))
    except OSError:
        return spec.origin
    return f"{spec.origin} {found.st_size} {found.st_mtime_ns}"


def _ask_genai_prices(price_id: str, model: str) -> Price | None:
    from genai_prices import Usage, calc_price

    def usd(side: str, **tokens: int) -> float:
        found: Any = calc_price(Usage(**tokens), model, provider_id=price_id)
        return round(float(getattr(found, side)) * 1_000_000 / _SAMPLE_TOKENS, 9)

    try:
        return Price(
            input_usd=usd("input_price", input_tokens=_SAMPLE_TOKENS),
            output_usd=usd("output_price", output_tokens=_SAMPLE_TOKENS),
            cache_read_usd=usd("input_price", input_tokens=_SAMPLE_TOKENS, cache_read_tokens=_SAMPLE_TOKENS),
            cache_write_usd=usd("input_price", input_tokens=_SAMPLE_TOKENS, cache_write_tokens=_SAMPLE_TOKENS),
        )
    except (LookupError, ValueError):
        return None


# -- the file ----------------------------------------------------------------------------------------------------------


def _get_cache_path() -> str:
    return os.path.join(get_user_folder("XDG_CACHE_HOME", ".cache"), "perdure", "prices.json")


def _read_cache(version: str, today: int) -> _PriceCache:
    """Read today's cached prices; empty if the file is missing, outdated or unreadable."""
    try:
        with open(_get_cache_path(), "rb") as file:
            kept = msgspec.json.decode(file.read(), type=_PriceCache)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, ConfigError):
        kept = _PriceCache()
    return kept if (kept.version, kept.day) == (version, today) else _PriceCache(version, today, {})


def _write_cache(kept: _PriceCache) -> None:
    """Write the cache file atomically. If it cannot be written, the next process looks prices up again."""
    path = _get_cache_path()
    unfinished = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(unfinished, "wb") as file:
            file.write(msgspec.json.encode(kept))
        os.replace(unfinished, path)
    except OSError:
        return
