"""`perdure models` and `perdure probe`: providers, their models, and what an endpoint supports."""

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from perdure._cli.terminal.output import TerminalOutput, line_width, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from perdure._models.catalogue.status import ProviderStatus
    from perdure._models.endpoint.model_list import ListedModel
    from perdure._models.probe.endpoint import ProbeResult, ProbeWire


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

    from perdure._models.registry import list_provider_statuses

    offers = [_check_local_server(offer) for offer in list_provider_statuses()]
    widths = [max(len(cell) for cell in column) for column in zip(*map(_provider_cells, offers), strict=True)]
    for offer in offers:
        screen.write((to_ascii_json(msgspec.json.encode(offer)) if as_json else _format_provider(offer, widths)) + "\n")
    usable = sum(offer.available for offer in offers)
    screen.note(f"{usable} of {len(offers)} can be used; `perdure models PROVIDER` lists the models of one")


def _check_local_server(offer: "ProviderStatus") -> "ProviderStatus":
    """Return the provider, marked as unavailable if it is a local server that does not run."""
    from msgspec.structs import replace

    from perdure._models.catalogue.base_url import is_loopback

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
    from perdure._core.values.error import ConfigError
    from perdure._models.builder import list_provider_models

    found = await list_provider_models(provider)
    if found is None:
        raise ConfigError(f"{provider!r} does not list its models; see its website")
    return found


@click.command()
@click.argument("base_url", metavar="BASE_URL")
@click.argument("model", metavar="MODEL")
@click.option("--key-env", metavar="NAME", help="Environment variable with the API key.")
@click.option(
    "--wire",
    type=click.Choice(["auto", "openai_chat", "openai_responses", "anthropic"]),
    default="auto",
    help="API of the server.  [default: auto, which tries each]",
)
@click.option("--deep", is_flag=True, help="If its context size is unknown, find it with a request that is too long.")
@click.option("--dry-run", is_flag=True, help="Show the result without saving it.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
def probe(
    base_url: str, model: str, *, key_env: str | None, wire: "ProbeWire", deep: bool, dry_run: bool, as_json: bool
) -> None:
    """Test what MODEL at BASE_URL supports. The result is saved for later use.

    BASE_URL is that of an OpenAI-compatible API, such as http://localhost:8080/v1. About a dozen short requests are
    sent, at most 28. The result is saved in ~/.config/perdure/profiles, and perdure run -m "BASE_URL#MODEL" uses it. If
    the server does not answer, or the key is wrong, nothing is saved.
    """
    import asyncio

    screen = TerminalOutput()
    learned = asyncio.run(_run_probe(screen, base_url, model, key_env, wire, deep=deep))
    path = "" if dry_run else learned.save()
    if as_json:
        import msgspec

        screen.write(to_ascii_json(msgspec.json.encode(learned.saved_profile)) + "\n")
    else:
        _print_findings(screen, learned)
    spec = to_one_line(f"{learned.saved_profile.base_url}#{model}")
    kept = "nothing was saved" if dry_run else f"saved in {to_one_line(path)}; use it with: perdure run -m '{spec}'"
    screen.note(f"{learned.requests} requests; {kept}")


async def _run_probe(
    screen: TerminalOutput, base_url: str, model: str, key_env: str | None, wire: "ProbeWire", *, deep: bool
) -> "ProbeResult":
    from perdure._models.probe.endpoint import probe as find_out

    if key_env is not None and not os.environ.get(key_env):
        raise click.UsageError(f"the variable {key_env} is not set; set it, or leave out --key-env")

    def tell(what: str) -> None:
        screen.note(to_one_line(f"testing: {what}"))

    return await find_out(base_url, model, key_variable=key_env or "", wire=wire, deep=deep, on_progress=tell)


def _print_findings(screen: TerminalOutput, learned: "ProbeResult") -> None:
    width = max(len(each.about) for each in learned.findings)
    for each in learned.findings:
        screen.write(to_one_line(f"{each.about:{width}}  {each.found}", line_width(sys.stdout)) + "\n")
