"""The sizes of modules and functions are told at the end of a run. They are a guide; far beyond it, a test fails."""

import ast

from tests.architecture.sizes import REPORT, functions, report
from tests.architecture.source import SOURCE, Module, modules


def module(text: str) -> Module:
    return Module(SOURCE / "perdure" / "made_up.py", ast.parse(text), len(text.splitlines()))


MODULE_NEVER, FUNCTION_NEVER = 800, 100


def test_the_sizes_of_our_modules_are_told_and_none_is_beyond_all_measure(pytestconfig):
    found = modules()
    pytestconfig.stash[REPORT] = report(found)
    assert len(found) > 100
    assert [module.place for module in found if module.lines > MODULE_NEVER] == []
    assert [size for module in found for size in functions(module) if size.lines > FUNCTION_NEVER] == []


def test_a_function_is_counted_from_its_decorator_to_its_last_line():
    (size,) = functions(module("@cached\nasync def answer():\n    first = 1\n\n    return first\n"))
    assert size == ("perdure/made_up.py:answer", 5)


def test_what_is_far_too_long_is_named():
    body = "\n".join(f"    x{i} = {i}" for i in range(600))
    lines = report([module(f"def endless():\n{body}\n")])
    assert [line.split(" has ")[0] for line in lines if line.startswith("too long")] == [
        "too long: perdure/made_up.py",
        "too long: perdure/made_up.py:endless",
    ]


def test_an_empty_package_has_a_report_too():
    assert report([]) == ["no modules", "no functions"]
