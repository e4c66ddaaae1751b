"""`perdure probe`: find out what a model endpoint supports."""

import os
import sys
from typing import TYPE_CHECKING

import click

from .terminal_output import TerminalOutput, line_width, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from perdure.models.probe import ProbeResult, ProbeWire


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
    from perdure.models.probe import probe as find_out

    if key_env is not None and not os.environ.get(key_env):
        raise click.UsageError(f"the variable {key_env} is not set; set it, or leave out --key-env")

    def tell(what: str) -> None:
        screen.note(to_one_line(f"testing: {what}"))

    return await find_out(base_url, model, key_variable=key_env or "", wire=wire, deep=deep, on_progress=tell)


def _print_findings(screen: TerminalOutput, learned: "ProbeResult") -> None:
    width = max(len(each.about) for each in learned.findings)
    for each in learned.findings:
        screen.write(to_one_line(f"{each.about:{width}}  {each.found}", line_width(sys.stdout)) + "\n")
