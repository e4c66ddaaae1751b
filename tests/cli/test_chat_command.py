"""`perdure` without a command: the chat at a terminal, help elsewhere, and what is missing by name."""

import sys
from importlib import util

import pytest

from perdure._cli.chat import command
from perdure._cli.main import add_default_command
from perdure._cli.run.options import AgentOptions, RunCommandOptions


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["run", "x"], ["run", "x"]),
        (["--help"], ["--help"]),
        (["--version"], ["--version"]),
        (["--continue"], ["chat", "--continue"]),
        (["--session", "run"], ["chat", "--session", "run"]),
        ([], ["--help"]),
    ],
)
def test_options_without_a_command_are_those_of_the_chat(arguments, meant):
    assert add_default_command(arguments) == meant


def test_at_a_terminal_no_arguments_mean_the_chat(monkeypatch):
    monkeypatch.setattr("perdure._cli.main.is_terminal", lambda: True)
    assert add_default_command([]) == ["chat"]


def test_without_a_terminal_it_names_the_command_for_scripts(perdure):
    result = perdure("chat")
    assert result.exit_code == 2
    assert result.stderr.startswith('error: the chat needs a terminal; use perdure run "…" in scripts')
    assert "exclude each other" in perdure("chat", "--continue", "--session", "x").stderr


def test_without_its_packages_the_chat_prints_plain_lines_and_says_why(perdure, monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "rich" else sys)
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    started: list[object] = []

    def run_plain_chat(order: object) -> int:
        started.append(order)
        return 0

    monkeypatch.setattr("perdure._cli.chat.plain.run_plain_chat", run_plain_chat)
    result = perdure("chat")
    assert result.exit_code == 0
    assert result.stderr == "this chat prints plain lines: for one in a window, pip install 'perdure[chat]'\n"
    assert len(started) == 1


@pytest.fixture
def started(monkeypatch):
    """The chats that were started, each with its options; none of them is run."""
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    found: list[tuple[str, RunCommandOptions]] = []

    def run_with(name: str, code: int):
        def run(order: RunCommandOptions) -> int:
            found.append((name, order))
            return code

        return run

    monkeypatch.setattr("perdure._cli.chat.plain.run_plain_chat", run_with("plain", 3))
    monkeypatch.setattr("perdure._cli.chat.program.run_chat", run_with("window", 4))
    return found


@pytest.mark.packages("prompt_toolkit", "rich")
@pytest.mark.parametrize(
    ("arguments", "term", "begun"),
    [
        ((), "xterm", ("window", 4)),
        (("--plain",), "xterm", ("plain", 3)),
        ((), "dumb", ("plain", 3)),
        ((), "", ("plain", 3)),
        ((), "unknown", ("plain", 3)),
    ],
)
def test_the_chat_is_in_a_window_unless_the_terminal_cannot_show_one(started, request, arguments, term, begun):
    request.getfixturevalue("monkeypatch").setenv("TERM", term)
    perdure = request.getfixturevalue("perdure")
    result = perdure("chat", *arguments, "--session", "plan", "--tools", "read, edit", "--yes", "--store", "memory:")
    assert (result.exit_code, result.stdout, result.stderr) == (begun[1], "", "")
    order = RunCommandOptions(session_id="plan", tools=("read", "edit"), yes=True, agent=AgentOptions(store="memory:"))
    assert started == [(begun[0], order)]


@pytest.mark.packages("prompt_toolkit", "rich")
def test_without_its_packages_the_plain_chat_that_was_asked_for_says_nothing(perdure, started, monkeypatch):
    monkeypatch.setattr(command, "list_missing_packages", lambda: ["rich"])
    assert perdure("chat", "--plain").stderr == ""
    assert [name for name, _ in started] == ["plain"]


@pytest.mark.packages("prompt_toolkit", "rich")
def test_a_configuration_is_offered_for_trust_before_the_chat_begins(perdure, started, monkeypatch):
    offered: list[AgentOptions] = []
    monkeypatch.setattr(command, "offer_trust_at_terminal", offered.append)
    perdure("chat", "--model", "demo")
    assert offered == [AgentOptions(model="demo")]


@pytest.mark.packages("prompt_toolkit", "rich")
def test_the_last_session_of_the_project_is_continued(perdure, started):
    for name in ("one", "two"):
        perdure("run", "-q", "--session", name, "Calculate 6 * 7")
    perdure("chat", "--continue")
    assert [order.session_id for _, order in started] == ["two"]
