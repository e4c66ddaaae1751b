"""Which tests reach a line, so that only these are run when it is changed."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from scripts.reached_lines import NOTES, ROOT, Reached, find_place

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no monitoring")

SOURCE = """
LIMIT = 3


def grow(
    value,
    most=LIMIT,
):
    if (
        value > most
        and value
    ):
        return most
    return value + 1
"""
TESTS = """
import subprocess
import sys
from perdure.sums import grow

def test_a_process_stops():
    program = "import os; from perdure.sums import grow; grow(5); os._exit(0)"
    subprocess.run([sys.executable, "-c", program], check=True)

def test_it_stops():
    assert grow(5) == 3

def test_it_grows():
    assert grow(1) == 2

def test_it_fails():
    assert grow(1) == 3
"""
PATH = Path("src/perdure/sums.py")


@pytest.fixture
def project(tmp_path):
    """A project of one module, whose tests were run and noted."""
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\n",
        "src/perdure/__init__.py": "",
        str(PATH): SOURCE,
        "tests/test_sums.py": TESTS,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    environment = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": f"{tmp_path / 'src'}:{ROOT}",
        "PERDURE_REACHED": str(tmp_path / NOTES / "top.json"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "scripts.reached_lines", "tests"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    return tmp_path


def reaching(project: Path, text: str) -> set[str]:
    line = SOURCE.splitlines().index(text) + 1
    found = Reached.read(project).find_tests(PATH, line, [])
    return {test.partition("::")[2] for test in found}


def test_a_line_is_tried_with_the_tests_that_reach_it_and_not_with_those_that_fail_anyway(project):
    assert reaching(project, "        return most") == {"test_it_stops", "test_a_process_stops"}
    assert reaching(project, "    return value + 1") == {"test_it_grows"}


@pytest.mark.parametrize("line", ["LIMIT = 3", "    most=LIMIT,", "        and value", "    ):"])
def test_what_is_evaluated_by_an_import_or_is_part_of_a_statement_is_tried_with_all_that_come_there(project, line):
    assert reaching(project, line) == {"test_it_stops", "test_it_grows", "test_a_process_stops"}


def test_a_file_that_has_changed_since_is_tried_with_all_tests_that_reach_it(project):
    (project / PATH).write_text("# one line more\n" + SOURCE, encoding="utf-8")
    assert reaching(project, "        return most") == {"test_it_stops", "test_it_grows", "test_a_process_stops"}


def test_a_line_that_no_test_reaches_has_none(project):
    assert Reached.read(project).find_tests(Path("src/perdure/__init__.py"), 1, []) == []


def test_the_tests_of_the_nearest_file_come_first_then_the_quickest_and_all_take_no_longer_than_half_a_minute(tmp_path):
    source = tmp_path / "a.py"
    source.write_text("x = 1\n", encoding="utf-8")
    seconds = {"far.py::slow": 2.0, "far.py::quick": 1.0, "near.py::it": 3.0, "far.py::longest": 31.0}
    (tmp_path / NOTES).mkdir(parents=True)
    noted = {"tests": list(seconds.items()), "files": {"a.py": {"digest": "another", "lines": {"1": [0, 1, 2, 3]}}}}
    (tmp_path / NOTES / "all.json").write_text(json.dumps(noted), encoding="utf-8")
    found = Reached.read(tmp_path).find_tests(Path("a.py"), 1, ["near.py"])
    assert found == ["near.py::it", "far.py::quick", "far.py::slow"]


def test_each_file_has_its_turn_before_more_of_the_nearest_are_taken(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    tests = [[f"near.py::{number}", number / 100] for number in range(25)] + [["far.py::it", 1.0]]
    (tmp_path / NOTES).mkdir(parents=True)
    noted = {"tests": tests, "files": {"a.py": {"digest": "another", "lines": {"1": list(range(26))}}}}
    (tmp_path / NOTES / "all.json").write_text(json.dumps(noted), encoding="utf-8")
    found = Reached.read(tmp_path).find_tests(Path("a.py"), 1, ["near.py"])
    assert found[:10] == [f"near.py::{number}" for number in range(10)]
    assert found[10] == "far.py::it"
    assert len(found) == 26


def test_the_place_of_a_line_is_its_statement_and_for_a_default_the_function():
    assert find_place("x = 1\n", 1) is None
    assert find_place("def f(a=1):\n    x = (\n        2)\n", 3) == range(2, 4)
    assert find_place("def f(\n    a=1):\n    return a\n", 2) == range(3, 4)
    assert find_place("def f(a):\n    if (a\n        and a):\n        return a\n", 2) == range(2, 4)
