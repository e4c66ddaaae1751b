"""A module is named after what it holds, and says what it is."""

import ast
from importlib import import_module

import pytest

from tests.architecture.source import modules

SAY_NOTHING = {"base", "common", "helper", "helpers", "manager", "managers", "misc", "types", "util", "utils"}


def names_in(place: str) -> set[str]:
    """The names of folders and file in a path, without leading underscores."""
    return {part.removesuffix(".py").lstrip("_") for part in place.split("/")}


def test_no_module_has_a_name_that_says_nothing():
    assert [module.place for module in modules() if SAY_NOTHING & names_in(module.place)] == []


@pytest.mark.parametrize("place", ["perdure/utils.py", "perdure/core/_helpers.py", "perdure/common/clock.py"])
def test_a_name_that_says_nothing_is_recognised(place):
    assert SAY_NOTHING & names_in(place)


def test_every_module_says_what_it_is():
    assert [module.place for module in modules() if module.tree.body and not ast.get_docstring(module.tree)] == []


def test_a_module_that_imports_names_at_their_first_use_lists_them_all():
    lazy = [
        import_module(module.name)
        for module in modules()
        if any(isinstance(node, ast.Name) and node.id == "__getattr__" for node in ast.walk(module.tree))
    ]
    assert lazy
    assert [each.__name__ for each in lazy if not {*each.__all__} <= {*dir(each)}] == []
