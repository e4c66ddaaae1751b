"""`perdure goal`: goals from the command line, with their exit codes."""

import json
import signal
import sys
from pathlib import Path

import pytest

from perdure import ProviderDown
from perdure._cli.run.assembly import AgentParts
from perdure.background import prepare_worktree
from perdure.models import register
from perdure.testing import call
from tests.cli.process import PATIENCE, await_text
from tests.goals.roles import ScriptedRoles, verdict
from tests.reviewing.conftest import git

STAND_INS = (sys.executable, str(Path(__file__).with_name("goal_stand_ins.py")))


@pytest.fixture
def goals(perdure, monkeypatch):
    """The command; `script(…)` is what the model `goals:one` does in each role."""
    monkeypatch.setattr("perdure._models.registry._factories", {})
    scripts: dict[str, ScriptedRoles] = {}
    register("goals", lambda name: scripts[name].build_model())

    def script(name="one", **replies):
        scripts[name] = ScriptedRoles(**replies)
        return scripts[name]

    perdure.script = script
    return perdure


def start(goals, *options, objective="Make the boat ready."):
    return goals("goal", "start", objective, "-m", "goals:one", *options)


def read_goal_id(result):
    return next(word for word in result.output.replace(":", " ").replace(";", " ").split() if word.startswith("goal-"))


@pytest.mark.parametrize(("replies", "options", "code", "status"), [
    ({"checker": [verdict("1", "2")]}, [], 0, "achieved"),
    ({"maker": [ProviderDown("no route")], "checker": [verdict()]}, [], 1, "errored"),
    ({"checker": [verdict()]}, [], 2, "blocked"),
    ({"checker": [verdict("1")]}, ["--max-iterations", "1"], 3, "max_iterations"),
    ({"checker": [verdict()]}, ["--budget-tokens", "20"], 4, "budget_limited"),
])  # fmt: skip
def test_the_exit_code_tells_how_the_goal_ended(goals, replies, options, code, status):
    goals.script(**replies)
    result = start(goals, *options)
    assert result.exit_code == code, result.output
    assert f": {status}" in result.stdout.splitlines()[0]


def test_the_result_has_the_checklist_with_evidence_and_the_steps_are_notes(goals):
    goals.script(checker=[verdict("1"), verdict("1", "2")])
    result = start(goals)
    assert "[x] 1. The hull is tight.\n       saw 1" in result.stdout
    assert "scores  ▅█  0.50 1.00" in result.stdout
    assert "iteration 1: 1 of 2 items are done (score 0.50): 1 done" in result.stderr
    assert start(goals, "--quiet").stderr == ""


def test_json_is_one_line_with_the_whole_record(goals):
    goals.script(checker=[verdict("1", "2")])
    record = json.loads(start(goals, "--json").stdout)
    assert (record["status"], record["exit_code"], record["scores"]) == ("achieved", 0, [1.0])
    assert record["goal"]["objective"] == "Make the boat ready."
    assert [each["done"] for each in record["items"]] == [True, True]


def test_a_goal_at_its_limit_is_resumed_with_the_options_of_its_start(goals):
    roles = goals.script(checker=[verdict("1"), verdict("1", "2")])
    first = start(goals, "--max-iterations", "1", "--grade-command", "true", "--item", "A.", "--item", "B.")
    assert first.exit_code == 3
    assert "true: passed" in first.stderr
    result = goals("goal", "resume")
    assert result.exit_code == 0, result.output
    assert "true: passed" in result.stderr
    assert roles.requests["planner"] == []
    assert goals("goal", "resume").exit_code != 0  # there is none left
    assert goals("goal", "resume", read_goal_id(first)).exit_code == 0  # it is achieved already


def test_a_grade_command_that_fails_keeps_the_goal_open_and_its_output_goes_to_the_maker(goals):
    roles = goals.script(checker=[verdict("1", "2")])
    result = start(goals, "--grade-command", "echo 3 tests failed; exit 1", "--max-iterations", "2")
    assert result.exit_code == 3
    assert "3 tests failed" in roles.requests["maker"][1].messages[0].text


