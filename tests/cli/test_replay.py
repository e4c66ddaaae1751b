"""`perdure replay`: the same again, or the first difference."""

import asyncio
import json

import pytest

from perdure import Agent, ConfigError, Outcome, SessionNotFound
from perdure.tools import basic_tools
from tests.cli.process import STAND_INS


@pytest.fixture
def kept(perdure):
    """A session with one call."""
    assert perdure("run", "-q", "--session", "s", "Calculate 6 * 7").exit_code == 0


@pytest.fixture
def changed(monkeypatch):
    """The tools as they will be tomorrow: the calculator is gone."""
    tools = [each for each in basic_tools() if each.name != "calculate"]
    monkeypatch.setattr("perdure._cli.run.assembly.basic_tools", lambda *_, **__: tools)


def entries_of(perdure, name):
    lines = perdure("sessions", "show", name, "--json").stdout.splitlines()
    return [json.loads(line)["event"]["kind"] for line in lines]


@pytest.mark.usefixtures("kept")
def test_a_session_that_does_the_same_is_told_in_a_line(perdure):
    before = entries_of(perdure, "s")
    result = perdure("replay", "s")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "session s does the same as recorded: 2 turns in 1 run\n"
    assert entries_of(perdure, "s") == before


@pytest.mark.usefixtures("kept", "changed")
def test_the_first_difference_is_shown_and_the_exit_code_tells(perdure):
    result = perdure("replay", "s")
    assert result.exit_code == 1
    first, *diff = result.stdout.splitlines()
    assert first == ("session s differs from the log at entry 3: the request of turn 1 is another one: the tools")
    assert diff[:2] == ["--- recorded", "+++ now"]
    assert diff[-1] == "+tool calculate is not offered"


@pytest.mark.usefixtures("kept")
def test_programs_get_a_line_of_json(perdure):
    told = json.loads(perdure("replay", "s", "--json").stdout)
    assert told == {
        "session_id": "s",
        "agrees": True,
        "runs": 1,
        "turns": 2,
        "skipped": 0,
        "divergence": None,
        "branch": None,
    }


@pytest.mark.usefixtures("kept", "changed")
def test_programs_are_told_the_difference(perdure):
    result = perdure("replay", "s", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["agrees"], told["divergence"]["seq"], told["divergence"]["about"]) == (False, 3, "request")
    assert "+tool calculate is not offered" in told["divergence"]["diff"]


def test_a_session_that_was_allowed_everything_does_the_same_again(perdure, tmp_path):
    perdure("run", "-q", "--yes", "--session", "s", 'Write "hello" to the text file hello.txt')
    (tmp_path / "hello.txt").unlink()
    assert perdure("replay", "s").exit_code == 0
    assert not (tmp_path / "hello.txt").exists()


@pytest.mark.usefixtures("kept")
def test_a_run_goes_on_live_in_a_fork(perdure):
    result = perdure("replay", "s", "--from", "4")
    assert result.exit_code == 0
    assert result.stdout == "The tool calculate says: 42 (Told by the offline demonstration model.)\n"
    assert "go on with: perdure run --session" in result.stderr
    assert len(perdure("sessions", "list").stdout.splitlines()) == 2


