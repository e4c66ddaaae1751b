"""Every command has examples in its help that can be typed, and `--json` with documented fields."""

import json
import shlex

import click
import pytest

from perdure._cli.examples import EXAMPLES
from perdure._cli.main import add_default_command, root_command
from scripts.command_page import walk_commands
from scripts.json_outputs import OUTPUTS, WITHOUT_JSON, list_problems

COMMANDS = dict(walk_commands())


def options_of(command: click.Command) -> set[str]:
    return {name for each in command.params for name in each.opts}


def list_groups(command: click.Command, words: tuple[str, ...] = ()):
    if isinstance(command, click.Group):
        yield " ".join(words)
        for name, each in command.commands.items():
            yield from list_groups(each, (*words, name))


def test_every_command_and_group_has_examples_and_no_example_is_left_over():
    assert sorted(EXAMPLES) == sorted([*COMMANDS, *list_groups(root_command)])


def test_help_ends_with_examples_line_by_line(perdure):
    for words, lines in EXAMPLES.items():
        printed = perdure(*words.split(), "--help").stdout
        _, found, shown = printed.partition("\n  Examples:\n")
        assert found, words
        assert [line.strip() for line in shown.splitlines()] == [*lines]
        assert "\\b" not in printed


def test_every_example_can_be_typed():
    """Each is parsed as the shell and the program would, without being carried out."""
    for line in [line for lines in EXAMPLES.values() for line in lines]:
        typed = line.rpartition(" | ")[2].partition("   ")[0].partition(" > ")[0]
        first, *arguments = shlex.split(typed)
        assert first == "perdure", line
        arguments = add_default_command(arguments) if arguments else ["chat"]
        command: click.Command = root_command
        while isinstance(command, click.Group):
            command = command.commands[arguments.pop(0)]
        parent = click.Context(root_command)
        command.make_context(command.name, arguments, parent=parent)  # raises for what it cannot parse


def test_every_command_prints_json_or_says_why_not():
    with_json = {words for words, command in COMMANDS.items() if "--json" in options_of(command)}
    assert sorted(with_json) == sorted(OUTPUTS)
    assert sorted(set(COMMANDS) - with_json) == sorted(WITHOUT_JSON)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"path": "a", "status": 7}, "status is 7, not string"),
        ({"path": "a"}, "status is missing"),
        ({"path": "a", "status": "kept", "more": 1}, "more is not documented"),
    ],
)
def test_a_row_that_is_not_as_documented_is_found(row, problem):
    (found,) = list_problems("init", json.dumps(row))
    assert problem in found
    assert [*list_problems("init", '{"path": "a", "status": "kept"}')] == []


def test_programs_learn_whether_a_configuration_is_right_and_trusted(perdure, tmp_path):
    file = tmp_path / "perdure.toml"
    file.write_text('store = "sqlite:a.db"\n')
    checked = json.loads(perdure("config", "check", "--json").stdout)
    assert (checked["valid"], checked["errors"]) == (True, [])
    assert "perdure trust" in checked["notes"][0]
    trusted = json.loads(perdure("trust", "--yes", "--json", "perdure.toml").stdout)
    assert trusted["trusted"]
    assert trusted["files"] == [str(file)]
    assert list(trusted["settings"]) == ["store"]
    assert json.loads(perdure("config", "check", "--json").stdout)["notes"] == []
    assert json.loads(perdure("trust", "--revoke", "--json", "perdure.toml").stdout)["trusted"] is False
    assert perdure("trust", "--json", "perdure.toml").exit_code == 2
    file.write_text("modle = 1\n")
    wrong = perdure("config", "check", "--json")
    assert (wrong.exit_code, wrong.stderr) == (2, "")
    assert json.loads(wrong.stdout)["errors"][0]["line"] == 1


def test_programs_learn_what_became_of_a_server(perdure, tmp_path):
    added = json.loads(perdure("mcp", "add", "two", "--no-try", "--url", "https://x.example/mcp", "--json").stdout)
    assert added == {"name": "two", "path": str(tmp_path / "home" / "mcp.json")}
    out = json.loads(perdure("mcp", "logout", "two", "--json").stdout)
    assert out == {"name": "two", "logged_in": False, "was_logged_in": False}
    assert json.loads(perdure("mcp", "remove", "two", "--json").stdout) == added
    assert perdure("mcp", "remove", "two", "--json").exit_code == 2
