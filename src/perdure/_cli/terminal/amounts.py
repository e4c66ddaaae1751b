"""Parse and format durations and sizes such as `30d` and `1.5G`."""

import re
from typing import Final

import click

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_NUMBER: Final = r"(\d{1,15}(?:\.\d{1,9})?)"
_DURATION: Final = re.compile(rf"{_NUMBER}([smhdw])")
_SIZE: Final = re.compile(rf"{_NUMBER}\s?([kmgt]?)(?:i?b)?", re.IGNORECASE)


def parse_duration(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """Convert a duration such as `30d` to seconds (click callback for options)."""
    if text is None:
        return None
    if found := _DURATION.fullmatch(text.strip()):
        return float(found[1]) * _SECONDS[found[2]]
    raise click.BadParameter(f"{text!r} is not a duration; use 30d, 12h or 2w")


def parse_size(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Convert a size such as `1.5G` to bytes (click callback for options)."""
    if text is None:
        return None
    if found := _SIZE.fullmatch(text.strip()):
        return int(float(found[1]) * _BYTES[found[2].lower()])
    raise click.BadParameter(f"{text!r} is not a size; use 500M, 1.5G or a number of bytes")


def format_size(count: int) -> str:
    """Return a number of bytes as text with two or three digits and a unit, such as `1.5 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:  # noqa: PLR2004 - a fourth figure would say nothing
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"  # noqa: PLR2004
        size /= 1024
    return f"{size:.1f} TiB"
