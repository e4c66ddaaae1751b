"""Permission rules that match no tool of an agent are a warning, at the start and when the file is checked."""

import json
import subprocess

import pytest

from perdure import Agent, allow, ask, deny, tool
from perdure.cli.unmatched_rules import describe_unmatched_rules
from perdure.runtime.extension import Extension


def make(name, **options):
    return tool(lambda: "x", name=name, description="Look.", **options)


LOOK = make("look", labels=["mail"])
AGENT = Agent("demo", tools=[make("write"), make("edit", action="write"), make("bash", action="run"), LOOK])


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (deny("write_text", target="**/*.lock"), "matches no tool of this agent"),
        (deny("wirte"), "did you mean 'write'?"),
        (allow("git_*"), "its tools are bash, edit, look, write"),
        (ask("Write"), "did you mean 'write'?"),
        (deny(action="wirte"), "matches no action of this agent: did you mean 'write'?"),
        (deny("edit", action="edit"), "matches no action of this agent: its actions are write"),
        (deny("look", action="write"), "the action of 'look' is look"),
        (deny("look", action="network"), "the action of 'look' is look"),
        (deny("bash", when="untrused"), "did you mean 'untrusted'?"),
        (ask("*", when="secret"), "the labels of this agent are file, imported, mail, private, untrusted"),
    ],
)
def test_a_rule_that_matches_no_tool_is_named_with_what_was_meant(rule, told):
    (text,) = describe_unmatched_rules([rule], AGENT)
    assert str(rule) in text
    assert told in text


@pytest.mark.parametrize(
    "rule",
    [
        deny(),
        deny("write"),
        deny("w*"),
        deny("[ew]*"),
        deny(target="**/*.lock"),
        deny(action="write", target="**/*.lock"),
        deny(action="w*"),
        deny(action="browse"),
        deny(action="mcp_call", target="a.b"),
        ask(action="network"),
        ask("bash", action="network"),
        allow("look", action="look"),
        ask("*", when="untrusted"),
        deny("bash", when="un*"),
        deny("bash", when="mail"),
    ],
)
def test_a_rule_that_can_match_a_tool_is_not_named(rule):
    assert describe_unmatched_rules([rule], AGENT) == []


def test_tools_of_servers_are_known_later():
    agent = AGENT.replace(extensions=[Extension(name="mcp", late_tools=lambda: [make("tides__now")])])
    assert describe_unmatched_rules([deny("weather__*"), deny("tides__now")], agent) == []
    assert len(describe_unmatched_rules([deny("weather__*")], AGENT)) == 1
    assert len(describe_unmatched_rules([deny("writ")], agent)) == 1


def test_text_of_a_rule_cannot_steer_the_terminal():
    (text,) = describe_unmatched_rules([deny("a\x1b[2J\n\u202eb")], AGENT)
    assert text.isprintable()


# -- the commands ------------------------------------------------------------------------------------------------------

RULES = '[permissions]\ndeny = [{ tool = "write_text", target = "**/*.lock" }, "baash"]\n'


@pytest.fixture
def repository(perdure, tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=50)
    (tmp_path / "perdure.toml").write_text(RULES)
    return tmp_path


def test_the_check_of_a_configuration_warns(perdure, repository):
    result = perdure("config", "check", "perdure.toml")
    assert result.exit_code == 0
    assert "warning: the rule deny('write_text', target='**/*.lock') matches no tool of this agent" in result.stderr
    assert "warning: the rule deny('baash') matches no tool of this agent: did you mean 'bash'?" in result.stderr
    notes = json.loads(perdure("config", "check", "perdure.toml", "--json").stdout)["notes"]
    assert len([each for each in notes if "matches no tool" in each]) == 2


def test_outside_of_a_repository_there_are_other_tools(perdure, tmp_path):
    (tmp_path / "perdure.toml").write_text(RULES)
    told = perdure("config", "check", "perdure.toml").stderr
    assert "'write_text'" not in told.replace("its tools are", "")
    assert "deny('baash')" in told


def test_the_check_imports_and_makes_nothing(perdure, tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit(9)")
    text = f'tools = ["./evil.py:x"]\n[memory]\nfile = "memories.db"\n{RULES}'
    (tmp_path / "perdure.toml").write_text(text)
    before = sorted(each.name for each in tmp_path.iterdir())
    assert perdure("config", "check", "perdure.toml").exit_code == 0
    (tmp_path / "perdure.toml").write_text(f'[memory]\nfile = "memories.db"\n{RULES}')
    assert "deny('baash')" in perdure("config", "check", "perdure.toml").stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == before


@pytest.mark.parametrize("words", [["-q"], ["--json"], []])
def test_a_run_warns_before_it_begins(perdure, repository, words):
    result = perdure("run", "--coding", *words, "Calculate 6 * 7")
    assert result.exit_code == 0, result.stderr
    lines = [each for each in result.stderr.splitlines() if each.startswith("warning: the rule ")]
    assert len(lines) == 2
    assert result.stderr.startswith("warning: the rule ")
