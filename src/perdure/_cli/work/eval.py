"""`perdure eval`: agents run the cases of a dataset, graders judge the answers, and a report compares them."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from perdure._cli.home import resolve_store_spec
from perdure._cli.run.command import add_agent_options
from perdure._cli.terminal.output import TerminalOutput, line_width, to_ascii_json, to_one_line, uses_cursor

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from perdure._work.judging.evals.dataset import Dataset
    from perdure._work.judging.evals.evaluation import Evaluation, EvaluationProgress
    from perdure._work.judging.evals.report import EvaluationReport


def add_evaluation_options(command: Any) -> Any:
    """Decorate a click command with the argument DATASET and the options of `perdure eval`."""
    listed = [*_list_agent_options(), *_list_case_options(), *_list_run_options(), *_list_report_options()]
    for option in reversed([click.argument("dataset", type=click.Path(dir_okay=False)), *listed]):
        command = option(command)
    return command


def complete_case_words(context: click.Context, parameter: click.Parameter, typed: str) -> "list[CompletionItem]":
    """Complete case ids or tags for the shell, from the DATASET that was typed before (click callback for options)."""
    from click.shell_completion import CompletionItem  # at first use: for a quick start

    from perdure._core.values.error import PerdureError
    from perdure._work.judging.evals.reader import load_dataset

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


FAILED: Final = 1
"""Exit code if fewer cases passed than `--pass-rate` says."""
REGRESSED: Final = 4
"""Exit code if a case passes less often than in the baseline."""
STORE_FILE: Final = "evals.db"
_CLEAR: Final = "\r\x1b[K"
_WIDE: Final = 160
_MAX_REPORT_BYTES: Final = 500_000_000


@click.command("eval")
@add_evaluation_options
@add_agent_options
@click.pass_context
def eval_command(context: click.Context, /, dataset: str, **options: Any) -> None:
    """Run the cases of DATASET, a TOML or JSONL file, grade the answers, and compare them with the last evaluation.

    Each agent runs every case in a session of its own. Without --agent, the agent is that of perdure run in this
    folder; tool calls that would be asked about are denied. A case that fails, times out or exhausts a budget is a
    result. After an interruption, or a crash, --resume goes on: what is finished is not run again.

    A case in TOML has a prompt, and may have expected, graders, tags, limits, deps, output, repeat and id:

    \b
    [[case]]
    prompt = "What is 6 * 7?"
    expected = "42"
    graders = ["contains"]

    Exit codes: 0 when all passed; 1 when some did not (see --pass-rate); 4 when a case passes less often than in the
    baseline; 2 for a mistake in DATASET or an option; 130 after Ctrl-C.
    """  # noqa: D301 - click's mark for lines that are kept
    import asyncio

    if options["evaluation_id"] and not options["resume"]:
        raise click.UsageError("--id names the evaluation to go on with: add --resume")
    if options["retry_errors"] and not options["resume"]:
        raise click.UsageError("--retry-errors is for an evaluation that is gone on with: add --resume")
    from .eval_run import list_given_options

    options["given"] = list_given_options(context, without=("resume", "evaluation_id"))
    agent_options = {name: options.pop(name) for name in ("coding", "context", "no_config", "config")}
    context.exit(asyncio.run(_evaluate(dataset, options, agent_options)))


async def _evaluate(path: str, options: dict[str, Any], agent_options: dict[str, Any]) -> int:
    from perdure._core.values.error import ShuttingDown
    from perdure._work.judging.evals.reader import load_dataset

    from .eval_run import EvaluationSignals

    screen = TerminalOutput(quiet=options["quiet"] or options["as_json"])
    dataset = _mark_own_text(load_dataset(path, trusted=options["trust"]))
    dataset = dataset.select(ids=options["ids"], tags=options["tags"])
    store = resolve_store_spec(options["store"], STORE_FILE)
    with EvaluationSignals(screen.note) as signals:
        evaluation = await _build_evaluation(_limit_cases(dataset, options), store, options, agent_options, signals)
        for note in _describe_raised_limits(evaluation):
            screen.note(note)
        progress = _ProgressLine(screen)
        try:
            report = await evaluation.run(progress.show, baseline=_read_baseline(options["baseline"]))
        except ShuttingDown:
            progress.clear()
            _note_resume(screen, path, evaluation, progress, options)
            return signals.exit_code
        finally:
            progress.clear()
    _print_report(screen, report, options)
    return _choose_exit_code(report, options["pass_rate"])


async def _build_evaluation(
    dataset: "Dataset", store: str, options: dict[str, Any], agent_options: dict[str, Any], signals: Any
) -> "Evaluation":
    from perdure._work.judging.evals.evaluation import Evaluation
    from perdure._work.judging.evals.imports import import_from_module_or_file

    from .eval_run import build_agents

    screen = TerminalOutput(quiet=options["quiet"] or options["as_json"])
    agents = build_agents(options["agents"], options["models"], agent_options, yes=options["yes"], screen=screen)
    return Evaluation(
        dataset,
        {name: signals.wrap_agent(each) for name, each in agents.items()},
        graders=[_parse_grader(each) for each in options["graders"]],
        store=store,
        evaluation_id=await _find_evaluation(dataset, store, options, screen) if options["resume"] else "",
        parallel=options["parallel"],
        repeat=options["repeat"],
        max_cost_usd=options["max_cost"],
        build_deps=None if options["deps"] is None else import_from_module_or_file(options["deps"]),
        grader_model=options["grader_model"],
        retry_errors=options["retry_errors"],
    )


async def _find_evaluation(dataset: "Dataset", store: str, options: dict[str, Any], screen: TerminalOutput) -> str:
    """Return the id of the evaluation to go on with; empty for a new one, if there is none."""
    from perdure._core.values.error import ConfigError
    from perdure._stores import open_store
    from perdure._work.judging.evals.sessions import EvaluationStore

    stored = EvaluationStore(open_store(store))
    try:
        if given := options["evaluation_id"]:
            if await stored.read(given) is None:
                raise ConfigError(f"there is no evaluation {given!r} in {store}; leave --id out for the last one")
            return str(given)
        found = await stored.list_evaluations(dataset.name, finished=False)
        if not found and options["retry_errors"]:
            found = await stored.list_evaluations(dataset.name, finished=True)
    finally:
        await stored.store.aclose()
    if not found:
        screen.note(f"there is no unfinished evaluation of {to_one_line(dataset.name)}; a new one begins")
    return found[0].evaluation_id if found else ""


def _mark_own_text(dataset: "Dataset") -> "Dataset":
    """Return the dataset as the user's own if it lies in a folder that the user trusts: its text is theirs then."""
    from msgspec.structs import replace

    from perdure._cli.run.folder_trust import load_folder_trust

    folder = os.path.dirname(os.path.realpath(os.path.expanduser(dataset.path)))  # noqa: PTH111, PTH120 - as below
    is_own = dataset.is_untrusted and load_folder_trust().check(folder) == "trusted"
    return replace(dataset, is_untrusted=False) if is_own else dataset


