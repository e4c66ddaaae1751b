"""`perdure eval`: datasets, agents and graders from the command line; reports, exit codes, resumption."""

import json
import shlex
import signal
import sys
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from perdure._cli.main import root_command
from perdure._cli.terminal.output import TerminalOutput
from perdure._cli.work.eval import _note_resume, _ProgressLine
from tests.architecture.source import ROOT
from tests.cli.process import PATIENCE, await_text

CASES = """\
graders = ["equals"]

[[case]]
prompt = "alpha"
expected = "alpha"
tags = ["greek"]

[[case]]
prompt = "stop"
expected = "stop"
tags = ["english"]

[[case]]
prompt = "beta"
expected = "beta"
tags = ["greek"]
"""

AGENTS = '''\
"""Agents that note what they are asked, and wait for ever while there is a file called block."""

import asyncio
from pathlib import Path

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call


@tool(effect="at_most_once")
def note(text: str) -> str:
    """Note a text."""
    with Path("noted.txt").open("a") as file:
        file.write(f"{text}\\n")
    return "noted"


async def reply(request):
    prompt = request.messages[0].text
    if not request.messages[-1].tool_results:
        return call("note", text=prompt)
    if prompt == "stop" and Path("block").exists():
        if not Path("block").read_text():
            print("BLOCKED", flush=True)
        await asyncio.sleep(600)
    return prompt if prompt != Path("wrong").read_text() else "wrong"


Path("wrong").touch()
agent = Agent(ScriptedModel(reply, repeat_last=True), tools=[note], name="noting")


def make():
    return agent.replace(name="made")


def fail():
    raise RuntimeError("no agent today")


def is_short(evidence):
    return len(evidence.answer) < 5


def build(case):
    return case.deps


number = 3
'''