def test_goals_are_listed_and_shown_with_a_plot(goals, tmp_path):
    assert "there is no goal" in goals("goal", "list").stderr
    goals.script(checker=[verdict("1"), verdict("1", "2")])
    goal_id = read_goal_id(start(goals))
    (row,) = goals("goal", "list").stdout.splitlines()
    assert row.startswith(goal_id)
    assert "achieved" in row
    assert "2/2  ▅█ Make the boat ready." in row
    assert json.loads(goals("goal", "list", "--json").stdout)["goal_id"] == goal_id
    shown = goals("goal", "show", goal_id[:9], "--svg", str(tmp_path / "scores.svg"))
    assert "[x] 2. The sail is up." in shown.stdout
    picture = (tmp_path / "scores.svg").read_text()
    assert picture.startswith("<svg ")
    assert picture.count("<circle ") == 2


@pytest.mark.parametrize("command", [["show", "goal-none"], ["resume", "goal-none"], ["stop", "goal-none"], ["resume"]])
def test_a_goal_that_does_not_exist_is_an_error_that_says_what_to_do(goals, command):
    result = goals("goal", *command)
    assert result.exit_code != 0
    assert "perdure goal list lists those that are there" in result.stderr


def test_a_goal_in_a_worktree_changes_nothing_in_the_working_folder(goals, tmp_path, monkeypatch):
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "boat.py").write_text("speed = 0\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "A boat")
    monkeypatch.chdir(root)
    write = call("write", path="sail.py", content="sail = 1\n")
    roles = goals.script(maker=[write, "Set it.", "Worked."], checker=[call("read", path="sail.py"), verdict("1")])
    first = start(goals, "--worktree", "--yes", "--max-iterations", "1")
    goal_id = read_goal_id(first)
    work = root / ".perdure/worktrees" / goal_id
    assert first.exit_code == 3, first.output
    assert (work / "sail.py").read_text() == "sail = 1\n"
    assert not (root / "sail.py").exists()
    assert git(root, "status", "--porcelain") == ""
    offered = {each.name for each in roles.requests["checker"][0].tools}
    assert "read" in offered
    assert not offered & {"write", "edit", "bash", "git_commit"}
    assert "sail = 1" in roles.requests["checker"][1].messages[-1].tool_results[0].text
    resumed = goals("goal", "resume", goal_id, "--max-iterations", "1", "--yes")
    assert resumed.exit_code in {2, 3}, resumed.output
    assert f"branch goal/{goal_id.removeprefix('goal-')} in {work}" in resumed.stdout


def test_a_call_that_needs_an_approval_pauses_the_goal_until_it_is_answered(goals, tmp_path, monkeypatch):
    built, build = [], AgentParts.build_agent

    def build_agent(parts, **more):
        built.append(more)
        return build(parts, **more)

    monkeypatch.setattr(AgentParts, "build_agent", build_agent)
    write = call("write_text", path="a.txt", text="a")
    goals.script(maker=[write, "Wrote it."], checker=[verdict("1", "2")])
    first = start(goals, "--no-coding")
    assert first.exit_code == 5, first.output
    assert [each["answer_timeout_seconds"] for each in built] == [0]  # nobody is there to answer
    session = f"{read_goal_id(first)}/maker-1"
    questions = goals("questions", session, "--json")
    ask_id = json.loads(questions.stdout.splitlines()[0])["slot_id"]
    assert goals("answer", session, ask_id, "yes").exit_code == 0
    assert goals("goal", "resume").exit_code == 0
    assert (tmp_path / "a.txt").read_text() == "a"


def test_wrong_options_are_refused(goals):
    goals.script(checker=[verdict()])
    assert start(goals, "--worktree", "--no-coding").exit_code == 2
    assert start(goals, "--worktree").exit_code == 2  # there is no repository
    assert start(goals, "--budget-cost", "0").exit_code == 2
    for objective in ("", "  "):
        result = start(goals, objective=objective)
        assert result.exit_code == 2
        assert "objective" in result.stderr


def test_a_budget_in_money_needs_a_price_and_stores_no_goal_without(goals):
    goals.script(checker=[verdict("1", "2")])
    result = start(goals, "--budget-cost", "1")
    assert result.exit_code == 2, result.output
    assert "price" in result.stderr
    assert "there is no goal" in goals("goal", "list").stderr


def test_a_goal_that_begins_in_the_worktree_of_another_is_resumed_in_its_own(goals, tmp_path, monkeypatch):
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "A boat")
    outer = prepare_worktree(tmp_path, "goal-outer")
    monkeypatch.chdir(outer.path)
    goals.script(checker=[verdict("1"), verdict("1", "2")])
    first = start(goals, "--worktree", "--yes", "--max-iterations", "1")
    assert first.exit_code == 3, first.output
    resumed = goals("goal", "resume", "--yes")
    assert resumed.exit_code == 0, resumed.output
    assert f" in {outer.path}/.perdure/worktrees/goal-" in resumed.stdout