def _limit_cases(dataset: "Dataset", options: dict[str, Any]) -> "Dataset":
    """Return the dataset with the time limit of the command line for cases that have none, or a higher one."""
    from msgspec.structs import replace

    from perdure._core.run.stop import Limits

    if (seconds := options["limit_seconds"]) is None:
        return dataset
    cases = [
        each
        if each.limits is not None and (each.limits.timeout_seconds or seconds + 1) <= seconds
        else replace(each, limits=replace(each.limits or Limits(), timeout_seconds=seconds))
        for each in dataset.cases
    ]
    return replace(dataset, cases=cases)


def _describe_raised_limits(evaluation: "Evaluation") -> list[str]:
    """Return a note for each limit that a dataset of others sets above the agent's, which counts then."""
    from perdure._config.needs_trust import list_raised_limits
    from perdure._core.run.stop import Limits

    found: dict[str, str] = {}
    for case in evaluation.dataset.cases if evaluation.dataset.is_untrusted else ():
        for agent in evaluation.agents.values():
            for name in [] if case.limits is None else list_raised_limits(case.limits, agent.limits):
                if (given := getattr(case.limits, name)) != getattr(Limits(), name):
                    own = getattr(agent.limits, name)
                    found[name] = (
                        f"{to_one_line(evaluation.dataset.path)}: case {to_one_line(case.id)!r} has {name} = {given}, "
                        f"and {own} of the agent is used; to use that of the file: --trust"
                    )
    return [*found.values()]


