"""scripts/pythons: which interpreters are found, and which of two is preferred."""

import shutil
import subprocess

import pytest

from tests.architecture.source import ROOT

TOOLS = ["bash", "env", "sort", "sed", "seq", "head", "cut"]


@pytest.fixture
def machine(tmp_path):
    """A machine with some tools and made-up interpreters: each answers the probe with a line, or fails."""
    for folder in ("bin", "pyenv", "home"):
        (tmp_path / folder).mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))

    class Machine:
        def add(self, place: str, answer: str) -> None:
            path = tmp_path / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n{answer}\n")
            path.chmod(0o755)

        def pythons(self, *arguments: str) -> subprocess.CompletedProcess:
            variables = {"HOME": tmp_path / "home", "PATH": tmp_path / "bin", "PYENV_ROOT": tmp_path / "pyenv"}
            command = [str(ROOT / "scripts" / "pythons"), *arguments]
            return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=30, check=False)

    return Machine()


def test_each_minor_version_is_listed_once_newest_first(machine):
    machine.add("bin/python3", "echo 11 1 2 /usr/bin/python3")
    machine.add("bin/python3.11", "echo 11 1 2 /usr/bin/python3.11")
    machine.add("bin/python3.9", "exit 1")
    machine.add("pyenv/versions/3.13.0/bin/python3", "echo 13 1 0 /pyenv/3.13/python3")
    assert [line.split()[0] for line in machine.pythons().stdout.splitlines()] == ["3.13", "3.11"]


def test_a_shim_whose_version_is_not_selected_is_passed_over(machine):
    machine.add("bin/python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    machine.add("bin/python3", "echo 12 1 1 /usr/bin/python3")
    assert machine.pythons("newest").stdout == "/usr/bin/python3\n"


def test_of_two_the_one_that_can_make_an_environment_wins(machine):
    machine.add("bin/python3", "echo 11 0 9 /bare/python3")
    machine.add("bin/python3.11", "echo 11 1 2 /complete/python3")
    assert machine.pythons().stdout == "3.11 /complete/python3\n"


def test_of_two_alike_the_newer_wins(machine):
    machine.add("bin/python3", "echo 11 1 2 /older/python3")
    machine.add("bin/python3.11", "echo 11 1 10 /newer/python3")
    assert machine.pythons().stdout == "3.11 /newer/python3\n"


def test_a_path_with_spaces_stays_whole(machine):
    machine.add("bin/python3", "echo 12 1 1 '/my programs/python3'")
    assert machine.pythons("newest").stdout == "/my programs/python3\n"


def test_without_any_the_advice_says_what_to_install(machine):
    machine.add("bin/python3", "exit 1")
    result = machine.pythons("newest")
    assert result.returncode == 1
    assert "apt-get install python3 python3-venv" in result.stderr
