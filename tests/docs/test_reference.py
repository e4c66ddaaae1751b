"""docs/reference documents every public name, as it is now, and nothing that is not there."""

import ast
import importlib
import re

import pytest

import perdure
import perdure.testing
from scripts.docstrings import Source, class_text, function_text, source_of
from scripts.reference import FOLDER, PAGES, Unplaced, homes, main, pages, stale, symbols_of

ENTRY = re.compile(r"^## (class|function|type) (\w+)\n\n`from ([\w.]+) import (\w+)`$", re.MULTILINE)


def entries() -> list[tuple[str, str, str]]:
    """What is documented: the page, the module to import it from, and the name."""
    found = []
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert len(ENTRY.findall(text)) == text.count("\n## ") or path.name == "index.md", path.name
        found += [(path.name, module, name) for _, name, module, _ in ENTRY.findall(text)]
    return found


def test_the_reference_is_current():
    assert sorted(stale()) == [], "run `python -m scripts.reference` and look at what changed"


@pytest.mark.parametrize("package", [perdure, perdure.testing])
def test_every_public_name_is_documented_once(package):
    documented = [name for _, module, name in entries() if module == package.__name__]
    assert sorted(documented) == sorted(set(package.__all__) - {"__version__"})


def test_every_documented_name_exists():
    for page, module, name in entries():
        assert hasattr(importlib.import_module(module), name), f"{page}: there is no {module}.{name}"


def test_every_public_name_says_what_it_is():
    public = {symbol.name: symbol.doc for page in PAGES for symbol in symbols_of(page, homes())}
    silent = [name for name, doc in public.items() if not doc]
    assert silent == []


def test_a_public_name_without_a_page_is_an_error(monkeypatch):
    monkeypatch.setattr("scripts.reference.PAGES", PAGES[1:])
    with pytest.raises(Unplaced, match=r"perdure\.runtime\.agent"):
        pages()


def test_a_page_that_was_changed_by_hand_is_noticed(monkeypatch, tmp_path):
    for file, text in pages().items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    monkeypatch.setattr("scripts.reference.FOLDER", tmp_path)
    assert stale() == {}
    (tmp_path / "tools.md").write_text("by hand", encoding="utf-8")
    (tmp_path / "old.md").write_text("a page of long ago", encoding="utf-8")
    (tmp_path / "errors.md").unlink()
    assert sorted(stale()) == ["errors.md", "old.md", "tools.md"]


def test_the_command_writes_what_is_not_current(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("scripts.reference.FOLDER", tmp_path / "reference")
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "old.md").write_text("a page of long ago", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    assert main() == 1
    monkeypatch.setattr("sys.argv", ["reference"])
    assert main() == 0
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    assert main() == 0
    assert "docs/reference/old.md is not current" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "reference").iterdir()) == sorted(pages())


@pytest.fixture
def source(tmp_path, monkeypatch) -> Source:
    """A module with one of everything."""
    (tmp_path / "sample.py").write_text(SAMPLE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return source_of.__wrapped__("sample")


def test_a_signature_is_shown_as_it_is_written(source):
    assert shown(source, "join")[0].splitlines() == [
        "```py",
        "async def join(",
        "    first: str,",
        "    /,",
        "    second: Thing | None = None,",
        "    *rest: Any,",
        '    sep: Literal["a"] = "a",',
        "    **more: int,",
        ") -> Thing",
        "```",
    ]


def test_parameters_are_described_in_a_list(source):
    assert shown(source, "join")[1:] == ["Join things.", "- `first`: The first one.\n- `second`: The other one."]


def test_a_class_shows_how_it_is_made_what_it_has_and_what_it_can_do(source):
    assert shown(source, "Thing") == [
        "```py\nclass Thing(size: int = 3, limits: dict = dict())\n```",
        "Something.",
        "- `shape`: How it looks.",
        "**`area: int`**",
        "How large it is.",
        "**`def grow(by: int = 1) -> Thing`**",
        "Become larger.",
    ]


def test_an_overloaded_method_is_shown_once(source):
    assert shown(source, "Box")[2:] == ["**`def take(what: int | str) -> int | str`**", "Take something out."]


def test_a_value_shows_its_fields(source):
    assert shown(source, "Pair") == [
        "```py\nclass Pair(NamedTuple)\n```",
        "Two of them.",
        '- `left: int`: The first.\n- `right: str = "r"`',
    ]


def test_an_alias_shows_what_it_stands_for(source):
    assert [(alias.name, *alias.text()) for alias in source.aliases()] == [
        ("Made", "```py\nMade = Callable[[int], Thing | None]\n```", "How things are made.")
    ]


def test_what_is_neither_class_nor_function_nor_type_is_refused(source):
    source.body.append(ast.parse("import x").body[0])
    source._places["x"] = len(source.body) - 1
    with pytest.raises(TypeError, match=r"sample\.x"):
        source.symbol("x")


def test_the_pages_cover_no_module_twice():
    modules = [module for page in PAGES for module in page.modules]
    assert len(modules) == len(set(modules))


def shown(source: Source, name: str) -> list[str]:
    """What the page would say of a name of the sample."""
    node = source.symbol(name).node
    assert not isinstance(node, ast.AnnAssign)
    return class_text(source, node) if isinstance(node, ast.ClassDef) else function_text(source, node)


SAMPLE = '''
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, overload

_DEFAULT = {}

Made: TypeAlias = Callable[[int], "Thing | None"]
"""How things are made."""
Silent: TypeAlias = int


class Thing:
    """Something."""

    def __init__(self, size: int = 3, limits: dict = _DEFAULT) -> None:
        self.size = size
        self.shape = "round"
        """How it looks."""
        self._secret = 1

    @property
    def area(self) -> int:
        """How large it is."""
        return self.size**2

    def grow(self, by: int = 1) -> "Thing":
        """Become larger."""
        return Thing(self.size + by)

    def _hidden(self): ...


class Box:
    """Where things are."""

    @overload
    def take(self, what: int) -> int: ...
    @overload
    def take(self, what: str) -> str: ...
    def take(self, what: int | str) -> int | str:
        """Take something out."""
        return what


class Pair(NamedTuple):
    """Two of them."""

    left: int
    """The first."""
    right: str = "r"


async def join(
    first: str, /, second: "Thing | None" = None, *rest: Any, sep: Literal["a"] = "a", **more: int
) -> "Thing":
    """Join things.

    Args:
        first: The first one.
        second: The other one.
    """
'''
