"""scripts/check.py: which tests belong to what changed, and what fails the check."""

import subprocess
import sys

import pytest

from scripts import check

FILES = [
    "src/perdure/core/loop.py",
    "src/perdure/core/__init__.py",
    "src/perdure/core/run_function_types.py",
    "src/perdure/session.py",
    "src/perdure/build.py",
    "src/perdure/stores/sqlite/log.py",
    "src/perdure/stores/sqlite/pack_rows.py",
    "scripts/env.py",
    "docs/index.md",
    "tests/conftest.py",
    "tests/material.py",
    "tests/core/test_loop.py",
    "tests/core/test_loop_calls.py",
    "tests/core/test_transcript.py",
    "tests/test_session.py",
    "tests/stores/test_sqlite.py",
    "tests/stores/test_sqlite_log.py",
    "tests/stores/test_file.py",
    "tests/scripts/test_env.py",
]


@pytest.fixture
def checkout(tmp_path):
    """A repository with these files, all of them in its first commit."""
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "m")


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("src/perdure/core/loop.py", ["tests/core/test_loop.py", "tests/core/test_loop_calls.py"]),
        (
            "src/perdure/core/run_function_types.py",
            ["tests/core/test_loop.py", "tests/core/test_loop_calls.py", "tests/core/test_transcript.py"],
        ),
        (
            "src/perdure/core/__init__.py",
            ["tests/core/test_loop.py", "tests/core/test_loop_calls.py", "tests/core/test_transcript.py"],
        ),
        ("src/perdure/session.py", ["tests/test_session.py"]),
        ("src/perdure/build.py", ["tests/test_session.py"]),
        ("src/perdure/stores/sqlite/log.py", ["tests/stores/test_sqlite_log.py"]),
        ("src/perdure/stores/sqlite/pack_rows.py", ["tests/stores/test_sqlite.py", "tests/stores/test_sqlite_log.py"]),
        ("src/perdure/_core/run/loop.py", ["tests/core/test_loop.py", "tests/core/test_loop_calls.py"]),
        (
            "src/perdure/_stores/sqlite/write/jobs.py",
            ["tests/stores/test_file.py", "tests/stores/test_sqlite.py", "tests/stores/test_sqlite_log.py"],
        ),
        ("scripts/env.py", ["tests/scripts/test_env.py"]),
        ("tests/core/test_transcript.py", ["tests/core/test_transcript.py"]),
        ("tests/material.py", []),
        ("tests/conftest.py", []),
        ("docs/index.md", []),
        ("examples/one.py", []),
    ],
)
def test_the_tests_of_a_file_are_found_by_its_name_or_by_its_folder(checkout, file, tests):
    assert check.find_tests(file, checkout) == tests


def test_each_test_runs_once_and_the_changed_ones_first(checkout):
    changed = ["src/perdure/core/loop.py", "src/perdure/session.py", "tests/core/test_loop_calls.py"]
    assert check.find_all_tests(changed, checkout) == [
        "tests/core/test_loop_calls.py",
        "tests/core/test_loop.py",
        "tests/test_session.py",
    ]


def test_what_differs_from_the_last_commit_has_changed(checkout):
    assert check.changed_files(checkout) == []
    (checkout / "src/perdure/session.py").write_text("1")
    (checkout / "src/perdure/new.py").touch()
    (checkout / "docs/index.md").unlink()
    git(checkout, "add", "src/perdure/session.py")
    assert check.changed_files(checkout) == ["src/perdure/new.py", "src/perdure/session.py"]


def test_without_a_difference_what_the_branch_has_added_has_changed(checkout):
    git(checkout, "switch", "-q", "-c", "work")
    (checkout / "src/perdure/session.py").write_text("1")
    commit(checkout)
    assert check.changed_files(checkout) == ["src/perdure/session.py"]


@pytest.fixture
def made_up(monkeypatch):
    """Checks with tools that end as told, and notes what was run."""
    commands = []

    def run(*, changed=(), failing="nothing"):
        def end(what: str, *_: str, seconds: float | None = None) -> bool:
            commands.append(what)
            return what != failing

        monkeypatch.setattr(check, "changed_files", lambda: list(changed))
        monkeypatch.setattr(check, "run", end)
        return check.main(), commands

    return run


@pytest.mark.parametrize("failing", ["ruff", "layout", "mypy", "the tests in 1 files"])
def test_one_failure_fails_the_whole_and_the_others_run_all_the_same(made_up, failing):
    exit_code, commands = made_up(changed=["tests/scripts/test_check.py"], failing=failing)
    assert (exit_code, commands) == (1, ["ruff", "layout", "mypy", "the tests in 1 files"])


def test_without_tests_the_rest_is_checked(made_up, capsys):
    assert made_up(changed=["README.md"]) == (0, ["ruff", "layout", "mypy"])
    assert "no tests belong to the 1 files" in capsys.readouterr().out


@pytest.mark.parametrize(("code", "passed"), [(0, True), (5, True), (1, False), (2, False)])
def test_a_command_passes_with_0_and_with_no_tests(code, passed):
    assert check.run("it", sys.executable, "-c", f"raise SystemExit({code})") is passed


def test_tests_that_take_too_long_are_not_waited_for(capsys):
    assert check.run("it", "sleep", "60", seconds=0.01)
    assert "the rest is left to `make test`" in capsys.readouterr().out


def test_the_tests_can_be_listed(monkeypatch, capsys):
    monkeypatch.setattr(check, "changed_files", lambda: ["tests/scripts/test_check.py"])
    assert check.main("--list") == 0
    assert capsys.readouterr().out == "tests/scripts/test_check.py\n"
