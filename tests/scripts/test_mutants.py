"""Mutants: small changes of the source that the tests have to notice."""

import json
import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from scripts import mutants, reached_lines
from scripts.mutants import (
    COPIED,
    ROOT,
    Finder,
    Mutant,
    Trial,
    copy_project,
    draw_sample,
    find_mutants,
    format_trial,
    list_tests,
    try_mutants,
)

SOURCE = '''
"""A module."""

def most(values: list[int], limit: int = 3) -> int:
    """Say which is the most, below a limit."""
    if not values or limit == 0:
        raise ValueError(f"nothing below {limit}")
    best = max(values)
    while best > limit:
        best -= 1
    logger.info("found %s", best)
    return best
'''


def changes(source: str) -> dict[str, str]:
    """What each mutant makes of the line that it changes, by its description."""
    found = Finder(Path("made_up.py"), source).find_all()
    return {mutant.what: mutant.apply(source).splitlines()[mutant.line - 1].strip() for mutant in found}


def test_conditions_comparisons_numbers_and_statements_are_changed():
    assert changes(SOURCE) == {
        "3 becomes 4": "def most(values: list[int], limit: int = 4) -> int:",
        "the condition is negated": "while (not (best > limit)):",
        "the `not` is left out": "if bool(values) or limit == 0:",
        "or becomes and": "if not values and limit == 0:",
        "== becomes !=": "if not values or limit != 0:",
        "0 becomes 1": "if not values or limit == 1:",
        "the error is not raised": "pass",
        "max becomes min": "best = min(values)",
        "> becomes >=": "while best >= limit:",
        "the assignment is left out": "pass",
        "1 becomes 2": "best -= 2",
        "nothing is returned": "return None",
    }


@pytest.mark.parametrize(
    "source",
    [
        "x: Literal[1] | None",
        "if TYPE_CHECKING:\n    import this",
        "class Speaks(Protocol):\n    def speak(self) -> bool:\n        return True",
        'def __repr__(self):\n    return f"{1 + 1}"',
        'logger.warning("%s", 1)',
        'faults.fault_point("here")',
        '"""Words."""',
        "pairs = zip(first, second, strict=True)",
    ],
)
def test_what_no_test_could_notice_is_left_alone(source):
    assert changes(source) == {}


def test_a_truth_value_that_is_returned_becomes_the_other_one_and_not_nothing():
    assert changes("def is_there():\n    return False\n") == {"False becomes True": "return True"}


def test_places_are_counted_in_characters_where_the_source_is_not_ascii():
    assert changes('words = "žluťoučký kůň"; big = 1 < 2') == {
        "< becomes <=": 'words = "žluťoučký kůň"; big = 1 <= 2',
        "1 becomes 2": 'words = "žluťoučký kůň"; big = 2 < 2',
        "2 becomes 3": 'words = "žluťoučký kůň"; big = 1 < 3',
    }


def test_every_mutant_that_is_drawn_is_python_and_differs():
    sample = draw_sample(ROOT, ["_core", "_stores/file"], 100, 1)
    assert len(set(sample)) == 100
    for mutant in sample:
        source = (ROOT / mutant.path).read_text(encoding="utf-8")
        assert mutant.apply(source) != source
        compile(mutant.apply(source), str(mutant.path), "exec")


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(SystemExit, match=r"there is no src/perdure/_core/lopp\.py"):
        find_mutants(ROOT, ["_core/lopp"])


def test_the_tests_of_a_module_come_first_and_then_those_of_its_folder_and_neighbours():
    tests = list_tests(Path("src/perdure/_core/log/fold.py"))
    assert tests[0] == "tests/core/test_fold.py"
    assert tests.index("tests/core/test_run.py") < tests.index("tests/runtime/test_session.py")
    assert len(tests) == len(set(tests))


def test_a_package_without_a_folder_of_tests_is_tested_by_the_folder_above():
    tests = list_tests(Path("src/perdure/_stores/sqlite/log.py"))
    assert tests[0] == "tests/stores/test_sqlite_log.py"
    assert {"tests/stores/test_sqlite.py", "tests/stores/test_state_machine.py"} < set(tests)


