"""`perdure models`: list providers and their models."""

import sys
from typing import TYPE_CHECKING, Final

import click

from .terminal_output import TerminalOutput, line_width, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from perdure.models.model_list import ListedModel
    from perdure.models.usable_providers import ProviderStatus

_CONNECT_SECONDS: Final = 0.3
"""Timeout for connecting to a model server on this machine."""


@click.command()
@click.argument("provider", metavar="[PROVIDER]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print each provider, or each model, as a line of JSON.")
def models(provider: str | None, *, as_json: bool) -> None:
    """List providers, or the models of one.

    The list shows which providers can be used, and what the others need.
    With PROVIDER, list its models. Use one with: perdure run -m PROVIDER:MODEL "…"
    """
    if provider is None:
        _show_providers(TerminalOutput(), as_json=as_json)
    else:
        _show_models(TerminalOutput(), provider, as_json=as_json)


# -- providers ---------------------------------------------------------------------------------------------------------


def _show_providers(screen: TerminalOutput, *, as_json: bool) -> None:
    import msgspec

    from perdure.models import list_provider_statuses

    offers = [_check_local_server(offer) for offer in list_provider_statuses()]
    widths = [max(len(cell) for cell in column) for column in zip(*map(_provider_cells, offers), strict=True)]
    for offer in offers:
        screen.write((to_ascii_json(msgspec.json.encode(offer)) if as_json else _format_provider(offer, widths)) + "\n")
    usable = sum(offer.available for offer in offers)
    screen.note(f"{usable} of {len(offers)} can be used; `perdure models PROVIDER` lists the models of one")


def _check_local_server(offer: "ProviderStatus") -> "ProviderStatus":
    """Return the provider, marked as unavailable if it is a local server that does not run."""
    from msgspec.structs import replace

    from perdure.models.base_url import is_loopback

    if not offer.available or not is_loopback(offer.base_url):
        return offer
    if _is_listening(offer.base_url):
        return replace(offer, why=f"runs at {offer.base_url}")
    return replace(offer, available=False, why=f"no server answers at {offer.base_url}; start it, or see {offer.page}")


def _is_listening(url: str) -> bool:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "localhost", port), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _provider_cells(offer: "ProviderStatus") -> tuple[str, str, str, str]:
    mark = "yes" if offer.available else "no"
    return mark, to_one_line(offer.name), to_one_line(offer.default_model or "(name one)"), offer.wire


def _format_provider(offer: "ProviderStatus", widths: list[int]) -> str:
    cells = [f"{cell:{width}}" for cell, width in zip(_provider_cells(offer), widths, strict=True)]
    return to_one_line("  ".join([*cells, offer.why]).rstrip(), line_width(sys.stdout))


# -- the models of one -------------------------------------------------------------------------------------------------


def _show_models(screen: TerminalOutput, provider: str, *, as_json: bool) -> None:
    import asyncio

    import msgspec

    found = asyncio.run(_list_models(provider))
    for model in sorted(found, key=lambda each: each.name):
        screen.write((to_ascii_json(msgspec.json.encode(model)) if as_json else _format_model(model)) + "\n")
    screen.note(f"{len(found)} models; use one with: perdure run -m {to_one_line(provider)}:MODEL")


def _format_model(model: "ListedModel") -> str:
    window = f"  context of {model.context_tokens} tokens" if model.context_tokens else ""
    return to_one_line(f"{model.name}{window}", line_width(sys.stdout))


async def _list_models(provider: str) -> "list[ListedModel]":
    from perdure.core.error import ConfigError
    from perdure.models.model_builder import list_provider_models

    found = await list_provider_models(provider)
    if found is None:
        raise ConfigError(f"{provider!r} does not list its models; see its website")
    return found