@pytest.mark.usefixtures("kept")
def test_a_fork_answers_another_prompt(perdure):
    last = len(entries_of(perdure, "s"))
    options = ("--from", str(last), "--prompt", "Calculate 1 + 1", "--model", "demo", "--json")
    result = perdure("replay", "s", *options)
    told = json.loads(result.stdout)
    assert (result.exit_code, told["branch"]["status"]) == (0, "done")
    assert told["branch"]["text"].startswith("The tool calculate says: 2")


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nobody"], 66, "there is no session 'nobody' in sqlite:"),
        (["s", "--from", "0"], 2, "invalid value for '--from'"),
        (["s", "--from", "99"], 2, "session 's' has"),
        (["s", "--prompt", "x"], 2, "--prompt applies to the live part only; use --from to say where that begins"),
        (["s", "--model", "demo"], 2, "--model applies to the live part only"),
        (["s", "--store", "cloud:x"], 2, "there is no store called 'cloud:x'"),
    ],
)
def test_what_cannot_be_replayed_is_told(perdure, arguments, code, message):
    result = perdure("replay", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(f"error: {message}")


@pytest.mark.usefixtures("kept")
def test_between_two_runs_a_prompt_is_needed(perdure):
    last = len(entries_of(perdure, "s"))
    result = perdure("replay", "s", "--from", str(last))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: entry {last} of session 's' is between two runs: give a prompt")
    assert len(perdure("sessions", "list").stdout.splitlines()) == 1


def test_a_session_that_never_asked_a_model_is_told(perdure, tmp_path):
    async def call_only():
        async with Agent("demo", tools=basic_tools(), store=f"sqlite:{tmp_path / 'calls.db'}") as agent:
            await agent.session("s").call("calculate", {"expression": "1 + 1"})

    asyncio.run(call_only())
    result = perdure("replay", "s", "--store", f"sqlite:{tmp_path / 'calls.db'}")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: session 's' has never asked a model: there is nothing to replay")


def test_a_session_that_was_summed_up_and_told_otherwise_does_the_same_again(perdure, tmp_path):
    from perdure.context import Compaction
    from perdure.testing import ScriptedModel

    store = f"sqlite:{tmp_path / 'long.db'}"
    compaction = Compaction(model=ScriptedModel("## Goal\nAdd numbers."), keep_recent_messages=0)

    async def talk():
        async with Agent("demo", tools=basic_tools(), store=store, compaction=compaction) as agent:
            session = agent.session("s")
            await session.run("Calculate 6 * 7. " + "There is no hurry. " * 300)
            assert await session.compact()
            await session.configure(instructions="Be brief.")
            await session.run("Calculate 1 + 1")

    asyncio.run(talk())
    result = perdure("replay", "s", "--store", store)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "session s does the same as recorded: 4 turns in 2 runs\n"


def test_differences_are_coloured_on_a_terminal(shell):
    shell.run("run", "-q", "--session", "s", "Calculate 6 * 7", program=STAND_INS)  # which has other tools
    with shell.terminal("replay", "s") as terminal:
        assert terminal.end() == 1
    assert "session s differs from the log at entry 3" in terminal.seen
    assert "\x1b[31m-instructions and tools: " in terminal.seen
    assert "\x1b[32m+instructions and tools: " in terminal.seen


def test_a_line_of_a_difference_has_its_colour(monkeypatch):
    from perdure._cli.work import replay

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert replay._colour_line("-old") == "\x1b[31m-old\x1b[0m"
    assert replay._colour_line("+new") == "\x1b[32m+new\x1b[0m"
    assert replay._colour_line(" same") == " same"
    monkeypatch.setenv("NO_COLOR", "1")
    assert replay._colour_line("-old") == "-old"


def test_calls_without_a_model_are_counted_as_left_out(perdure, tmp_path):
    async def talk(calls: int) -> None:
        async with Agent("demo", tools=basic_tools(), store=f"sqlite:{tmp_path / f'{calls}.db'}") as agent:
            session = agent.session("s")
            await session.run("Calculate 6 * 7")
            for number in range(calls):
                await session.call("calculate", {"expression": f"{number} + 1"})

    for count, told in ((1, "1 call"), (2, "2 calls")):
        asyncio.run(talk(count))
        result = perdure("replay", "s", "--store", f"sqlite:{tmp_path / f'{count}.db'}")
        assert (result.exit_code, result.stdout, result.stderr) == (
            0,
            "session s does the same as recorded: 2 turns in 1 run\n",
            f"{told} without a model could not be replayed\n",
        )


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(status="done"), 0),
        (Outcome(status="stopped"), 0),
        (Outcome(status="limit"), 3),
        (Outcome(status="waiting"), 3),
        (Outcome(status="failed", error=ConfigError("wrong")), 2),
        (Outcome(status="done", error=SessionNotFound("gone")), 66),
        (Outcome(status="failed", error=ValueError("odd")), 1),
    ],
)
def test_the_exit_code_of_the_live_part_is_that_of_its_run(outcome, code):
    from perdure._cli.work.replay import _outcome_exit_code

    assert _outcome_exit_code(outcome) == code


@pytest.mark.parametrize(
    ("line", "is_terminal", "term", "shown"),
    [
        ("@@ -1 +1 @@", True, "xterm", "\x1b[36m@@ -1 +1 @@\x1b[0m"),
        ("", True, "xterm", ""),
        ("-old", False, "xterm", "-old"),
        ("-old", True, "dumb", "-old"),
    ],
)
def test_only_a_terminal_that_has_colours_gets_them(monkeypatch, line, is_terminal, term, shown):
    from perdure._cli.work import replay

    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert replay._colour_line(line) == shown


@pytest.mark.parametrize(("answer", "shown"), [
    ("y", ['tool calculate {"expression":"1 + 1"}', "tool calculate ok: 2"]),
    ("n", ["tool calculate denied: permission denied at the terminal"]),
])  # fmt: skip
def test_the_live_part_asks_for_permission_at_the_terminal(perdure, tmp_path, monkeypatch, answer, shown):
    (tmp_path / "perdure.toml").write_text('name = "agent"\n\n[permissions]\nask = ["calculate"]\n')
    perdure("run", "-q", "-s", "s", "--yes", "Calculate 6 * 7")

    class TypedLines:
        def __init__(self) -> None:
            self.lock = asyncio.Lock()

        async def read_line(self) -> str:
            return answer

        def discard_typed(self) -> None:
            """Do nothing: lines are typed when they are asked for."""

    monkeypatch.setattr("perdure._cli.terminal.input.LineReader", TypedLines)
    monkeypatch.setattr("perdure._cli.terminal.output.can_ask_user", lambda: True)
    last = str(len(entries_of(perdure, "s")))
    result = perdure("replay", "s", "--from", last, "--prompt", "Calculate 1 + 1")
    assert result.exit_code == 0
    asked = "".join([f"{row}\n" for row in shown])
    assert result.stderr.startswith("perdure.toml is used; it is not trusted, and needs no trust\nAllow this call? ")
    assert f"[y]es, [n]o, [r]un, [s]ession, [f]orever, [?] help: {asked}" in result.stderr
