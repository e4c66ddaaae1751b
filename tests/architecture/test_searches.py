"""Every test with a long form is run by `make faults`."""

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

VARIABLE = "PERDURE_SEARCH"
MARKS = {"faults", "given"}
"""A decorator with one of these names has a test run by `make faults`; hypothesis marks what is given examples."""


ARGUMENT = "argument "
"""Precedes the name of a fixture, which a conftest may define."""


class TestFile:
    """A file of tests, with the names in it that depend on the variable."""

    __test__ = False

    def __init__(self, path: Path, source: str) -> None:
        self.path = path
        self.source = source
        self.dependent: set[str] = set()

    @cached_property
    def imported(self) -> dict[str, tuple[str, str]]:
        """The module and the name there of each imported name."""
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(ast.parse(self.source))
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for alias in node.names
        }

    @cached_property
    def definitions(self) -> dict[str, list[ast.stmt]]:
        """The statements of the module that define each name."""
        found: dict[str, list[ast.stmt]] = {}
        for statement in ast.parse(self.source).body:
            for name in list_defined_names(statement):
                found.setdefault(name, []).append(statement)
        return found

    @cached_property
    def used(self) -> dict[str, set[str]]:
        """The names, texts and fixtures that each definition uses."""
        return {
            name: {
                *[used for statement in statements for node in ast.walk(statement) for used in list_used_names(node)],
                *[fixture for statement in statements for fixture in list_fixtures(statement)],
            }
            for name, statements in self.definitions.items()
        }

    def is_marked(self, name: str) -> bool:
        """Return True if `make faults` runs this test."""
        decorated = [each for node in self.definitions[name] for each in getattr(node, "decorator_list", [])]
        return any(
            MARKS.intersection(_last_names(node))
            for mark in [*self.definitions.get("pytestmark", []), *decorated]
            for node in ast.walk(mark)
        )

    def add_dependent(self, known: set[str]) -> bool:
        """Note each definition that uses one of the known names, or another one noted; return True for a new one."""
        before, count = self.dependent, -1
        while len(self.dependent) > count:
            count = len(self.dependent)
            reached = known | self.dependent
            self.dependent = self.dependent | {name for name, used in self.used.items() if used & reached}
        return self.dependent != before


def list_defined_names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def list_used_names(node: ast.AST) -> list[str]:
    """Return what a node refers to."""
    if isinstance(node, ast.Name):
        return [node.id]
    return [node.value] if isinstance(node, ast.Constant) and node.value == VARIABLE else []


def list_fixtures(statement: ast.stmt) -> list[str]:
    """Return the fixtures that a test or another fixture asks for."""
    if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    decorators = [used for each in statement.decorator_list for node in ast.walk(each) for used in _last_names(node)]
    if not statement.name.startswith("test_") and "fixture" not in decorators:
        return []
    return [name for each in statement.args.args for name in (each.arg, f"{ARGUMENT}{each.arg}")]


def _last_names(node: ast.AST) -> list[str]:
    return [node.attr] if isinstance(node, ast.Attribute) else [node.id] if isinstance(node, ast.Name) else []


class Searches:
    """Finds the tests of a project whose length the environment decides, directly or through what they use.

    Only files that can have such a test are parsed: parsing all of them takes seconds.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {
            ".".join(path.relative_to(root).with_suffix("").parts): TestFile(path, path.read_text("utf-8"))
            for path in sorted((root / "tests").rglob("*.py"))
        }
        waiting = [name for name, file in self.files.items() if VARIABLE in file.source]
        while waiting:
            name = waiting.pop()
            if self.files[name].add_dependent({VARIABLE, *self._find_known(name)}):
                waiting += self._find_users(name)

    def find_tests(self) -> list[tuple[TestFile, str]]:
        """Return the tests with a long form."""
        return [
            (file, name)
            for file in self.files.values()
            if file.path.name.startswith("test_") and file.path != Path(__file__)
            for name in sorted(file.dependent)
            if name.startswith(("test_", "Test"))
        ]

    def find_unmarked(self) -> list[str]:
        """Return the tests with a long form that `make faults` leaves out."""
        return [f"{file.path.stem}::{name}" for file, name in self.find_tests() if not file.is_marked(name)]

    def _find_known(self, module: str) -> Iterator[str]:
        """Yield the names that a module has from others and that depend on the variable."""
        for name, (source, original) in self.files[module].imported.items():
            if source in self.files and original in self.files[source].dependent:
                yield name
        folder = module
        while folder := folder.rpartition(".")[0]:
            if conftest := self.files.get(f"{folder}.conftest"):
                yield from (f"{ARGUMENT}{name}" for name in conftest.dependent)

    def _find_users(self, module: str) -> Iterator[str]:
        """Yield the modules that import something of this one, and those below a conftest that use one of its names."""
        folder, _, last = module.rpartition(".")
        fixtures = re.compile(rf"\b(?:{'|'.join(self.files[module].dependent)})\b")
        for name, file in self.files.items():
            if f"from {module} import" in file.source or (
                last == "conftest" and name.startswith(f"{folder}.") and fixtures.search(file.source)
            ):
                yield name


def write_tests(root: Path, **files: str) -> Searches:
    folder = root / "tests"
    folder.mkdir()
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source)
    return Searches(root)


LONG = "import os\nLONG = os.environ.get('PERDURE_SEARCH') == 'long'\n"


FIXTURES = """
@pytest.fixture
def search(long):
    return long

@pytest.fixture(scope="session")
def long():
    return LONG
"""


@pytest.mark.parametrize(
    "files",
    [
        {"test_it": LONG + "def test_one():\n    assert LONG\n"},
        {"test_it": LONG + "COUNT = 3 if LONG else 1\ndef count():\n    return COUNT\ndef test_one():\n    count()\n"},
        {"known": LONG, "test_it": "from tests.known import LONG as MUCH\ndef test_one():\n    assert MUCH\n"},
        {
            "conftest": LONG + FIXTURES,
            "test_it": "def test_one(search):\n    search()\n",
        },
        {"test_it": LONG + "@settings(max_examples=LONG)\ndef test_one():\n    pass\n"},
    ],
    ids=["constant", "function", "imported", "fixture", "decorator"],
)
def test_a_test_with_a_long_form_and_without_the_mark_is_found(tmp_path, files):
    assert write_tests(tmp_path, **files).find_unmarked() == ["test_it::test_one"]


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\n" + LONG + "@pytest.mark.faults\ndef test_one():\n    assert LONG\n",
        "import pytest\npytestmark = [pytest.mark.faults]\n" + LONG + "def test_one():\n    assert LONG\n",
        "from hypothesis import given\n" + LONG + "@given(x)\ndef test_one(x):\n    assert LONG\n",
        LONG + "def test_one():\n    assert True\n",
        "def look(long):\n    return long\ndef test_one():\n    assert look(long=1)\n",
    ],
    ids=["mark", "module", "hypothesis", "not read", "no fixture"],
)
def test_a_marked_test_and_one_of_a_single_form_are_left_alone(tmp_path, source):
    assert write_tests(tmp_path, conftest=LONG + FIXTURES, test_it=source).find_unmarked() == []


def test_make_faults_runs_every_test_that_has_a_long_form():
    searches = Searches(ROOT)

    assert searches.find_unmarked() == []
    assert len(searches.find_tests()) > 40
