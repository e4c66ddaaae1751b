"""`perdure review`: models review the changes of a git branch, and report findings with severity, place and fix."""

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from perdure._cli.home import resolve_store_spec, store_option
from perdure._cli.terminal.output import TerminalOutput, escape_controls, to_ascii_json

if TYPE_CHECKING:
    from perdure._core.model.protocol import Model
    from perdure._core.run.stop import Limits
    from perdure._work.judging.reviews.review import Review

FOUND: Final = 1
"""Exit code if there is a finding that is as bad as `--fail-on` says."""
MOST_GUIDE_BYTES: Final = 100_000
_SEVERITIES: Final = ("critical", "major", "minor", "note")


@click.command()
@click.argument("base", default="main")
@click.option(
    "--model", "-m", "models", multiple=True, metavar="PROVIDER:MODEL", help="Model; more than one may be given."
)
@click.option(
    "--agree", type=click.IntRange(min=1), metavar="N", help="Models that must agree.  [default: 2 of several]"
)
@click.option("--include", multiple=True, metavar="PATTERN", help="Review only files such as 'src/**'.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files such as '*.lock'.")
@click.option("--guide", metavar="PATH", help="File with further instructions, such as the rules of your team.")
@click.option("--fail-on", type=click.Choice(_SEVERITIES), help="Exit with code 1 for such a finding, or a worse one.")
@click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Limit for each model.")
@click.option("--output", "-o", metavar="PATH", help="Write the review to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the review as a line of JSON.")
@store_option
@click.pass_context
def review(context: click.Context, /, base: str, **options: Any) -> None:
    """Review what the current branch adds to BASE, which is main unless you name another branch or commit.

    The model reads the diff, the history and the files of the working folder, and can change nothing. Each finding has
    a severity (critical, major, minor, note), a file and line, the problem, a fix, and how to see that it is fixed. The
    review is a page of Markdown, or JSON.

    Several models review the branch at the same time, and findings that only one of them reports are left out:

      perdure review -m anthropic -m openai -m gemini

    Models with a comma between them are one reviewer: if the first one fails, the next one is asked.

      perdure review develop -m groq,cerebras --exclude '*.lock' --fail-on major

    Only committed changes are reviewed. Files whose names often mean secrets, such as .env, are never shown to a model.
    The sessions of the models are stored, and shown by: perdure sessions list --all
    """
    import asyncio

    from perdure._work.judging.reviews.markdown import render_review

    screen = TerminalOutput(quiet=options["as_json"])
    done = asyncio.run(_review_branch(base, options, screen))
    text = _format_json(done) if options["as_json"] else render_review(done)
    if options["output"]:
        from perdure._cli.sessions.transfer import write_file_atomically

        written = text if options["as_json"] else escape_controls(text)
        write_file_atomically(options["output"], written.encode("utf-8", "replace"), replace=True)
        screen.note(f"the review is in {options['output']}")
    else:
        screen.write(text if options["as_json"] else escape_controls(text))
    for failed in done.failed:
        screen.note(f"{failed.model} returned no review: {failed.problem}")
    if options["fail_on"] and done.count_at_least(options["fail_on"]):
        context.exit(FOUND)


async def _review_branch(base: str, options: dict[str, Any], screen: TerminalOutput) -> "Review":
    from perdure._core.values.error import ConfigError
    from perdure._work.judging.reviews.reviewer import BranchReviewer

    names = list(options["models"]) or [_choose_model(screen)]
    agree = options["agree"]
    if agree is not None and agree > len(names):
        raise ConfigError(f"--agree {agree}: only {len(names)} models review the branch; name more with --model")
    reviewer = BranchReviewer(
        [_open_reviewer(each) for each in names],
        base=base,
        include=options["include"],
        exclude=options["exclude"],
        guide=_read_guide(options["guide"]),
        agree=agree,
        limits=_build_limits(options["max_cost"]),
        store=resolve_store_spec(options["store"]),
    )
    if sys.stderr.isatty():
        screen.note(f"{', '.join(names)} {'reads' if len(names) == 1 else 'read'} the changes since {base} …")
    return await reviewer.review()


def _choose_model(screen: TerminalOutput) -> str:
    """Return the model that `perdure run` would use."""
    from perdure._cli.run.model import choose_model

    choice = choose_model()
    if choice.reason:
        screen.note(f"model {choice.model}: {choice.reason}")
    return choice.model


def _open_reviewer(names: str) -> "str | Model":
    """Return the model of one reviewer; several names, separated by commas, are asked one after another."""
    listed = [each.strip() for each in names.split(",") if each.strip()]
    if len(listed) == 1:
        return listed[0]
    if not listed:
        raise click.UsageError(f"--model {names!r}: name a model, such as anthropic")
    from perdure._core.model.failover import failover
    from perdure._models.registry import open_model

    return failover(*[open_model(each) for each in listed])


def _build_limits(max_cost_usd: float | None) -> "Limits":
    from msgspec.structs import replace

    from perdure._work.judging.reviews.reviewer import DEFAULT_LIMITS

    return DEFAULT_LIMITS if max_cost_usd is None else replace(DEFAULT_LIMITS, max_cost_usd=max_cost_usd)


def _read_guide(path: str | None) -> str:
    """Return the text of the file with further instructions. Raises `ConfigError` if it cannot be read."""
    if path is None:
        return ""
    from perdure._core.values.error import ConfigError
    from perdure._io.files.head import UnreadableFile, read_file_head

    try:
        found = read_file_head(path, MOST_GUIDE_BYTES)
        text = found.data.decode()
    except (UnreadableFile, UnicodeDecodeError) as error:
        raise ConfigError(f"--guide {path}: {error}; name a text file") from error
    if found.is_truncated:
        raise ConfigError(f"--guide {path}: the file has more than {MOST_GUIDE_BYTES:,} bytes; shorten it")
    return text


def _format_json(done: "Review") -> str:
    import msgspec

    return to_ascii_json(msgspec.json.encode(done)) + "\n"