def test_text_of_models_cannot_forge_lines_of_the_result(goals):
    plan = json.dumps({"items": ["The hull.\n[x] 2. The sail.", "The\x1b[2J sail."]})
    items = [{"id": each, "done": True, "evidence": "seen\n[x] 9. All is done."} for each in ("1", "2")]
    goals.script(planner=[plan], checker=[json.dumps({"done": True, "items": items, "summary": "Done."})])
    result = start(goals)
    assert result.exit_code == 0, result.output
    shown = [line for line in result.stdout.splitlines() if line.startswith("[")]
    assert shown == ["[x] 1. The hull. [x] 2. The sail.", "[x] 2. The␛[2J sail."]


def test_a_goal_is_stopped_from_another_process_and_resumed_there(shell):
    with shell.started("goal", "start", "Make it ready.", "-m", "goals:stays", program=STAND_INS) as process:
        seen = await_text(process.stderr.fileno(), "the maker works")
        goal_id = next(word for word in seen.replace(";", " ").split() if word.startswith("goal-"))
        stopped = shell.run("goal", "stop", goal_id, "--json")
        assert json.loads(stopped.stdout) == {"goal_id": goal_id, "stopped": True}
        assert process.wait(PATIENCE) == 5
    resumed = shell.run("goal", "resume", goal_id, "-m", "goals:works", program=STAND_INS)
    assert resumed.returncode == 0, resumed.stderr


def test_a_goal_whose_process_was_killed_is_paused_and_can_be_stopped_and_resumed(shell):
    with shell.started("goal", "start", "Make it ready.", "-m", "goals:stays", program=STAND_INS) as process:
        seen = await_text(process.stderr.fileno(), "the maker works")
        goal_id = next(word for word in seen.replace(";", " ").split() if word.startswith("goal-"))
        process.kill()
        process.wait(PATIENCE)
    assert "paused (interrupted)" in shell.run("goal", "show", goal_id).stdout
    assert shell.run("goal", "stop", goal_id).returncode == 0
    assert "paused (stopped)" in shell.run("goal", "show", goal_id).stdout
    resumed = shell.run("goal", "resume", "-m", "goals:works", program=STAND_INS)
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_pauses_the_goal(shell, number, code):
    with shell.started("goal", "start", "Make it ready.", "-m", "goals:stays", program=STAND_INS) as process:
        await_text(process.stderr.fileno(), "the maker works")
        process.send_signal(number)
        assert process.wait(PATIENCE) == code
    assert " paused " in shell.run("goal", "list").stdout
    assert shell.run("goal", "resume", "-m", "goals:works", program=STAND_INS).returncode == 0


def test_the_commands_of_goals_are_completed(shell):
    environment = {
        **shell.environment, "_PERDURE_COMPLETE": "bash_complete", "COMP_WORDS": "perdure goal st", "COMP_CWORD": "2",
    }  # fmt: skip
    assert shell.run(environment=environment).stdout == "plain,start\nplain,stop\n"


