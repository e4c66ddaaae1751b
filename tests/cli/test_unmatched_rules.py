"""Permission rules that match no tool of an agent are a warning, at the start and when the file is checked."""

import json
import subprocess

import pytest

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


def test_text_of_a_rule_cannot_steer_the_terminal(perdure, tmp_path):
    (tmp_path / "perdure.toml").write_text('[permissions]\ndeny = ["a\\u001b[2J\\n\\u202eb"]\n')
    told = perdure("config", "check", "perdure.toml").stderr
    assert "can match no name of a tool" in told
    assert told.replace("\n", "").isprintable()
