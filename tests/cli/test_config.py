"""`perdure config`: what a configuration file says, whether it is right, and trusting it."""

import json
from pathlib import Path

import pytest

from perdure import BadConfig, load_config
from perdure._cli.services.config import load_trust_record

TEXT = """\
model = "demo"
tools = ["perdure.tools:post_to_inbox"]

[mcp.servers.tides]
url = "https://tides.example"
headers = { Authorization = "Bearer ${TIDES_TOKEN}" }
"""


@pytest.fixture
def file(perdure, tmp_path, monkeypatch):
    monkeypatch.setenv("TIDES_TOKEN", "s3cret")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    path = tmp_path / "perdure.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_the_schema_is_json(perdure):
    result = perdure("config", "schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["title"] == "perdure.toml"


def test_a_file_without_a_fault_is_right(perdure, file):
    result = perdure("config", "check")
    assert (result.exit_code, result.stdout) == (0, "perdure.toml is valid\n")
    assert "it needs to be trusted for tools, mcp.servers" in result.stderr


def test_each_fault_is_a_line(perdure, file):
    file.write_text(
        "modle = 1\n\n[limits]\nmax_turns = 'x\x1b'\n".replace("\x1b", "\\u001b").replace("'", '"'), encoding="utf-8"
    )
    result = perdure("config", "check")
    assert result.exit_code == 2
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == ["perdure.toml:1", "perdure.toml:4"]
    assert "\x1b" not in result.output


def test_a_variable_that_is_missing_is_a_fault(perdure, file, monkeypatch):
    monkeypatch.delenv("TIDES_TOKEN")
    result = perdure("config", "check", "perdure.toml")
    assert result.exit_code == 2
    assert "perdure.toml:6: server 'tides': the variable TIDES_TOKEN is not set" in result.stderr


def test_a_file_that_is_not_there_is_an_error(perdure):
    for command in (("config", "check"), ("config", "show"), ("trust",)):
        result = perdure(*command, "missing.toml")
        assert result.exit_code == 2
        assert "No such file" in result.stderr


def test_what_a_file_says_is_shown_and_no_secret(perdure, file):
    for options in ((), ("--json",)):
        result = perdure("config", "show", *options)
        shown = json.loads(result.stdout)
        assert shown["tools"] == ["perdure.tools:post_to_inbox"]
        assert shown["mcp"]["tides"]["headers"] == {"Authorization": "Bearer ${TIDES_TOKEN}"}
        assert "s3cret" not in result.output


def test_a_file_is_trusted_as_it_is_now(perdure, file):
    with pytest.raises(BadConfig):
        load_config(file, trusted=load_trust_record())
    result = perdure("trust", "--yes", "perdure.toml")
    assert result.exit_code == 0
    shown = "".join([row[2:] if row.startswith(": ") else f"\n{row}" for row in result.stdout.splitlines()])
    assert '| 1 of 3, "tools": "imports code: [\\"perdure.tools:post_to_inbox\\"]"' in shown
    assert '| 2 of 3, "mcp.servers": "starts programs' in shown
    assert load_config(file, trusted=load_trust_record()).trusted
    assert "needs to be trusted" not in perdure("config", "check").output
    file.write_text(TEXT + "\n", encoding="utf-8")
    assert "needs to be trusted" in perdure("config", "check").stderr


def test_trust_can_be_taken_back(perdure, file):
    perdure("trust", "--yes", "perdure.toml")
    assert "no longer trusted" in perdure("trust", "--revoke", "perdure.toml").stderr
    assert "not trusted anyway" in perdure("trust", "--revoke", "perdure.toml").stderr
    with pytest.raises(BadConfig):
        load_config(file, trusted=load_trust_record())


def test_nobody_is_asked_where_nobody_is(perdure, file):
    result = perdure("trust", "perdure.toml")
    assert result.exit_code == 2
    assert "use --yes" in result.stderr


def test_a_person_is_asked_at_a_terminal(shell):
    (shell.folder / "perdure.toml").write_text(TEXT, encoding="utf-8")
    for answer, code in (("n\n", 1), ("y\n", 0)):
        with shell.terminal("trust", "perdure.toml") as terminal:
            terminal.await_text("as it is now, with the 3 settings above? [y/N]")
            terminal.type(answer)
            assert terminal.end() == code
    assert shell.run("trust", "--revoke", "perdure.toml").stderr == "perdure.toml is no longer trusted\n"


def test_files_of_servers_are_checked_shown_and_trusted_too(perdure, tmp_path):
    path = tmp_path / ".mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "npx", "args": ["-y", "thing"]}}}', encoding="utf-8")
    assert perdure("config", "check", ".mcp.json").exit_code == 0
    assert json.loads(perdure("config", "show", ".mcp.json").stdout)["mcpServers"]["a"]["command"] == "npx"
    result = perdure("trust", "--yes", ".mcp.json")
    shown = "".join([row.removeprefix(": ") for row in result.stdout.splitlines()])
    assert '"mcpServers.a": "starts or reaches {\\"command\\":\\"npx\\",\\"args\\":[\\"-y\\",\\"thing\\"]}"' in shown
    path.write_text("{", encoding="utf-8")
    assert ".mcp.json:1: this is no JSON" in perdure("config", "check", ".mcp.json").stderr


def test_a_role_that_needs_trust_is_shown(perdure, file, tmp_path):
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "spy.md").write_text("---\nmodel: https://elsewhere.example#x\n---\nSpy.", encoding="utf-8")
    file.write_text('roles = "roles"\n', encoding="utf-8")
    shown = perdure("trust", "--yes", "perdure.toml").stdout
    assert '"roles.spy": "chooses the model: \\"https://elsewhere.example#x\\""' in shown


def test_without_a_command_there_is_help(perdure):
    assert "trust" in perdure("config").stdout


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ('model = "nobody:x"', "perdure.toml:2: "),
        ('model = "demo:nope"', "perdure.toml:2: there is no demonstration model 'nope'"),
        ('model = "local:nope.gguf"', "perdure.toml:2: 'local:nope.gguf'"),
        ('store = "sqlite:no/such/x.db"', "perdure.toml:2: 'sqlite:"),
        ('engine = "plannr"', "perdure.toml:2: there is no engine 'plannr': did you mean 'planner'? known are "),
    ],
)
def test_a_model_engine_or_store_that_cannot_be_is_a_mistake(perdure, setting, problem):
    Path("perdure.toml").write_text(f"# ours\n{setting}\n")
    result = perdure("config", "check")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {problem}")
    assert not Path("no").exists()


@pytest.mark.parametrize("model", ["anthropic", "openai:gpt-6.1-sol", "demo", "https://host.example/v1#m"])
def test_a_model_that_needs_a_key_is_valid_without_it(perdure, model, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Path("perdure.toml").write_text(f'model = "{model}"\nstore = "sqlite:ours.db"\n')
    result = perdure("config", "check")
    assert (result.exit_code, result.stdout) == (0, "perdure.toml is valid\n"), result.stderr


def test_a_limit_that_is_raised_is_shown_to_whoever_trusts_the_file(perdure, file):
    file.write_text("[limits]\nmax_turns = 1000\ntool_timeout_seconds = 1.0\n", encoding="utf-8")
    result = perdure("trust", "--yes", "perdure.toml")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == '| 1 of 1, "limits.max_turns": "raises a limit: 1000"'
