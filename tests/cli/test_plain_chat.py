"""The chat in plain lines, with typed lines in place of a terminal."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import Agent, Text, ToolContext, assistant, tool, user
from perdure._cli.chat import command
from perdure._cli.terminal.screen import CUT_OFF
from perdure.events import MessageAdded, ReplyFinished, RunStarted, TextDelta, ToolFinished
from perdure.models import register
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from tests.doubles import crashed


@pytest.fixture
def chat(perdure, monkeypatch):
    """Runs the chat with these lines typed: `chat("--session", "s", typed=["Hello"])`."""
    monkeypatch.setattr(command, "is_terminal", lambda: True)

    def run(*arguments, typed=()):
        lines = [*typed]

        class TypedLines:
            def __init__(self):
                self.lock = asyncio.Lock()

            async def read_line(self):
                return lines.pop(0) if lines else None

            def discard_typed(self):
                """Do nothing: lines are typed when they are asked for."""

        monkeypatch.setattr("perdure._cli.chat.plain.LineReader", TypedLines)
        result = perdure("chat", "--plain", *arguments)
        result.left = lines
        return result

    return run


def test_prompts_are_answered_until_the_input_ends_and_the_session_is_named(chat):
    result = chat("--session", "s", typed=["Calculate 6 * 7", "", "   ", "Calculate 1 + 1"])
    assert result.exit_code == 0
    assert result.stdout.index("42") < result.stdout.index("says: 2")
    assert result.stderr.count("> ") == 5
    assert "model demo: " in result.stderr
    assert result.stderr.endswith("go on with: perdure --session s\n")


def test_a_chat_in_which_nothing_was_said_leaves_no_session(chat, perdure):
    result = chat(typed=[" "])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "go on with" not in result.stderr
    assert perdure("sessions", "list").stdout == ""


def test_nothing_is_read_after_the_command_that_leaves(chat):
    result = chat(typed=["/quit", "Calculate 6 * 7"])
    assert (result.exit_code, result.stdout, result.left) == (0, "", ["Calculate 6 * 7"])


def test_a_wrong_command_is_an_error_and_the_chat_goes_on(chat):
    result = chat(typed=["/nothing", "Calculate 6 * 7"])
    assert "error: there is no command or skill /nothing" in result.stderr
    assert "42" in result.stdout


def test_a_session_is_opened_with_its_last_prompt_and_answer(chat, perdure):
    for prompt in ("Calculate 1 + 1", "Calculate 6 * 7"):
        perdure("run", "--session", "s", prompt)
    result = chat("--session", "s")
    assert "session s, 8 messages; the last of them:\n> Calculate 6 * 7\n" in result.stderr
    assert result.stdout.count("says:") == 1
    assert "42" in result.stdout
    assert "cut off" not in result.stderr


def test_a_run_that_was_cut_off_goes_on_when_its_session_is_opened(chat, perdure, tmp_path):
    perdure("run", "--session", "whole", "Calculate 6 * 7")

    async def cut_off() -> None:
        store = open_store(f"sqlite:{tmp_path}/home/sessions.db")
        events = [each.event for each in await store.read("whole")]
        end = next(place for place, each in enumerate(events) if isinstance(each, ToolFinished)) + 1
        await crashed(store, "s", *events[:end])
        await store.aclose()

    asyncio.run(cut_off())
    result = chat("--session", "s")
    assert "its last run was cut off: it goes on now" in result.stderr
    assert "says: 42" in result.stdout
    again = chat("--session", "s")
    assert "cut off" not in again.stderr


def test_results_of_tools_are_shown_by_their_number(chat):
    result = chat(typed=["Calculate 6 * 7", "Calculate 1 + 1", "/show 1", "/show", "/show 3", "/show 0"])
    assert result.stderr.count("tool calculate ok:\n    42\n") == 1
    assert result.stderr.count("tool calculate ok:\n    2\n") == 1
    assert result.stderr.count("error: there is no such tool result") == 2


def test_another_session_of_the_project_is_chosen_by_its_number(chat):
    for name in ("one", "two"):
        chat("--session", name, typed=["Calculate 1 + 1"])
    result = chat(
        "--session", "here", typed=["Calculate 6 * 7", "/resume", "2", "/session", "/resume", "1", "/session"]
    )
    chosen = [line.removeprefix("> ").split(",")[0] for line in result.stderr.splitlines() if "entries" in line]
    assert chosen == ["session one", "session here"]
    for wrong in ("0", "3", "x", "\u0661"):
        refused = chat("--session", "here", typed=["/resume", wrong])
        assert f"error: {wrong!r} is none of the numbers" in refused.stderr
    assert "error" not in chat("--session", "here", typed=["/resume", ""]).stderr


def test_notes_rules_and_the_model_are_shown(chat, tmp_path, monkeypatch):
    (tmp_path / "perdure.toml").write_text('name = "agent"\n\n[permissions]\nask = ["calculate"]\n')
    result = chat("--allow", "now", "--session", "s", typed=["/permissions", "/model", "/usage"])
    assert result.exit_code == 0
    rows = result.stderr.splitlines()
    assert rows[1:3] == [
        "perdure.toml is used; it is not trusted, and needs no trust",
        "type a prompt; /help lists the commands, Ctrl-C cancels the run, Ctrl-D leaves",
    ]
    assert rows[3:7] == [
        "> | rule 1: ask('calculate')",
        "| rule 2: allow('now')",
        "> the model is demo",
        "> | turns: 0",
    ]
    assert rows[-2:] == ["nothing was asked yet", "> "]


def test_why_a_model_was_chosen_is_said(chat):
    assert chat("--model", "demo").stderr.splitlines()[0] == "model demo: you named it"
    assert chat().stderr.splitlines()[0] == "model demo: PERDURE_MODEL is set"


def test_a_skill_that_is_not_there_is_noted_and_the_prompt_is_sent(chat):
    result = chat(typed=["Calculate 6 * 7 with /nothing", "/ nothing else"])
    assert "42" in result.stdout
    result = chat(typed=["Calculate 6/2"])
    assert "there is no skill" not in result.stderr


def test_a_prompt_that_a_fork_left_out_is_printed(chat):
    result = chat("--session", "s", typed=["Calculate 6 * 7", "/fork 1", "/fork"])
    assert result.stderr.count("the prompt that was left out: ") == 1
    assert "the prompt that was left out: Calculate 6 * 7\n" in result.stderr


def test_a_run_of_another_agent_is_an_error_and_the_chat_goes_on(chat, tmp_path):
    async def store_run() -> None:
        store = open_store(f"sqlite:{tmp_path}/home/sessions.db")
        await crashed(store, "s", RunStarted(agent="other", run_id="r"), MessageAdded(user("Hi"), run_id="r"))
        await store.aclose()

    (tmp_path / "home").mkdir(mode=0o700)
    asyncio.run(store_run())
    result = chat("--session", "s", typed=["/session"])
    assert "error: session 's': its run belongs to agent 'other', and this is agent 'agent'; " in result.stderr
    assert "cut off" not in result.stderr
    assert "session s, 2 entries" in result.stderr


def test_how_a_run_ended_early_is_noted(chat):
    result = chat("--max-turns", "1", typed=["Calculate 6 * 7"])
    assert [row for row in result.stderr.splitlines() if "ended early" in row] == [
        "the run ended early (limit: max_turns); the next prompt goes on from there, and the limits count anew"
    ]


@pytest.mark.packages("tree_sitter_bash")
def test_the_chat_refuses_yolo_without_a_sandbox(chat, monkeypatch):
    monkeypatch.setattr("perdure._tools.sandbox.bubblewrap.find_bubblewrap", lambda: ((), "no bwrap"))
    result = chat("--yolo", "--coding", typed=["Calculate 6 * 7"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: --yolo is for commands that run in a sandbox, and here is none: no bwrap")
    assert chat("--coding").exit_code == 0


def test_a_call_is_asked_about_unless_everything_is_allowed(chat, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    prompt = 'Write "hello" to the text file hello.txt'
    denied = chat("--no-coding", typed=[prompt, "n"])
    assert "Allow this call? (1 of 1, " in denied.stderr
    assert not (tmp_path / "hello.txt").exists()
    allowed = chat("--no-coding", typed=[prompt, "y"])
    assert (tmp_path / "hello.txt").read_text() == "hello"
    assert allowed.left == []
    (tmp_path / "hello.txt").unlink()
    for option in ("--yes", "--yolo"):
        assert "Allow this call?" not in chat("--no-coding", option, typed=[prompt]).stderr
        (tmp_path / "hello.txt").unlink()


def test_a_call_that_was_left_open_is_asked_about_when_its_session_is_opened(chat, perdure, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for number in (1, 2):
        prompt = f'Write "hello" to the text file {number}.txt'
        perdure("run", "--no-coding", "--later", "--session", "s", prompt)
        opened = chat("--no-coding", "--session", "s", typed=["y", prompt.replace(".txt", "0.txt"), "n"])
        assert opened.stderr.count("Allow this call? (1 of 1, ") == 2
        assert "its last run was cut off: it goes on now" in opened.stderr
        assert (tmp_path / f"{number}.txt").read_text() == "hello"
        assert not (tmp_path / f"{number}0.txt").exists()
        assert opened.left == []


def test_a_session_in_memory_is_not_named_at_the_end(chat):
    result = chat("--store", "memory:", typed=["Calculate 6 * 7"])
    assert "42" in result.stdout
    assert "go on with" not in result.stderr


@pytest.mark.parametrize("commands", [[], ["/session other"]])
def test_a_tool_asks_in_the_session_that_is_open(chat, monkeypatch, commands):
    @tool
    async def remark(context: ToolContext[Any]) -> str:
        """Ask for a remark."""
        return f"{await context.ask('Anything else?')}!"

    monkeypatch.setattr("perdure._models.registry._factories", {})
    register("odd", lambda _: ScriptedModel(call("remark"), "Done."))
    monkeypatch.setattr("perdure._cli.run.assembly.basic_tools", lambda *_, **__: [remark])
    result = chat("--model", "odd:x", "--no-coding", "--session", "s", typed=[*commands, "Go.", "nothing", "/show"])
    assert result.left == []
    assert result.stdout == "Done.\n"
    assert "tool remark ok:\n    nothing!\n" in result.stderr
    assert result.stderr.endswith(f"go on with: perdure --session {'other' if commands else 's'}\n")


class Interrupted:
    """A model during whose reply somebody presses Ctrl-C."""

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        yield TextDelta("Once upon")
        if len(request.messages) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            async with asyncio.timeout(20):
                await asyncio.Event().wait()
        yield ReplyFinished()


def test_ctrl_c_cancels_the_run_keeps_what_was_written_and_the_chat_goes_on(chat, monkeypatch, tmp_path):
    monkeypatch.setattr("perdure._models.registry._factories", {})
    register("odd", lambda _: Interrupted())
    result = chat("--model", "odd:x", "--session", "s", typed=["Tell me.", "Again."])
    assert (result.exit_code, result.left) == (0, [])
    assert result.stderr.count("cancelling the run; interrupt once more to quit at once") == 1

    async def read() -> list[str]:
        store = open_store(f"sqlite:{tmp_path}/home/sessions.db")
        messages = await Agent("demo", store=store).session("s").messages()
        await store.aclose()
        return [each.text for each in messages]

    assert asyncio.run(read()) == ["Tell me.", f"Once upon\n\n{CUT_OFF}", "Again.", "Once upon"]


def test_permission_is_asked_below_what_the_model_has_said(chat, monkeypatch):
    @tool(permission=True)
    def put(text: str) -> str:
        """Put a text."""
        return f"put {text}"

    monkeypatch.setattr("perdure._models.registry._factories", {})
    register("odd", lambda _: ScriptedModel(assistant([Text("I try."), call("put", text="a")]), "Done."))
    monkeypatch.setattr("perdure._cli.run.assembly.basic_tools", lambda *_, **__: [put])
    result = chat("--model", "odd:x", "--no-coding", "--store", "memory:", typed=["Go.", "y"])
    assert result.output.splitlines()[2:] == [
        "> I try.",
        "Allow this call? (1 of 1, 5 rows)",
        "| agent: the agent of the session",
        '| tool: "put"',
        '| action: "put"',
        "| target: the arguments",
        '| argument text: "a"',
        '[y]es, [n]o, [r]un, [s]ession, [f]orever, [?] help: tool put {"text":"a"}',
        "tool put ok: put a",
        "Done.",
        "> ",
    ]