@pytest.fixture
def folder(tmp_path, perdure, monkeypatch):
    """The working folder of `perdure`, with a dataset and agents."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    write_files(tmp_path)
    return tmp_path


def write_files(folder):
    (folder / "cases.toml").write_text(CASES)
    (folder / "agents.py").write_text(AGENTS)


def evaluate(perdure, *arguments, agent="agents.py:agent"):
    return perdure("eval", "cases.toml", "--agent", agent, *arguments)


# -- what is printed ---------------------------------------------------------------------------------------------------


def test_a_table_is_printed_and_the_code_is_zero_when_all_passed(perdure, folder):
    result = evaluate(perdure)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0].split() == [
        "agent", "passed", "score", "cost", "median", "p95", "errors", "before",
    ]  # fmt: skip
    assert result.stdout.splitlines()[1].startswith("noting     3/3   1.00")
    assert "see a run with: perdure trace eval-" in result.stderr
    assert f"--store sqlite:{folder}/home/evals.db" in result.stderr


def test_failures_and_regressions_have_codes_of_their_own(perdure, folder):
    (folder / "wrong").write_text("beta")
    first = evaluate(perdure)
    assert first.exit_code == 1
    assert "beta (noting): the answer has to be 'beta', and is 'wrong'" in first.stdout
    assert evaluate(perdure, "--pass-rate", "0.6", "--baseline", "none").exit_code == 0
    (folder / "wrong").write_text("alpha")
    worse = evaluate(perdure, "--pass-rate", "0.5")
    assert worse.exit_code == 4
    assert "regressions (1)\n  alpha (noting): passed 100% before, 0% now" in worse.stdout
    assert "improvements (1)\n  beta (noting)" in worse.stdout


def test_a_report_as_json_is_a_baseline_elsewhere(perdure, folder):
    printed = evaluate(perdure, "--json")
    (folder / "before.json").write_text(printed.stdout)
    assert json.loads(printed.stdout)["summaries"][0]["passed"] == 3
    assert printed.stderr == ""
    (folder / "wrong").write_text("stop")
    result = evaluate(perdure, "--baseline", "before.json", "--store", f"sqlite:{folder}/other.db")
    assert result.exit_code == 4
    (folder / "before.json").write_text("{}")
    refused = evaluate(perdure, "--baseline", "before.json")
    assert refused.exit_code == 2
    assert "--baseline before.json: this is no report" in refused.stderr


def test_a_page_is_written(perdure, folder):
    result = evaluate(perdure, "--html", "report.html", "-q")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "<figure" in (folder / "report.html").read_text()
    assert (folder / "report.html").stat().st_mode & 0o077 == 0


def test_text_of_a_model_cannot_steer_the_terminal(perdure, folder):
    (folder / "cases.jsonl").write_text('{"prompt": "x\\u001b[2J", "expected": "y", "graders": ["contains"]}\n')
    result = perdure("eval", "cases.jsonl", "--agent", "agents.py:agent", "--grader", "equals")
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout


# -- agents, graders and cases -----------------------------------------------------------------------------------------


def test_agents_and_models_are_combined(perdure, folder):
    both = evaluate(perdure, "--agent", "agents:make", "--case", "alpha")
    assert [line.split()[:2] for line in both.stdout.splitlines()[1:3]] == [["noting", "1/1"], ["made", "1/1"]]
    models = evaluate(perdure, "-m", "demo", "--case", "alpha", "--baseline", "none")
    assert "noting (demo)" in models.stdout


def test_without_an_agent_it_is_that_of_perdure_run(perdure, folder):
    (folder / "sums.toml").write_text('[[case]]\nprompt = "Calculate 6 * 7"\nexpected = "42"\ngraders = ["contains"]')
    result = perdure("eval", "sums.toml", "--no-config")
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "model demo: PERDURE_MODEL is set" in result.stderr
    assert result.stdout.splitlines()[1].startswith("demo ")


def test_graders_cases_and_repetitions_can_be_chosen(perdure, folder):
    table = '{name = "matches", pattern = "^[a-z]+$", as = "one word"}'
    result = evaluate(
        perdure, "--tag", "greek", "--grader", "agents:is_short", "--grader", table, "--repeat", "2", "--json"
    )
    report = json.loads(result.stdout)
    assert [each["case_id"] for each in report["results"]] == ["alpha", "alpha", "beta", "beta"]
    assert [each["grader"] for each in report["results"][0]["grades"]] == ["equals", "is_short", "one word"]
    assert [each["verdict"] for each in report["results"]] == ["failed", "failed", "passed", "passed"]


def test_limits_and_deps_come_from_the_command_line(perdure, folder):
    (folder / "block").write_text("quietly")
    result = evaluate(perdure, "--case", "stop", "--limit-seconds", "0.05", "--deps", "agents:build", "--json")
    found = json.loads(result.stdout.splitlines()[-1])["results"][0]
    assert (found["verdict"], found["status"], found["reason"]) == ("error", "limit", "timeout")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent", "agents"], "names no object"),
        (["--agent", "agents.py:agnt"], "did you mean 'agent'?"),
        (["--agent", "nope.py:agent"], "there is no file 'nope.py'"),
        (["--agent", "no_such_module:agent"], "cannot be imported"),
        (["--agent", "agents.py:number"], "is 3, and no Agent(…)"),
        (["--agent", "agents.py:fail"], "makes no agent: RuntimeError: no agent today"),
        (["--agent", "broken.py:agent"], "'broken.py' cannot be imported: ZeroDivisionError"),
        (["--grader", "contain"], "did you mean 'contains'?"),
        (["--grader", "{name ="], "is no table of TOML"),
        (["--grader", "model"], "--grader-model"),
        (["--case", "gamma"], "no case has it"),
        (["--id", "x"], "add --resume"),
        (["--retry-errors"], "add --resume"),
        (["--resume", "--id", "x"], "there is no evaluation 'x'"),
        (["--baseline", "x"], "there is no finished evaluation 'x'"),
        (["--store", "sqlite:no/such/folder/x.db"], "there is no folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(perdure, folder, arguments, message):
    (folder / "broken.py").write_text("1 / 0")
    more = [] if "--agent" in arguments else ["--agent", "agents.py:agent"]
    result = perdure("eval", "cases.toml", *more, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_mistakes_of_a_dataset_are_listed_with_their_lines(perdure, folder):
    (folder / "cases.toml").write_text('[[case]]\nprompt = 3\n[[case]]\nprompt = "x"\ngraders = ["command"]\n')
    result = evaluate(perdure)
    assert result.exit_code == 2
    assert "cases.toml:2: prompt is 3: give a text" in result.stderr
    assert "cases.toml:5: the grader 'command' runs code" in result.stderr


def test_ids_tags_and_files_are_completed(perdure, folder):
    def complete(*words, typed=""):
        found = ShellComplete(root_command, {}, "perdure", "_PERDURE_COMPLETE").get_completions(list(words), typed)
        return [each.value if each.type == "plain" else each.type for each in found]

    assert complete("eval", "cases.toml", "--case", typed="a") == ["alpha"]
    assert complete("eval", "cases.toml", "--tag") == ["english", "greek"]
    assert complete("eval", "nope.toml", "--tag") == []
    assert complete("eval") == ["file"]
    assert "--resume" in complete("eval", typed="--res")
    assert "eval" in complete(typed="ev")


def test_the_help_has_examples(perdure):
    shown = perdure("eval", "--help").output
    assert "  perdure eval cases.toml --resume " in shown
    assert "Exit codes: 0 when all passed" in shown
    assert isinstance(root_command.commands["eval"], click.Command)


# -- interruptions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def blocked(shell):
    """A shell in a folder whose agent waits in the second case, after a tool call."""
    write_files(shell.folder)
    (shell.folder / "block").touch()
    return shell


COMMAND = ("eval", "cases.toml", "--agent", "agents.py:agent", "-j", "1")


def test_after_a_kill_the_rest_is_run_and_no_call_is_repeated(blocked):
    with blocked.started(*COMMAND) as process:
        await_text(process.stdout.fileno(), "BLOCKED")
        process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL
    (blocked.folder / "block").unlink()
    resumed = blocked.run(*COMMAND, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "noting     3/3" in resumed.stdout
    assert "1 of 3 results are those of an earlier process" in resumed.stderr
    assert (blocked.folder / "noted.txt").read_text().split() == ["alpha", "stop", "beta"]
    fresh = blocked.run(*COMMAND, "--resume", "--case", "alpha")
    assert "there is no unfinished evaluation of cases; a new one begins" in fresh.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_rest_for_later(blocked, number):
    with blocked.started(*COMMAND) as process:
        await_text(process.stdout.fileno(), "BLOCKED")
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 128 + number
    assert "interrupted; 1 of 3 finished" in errors.decode()
    command = errors.decode().partition("perdure eval")[2].split()
    (blocked.folder / "block").unlink()
    resumed = blocked.run("eval", *command)
    assert resumed.returncode == 0, resumed.stderr
    assert (blocked.folder / "noted.txt").read_text().split() == ["alpha", "stop", "beta"]


def test_the_command_that_resumes_has_the_options_that_were_given(blocked):
    given = (
        "--case",
        "stop",
        "--case",
        "alpha",
        "--trust",
        "--grader",
        '{name = "contains"}',
        "--limit-seconds",
        "500",
    )
    with blocked.started(*COMMAND, *given, "--store", "sqlite:here.db") as process:
        await_text(process.stdout.fileno(), "BLOCKED")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    command = shlex.split(errors.decode().partition("go on with: perdure ")[2])
    (blocked.folder / "block").unlink()
    resumed = blocked.run(*command)
    assert resumed.returncode == 0, resumed.stderr
    assert "noting     2/2" in resumed.stdout
    assert "1 of 2 results are those of an earlier process" in resumed.stderr
    assert (blocked.folder / "noted.txt").read_text().split() == ["alpha", "stop"]


def test_a_page_that_cannot_be_written_loses_no_report(perdure, folder):
    ended = evaluate(perdure, "--html", "no-such-folder/report.html")
    assert ended.exit_code not in {0, 1}
    assert "noting     3/3" in ended.stdout
    assert "no-such-folder" in ended.stderr


def test_progress_is_one_line_at_a_terminal(blocked):
    (blocked.folder / "block").unlink()
    with blocked.terminal(*COMMAND) as terminal:
        assert terminal.end() == 0
    assert "\r\x1b[K3/3, 3 passed" in terminal.seen
    assert "\r\x1b[Kagent " in terminal.seen


# -- the example -------------------------------------------------------------------------------------------------------


def test_the_quiz_of_the_examples_ends_in_a_report_with_plots(perdure, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    agents = ROOT / "examples/evals/quiz_agents.py"
    result = perdure(
        "eval", str(ROOT / "examples/evals/quiz.toml"), "-j", "12", "--html", "report.html", "--json",
        "--agent", f"{agents}:careful", "--agent", f"{agents}:hasty",
    )  # fmt: skip
    assert result.exit_code == 1, result.stderr
    report = json.loads(result.stdout)
    assert len(report["cases"]) == 36
    assert [(each["agent"], each["passed"], each["errors"]) for each in report["summaries"]] == [
        ("careful", 35, 1),
        ("hasty", 13, 1),
    ]
    assert (tmp_path / "report.html").read_text().count("<figure") == 5


def test_errors_of_a_finished_evaluation_are_tried_again(perdure, folder):
    (folder / "block").write_text("quietly")
    first = evaluate(perdure, "--case", "stop", "--limit-seconds", "0.05", "--json")
    report = json.loads(first.stdout.splitlines()[-1])
    assert [each["verdict"] for each in report["results"]] == ["error"]
    (folder / "block").unlink()
    again = evaluate(perdure, "--case", "stop", "--resume", "--retry-errors")
    assert again.exit_code == 0, again.stderr
    assert again.stdout.splitlines()[1].startswith("noting     1/1")
    assert again.stderr.startswith(f"evaluation {report['evaluation_id']}; see a run with: ")
    fresh = evaluate(perdure, "--case", "stop", "--resume")
    note, last = fresh.stderr.splitlines()
    assert note == "there is no unfinished evaluation of cases; a new one begins"
    assert report["evaluation_id"] not in last


@pytest.mark.parametrize(("done", "total", "told"), [(0, 0, "none"), (1, 3, "1 of 3"), (0, 3, "0 of 3")])
def test_how_to_go_on_after_an_interruption_names_what_was_given(capsys, done, total, told):
    progress = _ProgressLine(TerminalOutput())
    if total:
        progress.done, progress.total = done, total
    evaluation: Any = SimpleNamespace(evaluation_id="eval-1")
    options = {"given": ["--agent", "a b.py:agent"]}
    _note_resume(TerminalOutput(), "cases.toml", evaluation, progress, options)
    assert capsys.readouterr().err == (
        f"interrupted; {told} finished; go on with: "
        "perdure eval cases.toml --agent 'a b.py:agent' --resume --id eval-1\n"
    )


class Screen:
    """A terminal that notes what is written to it."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self.is_quiet = is_quiet
        self.written: list[str] = []

    def write_question(self, text: str) -> None:
        self.written.append(text)


