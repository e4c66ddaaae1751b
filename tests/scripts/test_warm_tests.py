"""Tests run in forks of a process that has collected them, against functions that were changed since."""

import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from scripts.warm_tests import Answer, Functions, Request, answer_in_fork, list_changed_code, note_started_code

SOURCE = """
LIMIT = 3

def add(a, b=1):
    return a + b

class Sum:
    size = 4

    def total(self, values):
        return max([add(each) for each in values])
"""


def find_changed(after: str) -> list[str] | None:
    pairs = list_changed_code(compile(SOURCE, "x", "exec"), compile(after, "x", "exec"))
    return None if pairs is None else [old.co_qualname for old, new in pairs if old.co_code != new.co_code]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("a + b", "a - b", ["add"]),
        ("return max(", "return None and max(", ["Sum.total"]),
        ("LIMIT = 3", "LIMIT = 4", None),
        ("b=1", "b=2", None),
        ("size = 4", "size = 5", None),
        ("class Sum", "class Total", None),
    ],
)
def test_only_a_change_inside_functions_can_be_made_in_a_running_process(old, new, changed):
    assert find_changed(SOURCE.replace(old, new)) == changed


@pytest.fixture
def module(tmp_path) -> ModuleType:
    path = tmp_path / "src" / "sums.py"
    path.parent.mkdir()
    path.write_text(SOURCE, encoding="utf-8")
    module = ModuleType("sums")
    exec(compile(SOURCE, str(path), "exec"), vars(module))
    return module


def change(tmp_path: Path, functions: Functions, old: str, new: str) -> bool:
    path = tmp_path / "src" / "sums.py"
    path.write_text(SOURCE.replace(old, new), encoding="utf-8")
    return functions.change(path, SOURCE)


def test_functions_get_the_code_of_the_changed_file_wherever_they_were_imported(tmp_path, module):
    add, total = module.add, module.Sum().total
    functions = Functions(tmp_path / "src")
    assert change(tmp_path, functions, "a + b", "a - b")
    assert (add(3), total([3, 5])) == (2, 4)
    assert change(tmp_path, functions, "max(", "min(")
    assert total([3, 5]) == 4


def test_a_change_that_reaches_no_function_is_refused(tmp_path, module):
    functions = Functions(tmp_path / "src")
    assert not change(tmp_path, functions, "LIMIT = 3", "LIMIT = 4")
    assert not change(tmp_path, functions, "a + b", "a + b")
    assert not change(tmp_path, Functions(tmp_path / "elsewhere"), "a + b", "a - b")
    assert module.add(1) == 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the monitoring of Python 3.12")
def test_a_change_of_code_that_ran_while_tests_were_collected_is_told(tmp_path, module):
    with note_started_code() as started:
        module.add(1)
    module.Sum().total([1])  # later
    functions = Functions(tmp_path / "src", started)
    assert change(tmp_path, functions, "max(", "min(")
    assert not functions.has_changed_started_code
    assert change(tmp_path, functions, "a + b", "a - b")
    assert functions.has_changed_started_code


def pass_all(_request, report):
    report("begun", "one")
    report("begun", "two")


def pass_all_with_results_of_earlier(_request, report):
    report("ran earlier", "")
    pass_all(_request, report)


def fail_second(_request, report):
    pass_all(_request, report)
    report("failed", "two")
    raise AssertionError("nothing is read after a failure")


def die(_request, report):
    report("begun", "one")
    os._exit(3)


def raise_error(_request, _report):
    raise ValueError("not reported by pytest")


def leave_a_child(_request, report):
    report("begun", "one")
    if os.fork() == 0:
        time.sleep(60)
    os._exit(3)


@pytest.mark.parametrize(
    ("run", "answer"),
    [
        (pass_all, Answer(None, begun=2)),
        (pass_all_with_results_of_earlier, Answer(None, begun=2, ran_earlier=True)),
        (fail_second, Answer("two", begun=2)),
        (die, Answer("one", begun=1)),
        (raise_error, Answer("the tests ended with ValueError")),
        (leave_a_child, Answer("one", begun=1)),
    ],
)
def test_an_answer_says_which_test_failed_or_was_running_at_the_end(run, answer):
    assert answer_in_fork(Request(["x"]), run) == answer


def test_tests_that_take_too_long_together_are_ended():
    begun = time.monotonic()
    answer = answer_in_fork(Request(["x"], seconds=0.2), lambda *_: time.sleep(60))
    assert answer == Answer(None, timed_out=True)
    assert time.monotonic() - begun < 30
