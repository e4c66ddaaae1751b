"""scripts/test-on-others: each other interpreter is tested, and one failure fails the whole."""

import shutil
import subprocess

import pytest

from tests.architecture.source import ROOT


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose interpreters are made up: 3.13 in .venv, and others whose tests end with a given exit code."""

    def program(place: str, text: str) -> str:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def run(*, makes_environments: int = 0, **exit_codes: int) -> subprocess.CompletedProcess:
        interpreter = program("my programs/python", f"exit {makes_environments}")
        versions = {"3.13": 99, **{name.replace("py3", "3."): code for name, code in exit_codes.items()}}
        lines = "\n".join(f"{version} {interpreter}" for version in versions)
        program("scripts/pythons", f"cat <<END\n{lines}\nEND")
        program(".venv/bin/python", "echo 3.13")
        for version, code in versions.items():
            program(f".venv-{version}/bin/python", f"echo tested {version}; exit {code}")
        script = shutil.copy(ROOT / "scripts" / "test-on-others", tmp_path / "scripts")
        return subprocess.run([script], capture_output=True, text=True, timeout=30, check=False)

    return run


def test_every_interpreter_but_the_main_one_is_tested(checkout):
    result = checkout(py312=0, py311=0)
    assert result.returncode == 0
    assert sorted(line for line in result.stdout.splitlines() if line.startswith("tested")) == [
        "tested 3.11",
        "tested 3.12",
    ]


@pytest.mark.parametrize("codes", [{"py312": 1, "py311": 0}, {"py312": 0, "py311": 1}])
def test_a_failure_on_one_interpreter_fails_the_whole(checkout, codes):
    result = checkout(**codes)
    assert result.returncode != 0
    assert "tested 3.12" in result.stdout
    assert "tested 3.11" in result.stdout


def test_an_environment_that_cannot_be_made_is_a_failure(checkout):
    result = checkout(makes_environments=1, py312=0)
    assert result.returncode != 0
    assert "tested" not in result.stdout


def test_a_machine_with_one_python_says_so(checkout):
    result = checkout()
    assert result.returncode == 0
    assert "no Python from 3.11 on is installed beside 3.13" in result.stdout
