"""docs/reference documents every public name, as it is now, and nothing that is not there."""

import ast
import functools
import importlib
import pkgutil
import re
from collections import Counter

import pytest

from perdure import Agent
from scripts import reference
from scripts.docstrings import Source, class_text, function_text, source_of
from scripts.reference import FOLDER, PAGES, PUBLIC, Unplaced, main, pages, stale, symbols_of
from scripts.reference_page import AUDIENCES, OPTION_GROUPS
from tests.docs.pages import PAGES as ALL_PAGES
from tests.docs.pages import blocks_of, name_of, tokens_of

ENTRY = re.compile(r"^## (class|function|type|value) (\w+)\n\n`from ([\w.]+) import (\w+)`$", re.MULTILINE)


def entries() -> list[tuple[str, str, str]]:
    """What is documented: the page, the module to import it from, and the name."""
    found = []
    for path in sorted(FOLDER.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        headings = [each for each in re.findall(r"(?m)^## .*", text) if not each.startswith("## perdure ")]  # commands
        assert len(ENTRY.findall(text)) == len(headings) or path.name == "index.md", path.name
        found += [(path.name, module, name) for _, name, module, _ in ENTRY.findall(text)]
    return found


def test_the_reference_is_current():
    assert sorted(stale()) == [], "run `python -m scripts.reference` and look at what changed"


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_documented_once(package):
    documented = [name for _, module, name in entries() if module == package]
    assert sorted(documented) == sorted(set(importlib.import_module(package).__all__) - {"__version__"})


def test_no_name_is_documented_on_two_pages():
    places = Counter((symbol.module, symbol.name) for page in PAGES for symbol in symbols_of(page))
    assert [place for place, count in places.items() if count > 1] == []


def test_no_heading_of_a_page_is_there_twice():
    """An overloaded method has one heading, and so has a property that can be set."""
    for path in FOLDER.rglob("*.md"):
        headings = Counter(re.findall(r"^#+ .+$", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert [heading for heading, count in headings.items() if count > 1] == [], path.name


def test_nothing_private_is_documented():
    assert [name for _, _, name in entries() if name.startswith("_")] == []


def test_every_documented_name_exists():
    for page, module, name in entries():
        assert hasattr(importlib.import_module(module), name), f"{page}: there is no {module}.{name}"


def test_every_public_name_says_what_it_is():
    public = {symbol.name: symbol.doc for page in PAGES for symbol in symbols_of(page)}
    silent = [name for name, doc in public.items() if not doc]
    assert silent == []


def test_a_public_name_without_a_page_is_an_error(monkeypatch):
    monkeypatch.setattr("scripts.reference.PAGES", PAGES[1:])
    with pytest.raises(Unplaced, match=r"agent\.Agent\b"):
        pages()


# -- for whom ----------------------------------------------------------------------------------------------------------


def test_the_index_has_a_half_for_users_and_one_for_authors_of_extensions():
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    users, authors = (text.index(f"## {title}") for title, _ in AUDIENCES.values())
    end = text.index("## Names of perdure")
    for page in PAGES:
        place = text.index(f"]({page.file})")
        assert (users < place < authors) == (page.audience == "users"), page.file
        assert place < end


@pytest.mark.parametrize("name", ["Store", "Run", "Model", "Extension", "Gate", "Buffer", "Parameters", "Tap"])
def test_what_authors_of_extensions_implement_is_on_no_page_for_users(name):
    (page,) = [page for page in PAGES if name in {each.name for each in symbols_of(page)}]
    assert page.audience == "authors"


# -- the options of an agent -------------------------------------------------------------------------------------------


def test_every_option_of_an_agent_is_in_one_group():
    grouped = Counter(name for names in OPTION_GROUPS.values() for name in names)
    assert grouped == Counter(Agent.__struct_fields__)


def test_an_option_without_a_group_is_an_error(monkeypatch):
    monkeypatch.setattr(reference, "OPTION_GROUPS", {"Model": ["model"]})
    with pytest.raises(Unplaced, match="budget"):
        pages()


def test_the_page_lists_the_options_by_purpose():
    text = (FOLDER / "agents.md").read_text(encoding="utf-8")
    limits = text.partition("### Agent options: limits and checks\n")[2].partition("\n###")[0]
    assert re.findall(r"^- `(\w+)", limits, re.MULTILINE) == list(OPTION_GROUPS["Limits and checks"])
    assert "- `model: Model | str`" in text


# -- examples ----------------------------------------------------------------------------------------------------------


def test_every_example_stands_in_the_entry_of_its_name():
    assert len(reference.examples()) >= 20
    for page in PAGES:
        text = (FOLDER / page.file).read_text(encoding="utf-8")
        for symbol in symbols_of(page):
            if example := reference.find_example(symbol):
                entry = text.partition(f"## {symbol.sort} {symbol.name}\n")[2].partition("\n## ")[0]
                assert example in entry


def test_an_example_of_an_undocumented_name_is_an_error(monkeypatch):
    monkeypatch.setattr(reference, "examples", lambda: {"Agnet": "Agnet()"})
    with pytest.raises(Unplaced, match="Agnet"):
        pages()


# -- what other pages send people to -----------------------------------------------------------------------------------


def test_every_name_that_a_page_sends_people_to_is_in_the_reference():
    """Names of modules: those of `perdure` itself are public, and documented anyway."""
    missing = {f"{place}: {path}" for path, place in sent_to() if not is_documented(path)}
    assert sorted(missing) == []


def sent_to() -> set[tuple[str, str]]:
    """The names of our modules that pages import or mention, by their full paths, with the page."""
    found = set()
    for page in ALL_PAGES:
        if page.parent.name in {"reference", "extending", "decisions", "archive"} or page.name == "CHANGELOG.md":
            continue
        for block in blocks_of(page):
            if block.language == "python":
                found |= {(path, name_of(page)) for path in imported(block.text)}
        inline = [child for token in tokens_of(page) for child in token.children or [] if child.type == "code_inline"]
        for child in inline:
            found |= {(path, name_of(page)) for path in re.findall(r"\bperdure(?:\.[a-z_]+)+\.\w+", child.content)}
    return found


def imported(text: str) -> set[str]:
    """What a block imports from modules of ours, by full paths; a block that is not Python imports nothing."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return set()
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perdure.")]
    return {f"{node.module}.{alias.name}" for node in froms for alias in node.names}


@functools.cache
def documented() -> dict[str, object]:
    """Everything that the reference documents, by every path under which it says so."""
    paths = {f"{module}.{name}" for _, module, name in entries()}
    paths |= {f"{symbol.module}.{symbol.name}" for page in PAGES for symbol in symbols_of(page)}
    return {path: pkgutil.resolve_name(path) for path in paths}


def is_documented(path: str) -> bool:
    """Whether the reference has a name, the class that it is a member of, or something of a module of that name."""
    owner = path.rpartition(".")[0]
    if path in documented() or owner in documented() or any(each.startswith(f"{path}.") for each in documented()):
        return True
    if any(f"`{path}`" in page.about for page in PAGES):
        return True
    value = pkgutil.resolve_name(path)  # a page may import it from a package that exports it
    return callable(value) and any(value is each for each in documented().values())


# -- pages that are written --------------------------------------------------------------------------------------------


def test_a_page_that_was_changed_by_hand_is_noticed(monkeypatch, tmp_path):
    for file, text in pages().items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
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
    written = [path.relative_to(tmp_path / "reference") for path in (tmp_path / "reference").rglob("*.md")]
    assert sorted(path.as_posix() for path in written) == sorted(pages())


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
        "### Thing.area",
        "```py\narea: int\n```",
        "How large it is.",
        "### Thing.grow",
        "```py\ndef grow(by: int = 1) -> Thing\n```",
        "Become larger.",
    ]


def test_an_overloaded_method_is_shown_once(source):
    assert shown(source, "Box")[2:] == [
        "### Box.take",
        "```py\ndef take(what: int | str) -> int | str\n```",
        "Take something out.",
    ]


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


def test_a_constant_shows_its_value_and_a_literal_is_a_type(source):
    assert [(source.symbol(name).sort, *source.symbol(name).text()) for name in ("LIMIT", "Side")] == [
        ("value", "```py\nLIMIT = 3\n```", "The most of them."),
        ("type", '```py\nSide = Literal["left", "right"]\n```', "Where it is."),
    ]


def test_a_text_in_an_annotation_is_no_type(source):
    assert shown(source, "name")[0] == '```py\ndef name(it: Annotated[Thing, "What to name."] = "none") -> str\n```'


def test_what_is_neither_class_nor_function_nor_type_is_refused(source):
    source.body.append(ast.parse("import x").body[0])
    source._places["x"] = len(source.body) - 1
    with pytest.raises(TypeError, match=r"sample\.x"):
        source.symbol("x")


def shown(source: Source, name: str) -> list[str]:
    """What the page would say of a name of the sample."""
    node = source.symbol(name).node
    assert not isinstance(node, ast.AnnAssign | ast.Assign)
    return class_text(source, node) if isinstance(node, ast.ClassDef) else function_text(source, node)


SAMPLE = '''
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, overload

_DEFAULT = {}
_NONE = "none"
LIMIT: Final = 3
"""The most of them."""
Side = Literal["left", "right"]
"""Where it is."""
_Hidden: TypeAlias = int
"""Not for readers."""


def name(it: Annotated["Thing", "What to name."] = _NONE) -> str: ...


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
