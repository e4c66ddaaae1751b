"""`perdure run`, from the prompt to the session that is kept, and `perdure resume`."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys

import click
import pytest

from perdure._cli.run.command import MOST_BYTES, complete_engine_name, run
from perdure._core.values import faults
from perdure.events import TextDelta
from perdure.models import ModelInfo, Price, register
from perdure.testing import ScriptedModel, call
from tests.cli.process import PATIENCE, PERDURE, STAND_INS, await_text

ANSWER = "The tool calculate says: 42 (Told by the offline demonstration model.)\n"
KILLED = {faults.FAULTS_VARIABLE: "loop.intent_stored=kill"}
WRITE = 'Write "hello" to the text file hello.txt'


def test_an_agent_answers_and_its_session_is_kept_and_listed(shell):
    result = shell.run("run", "Calculate 6 * 7")
    assert (result.returncode, result.stdout) == (0, ANSWER)
    model, call, returned, used, session = result.stderr.splitlines()
    assert used.startswith("2 turns, ")
    assert model == "model demo: PERDURE_MODEL is set"
    assert call == 'tool calculate {"expression":"6 * 7"}'
    assert returned == "tool calculate ok: 42"
    session_id = session.split()[1].rstrip(";")
    assert session == f'session {session_id}; go on with: perdure run --session {session_id} "…"'
    (listed,) = shell.run("sessions", "list").stdout.splitlines()
    assert listed.startswith(f"{session_id}  ")
    assert listed.endswith("  Calculate 6 * 7")
    assert stat.S_IMODE((shell.home / "sessions.db").stat().st_mode) == 0o600
    assert stat.S_IMODE(shell.home.stat().st_mode) == 0o700


def test_a_session_is_gone_on_with(perdure):
    assert perdure("run", "--session", "sums", "Calculate 6 * 7").exit_code == 0
    assert perdure("run", "--session", "sums", "Calculate 2 ** 10").exit_code == 0
    shown = perdure("sessions", "show", "sums").stdout
    assert shown.index("says: 42") < shown.index("says: 1024")


def test_how_to_go_on_names_what_was_named(perdure, tmp_path):
    store = f"sqlite:{tmp_path}/my sessions.db"
    result = perdure("run", "--session", "my trip", "--store", store, "--model", "demo:words", "Calculate 6 * 7")
    assert f"perdure run --session 'my trip' --model demo:words --store '{store}' \"…\"\n" in result.stderr


def test_a_session_in_memory_is_not_said_to_be_kept(perdure, tmp_path):
    result = perdure("run", "--store", "memory:", "Calculate 6 * 7")
    assert (result.exit_code, result.stdout) == (0, ANSWER)
    assert "go on with" not in result.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("arguments", [["run", "-q"], ["run", "-q", "-"]])
def test_a_prompt_is_read_from_standard_input(shell, arguments):
    assert shell.run(*arguments, stdin="\ufeffCalculate 6 * 7\n").stdout == ANSWER


def test_what_is_piped_in_is_added_to_the_prompt(shell):
    piped = "def f():\n    return '```' # @notes.txt /skill\n"
    (shell.folder / "notes.txt").write_text("not asked for")
    result = shell.run("run", "--session", "s", "Explain this.", stdin=piped)
    assert result.returncode == 0
    first = json.loads(shell.run("sessions", "show", "s", "--json").stdout.splitlines()[1])
    (part,) = first["event"]["message"]["parts"]
    assert part["text"] == f"Explain this.\n\n````\n{piped.rstrip()}\n````"


@pytest.mark.parametrize("stdin", ["", " \n", "\ufeff"])
def test_a_prompt_with_nothing_piped_in_is_the_prompt(perdure, stdin):
    assert perdure("run", "--session", "s", "Calculate 6 * 7", stdin=stdin).stdout == ANSWER
    assert "```" not in perdure("sessions", "show", "s").stdout


def test_what_is_piped_in_has_to_be_text(perdure):
    result = perdure("run", "Explain this.", stdin=b"caf\xe9")
    assert (result.exit_code, result.stderr.startswith("error: standard input is not UTF-8 text")) == (2, True)


def test_a_pipe_that_stays_open_is_told_after_a_second(shell):
    ours, theirs = os.pipe()
    process = subprocess.Popen(
        [*PERDURE, "run", "-q", "Calculate 6 * 7"],
        cwd=shell.folder,
        env=shell.environment,
        stdin=ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        await_text(process.stderr.fileno(), "reading standard input to its end; to run without it, add </dev/null")
        os.close(theirs)
        assert process.communicate(timeout=PATIENCE)[0].decode() == ANSWER
    finally:
        process.kill()
        os.close(ours)


@pytest.mark.parametrize(
    ("stdin", "problem"),
    [
        ("", "there is no prompt on standard input"),
        (" \n", "there is no prompt on standard input"),
        (b"caf\xe9", "standard input is not UTF-8 text (unexpected end of data at byte 3)"),
        (b"x" * (MOST_BYTES + 1), "the prompt has more than 10,000,000 bytes"),
    ],
)
def test_standard_input_without_a_prompt_is_an_error(perdure, stdin, problem):
    result = perdure("run", stdin=stdin)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {problem}")


def test_without_a_prompt_at_a_terminal_it_says_how_to_give_one(shell):
    with shell.terminal("run") as terminal:
        assert terminal.end() == 2
    assert 'error: there is no prompt; write it as perdure run "…", or pipe it in' in terminal.seen


def test_quiet_is_the_answer_alone(perdure):
    result = perdure("run", "--quiet", "Calculate 6 * 7")
    assert (result.stdout, result.stderr) == (ANSWER, "")


def test_json_is_an_event_on_each_line(perdure):
    result = perdure("run", "--json", "Calculate 6 * 7, pâté")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    kinds = [event["kind"] for event in events]
    assert kinds[:3] == ["session_opened", "run_started", "message_added"]
    assert kinds[-1] == "run_ended"
    assert "".join(event["text"] for event in events if event["kind"] == "text_delta") == ANSWER.strip()
    assert events[2]["message"]["parts"][0]["text"] == "Calculate 6 * 7, pâté"
    assert result.stdout.isascii()
    assert result.stderr == ""


def test_a_limit_is_told_and_has_a_code_of_its_own(perdure):
    result = perdure("run", "--max-turns", "1", "Calculate 6 * 7")
    assert result.exit_code == 3
    assert "error: the run ended early (limit: max_turns); allow more with --max-turns" in result.stderr
    assert "go on with: perdure run --session" in result.stderr


@pytest.mark.parametrize(
    ("model", "code", "message"),
    [
        ("odd:down", 69, "error: nobody answers at ␛[31mexample\n"),
        ("odd:bug", 1, "error: the run failed: ValueError: a mistake (PERDURE_DEBUG=1 shows more)\n"),
    ],
)
def test_a_run_that_fails_says_why_without_a_traceback(shell, model, code, message):
    result = shell.run("run", "--model", model, "go", program=STAND_INS)
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.startswith(message)
    assert "Traceback" not in result.stderr


def test_a_tool_that_fails_is_told_without_a_traceback(shell):
    result = shell.run("run", "--model", "odd:fail", "go", program=STAND_INS)
    assert (result.returncode, result.stdout) == (0, "over\n")
    assert "tool fail error: ValueError: ␛]0;owned␇a␛[2J" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_a_model_says_cannot_act_on_the_terminal(shell):
    result = shell.run("run", "-q", "--model", "odd:hostile", "go", program=STAND_INS)
    assert result.stdout == "␛]0;owned␇a␛[2J\\u202eb␍c\\x9b1md\n"


def test_raw_is_what_the_model_says(shell):
    result = shell.run("run", "-q", "--raw", "--model", "odd:hostile", "go", program=STAND_INS)
    assert result.stdout.startswith("\x1b]0;owned\x07a\x1b[2J\u202eb")


def test_a_model_that_says_everything_at_once_is_heard(shell):
    result = shell.run("run", "-q", "--model", "odd:at-once", "go", program=STAND_INS)
    assert result.stdout == "all at once\n"


def test_instructions_and_model_are_kept_for_a_resume(perdure):
    perdure("run", "--session", "s", "--instructions", "Be brief.", "--model", "demo:words", "Calculate 6 * 7")
    first = json.loads(perdure("sessions", "show", "s", "--json").stdout.splitlines()[0])
    assert first["event"]["options"] == {"instructions": "Be brief.", "model": "demo:words"}


def test_an_engine_is_chosen_by_its_name_and_kept_for_a_resume(perdure, tmp_path):
    path = tmp_path / "perdure.toml"
    path.write_text('engine = "reflect"\n', encoding="utf-8")
    assert "it needs to be trusted for engine" in perdure("run", "Calculate 6 * 7").stderr
    assert perdure("trust", "--yes", str(path)).exit_code == 0
    assert started_run(perdure, "configured")["engine"] == "reflect"
    chosen = started_run(perdure, "chosen", "--engine", "passthrough")
    assert (chosen["engine"], chosen["options"]["engine"]) == ("passthrough", "passthrough")
    result = perdure("run", "--engine", "plannr", "-s", "unknown", "Calculate 6 * 7")
    assert result.exit_code == 2
    assert "there is no engine 'plannr': did you mean 'planner'? known are autonomous, " in result.stderr
    assert "unknown" not in perdure("sessions", "list").stdout


def started_run(perdure, session_id, *options) -> dict:
    assert perdure("run", "-s", session_id, *options, "Calculate 6 * 7").exit_code == 0
    first = json.loads(perdure("sessions", "show", session_id, "--json").stdout.splitlines()[0])
    assert first["event"]["kind"] == "run_started"
    return first["event"]


def test_names_of_engines_are_completed():
    parameter = next(each for each in run.params if each.name == "engine")
    assert complete_engine_name(click.Context(run), parameter, "ref") == ["reflect"]


def test_files_below_the_working_folder_can_be_read(perdure, tmp_path):
    (tmp_path / "there.txt").write_text("I am here", encoding="utf-8")
    assert "I am here" in perdure("run", "Read the text file there.txt").stdout


def test_where_nobody_can_be_asked_permission_is_denied(shell):
    result = shell.run("run", 'Write "hello" to the text file hello.txt')
    assert result.returncode == 0
    assert "tool write_text denied: permission denied: this tool needs permission and there is no one" in result.stderr
    assert list(shell.folder.iterdir()) == []


def test_yes_allows_everything_and_says_so(shell):
    result = shell.run("run", "--yes", 'Write "hello" to the text file hello.txt')
    assert result.stderr.startswith("warning: --yes: every tool call is made without asking\n")
    assert (shell.folder / "hello.txt").read_text(encoding="utf-8") == "hello"


def test_a_session_that_somebody_else_drives_is_left_alone(shell):
    with shell.started("run", "--model", "odd:stuck", "--session", "s", "go", program=STAND_INS) as other:
        assert other.stdout.read(8) == b"thinking"
        result = shell.run("run", "--session", "s", "hello")
    assert result.returncode == 75
    assert result.stderr.startswith(f"error: session 's' is being driven by process {other.pid} on ")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["resume", "--help"], ["replay", "--help"]])
def test_help_imports_nothing_of_what_a_run_needs(arguments):
    code = f"""
