"""`perdure init`: the files of a project, which are valid as they are."""

import json
import subprocess
import sys

from perdure.cli.init import FILES


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
