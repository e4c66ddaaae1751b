"""Options of `perdure eval`, with completion of the ids and tags of cases."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def add_evaluation_options(command: Any) -> Any:
    """Decorate a click command with the argument DATASET and the options of `perdure eval`."""
    listed = [*_list_agent_options(), *_list_case_options(), *_list_run_options(), *_list_report_options()]
    for option in reversed([click.argument("dataset", type=click.Path(dir_okay=False)), *listed]):
        command = option(command)
    return command


def complete_case_words(context: click.Context, parameter: click.Parameter, typed: str) -> "list[CompletionItem]":
    """Complete case ids or tags for the shell, from the DATASET that was typed before (click callback for options)."""
    from click.shell_completion import CompletionItem  # at first use: for a quick start

    from perdure.core.error import PerdureError
    from perdure.evaluating import load_dataset

    named = context.params.get("dataset") or next(iter(context.args), "")  # there, while an option lacks its value
    try:
        dataset = load_dataset(named, trusted=True)
    except PerdureError:
        return []
    words = [case.id for case in dataset.cases]
    if parameter.name == "tags":
        words = sorted({tag for case in dataset.cases for tag in case.tags})
    return [CompletionItem(word) for word in words if word.startswith(typed)]


def _list_agent_options() -> Iterator[Any]:
    yield click.option(
        "--agent",
        "agents",
        multiple=True,
        metavar="MODULE:NAME",
        help="Agent, or a function that makes one; file.py:NAME works too. Can be repeated.",
    )
    yield click.option(
        "--model",
        "-m",
        "models",
        multiple=True,
        metavar="PROVIDER:MODEL",
        help="Model of each agent. Can be repeated.",
    )
    yield click.option(
        "--grader",
        "graders",
        multiple=True,
        metavar="NAME|TABLE",
        help="Further grader of every case, as in --grader contains. Can be repeated.",
    )
    yield click.option(
        "--grader-model", metavar="PROVIDER:MODEL", help="Model of the grader `model`, where none is named."
    )
    yield click.option(
        "--deps", metavar="MODULE:NAME", help="Function that gets a case and returns the deps of its run."
    )


def _list_case_options() -> Iterator[Any]:
    yield click.option(
        "--case",
        "ids",
        multiple=True,
        metavar="ID",
        shell_complete=complete_case_words,
        help="Run only this case. Can be repeated.",
    )
    yield click.option(
        "--tag",
        "tags",
        multiple=True,
        metavar="TAG",
        shell_complete=complete_case_words,
        help="Run only cases with this tag. Can be repeated.",
    )
    yield click.option(
        "--repeat", type=click.IntRange(1, 1000), default=1, show_default=True, help="Runs of each case."
    )
    yield click.option(
        "--trust",
        is_flag=True,
        help="You have read DATASET: it may name graders that run code and models of graders, raise limits, and "
        "attach files.",
    )


def _list_run_options() -> Iterator[Any]:
    above_zero = click.FloatRange(min=0, min_open=True)
    yield click.option(
        "--parallel", "-j", type=click.IntRange(1, 256), default=4, show_default=True, help="Cases at a time."
    )
    yield click.option(
        "--limit-seconds", type=above_zero, metavar="S", help="Time limit of each case, unless its own is lower."
    )
    yield click.option("--max-cost", type=above_zero, metavar="USD", help="Limit for all cases together.")
    yield click.option("--resume", is_flag=True, help="Go on with the last evaluation of DATASET that is not finished.")
    yield click.option("--id", "evaluation_id", metavar="ID", help="With --resume: that evaluation, finished or not.")
    yield click.option("--retry-errors", is_flag=True, help="With --resume: run cases again that ended in an error.")
    yield click.option("--yes", is_flag=True, help="Allow every tool call of the agent of this folder.")
    yield click.option(
        "--store",
        metavar="sqlite:PATH",
        help="Store of evaluations and their sessions.  [default: evals.db in ~/.perdure]",
    )


def _list_report_options() -> Iterator[Any]:
    yield click.option(
        "--baseline",
        metavar="last|none|ID|FILE",
        default="last",
        show_default=True,
        help="Evaluation to compare with; FILE is what --json printed.",
    )
    yield click.option(
        "--pass-rate",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        help="Fraction of the runs that has to pass.",
    )
    yield click.option(
        "--html", metavar="PATH", type=click.Path(dir_okay=False), help="Write the report there, as one web page."
    )
    yield click.option("--json", "as_json", is_flag=True, help="Print the report as a line of JSON.")
    yield click.option("--quiet", "-q", is_flag=True, help="Print only the table and errors.")