import sys
from perdure._cli.main import root_command
try:
    root_command.main({arguments!r})
finally:
    print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=30, check=False)
    assert done.returncode == 0
    assert not {
        "perdure._runtime.agent.agent",
        "perdure._config.load",
        "perdure._cli.run.session",
        "perdure._cli.run.options",
    } & set(done.stderr.split())
    assert not [name for name in done.stderr.split() if name.startswith("perdure.context")]


def test_help_says_what_the_agent_is_told_in_a_project(perdure):
    shown = " ".join(perdure("run", "--help").stdout.split())
    for words in ("AGENTS.md", "perdure.toml", "--context / --no-context", "for them all this is left out"):
        assert words in shown


# -- perdure resume, after a run that was killed -----------------------------------------------------------------------


def killed(shell, prompt, *options):
    """A session whose run was killed when the intent of its call was stored."""
    result = shell.run("run", "--session", "s", *options, prompt, environment=KILLED)
    assert result.returncode == -signal.SIGKILL
    assert "the last run was cut off; finish it with: perdure resume s" in shell.run("sessions", "show", "s").stderr


def test_a_call_that_may_have_happened_is_unknown_and_the_run_goes_on(shell):
    killed(shell, WRITE, "--yes")
    result = shell.run("resume", "s", "--yes")
    assert result.returncode == 0
    assert "tool write_text unknown: " in result.stderr
    assert "The tool write_text did not succeed (unknown)" in result.stdout
    assert not (shell.folder / "hello.txt").exists()
    assert "write_text unknown:" in shell.run("sessions", "show", "s").stdout


