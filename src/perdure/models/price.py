"""What models cost: by `genai-prices`, offline, or as somebody said. Above: `opening.py`. Below: `core`.

Importing `genai-prices` takes a quarter of a second of CPU, most of it for libraries that Perdure does not use. So it
is asked once about each model, and its answers are kept in a file for a day, or until it is upgraded: a program that
opens the models it opened yesterday does not import it. Without the extra `perdure[prices]` no price is known but
those that were set. Nothing here ever uses the network.

A provider that asks more for long prompts is counted at what it asks for short ones.
"""

# ruff: noqa: PTH103, PTH105, PTH116, PTH118, PTH120, PTH123 - pathlib would cost every start milliseconds
import os
import time
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.model import Price

DAY_SECONDS = 24 * 60 * 60
"""How long an answer is good for: some prices begin on a day."""
_SAMPLE_TOKENS = 1_000
"""Asked about, rather than a million: prices of long prompts begin somewhere in between."""

_set: dict[tuple[str, str], Price | None] = {}


class _Kept(Struct):
    """The answers of one day and one version of `genai-prices`."""

    version: str = ""
    day: int = 0
    prices: dict[str, Price | None] = {}


def set_price(provider: str, model: str, price: Price | None) -> None:
    """Say what a model costs from now on, whatever else is known; `None` for unknown. It holds for models that are
    opened afterwards.
    """
    if price is not None and not isinstance(price, Price):
        raise ConfigError(f"set_price(…, {price!r}): give a Price(input_usd=…, output_usd=…), or None for unknown")
    _set[provider.lower(), model] = price


def price_of(provider: str, model: str) -> Price | None:
    """What a model costs at a provider of the catalogue; `None` when that is not known."""
    from .catalog import find

    if (provider.lower(), model) in _set:
        return _set[provider.lower(), model]
    known = find(provider)
    if known is None:
        return None
    if (known.name, model) in _set:
        return _set[known.name, model]
    if known.free:
        served_elsewhere = model.endswith("cloud")  # as Ollama marks the models that it passes on
        return None if served_elsewhere else Price(input_usd=0.0, output_usd=0.0)
    return _listed(known.price_id, model, int(time.time() // DAY_SECONDS)) if known.price_id else None


@lru_cache(1024)
def _listed(price_id: str, model: str, today: int) -> Price | None:
    """The price in the list of `genai-prices`: from our file if it is there, else by asking."""
    version = _version()
    if not version:
        return None
    kept, name = _kept(version, today), f"{price_id}/{model}"
    if name not in kept.prices:
        kept.prices[name] = _asked(price_id, model)
        _keep(kept)
    return kept.prices[name]


def _version() -> str:
    """Which `genai-prices` is installed, without importing it; empty when there is none."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("genai_prices")
    if spec is None or spec.origin is None:
        return ""
    try:
        found = os.stat(os.path.join(os.path.dirname(spec.origin), "data.py"))
    except OSError:
        return spec.origin
    return f"{spec.origin} {found.st_size} {found.st_mtime_ns}"


def _asked(price_id: str, model: str) -> Price | None:
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


def _path() -> str:
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111
    return os.path.join(caches, "perdure", "prices.json")


def _kept(version: str, today: int) -> _Kept:
    """The answers of today; none when there is no file, or an older one, or one that cannot be read."""
    try:
        with open(_path(), "rb") as file:
            kept = msgspec.json.decode(file.read(), type=_Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, ConfigError):
        kept = _Kept()
    return kept if (kept.version, kept.day) == (version, today) else _Kept(version, today, {})


def _keep(kept: _Kept) -> None:
    """Write the file, whole or not at all. Where it cannot be written the next process asks again."""
    path = _path()
    unfinished = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(unfinished, "wb") as file:
            file.write(msgspec.json.encode(kept))
        os.replace(unfinished, path)
    except OSError:
        return
