"""`perdure models`: who can answer, and what to set so that more can. Above: `main.py`. Below: `perdure.models`."""

import sys
from typing import TYPE_CHECKING, Final

import click

from .screen import Screen, json_line, line_width, one_line

if TYPE_CHECKING:
    from perdure.models.availability import Offer
    from perdure.models.listing import Listed

_CONNECT_SECONDS: Final = 0.3
"""How long a server on this machine is waited for."""


@click.command()
@click.argument("provider", metavar="[PROVIDER]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Write each provider, or each model, as a line of JSON.")
def models(provider: str | None, *, as_json: bool) -> None:
    """Show which providers can be used, and what to set for the others.

    With PROVIDER, ask it which models it has. A model is named as in: perdure run -m PROVIDER:MODEL "…"
    """
    if provider is None:
        _show_providers(Screen(), as_json=as_json)
    else:
        _show_models(Screen(), provider, as_json=as_json)


# -- providers ---------------------------------------------------------------------------------------------------------


def _show_providers(screen: Screen, *, as_json: bool) -> None:
    import msgspec

    from perdure.models import catalogue

    offers = [_looked_at(offer) for offer in catalogue()]
    widths = [max(len(cell) for cell in column) for column in zip(*map(_cells, offers), strict=True)]
    for offer in offers:
        screen.say((json_line(msgspec.json.encode(offer)) if as_json else _row(offer, widths)) + "\n")
    usable = sum(offer.available for offer in offers)
    screen.note(f"{usable} of {len(offers)} can be used; `perdure models PROVIDER` lists the models of one")


def _looked_at(offer: "Offer") -> "Offer":
    """A server on this machine is there when somebody listens."""
    from msgspec.structs import replace

    from perdure.models.address import is_loopback

    if not offer.available or not is_loopback(offer.base_url):
        return offer
    if _listens(offer.base_url):
        return replace(offer, why=f"runs at {offer.base_url}")
    return replace(offer, available=False, why=f"nobody listens at {offer.base_url}; start it, or see {offer.page}")


def _listens(url: str) -> bool:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "localhost", port), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _cells(offer: "Offer") -> tuple[str, str, str, str]:
    mark = "yes" if offer.available else "no"
    return mark, one_line(offer.name), one_line(offer.default_model or "(name one)"), offer.wire


def _row(offer: "Offer", widths: list[int]) -> str:
    cells = [f"{cell:{width}}" for cell, width in zip(_cells(offer), widths, strict=True)]
    return one_line("  ".join([*cells, offer.why]).rstrip(), line_width(sys.stdout))


# -- the models of one -------------------------------------------------------------------------------------------------


def _show_models(screen: Screen, provider: str, *, as_json: bool) -> None:
    import asyncio

    import msgspec

    found = asyncio.run(_asked(provider))
    for model in sorted(found, key=lambda each: each.name):
        screen.say((json_line(msgspec.json.encode(model)) if as_json else _line(model)) + "\n")
    screen.note(f"{len(found)} models; use one with: perdure run -m {one_line(provider)}:MODEL")


def _line(model: "Listed") -> str:
    window = f"  reads {model.context_tokens} tokens" if model.context_tokens else ""
    return one_line(f"{model.name}{window}", line_width(sys.stdout))


async def _asked(provider: str) -> "list[Listed]":
    from perdure.core.error import ConfigError
    from perdure.models.opening import listing_of

    found = await listing_of(provider)
    if found is None:
        raise ConfigError(f"{provider!r} does not list its models; see its own pages")
    return found
