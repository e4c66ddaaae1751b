"""The commands that pages name, and messages, help and docstrings of the package, are there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

import perdure
from perdure._cli.main import add_default_command, root_command

from .pages import PAGES, ROOT
from .perdure_names import Missing, look_up_command

SOURCE = Path(perdure.__file__).parent
GROUPS = [name for name, command in root_command.commands.items() if isinstance(command, click.Group)]
OTHERS = [name for name in root_command.commands if name not in GROUPS]
QUOTED = re.compile(r"`perdure ([^`]*)`")
SAID = re.compile(
    rf"(?<![\w`/.])perdure ((?:(?:{'|'.join(GROUPS)}) [a-z-]+|(?:{'|'.join(OTHERS)})\b)(?: --[a-z][a-z-]*)*)"
)
"""A command in a sentence, which may go on behind it, with the options that follow at once."""
REST = re.compile(r"^COMMAND|[|…]| -- | -h\b")
"""What ends the part of a command that is looked up."""


def list_texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module with their lines; a blank is in the place of what is put into one."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in parts:
                yield node.lineno, text
            case ast.JoinedStr(values=values):
                yield (
                    node.lineno,
                    "".join([str(each.value) if isinstance(each, ast.Constant) else " " for each in values]),
                )


def list_commands(text: str) -> Iterator[str]:
    for found in (*QUOTED.finditer(text), *SAID.finditer(text)):
        if command := REST.split(found[1])[0].strip():
            yield command


def list_problems(text: str, where: str) -> Iterator[str]:
    for command in list_commands(text):
        try:
            look_up_command(add_default_command(command.split()))
        except Missing as missing:
            yield f"{where}: perdure {command}: {missing}"


def test_every_command_that_a_message_names_is_there():
    problems: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        for line, text in list_texts(ast.parse(path.read_text(encoding="utf-8"))):
            problems += list_problems(text, f"{path.relative_to(SOURCE)}:{line}")
    assert problems == []


def test_every_command_that_a_page_names_is_there():
    problems: list[str] = []
    for page in PAGES:
        problems += list_problems(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))
    assert problems == []


def test_a_command_in_a_message_is_found_with_and_without_quotes():
    text = "use `perdure --store file:DIR backup`, or perdure mcp list; perdure is a program"
    assert list(list_commands(text)) == ["--store file:DIR backup", "mcp list"]