def progress_of(done: int, cost_usd: float) -> Any:
    result = SimpleNamespace(case_id="al\npha", agent="noting")
    return SimpleNamespace(done=done, total=3, passed=1, cost_usd=cost_usd, result=result)


def test_progress_is_a_line_that_is_drawn_anew_and_removed(monkeypatch):
    monkeypatch.setattr("perdure._cli.work.eval.uses_cursor", lambda: True)
    screen = Screen()
    line = _ProgressLine(screen)  # type: ignore[arg-type]
    line.clear()
    assert screen.written == []
    line.show(progress_of(1, 0.0))
    line.show(progress_of(2, 0.5))
    line.clear()
    line.clear()
    assert (line.done, line.total) == (2, 3)
    clear = "\r\x1b[K"
    assert screen.written == [
        f"{clear}1/3, 1 passed: al␊pha (noting)",
        f"{clear}2/3, 1 passed, $0.50: al␊pha (noting)",
        clear,
    ]


@pytest.mark.parametrize(("is_quiet", "has_cursor"), [(True, True), (False, False)])
def test_without_a_terminal_and_in_quiet_progress_is_only_counted(monkeypatch, is_quiet, has_cursor):
    monkeypatch.setattr("perdure._cli.work.eval.uses_cursor", lambda: has_cursor)
    screen = Screen(is_quiet=is_quiet)
    line = _ProgressLine(screen)  # type: ignore[arg-type]
    line.show(progress_of(1, 0.0))
    line.clear()
    assert (screen.written, line.done, line.total) == ([], 1, 3)