def _parse_grader(given: str) -> Any:
    """Return the grader that `--grader` names, or the table that it is, as in TOML. Raises `UsageError`."""
    if not given.lstrip().startswith("{"):
        return given
    import tomllib

    try:
        return tomllib.loads(f"grader = {given}")["grader"]
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(
            f'--grader {given!r} is no table of TOML ({error}); write {{name = "contains"}}'
        ) from error


def _read_baseline(given: str) -> "EvaluationReport | str | None":
    """Return what `--baseline` names: nothing, the last evaluation, a report in a file, or an id."""
    if given in {"last", "none"}:
        return None if given == "none" else given
    if not os.path.isfile(given):  # noqa: PTH113 - pathlib would cost every start milliseconds
        return given
    from perdure._core.values.error import ConfigError
    from perdure._io.files.head import read_file_head
    from perdure._work.judging.evals.report import read_report

    try:
        return read_report(read_file_head(given, _MAX_REPORT_BYTES).data)
    except ConfigError as error:
        raise ConfigError(f"--baseline {given}: {error}") from error


class _ProgressLine:
    """A line at the terminal with the progress of an evaluation; on anything else, nothing."""

    def __init__(self, screen: TerminalOutput) -> None:
        self._screen = screen
        self._is_shown = False
        self.done = 0
        self.total = 0

    def show(self, progress: "EvaluationProgress") -> None:
        """Draw the line for a new result."""
        import sys

        from perdure._work.judging.evals.text import format_cost

        self.done, self.total = progress.done, progress.total
        if self._screen.is_quiet or not uses_cursor():
            return
        result = progress.result
        cost = f", {format_cost(progress.cost_usd)}" if progress.cost_usd else ""
        text = f"{progress.done}/{progress.total}, {progress.passed} passed{cost}: {result.case_id} ({result.agent})"
        self._is_shown = True
        self._screen.write_question(_CLEAR + to_one_line(text, line_width(sys.stderr)))

    def clear(self) -> None:
        """Remove the line."""
        if self._is_shown:
            self._is_shown = False
            self._screen.write_question(_CLEAR)


def _note_resume(
    screen: TerminalOutput, path: str, evaluation: "Evaluation", progress: _ProgressLine, options: dict[str, Any]
) -> None:
    """Print how many cases are finished, and the command that resumes the evaluation."""
    import shlex

    words = ["perdure", "eval", path, *options["given"], "--resume", "--id", evaluation.evaluation_id]
    done = f"{progress.done} of {progress.total}" if progress.total else "none"
    screen.note(f"interrupted; {done} finished; go on with: {shlex.join(words)}")


def _print_report(screen: TerminalOutput, report: "EvaluationReport", options: dict[str, Any]) -> None:
    import sys

    from perdure._work.judging.evals.page import build_report_page
    from perdure._work.judging.evals.text import format_report

    if options["as_json"]:
        screen.write(to_ascii_json(report.to_json()) + "\n")
    else:
        screen.write(format_report(report, width=line_width(sys.stdout) or _WIDE))
    if report.reused:
        screen.note(f"{report.reused} of {len(report.results)} results are those of an earlier process")
    if options["html"]:  # after the report is printed, so that it is not lost to a disk that is full
        from perdure._cli.sessions.transfer import write_file_atomically

        write_file_atomically(options["html"], build_report_page(report).encode("utf-8", "replace"), replace=True)
        screen.note(f"{options['html']} is written; open it in a browser")
    session, store = report.results[0].session_id, resolve_store_spec(options["store"], STORE_FILE)
    screen.note(f"evaluation {report.evaluation_id}; see a run with: perdure trace {session} --store {store}")


def _choose_exit_code(report: "EvaluationReport", pass_rate: float) -> int:
    if report.regressions:
        return REGRESSED
    return 0 if report.pass_rate >= pass_rate else FAILED