def test_a_call_that_only_reads_is_made_again(shell):
    killed(shell, "Calculate 6 * 7")
    result = shell.run("resume", "s")
    assert result.returncode == 0
    assert result.stdout.startswith("The tool calculate says: 42")


def test_a_parked_run_is_continued_on_request(shell):
    killed(shell, "Calculate 6 * 7")
    for _ in range(3):
        assert shell.run("resume", "s", environment=KILLED).returncode == -signal.SIGKILL
    parked = shell.run("resume", "s")
    assert parked.returncode == 3
    assert "continue it with perdure resume s --unpark" in parked.stderr
    assert "the last run was parked" in shell.run("sessions", "show", "s").stderr
    refused = shell.run("resume", "s")
    assert (refused.returncode, "unpark" in refused.stderr) == (2, True)
    result = shell.run("resume", "s", "--unpark")
    assert result.returncode == 0
    assert "calculate" in result.stdout


def test_a_run_that_has_ended_cannot_be_resumed(perdure):
    perdure("run", "--session", "s", "Calculate 6 * 7")
    result = perdure("resume", "s")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: session 's' has nothing to resume: its last run ended with status 'done'")


def test_a_session_that_is_not_there_is_not_made(perdure):
    assert perdure("resume", "nobody").exit_code == 66
    assert perdure("run", "--session", "nobody", "--resume").exit_code == 66
    assert perdure("sessions", "list").stdout == ""


