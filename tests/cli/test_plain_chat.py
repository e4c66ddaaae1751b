"""The chat in plain lines, with typed lines in place of a terminal."""

import asyncio

import pytest

from perdure.cli import chat_command
from perdure.core.event import ToolFinished
from perdure.stores import open_store
from tests.doubles import crashed


@pytest.fixture
def chat(perdure, monkeypatch):
    """Runs the chat with these lines typed: `chat("--session", "s", typed=["Hello"])`."""
    monkeypatch.setattr(chat_command, "is_terminal", lambda: True)

    def run(*arguments, typed=()):
        lines = [*typed]

        class TypedLines:
            def __init__(self):
                self.lock = asyncio.Lock()

            async def read_line(self):
                return lines.pop(0) if lines else None

            def discard_typed(self):
                """Do nothing: lines are typed when they are asked for."""

        monkeypatch.setattr("perdure.cli.plain_chat.LineReader", TypedLines)
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
