"""`perdure probe`: what can this endpoint do? Above: `main.py`. Below: `perdure.models.probe`."""

import os
import sys
from typing import TYPE_CHECKING

import click

from .screen import Screen, json_line, line_width, one_line

if TYPE_CHECKING:
    from perdure.models.probe import Learned, ProbeWire


@click.command()
@click.argument("base_url", metavar="BASE_URL")
@click.argument("model", metavar="MODEL")
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the key.")
@click.option(
    "--wire",
    type=click.Choice(["auto", "openai_chat", "openai_responses", "anthropic"]),
    default="auto",
    help="How it is spoken to.  [default: auto, which tries]",
)
@click.option("--deep", is_flag=True, help="If it does not say how much it reads, send a request that is too long.")
@click.option("--dry-run", is_flag=True, help="Show what was learned, and keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write what was learned as a line of JSON.")
def probe(
    base_url: str, model: str, *, key_env: str | None, wire: "ProbeWire", deep: bool, dry_run: bool, as_json: bool
) -> None:
    """Find out what MODEL at BASE_URL can do, and keep it for every later use.

    BASE_URL is what programs for OpenAI are given, such as http://localhost:8080/v1. About a dozen short requests are
    sent, at most 28. What is learned goes into a file in ~/.config/perdure/profiles, and
    perdure run -m "BASE_URL#MODEL" uses it. When nobody answers, or the key is wrong, nothing is written.
    """
    import asyncio

    screen = Screen()
    learned = asyncio.run(_learn(screen, base_url, model, key_env, wire, deep=deep))
    path = "" if dry_run else learned.keep()
    if as_json:
        import msgspec

        screen.say(json_line(msgspec.json.encode(learned.kept)) + "\n")
    else:
        _report(screen, learned)
    spec = one_line(f"{learned.kept.base_url}#{model}")
    kept = "nothing was kept" if dry_run else f"kept in {one_line(path)}; use it with: perdure run -m '{spec}'"
    screen.note(f"{learned.requests} requests; {kept}")


async def _learn(
    screen: Screen, base_url: str, model: str, key_env: str | None, wire: "ProbeWire", *, deep: bool
) -> "Learned":
    from perdure.models.probe import probe as find_out

    if key_env is not None and not os.environ.get(key_env):
        raise click.UsageError(f"there is no key in {key_env}; put it there, or leave --key-env out")

    def tell(what: str) -> None:
        screen.note(one_line(f"looking at: {what}"))

    return await find_out(base_url, model, key_variable=key_env or "", wire=wire, deep=deep, tell=tell)


def _report(screen: Screen, learned: "Learned") -> None:
    width = max(len(each.about) for each in learned.findings)
    for each in learned.findings:
        screen.say(one_line(f"{each.about:{width}}  {each.found}", line_width(sys.stdout)) + "\n")