def test_run_finishes_what_was_cut_off_before_it_says_something_new(shell):
    killed(shell, "Calculate 6 * 7")
    result = shell.run("run", "--session", "s", "--resume", "Calculate 1 + 1")
    assert result.returncode == 0
    assert result.stdout.index("says: 42") < result.stdout.index("says: 2")


def test_run_has_nothing_to_finish_in_a_session_that_is_whole(perdure):
    perdure("run", "--session", "s", "Calculate 6 * 7")
    result = perdure("run", "--session", "s", "--resume", "Calculate 1 + 1")
    assert (result.exit_code, result.stdout.count("says:")) == (0, 1)


def test_run_without_a_prompt_only_finishes(shell):
    killed(shell, "Calculate 6 * 7")
    result = shell.run("run", "--session", "s", "--resume")
    assert (result.returncode, result.stdout.count("says:")) == (0, 1)


@pytest.mark.parametrize("store", ["sqlite:no/such/x.db", "file:no/such/x"])
@pytest.mark.parametrize(
    "command", [["run", "Hello"], ["sessions", "list"], ["resume", "s"], ["sessions", "show", "s"]]
)
def test_a_store_in_a_folder_that_is_not_there_is_an_error_and_makes_no_folder(perdure, store, command):
    result = perdure(*command, "--store", store)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error: '{store}': there is no folder '" in result.stderr
    assert not os.path.exists("no")  # noqa: PTH110


def test_the_folder_of_the_command_is_made_wherever_it_is_to_be(perdure, tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "new" / "user" / ".perdure"))
    assert perdure("run", "-q", "--session", "s", "Calculate 6 * 7").exit_code == 0
    assert perdure("sessions", "list").stdout.split()[0] == "s"


def test_a_slash_name_that_does_nothing_is_told(perdure, tmp_path):
    (tmp_path / ".git").mkdir()
    folder = tmp_path / ".agents" / "skills" / "knots"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: knots\ndescription: How to tie.\n---\nTie a bowline.\n")
    for options in ([], ["--context"]):
        result = perdure("run", *options, "-s", "s", "Tell me /knots please")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.endswith(
            "error: /knots is a skill of this project that you do not trust yet, so nothing was run; "
            "read it with: perdure skills show knots; then: perdure skills trust knots\n"
        )
    assert perdure("skills", "trust", "knots").exit_code == 0
    assert "/knots is not loaded: for this model skills are left out" in perdure("run", "/knots please").stderr
    assert "skill knots is loaded" in perdure("run", "--context", "/knots please").stderr
    assert "there is no skill 'nots', so /nots is sent as it is" in perdure("run", "--context", "/nots please").stderr
    assert "skill" not in perdure("run", "what is in /etc and /tmp").stderr