def test_tests_elsewhere_that_import_the_module_are_run_as_well():
    assert "tests/interaction/test_slot_view.py" in list_tests(Path("src/perdure/_core/people/mailbox.py"))
    assert "tests/interaction/test_slot_view.py" not in list_tests(Path("src/perdure/_core/run/outcome.py"))


def test_a_module_that_very_many_tests_import_is_tested_by_its_own_folder_and_its_neighbours_alone():
    assert {test.split("/")[1] for test in list_tests(Path("src/perdure/_stores/memory.py"))} == {"stores", "logs"}


def test_a_neighbour_can_be_one_file_of_tests():
    tests = list_tests(Path("src/perdure/_work/replay/comparison.py"))
    assert tests.index("tests/replaying/test_recorded_tools.py") < tests.index("tests/test_replay.py")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one module, with a test that notices one of two mistakes and one that fails anyway."""
    # Each trial starts pytest, and its plugins take most of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['budget', 'faults']\n",
        "src/perdure/__init__.py": "",
        "src/perdure/part/__init__.py": "",
        "src/perdure/part/sums.py": "def add(a, b=1):\n    return a + 1 if b == 1 else a + b\n",
        "tests/part/test_sums.py": """
            import os
            from perdure.part.sums import add

            def test_it_adds():
                assert add(1, 2) == 3
            """,
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return tmp_path / "project"


def mutant_of(project: Path, what: str) -> Mutant:
    (found,) = [each for each in find_mutants(project, ["part/sums.py"]) if each.what == what]
    return found


def test_a_mutant_that_a_test_notices_is_killed_and_another_survives(project):
    wrong, unnoticed = mutant_of(project, "== becomes !="), mutant_of(project, "nothing is returned")
    default = next(each for each in find_mutants(project, ["part"]) if each.line == 1)
    killed, also, survived = list(try_mutants([wrong, unnoticed, default], 1, project))
    assert (killed.verdict, killed.reason) == ("killed", "tests/part/test_sums.py::test_it_adds")
    assert also.verdict == "killed"
    assert (survived.verdict, survived.reason) == ("survived", "1 tests passed")
    source = (project / default.path).read_text(encoding="utf-8")
    assert format_trial(survived, source).splitlines()[1:] == ["    - def add(a, b=1):", "    + def add(a, b=2):"]


def test_tests_that_are_noted_to_reach_the_line_run_where_they_are_collected(project, monkeypatch):
    monkeypatch.setattr(mutants, "FEW_TESTS", 0)
    tests = ["tests/part/test_sums.py::test_it_adds", "tests/part/test_sums.py::test_it_is_broken"]
    path = project / "tests" / "part" / "test_sums.py"
    path.write_text(path.read_text("utf-8") + "\n\ndef test_it_is_broken():\n    assert False\n", encoding="utf-8")
    digest = reached_lines.digest(project / "src/perdure/part/sums.py")
    files = {"src/perdure/part/sums.py": {"digest": digest, "lines": {"2": [0, 1]}}}
    notes = {"tests": [[tests[0], 0.2], [tests[1], 0.1]], "files": files}
    (project / "build" / "reached").mkdir(parents=True)
    (project / "build" / "reached" / "part.json").write_text(json.dumps(notes), encoding="utf-8")
    default = next(each for each in find_mutants(project, ["part"]) if each.line == 1)
    killed, survived = try_mutants([mutant_of(project, "== becomes !="), default], 1, project, quick=True)
    assert (killed.verdict, killed.reason) == ("killed", tests[0])  # and not by the one that fails anyway
    assert survived.verdict == "survived"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the monitoring of Python 3.12")
def test_a_change_whose_function_ran_when_tests_were_imported_is_tried_with_a_new_import(project, monkeypatch):
    monkeypatch.setattr(mutants, "FEW_TESTS", 0)
    source = project / "src" / "perdure" / "part" / "sums.py"
    source.write_text("def add(a, b=1):\n    return a + 1 if b == 1 else a + b\n\nTHREE = add(1, 2)\n", "utf-8")
    test = "from perdure.part.sums import THREE, add\n\ndef test_it():\n    assert THREE == 3 and add(1)\n"
    (project / "tests" / "part" / "test_sums.py").write_text(test, "utf-8")
    files = {"src/perdure/part/sums.py": {"digest": reached_lines.digest(source), "lines": {"2": [0]}}}
    notes = {"tests": [["tests/part/test_sums.py::test_it", 0.1]], "files": files}
    (project / "build" / "reached").mkdir(parents=True)
    (project / "build" / "reached" / "part.json").write_text(json.dumps(notes), encoding="utf-8")
    (trial,) = try_mutants([mutant_of(project, "== becomes !=")], 1, project, quick=True)
    assert (trial.verdict, trial.reason) == ("killed", "tests/part/test_sums.py::test_it")


def test_a_test_that_fails_anyway_kills_nothing(project, monkeypatch):
    monkeypatch.setattr(mutants, "MOST_LEFT_OUT", 0)
    broken = project / "tests" / "part" / "test_sums.py"
    broken.write_text("def test_it_is_broken():\n    assert False\n", encoding="utf-8")
    (trial,) = try_mutants([mutant_of(project, "== becomes !=")], 1, project)
    assert trial.verdict == "not counted"


def test_a_mutant_that_makes_a_test_hang_is_killed_though_the_test_ignores_every_signal(project, monkeypatch):
    monkeypatch.setattr(mutants, "TEST_SECONDS", 1)
    hanging = """
        import signal
        import threading
        from perdure.part.sums import add

        def test_it_adds():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            while add(1, 2) != 3:
                threading.Event().wait(0.1)
        """
    (project / "tests" / "part" / "test_sums.py").write_text(dedent(hanging), encoding="utf-8")
    (trial,) = try_mutants([mutant_of(project, "== becomes !=")], 1, project)
    assert (trial.verdict, trial.reason) == ("killed", "tests/part/test_sums.py::test_it_adds")


def test_the_name_of_a_test_may_have_blanks_in_it(project):
    test = project / "tests" / "part" / "test_sums.py"
    text = "import pytest\nfrom perdure.part.sums import add\n\n\n"
    text += "@pytest.mark.parametrize('a', [1], ids=['one and - one'])\ndef test_it(a):\n    assert add(a, 2) == 3\n"
    test.write_text(text, encoding="utf-8")
    (trial,) = try_mutants([mutant_of(project, "== becomes !=")], 1, project)
    assert (trial.verdict, trial.reason) == ("killed", "tests/part/test_sums.py::test_it[one and - one]")


def test_the_project_itself_is_not_touched(project):
    before = (project / "src/perdure/part/sums.py").read_bytes()
    list(try_mutants([mutant_of(project, "== becomes !=")], 1, project))
    assert (project / "src/perdure/part/sums.py").read_bytes() == before


def test_what_the_tests_need_is_copied_and_nothing_else(project, tmp_path):
    (project / ".venv").mkdir()
    copied = copy_project(project, tmp_path / "copy")
    assert sorted(path.name for path in copied.iterdir()) == ["pyproject.toml", "src", "tests"]


def test_each_file_that_tests_read_is_copied_for_without_it_they_would_kill_every_mutant():
    texts = [each.read_text("utf-8") for each in (ROOT / "tests").rglob("*.py")]
    read = {name for text in texts for name in re.findall(r'\bROOT / "(\w+\.\w+)"', text)}
    assert "pyproject.toml" in read
    assert read - {*COPIED} == set()


def test_the_same_seed_draws_the_same_mutants_and_the_seed_is_always_told(capsys):
    for _ in range(2):
        assert mutants.main("_core/log/fold", "--count", "5", "--seed", "7", "--list") == 0
    first, second = capsys.readouterr().out.split("mutants: ")[1:]
    assert first == second
    assert "--seed 7" in first
    assert len(first.splitlines()) == 6


@pytest.mark.parametrize(("at_least", "exit_code"), [("50", 0), ("51", 1)])
def test_too_few_killed_mutants_fail(monkeypatch, capsys, at_least, exit_code):
    def tried(sample, *_, **__):
        yield Trial(sample[0], "killed", "tests/x.py::test_x")
        yield Trial(sample[1], "survived", "3 test files passed")

    monkeypatch.setattr(mutants, "try_mutants", tried)
    assert mutants.main("_core/log/fold", "--count", "2", "--seed", "7", "--at-least", at_least) == exit_code
    assert "mutants: 1 of 2 killed (50 %), 0 not counted, --seed 7" in capsys.readouterr().out