def test_of_more_goals_than_are_listed_the_number_is_told(goals):
    goals.script(checker=[verdict("1", "2")])
    ids = [read_goal_id(start(goals)) for _ in range(3)]
    listed = goals("goal", "list", "--limit", "2")
    assert [row.split()[0] for row in listed.stdout.splitlines()] == [ids[2], ids[1]]
    assert listed.stderr == "there are 1 more; --limit 3 shows them\n"
    assert goals("goal", "list", "--limit", "2", "--json").stderr == ""
    assert goals("goal", "list", "--limit", "3").stderr == ""
    shown = goals("goal", "show", "goal-")
    assert shown.exit_code == 2
    names = ", ".join(reversed(ids))
    told = f"'goal-' fits several goals: {names}; write more of the id; see 'perdure goal show --help'"
    assert shown.stderr == f"error: {told}\n"
    assert goals("goal", "show", "goa").exit_code == 66


def test_where_the_plot_of_a_goal_is_is_said_to_people_only(goals, tmp_path):
    goals.script(checker=[verdict("1", "2")])
    goal_id, path = read_goal_id(start(goals)), str(tmp_path / "scores.svg")
    assert goals("goal", "show", goal_id, "--svg", path).stderr == f"the plot is in {path}\n"
    assert goals("goal", "show", goal_id, "--svg", path, "--json").stderr == ""
    assert goals("goal", "show", goal_id).stderr == ""


def test_a_goal_that_nobody_pursues_is_not_stopped(goals):
    goals.script(checker=[verdict("1", "2")])
    goal_id = read_goal_id(start(goals))
    assert goals("goal", "stop", goal_id).stderr == f"goal {goal_id} is not being pursued\n"


def test_replies_of_the_maker_in_an_iteration_are_limited(goals):
    look = call("now")
    roles = goals.script(maker=[look, look, look, "Worked."], checker=[verdict("1", "2")])
    result = start(goals, "--max-turns", "2", "--max-iterations", "1", "--no-coding")
    assert len(roles.requests["maker"]) == 2, result.output
    roles = goals.script(maker=[look, look, look, "Worked."], checker=[verdict("1", "2")])
    start(goals, "--max-iterations", "1", "--no-coding")
    assert len(roles.requests["maker"]) == 4


def test_a_goal_whose_folder_is_gone_is_not_resumed(goals, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    goals.script(checker=[verdict("1")])
    goal_id = read_goal_id(start(goals, "--max-iterations", "1"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").rmdir()
    result = goals("goal", "resume", goal_id)
    assert (result.exit_code, result.stdout) == (2, "")
    folder = str(tmp_path / "work")
    assert result.stderr == (
        f"error: the folder of goal {goal_id} is gone: {folder!r}; make it again, or start a new goal\n"
    )


def test_another_grade_command_replaces_that_of_the_start(goals):
    goals.script(checker=[verdict("1", "2")])
    assert start(goals, "--max-iterations", "1", "--grade-command", "false").exit_code == 3
    result = goals("goal", "resume", "--grade-command", "true")
    assert result.exit_code == 0, result.output
    assert "true: passed" in result.stderr


@pytest.mark.packages("tree_sitter_bash")
def test_what_is_risky_about_approvals_is_said_or_refused(goals, monkeypatch):
    monkeypatch.setattr("perdure._tools.sandbox.bubblewrap.find_bubblewrap", lambda: ((), "no bwrap"))
    goals.script(checker=[verdict("1", "2")])
    refused = start(goals, "--yolo", "--coding")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "error: --yolo is for commands that run in a sandbox, and here is none: no bwrap; "
        "use --allow for single tools\n"
    )
    told = start(goals, "--yes", "--coding")
    assert told.stderr.splitlines()[0] == (
        "warning: --yes: every tool call is made without asking, commands too, and they run without a sandbox: no bwrap"
    )
    told = start(goals, "--yes", "--no-coding")
    assert told.stderr.splitlines()[0] == "warning: --yes: every tool call is made without asking"


def test_notes_about_the_configuration_are_printed_before_the_goal_begins(goals, tmp_path):
    (tmp_path / "perdure.toml").write_text('name = "maker"\n')
    goals.script(checker=[verdict("1", "2")])
    result = start(goals)
    assert result.stderr.splitlines()[0] == f"{tmp_path}/perdure.toml is used; it is not trusted, and needs no trust"