def test_an_answer_can_be_held_to_a_schema(shell):
    schema = '{"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}'
    result = shell.run("run", "-q", "--model", "odd:json", "--schema", schema, "go", program=STAND_INS)
    assert (result.returncode, result.stdout, result.stderr) == (0, '{"sum":42}\n', "")
    (shell.folder / "sum.json").write_text(schema)
    again = shell.run("run", "-q", "--model", "odd:json", "--schema", "sum.json", "go", program=STAND_INS)
    assert again.stdout == result.stdout


@pytest.mark.parametrize(
    ("given", "problem"),
    [("missing.json", "cannot be read"), ("{", "is not JSON"), ("list.json", "is no JSON Schema; give an object")],
)
def test_a_schema_that_is_none_is_an_error(perdure, tmp_path, given, problem):
    (tmp_path / "list.json").write_text("[1]")
    result = perdure("run", "--schema", given, "go")
    assert result.exit_code == 2
    assert problem in result.stderr


def test_every_limit_ends_the_run_and_names_its_option(perdure, monkeypatch):
    monkeypatch.setattr("perdure._models.registry._factories", {})
    price = Price(input_usd=1_000.0, output_usd=1_000.0)

    class Stuck:
        info = ModelInfo("stuck")

        async def stream(self, request):
            yield TextDelta("thinking")
            await asyncio.Event().wait()

    def build_model(name):
        steps = [call("calculate", expression=f"{n} * 2") for n in range(5)]
        return Stuck() if name == "stuck" else ScriptedModel(*steps, "Done.", price=price)

    register("limited", build_model)
    for option, value, reason, model in (
        ("--max-turns", "1", "max_turns", "limited:x"),
        ("--limit-tokens", "30", "token_budget", "limited:x"),
        ("--limit-cost", "0.03", "max_cost", "limited:x"),
        ("--limit-tool-calls", "2", "max_tool_calls", "limited:x"),
        ("--limit-seconds", "0.05", "timeout", "limited:stuck"),
    ):
        result = perdure("run", "-m", model, option, value, "Calculate.")
        said = f"error: the run ended early (limit: {reason}); allow more with {option}, or continue the session"
        assert (result.exit_code, said in result.stderr) == (3, True), result.stderr
    assert perdure("run", "--limit-turns", "1", "Calculate 6 * 7").exit_code == 3


@pytest.mark.parametrize("option", ["--limit-cost", "--limit-seconds", "--limit-tool-calls", "--limit-tokens"])
def test_a_limit_of_nothing_is_refused(perdure, option):
    result = perdure("run", option, "0", "go")
    assert (result.exit_code, option in result.stderr) == (2, True)


def test_only_the_named_tools_are_offered(perdure):
    assert "calculate" not in perdure("run", "--tools", "now", "Calculate 6 * 7").stderr
    assert "tool calculate ok: 42" in perdure("run", "--tools", "now, calculate", "Calculate 6 * 7").stderr


def test_a_call_that_is_allowed_is_not_asked_about(perdure, tmp_path):
    prompt = 'Write the text "hello" to the path "a.txt"'
    assert "denied" in perdure("run", prompt).stderr
    result = perdure("run", "--allow", "write_text(**/a.txt)", prompt)
    assert "tool write_text ok" in result.stderr
    bad = perdure("run", "--allow", "write(", prompt)
    assert (bad.exit_code, bad.stderr.startswith("error: --allow 'write(': give the name of a tool")) == (2, True)


def test_yolo_needs_a_sandbox(perdure, monkeypatch):
    monkeypatch.setattr("perdure._cli.run.assembly.describe_missing_sandbox", lambda _: "no bwrap")
    result = perdure("run", "--yolo", "Calculate 6 * 7")
    assert (result.exit_code, "--yolo is for commands that run in a sandbox" in result.stderr) == (2, True)
    monkeypatch.setattr("perdure._cli.run.assembly.describe_missing_sandbox", lambda _: "")
    assert perdure("run", "--yolo", "Calculate 6 * 7").exit_code == 0
