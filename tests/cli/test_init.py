"""`perdure init`: the files of a project, which are valid as they are."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perdure._cli.run.init import FILES
from perdure._models.catalogue.providers import PROVIDERS
from perdure.models import register
from perdure.testing import ScriptedModel, call

ROOT = Path(__file__).parents[2]
MODEL = r"[\"' ]((?:anthropic|openai|gemini):(?:claude|gpt|gemini)-[\w.-]*\w)"


def test_the_files_are_created_and_valid(perdure, tmp_path):
    result = perdure("init")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [["created", path] for path in FILES]
    assert perdure("config", "check", "perdure.toml").exit_code == 0
    assert perdure("skills", "trust", "commit-message").exit_code == 0
    assert "commit-message" in perdure("skills", "list").stdout
    run = perdure("run", "--model", "demo", "Calculate 6 * 7")
    assert (run.exit_code, "perdure.toml is used; it is not trusted, and needs no trust" in run.stderr) == (0, True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_agent.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout


def test_files_that_exist_are_kept(perdure, tmp_path):
    (tmp_path / "AGENTS.md").write_text("Ours.\n")
    rows = [json.loads(line) for line in perdure("init", "--json").stdout.splitlines()]
    assert [row["status"] for row in rows] == ["kept", "created", "created", "created"]
    assert (tmp_path / "AGENTS.md").read_text() == "Ours.\n"
    assert {json.loads(line)["status"] for line in perdure("init", "--json").stdout.splitlines()} == {"kept"}


def test_a_place_that_cannot_be_used_is_an_error(perdure, tmp_path):
    (tmp_path / "taken").write_text("")
    result = perdure("init", "taken")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: 'taken/AGENTS.md' cannot be created: ")


def test_a_folder_that_cannot_be_written_is_an_error_that_says_what_to_do(perdure, tmp_path):
    (tmp_path / "file").write_text("x")
    result = perdure("init", "file/below")
    assert result.exit_code == 2
    assert result.stderr.endswith(" cannot be created: Not a directory; choose a folder of your own\n")


# -- the rules and the model of the template ---------------------------------------------------------------------------


def explain(perdure, tool, **arguments):
    shown = perdure("permissions", "explain", tool, json.dumps(arguments), "--coding", "--json")
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout)["verdict"]


@pytest.fixture
def repository(perdure, tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=50)
    assert perdure("init").exit_code == 0
    (tmp_path / "uv.lock").write_text("pinned\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/Cargo.lock").write_text("pinned\n")
    return tmp_path


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write", {"path": "uv.lock", "content": "x", "overwrite": True}),
        ("write", {"path": "sub/Cargo.lock", "content": "x", "overwrite": True}),
        ("write", {"path": "sub/../uv.lock", "content": "x", "overwrite": True}),
        ("edit", {"path": "uv.lock", "old_string": "pinned", "new_string": "x"}),
        ("bash", {"command": "rm uv.lock"}),
        ("bash", {"command": "ls; rm -f 'sub/Cargo.lock'"}),
        ("bash", {"command": "echo x > uv.lock"}),
        ("bash", {"command": "cp README.md uv.loc*"}),
    ],
)
def test_the_rules_of_the_template_protect_lock_files_in_a_repository(perdure, repository, tool, arguments):
    assert explain(perdure, tool, **arguments) == ("ask" if "loc*" in str(arguments) else "deny")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("read", {"path": "uv.lock"}), ("write", {"path": "a.txt", "content": "x"}), ("bash", {"command": "ls"})],
)
def test_the_rules_of_the_template_deny_nothing_else(perdure, repository, tool, arguments):
    assert explain(perdure, tool, **arguments) != "deny" or tool == "write"  # it asks, and here is nobody
    if tool == "write":
        shown = perdure("permissions", "explain", tool, json.dumps(arguments), "--coding")
        assert "rule" not in shown.stdout


@pytest.mark.parametrize("where", ["a repository", "a folder"])
def test_the_rules_of_the_template_hold_under_yes(perdure, tmp_path, monkeypatch, where):
    if where == "a repository":
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=50)
        writes = [call("write", path=name, content="x") for name in ("new.lock", "new.txt")]
    else:
        writes = [call("write_text", path=name, text="x") for name in ("new.lock", "new.txt")]
    assert perdure("init").exit_code == 0
    monkeypatch.setattr("perdure._models.registry._factories", {})
    register("scripted", lambda _: ScriptedModel(*writes, "done"))
    result = perdure("run", "--model", "scripted:x", "--yes", "Write them.")
    assert "denied by the rule deny('*', action='write'" in result.output
    assert [(tmp_path / name).exists() for name in ("new.lock", "new.txt")] == [False, True]


def test_the_template_has_no_rule_that_matches_nothing(perdure, repository):
    checked = perdure("config", "check", "perdure.toml")
    assert (checked.exit_code, "matches no" in checked.stderr) == (0, False)


def test_the_sample_model_is_the_default_of_its_provider(perdure, tmp_path):
    perdure("init")
    (named,) = re.findall(r'^# model = "(.+)"$', (tmp_path / "perdure.toml").read_text(), re.MULTILINE)
    assert named in {f"{each.name}:{each.default_model}" for each in PROVIDERS}


def test_models_in_help_texts_and_pages_are_defaults():
    defaults = {f"{each.name}:{each.default_model}" for each in PROVIDERS}
    files = [*(ROOT / "src/perdure").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs/how-to").glob("*.md")]
    files += [*(ROOT / "docs/reference").glob("*.md"), ROOT / "docs/tour.md"]
    named = {
        model
        for path in files
        for model in re.findall(
            r"[\"' ]((?:anthropic|openai|gemini):(?:claude|gpt|gemini)-[\w.-]*\w)", path.read_text()
        )
    }
    cheap = {"anthropic:claude-haiku-4-5"}
    assert named
    assert named - defaults - cheap == set()
