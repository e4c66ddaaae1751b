"""Every example runs, offline, in under two seconds, and says what it shows."""

import ast
import os
import resource
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
RUN_EXAMPLES = [
    pytest.param(path, marks=[pytest.mark.packages("pydantic_monty")] if "code_mode" in path.name else [], id=path.name)
    for path in EXAMPLES
]
"""Examples as parameters, with the packages that they need and only `.venv` has."""
SECONDS = 2.0


@pytest.mark.parametrize("example", RUN_EXAMPLES)
def test_an_example_runs_to_its_end(example, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-W", "error", example],
        cwd=tmp_path,
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


@pytest.mark.budget
@pytest.mark.parametrize("example", RUN_EXAMPLES)
def test_an_example_takes_less_than_two_seconds(example, tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # of the processor: on a loaded machine nothing is said about the program by how long it waits
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < SECONDS


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_says_what_it_shows(example):
    assert ast.get_docstring(ast.parse(example.read_text(encoding="utf-8")))


def test_there_are_examples():
    assert len(EXAMPLES) >= 6
