"""`perdure init`: create the files of a project: instructions, configuration, a sample skill and a sample test."""

# ruff: noqa: PTH103, PTH112, PTH118, PTH120, PTH123 - pathlib would cost every start milliseconds
import os
from typing import Final

import click

from perdure._cli.terminal.output import TerminalOutput, to_ascii_json, to_one_line
from perdure._core.values.error import ConfigError

from .folder_trust import load_folder_trust

_INSTRUCTIONS: Final = """\
# Instructions for agents

Agents read this file at the beginning of each session. Keep it short.

- What the project is, in a sentence.
- How to run the tests: `python -m pytest`
- Rules that a newcomer would break.
"""
_MODEL: Final = "SAMPLE_MODEL"
"""Stands for a model in the files."""
_CONFIGURATION: Final = """\
# Configuration of perdure in this project. `perdure config check` checks it, `perdure config schema` describes it.
# Settings that run, redirect or allow something, or choose the model, need your trust: perdure trust perdure.toml

instructions = "Answer in a few sentences."
# model = "SAMPLE_MODEL"

[limits]
max_turns = 50
# max_cost_usd = 2.0

# A rule by action holds for whichever tools there are: "write" for those that write files, "run" for commands. Of a
# command only what it names is known: `rm uv.lock` is denied, and `uv lock` is not.
[permissions]
deny = [{ action = "write", target = "**/*.lock" }, { action = "run", target = "*.lock" }]
# allow = [{ action = "run", target = "git status" }]
"""
_SKILL: Final = """\
---
name: commit-message
description: Write a commit message for the staged changes. Use it when the user asks for one.
---
Look at the staged changes first. Then write:

1. A subject in the imperative, of at most 72 characters.
2. An empty line.
3. Why the change is made, in whole sentences.
"""
_TEST: Final = '''\
"""Test an agent without a key or a network: a scripted model makes the calls."""

import asyncio

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call


@tool
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def test_the_agent_counts_words():
    model = ScriptedModel(call("count_words", text="one two three"), "There are 3 words.")
    outcome = asyncio.run(Agent(model, tools=[count_words]).run("How many words are there?"))
    assert outcome.text == "There are 3 words."
    assert outcome.tool_calls[0].result.text == "3"
'''

FILES: Final = {
    "AGENTS.md": _INSTRUCTIONS,
    "perdure.toml": _CONFIGURATION,
    ".agents/skills/commit-message/SKILL.md": _SKILL,
    "tests/test_agent.py": _TEST,
}
"""The files that `perdure init` creates, by their paths in the project."""


@click.command()
@click.argument("folder", default=".")
@click.option("--json", "as_json", is_flag=True, help="Print each file as a line of JSON.")
def init(folder: str, *, as_json: bool) -> None:
    """Create AGENTS.md, perdure.toml, a sample skill and a sample test in FOLDER, by default this one.

    A file that exists is kept as it is.
    """
    import msgspec

    from perdure._config.trusted import find_folder_to_trust

    screen = TerminalOutput()
    is_new = find_folder_to_trust(folder) is None
    for path, text in FILES.items():
        filled = text.replace(_MODEL, _get_sample_model())
        status = "created" if _create_file(os.path.join(folder, *path.split("/")), filled) else "kept"
        row = {"path": path, "status": status}
        screen.write((to_ascii_json(msgspec.json.encode(row)) if as_json else f"{status:7}  {path}") + "\n")
    if is_new and load_folder_trust().can_trust(folder):
        load_folder_trust().trust(folder)  # all that is in it was made here
    if not as_json:
        screen.note("a skill of a project is used once you trust it: perdure skills trust commit-message")
        screen.note("try: perdure, or: python -m pytest tests/test_agent.py")


def _get_sample_model() -> str:
    """Return the name of today's default model of a provider, for the samples."""
    from perdure._models.catalogue.providers import PROVIDERS

    return next(f"{each.name}:{each.default_model}" for each in PROVIDERS if each.name == "anthropic")


def _create_file(path: str, text: str) -> bool:
    """Create a file with its folders; return False if there is one already. Raises `ConfigError` if it cannot be."""
    try:
        os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or os.curdir):
            raise ConfigError(to_one_line(f"{path!r} cannot be created: a file or folder is in its place")) from None
        return False
    except OSError as error:
        raise ConfigError(f"{path!r} cannot be created: {error.strerror}; choose a folder of your own") from error
    return True
