"""Every promise has a test, every test that is named as keeping one exists, and the page says the same."""

import ast
import functools
from pathlib import Path

from tests.promises import KEPT_BY, PAGE, PROMISES, ROOT, areas, rendered

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def functions_in(place: str) -> dict[str, Function]:
    """The tests of a file by their names."""
    tree = ast.parse((ROOT / place).read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, Function) and node.name.startswith("test_")}


def marked() -> dict[str, list[str]]:
    """The tests that say themselves which promise they keep."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if "promise(" not in path.read_text("utf-8"):  # parsing all of them would take seconds
            continue
        place = path.relative_to(ROOT).as_posix()
        for name, node in functions_in(place).items():
            for promise in promises_of(node):
                found.setdefault(promise, []).append(f"{place}::{name}")
    return found


def promises_of(node: Function) -> list[str]:
    """What stands in the marks `promise(…)` above a test."""
    marks = [mark for mark in node.decorator_list if isinstance(mark, ast.Call)]
    named = [mark for mark in marks if ast.unparse(mark.func).rpartition(".")[2] == "promise"]
    return [str(argument.value) for mark in named for argument in mark.args if isinstance(argument, ast.Constant)]


def exists(node: str) -> bool:
    """Whether there is such a test."""
    place, _, name = node.partition("::")
    return Path(ROOT / place).is_file() and name in functions_in(place)


def test_every_promise_has_a_test():
    assert [promise for promise in PROMISES if not KEPT_BY.get(promise) and promise not in marked()] == []


def test_every_promise_that_a_test_keeps_has_been_made():
    assert sorted({*KEPT_BY, *marked()} - set(PROMISES)) == []


def test_every_test_that_keeps_a_promise_exists():
    missing = [node for nodes in KEPT_BY.values() for node in nodes if not exists(node)]
    assert missing == [], "these were renamed or removed: change KEPT_BY in tests/promises.py"


def test_the_page_lists_every_promise_with_its_tests():
    page = PAGE.read_text(encoding="utf-8")
    assert areas(page) == {promise.partition(":")[0] for promise in PROMISES}
    assert rendered(page) == page, "run `python -m tests.promises` and look at what changed"


def test_a_mark_is_read_wherever_it_stands():
    node = ast.parse('@pytest.mark.promise("a:b")\n@promise("c:d")\n@other("e:f")\ndef test_it(): ...').body[0]
    assert isinstance(node, Function)
    assert promises_of(node) == ["a:b", "c:d"]
