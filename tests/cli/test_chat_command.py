"""`perdure` without a command: the chat at a terminal, help elsewhere, and what is missing by name."""

import sys
from importlib import util

import pytest

from perdure.cli import chat_command
from perdure.cli.main import add_default_command


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
    monkeypatch.setattr("perdure.cli.main.is_terminal", lambda: True)
    assert add_default_command([]) == ["chat"]


def test_without_a_terminal_it_names_the_command_for_scripts(perdure):
    result = perdure("chat")
    assert result.exit_code == 2
    assert result.stderr.startswith('error: the chat needs a terminal; use perdure run "…" in scripts')
    assert "exclude each other" in perdure("chat", "--continue", "--session", "x").stderr


def test_without_its_packages_the_chat_prints_plain_lines_and_says_why(perdure, monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "rich" else sys)
    monkeypatch.setattr(chat_command, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    started: list[object] = []

    def run_plain_chat(order: object) -> int:
        started.append(order)
        return 0

    monkeypatch.setattr("perdure.cli.plain_chat.run_plain_chat", run_plain_chat)
    result = perdure("chat")
    assert result.exit_code == 0
    assert result.stderr == "this chat prints plain lines: for one in a window, pip install 'perdure[chat]'\n"
    assert len(started) == 1
