"""Modules move and merge by a table, and what names them is rewritten; here in small made-up projects."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from scripts.move.__main__ import FRONT_DOOR, ROOMS, import_from_front_door, main, move, rewrite_file
from scripts.move.facades import DOCSTRINGS
from scripts.move.files import list_texts, write_docstring
from scripts.move.front_door import Public, read_front_door
from scripts.move.moves import Moves
from scripts.move.sources import Sources
from scripts.move.table import list_without_line, read_lines, read_table

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_FILES = 15


class MadeUpProject:
    """A checkout with these files, in which modules of `perdure` can be moved."""

    def __init__(self, root: Path, files: dict[str, str]) -> None:
        self.root = root
        for place, text in {"src/perdure/__init__.py": '"""All."""\n', **files}.items():
            path = root / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        subprocess.run(["git", "init", "--quiet", str(root)], check=True)

    def move(self, *lines: str, facades: Sequence[str] = ()) -> bool:
        table = self.root.with_suffix(".tsv")
        table.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        sources = Sources(self.root)
        return move(Moves(read_table(table, sources), sources, facades))

    def open_door(self, *names: Public) -> None:
        import_from_front_door(list(names), Sources(self.root))

    def read(self, place: str) -> str:
        return (self.root / place).read_text("utf-8")

    def list_places(self) -> list[str]:
        files = [path for path in self.root.rglob("*") if path.is_file() and ".git" not in path.parts]
        return sorted(path.relative_to(self.root).as_posix() for path in files)


@pytest.fixture
def project(tmp_path: Path) -> Callable[[dict[str, str]], MadeUpProject]:
    """Makes a checkout with these files; those of packages lie below src/perdure."""
    return lambda files: MadeUpProject(tmp_path / "project", files)


def below(files: dict[str, str]) -> dict[str, str]:
    """Files of the package, by their places in it."""
    return {f"src/perdure/{place}": text for place, text in files.items()}


A = '"""A."""\n'


def test_a_module_moves_and_its_importers_follow(project):
    made = project(
        below({"a.py": '"""A."""\n\nONE = 1\n', "b.py": '"""B."""\n\nfrom perdure.a import ONE\n\nTWO = ONE\n'})
    )
    assert made.move("+\tperdure._in\tInside.", "perdure.a\tperdure._in.x")
    assert made.list_places() == [
        f"src/perdure/{each}" for each in ("__init__.py", "_in/__init__.py", "_in/x.py", "b.py")
    ]
    assert made.read("src/perdure/b.py") == '"""B."""\n\nfrom ._in.x import ONE\n\nTWO = ONE\n'
    assert made.read("src/perdure/_in/x.py") == '"""A."""\n\nONE = 1\n'


def test_a_module_imports_what_lies_beside_it_by_a_dot_and_anything_else_in_full(project):
    made = project(
        below(
            {
                "p/__init__.py": "",
                "p/a.py": "from .b import B\nfrom perdure.c import C\n",
                "p/b.py": "B = 1\n",
                "c.py": "C = 1\n",
            }
        )
    )
    made.move("+\tperdure._in\tInside.", "+\tperdure._out\tOutside.", "perdure.p\t-", "perdure.p.a\tperdure._in.a",
              "perdure.p.b\tperdure._out.b", "perdure.c\tperdure._in.c")  # fmt: skip
    assert made.read("src/perdure/_in/a.py") == "from perdure._out.b import B\nfrom .c import C\n"


def test_the_line_of_a_package_moves_what_lies_in_it_pages_too(project):
    made = project(
        below({"p/__init__.py": A, "p/a.py": "", "p/page/x.css": "a {}", "p/q/__init__.py": "", "p/q/b.py": ""})
    )
    made.move("perdure.p\tperdure._p")
    assert made.list_places() == [
        f"src/perdure/{each}"
        for each in ("__init__.py", "_p/__init__.py", "_p/a.py", "_p/page/x.css", "_p/q/__init__.py", "_p/q/b.py")
    ]


def test_a_folder_of_pages_moves_by_a_line_of_its_own(project):
    made = project(below({"p/__init__.py": A, "p/a.py": "", "p/page/x.css": "", "p/y.js": ""}))
    made.move("perdure.p\tperdure._p", "+\tperdure._p.view\tView.", "perdure.p.a\tperdure._p.view.a",
              "perdure/p/page\tperdure/_p/view/page")  # fmt: skip
    places = ("__init__.py", "_p/__init__.py", "_p/view/__init__.py", "_p/view/a.py", "_p/view/page/x.css", "_p/y.js")
    assert made.list_places() == [f"src/perdure/{each}" for each in places]


def test_two_modules_can_take_each_others_place(project):
    made = project(below({"a.py": "ONE = 1\n", "b.py": "TWO = 2\n", "c.py": "from perdure.a import ONE\n"}))
    made.move("perdure.a\tperdure.b", "perdure.b\tperdure.a")
    assert made.read("src/perdure/a.py") == "TWO = 2\n"
    assert made.read("src/perdure/c.py") == "from .b import ONE\n"


def test_imports_inside_functions_and_for_type_checkers_are_rewritten(project):
    text = (
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from perdure.a import A\n\n\n"
        'def f() -> "A":\n    from perdure.a import A\n\n    return A()\n'
    )
    made = project(below({"a.py": "class A: ...\n", "b.py": text}))
    made.move("+\tperdure._in\tInside.", "perdure.a\tperdure._in.x", "perdure.b\tperdure._in.b")
    assert made.read("src/perdure/_in/b.py") == text.replace("perdure.a", ".x")


def test_a_module_that_is_imported_by_its_name_is_used_by_its_new_name(project):
    made = project(
        below({"long_checks.py": "def check(): ...\n", "b.py": "from . import long_checks\n\nlong_checks.check()\n"})
    )
    made.move("+\tperdure._in\tInside.", "perdure.long_checks\tperdure._in.checks", "perdure.b\tperdure._in.b")
    assert made.read("src/perdure/_in/b.py") == "from . import checks\n\nchecks.check()\n"


def test_a_module_keeps_its_old_name_in_a_module_where_the_new_one_means_something_else(project):
    made = project(
        below(
            {
                "long_checks.py": "def check(): ...\n",
                "b.py": "from . import long_checks\n\n\ndef f(checks):\n    return checks or long_checks.check()\n",
            }
        )
    )
    made.move("+\tperdure._in\tInside.", "perdure.long_checks\tperdure._in.checks", "perdure.b\tperdure._in.b")
    assert made.read("src/perdure/_in/b.py").startswith("from . import checks as long_checks\n")


def test_a_name_is_imported_from_where_it_is_defined(project):
    made = project(
        {
            **below({"p/__init__.py": "from .a import ONE as UNO\n", "p/a.py": "ONE = 1\n"}),
            "tests/test_p.py": "from perdure.p import UNO\n",
        }
    )
    made.move("perdure.p\tperdure._p")
    assert made.read("tests/test_p.py") == "from perdure._p.a import ONE as UNO\n"


def test_a_name_that_a_package_imports_at_first_use_is_imported_from_where_it_is_defined(project):
    lazy = (
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from .a import ONE as ONE\n\n\n"
        "def __getattr__(name): ...\n"
    )
    made = project(
        {
            **below({"p/__init__.py": lazy, "p/a.py": "ONE = 1\n"}),
            "tests/test_p.py": "from perdure.p import ONE\n",
        }
    )
    made.move("perdure.p\t-", "+\tperdure._p\tP.", "perdure.p.a\tperdure._p.a")
    assert made.read("tests/test_p.py") == "from perdure._p.a import ONE\n"


def test_a_package_becomes_a_module(project):
    made = project(below({"p/__init__.py": "from .a import ONE\n\nTWO = ONE\n", "p/a.py": "ONE = 1\n"}))
    made.move("+\tperdure._in\tInside.", "perdure.p\tperdure._in.p", "perdure.p.a\tperdure._in.a")
    assert "src/perdure/_in/p.py" in made.list_places()
    assert made.read("src/perdure/_in/p.py") == "from .a import ONE\n\nTWO = ONE\n"


def test_a_package_with_a_page_beside_it_cannot_become_a_module(project):
    made = project(below({"p/__init__.py": A, "p/page.css": ""}))
    with pytest.raises(SystemExit, match=r"beside it lies .*page\.css: move that by hand first"):
        made.move("+\tperdure._in\tInside.", "perdure.p\tperdure._in.p")


def test_merged_modules_have_their_imports_first_and_then_what_is_needed_first(project):
    made = project(
        below(
            {
                "a.py": '"""A."""\n\nimport os\n\nfrom .b import two\n\n\ndef one():\n    return two(os)\n',
                "b.py": '"""B."""\n\nimport sys\n\n\ndef two(x):\n    return sys, x\n',
            }
        )
    )
    made.move("+\tperdure._in\tInside.", "perdure.a\tperdure._in.ab\tBoth.", "perdure.b\tperdure._in.ab")
    assert made.read("src/perdure/_in/ab.py") == (
        '"""Both."""\n\nimport sys\nimport os\n\n\ndef two(x):\n    return sys, x\n\n\ndef one():\n    return two(os)\n'
    )


def test_merged_modules_import_nothing_from_themselves(project):
    made = project(
        below(
            {
                "a.py": (
                    "from typing import TYPE_CHECKING\n\nfrom . import b, c\n\n"
                    "if TYPE_CHECKING:\n    from .b import Two\n\n\n"
                    'def one() -> "Two":\n    from .b import Two\n\n    return b.Two() or c or Two\n'
                ),
                "b.py": "class Two: ...\n",
                "c.py": "",
            }
        )
    )
    made.move(
        "+\tperdure._in\tInside.", "perdure.a\tperdure._in.ab", "perdure.b\tperdure._in.ab", "perdure.c\tperdure._in.c"
    )
    text = made.read("src/perdure/_in/ab.py")
    assert "from . import c\n" in text
    assert "    return Two() or c or Two\n" in text
    assert text.count("import") == 2


def test_what_merged_modules_say_in_the_same_words_is_written_once(project):
    log = "LOG = 'perdure'\n\n\n@property\nclass Same:\n    x: int\n\n\n"
    made = project(below({"a.py": f"{log}ONE = 1\n", "b.py": f"{log}TWO = 2\n"}))
    made.move("+\tperdure._in\tInside.", "perdure.a\tperdure._in.ab", "perdure.b\tperdure._in.ab")
    text = made.read("src/perdure/_in/ab.py")
    assert [text.count(each) for each in ("LOG", "@property", "class Same", "ONE", "TWO")] == [1, 1, 1, 1, 1]


def test_the_exemptions_of_merged_modules_are_one_line(project):
    made = project(below({"a.py": "# ruff: noqa: B2, A1 - slow\nONE = 1\n", "b.py": "# ruff: noqa: A1, C3\nTWO = 2\n"}))
    made.move("+\tperdure._in\tInside.", "perdure.a\tperdure._in.ab", "perdure.b\tperdure._in.ab")
    assert made.read("src/perdure/_in/ab.py").count("# ruff: noqa: A1, B2, C3 - slow\n") == 1


def test_what_one_module_imports_for_type_checkers_and_another_in_earnest_is_imported_in_earnest(project):
    checked = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import x\n    from os import path, sep\n"
    made = project(below({"a.py": checked, "b.py": "from os import path\n\nTWO = path\n"}))
    made.move("+\tperdure._in\tInside.", "perdure.a\tperdure._in.ab", "perdure.b\tperdure._in.ab")
    assert "\nif TYPE_CHECKING:\n    import x\n    from os import sep\n" in made.read("src/perdure/_in/ab.py")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("X = 1\n", "X = 2\n", r"'X' is 'X = 1' in perdure\.a and 'X = 2' in perdure\.b: rename one of them first"),
        ("def f(): ...\n", "f: int = 2\n", r"'f' is 'def f"),
        ("from os import path\n", "from sys import path\n", "'path' is 'os:path' in perdure.a and 'sys:path'"),
        ("from .b import X\n", "from .a import Y\n", "would be one module, and import one another"),
        ("X = 1\n", "from .a import X as Z\n", "would import 'Z' from itself under another name"),
        (
            "X = 1\n",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    Y = 1\n",
            "'Y = 1' is for type checkers alone",
        ),
    ],
)
def test_modules_that_cannot_be_one_are_refused_and_nothing_has_changed(project, first, second, message):
    made = project(below({"a.py": first, "b.py": second, "c.py": "import perdure.a\n"}))
    before = made.list_places()
    with pytest.raises(SystemExit, match=message):
        made.move("+\tperdure._in\tInside.", "perdure.a\tperdure._in.ab", "perdure.b\tperdure._in.ab")
    assert made.list_places() == before
    assert made.read("src/perdure/c.py") == "import perdure.a\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["perdure.nowhere\tperdure.x"], "a line for 'perdure.nowhere', and there is no such module"),
        (["perdure.a\tperdure.b"], "'perdure.b' and 'perdure.a' would both become 'perdure.b'"),
        (["perdure.a\tperdure._in.a"], r"'perdure\._in\.a' would lie in no package: add a line of `\+`"),
        (["perdure.a\tperdure.x", "perdure.a\tperdure.y"], "two lines for 'perdure.a'"),
        (["perdure/p\tperdure/q"], "a line for 'perdure/p', and there is no such folder"),
        (["perdure.a"], "line 1 of .* is 'perdure.a': two or three columns"),
        (["+\tperdure._in"], "two or three columns"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(project, lines, message):
    made = project(below({"a.py": "", "b.py": ""}))
    with pytest.raises(SystemExit, match=message):
        made.move(*lines)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("see `perdure.a.b.Thing.run`", "see `perdure._in.x.Thing.run`"),
        ("src/perdure/a/b.py and perdure/a/b.py", "src/perdure/_in/x.py and perdure/_in/x.py"),
        ("`a/b.py`, but not data/b.py", "`_in/x.py`, but not data/b.py"),
        ("from perdure.a.b import (\n    One,\n    Two,\n)", "from perdure._in.x import (\n    One,\n    Two,\n)"),
        ("from perdure.a import b", "from perdure._in import x as b"),
        ("python -m perdure.a.b --perdure.a.bc", "python -m perdure._in.x --perdure.a.bc"),
        ("the logger perdure.a", "the logger perdure.a"),
        ("perdure.a.ONE and perdure.a._TWO", "perdure.a.ONE and perdure.a._TWO"),
    ],
)
def test_names_and_paths_in_pages_follow(project, before, after):
    made = project({**below({"a/__init__.py": "from .b import ONE\n", "a/b.py": "ONE = 1\n"}), "docs/page.md": before})
    made.move("+\tperdure._in\tInside.", "perdure.a\t-", "perdure.a.b\tperdure._in.x", facades=["perdure.a"])
    assert made.read("docs/page.md") == after


def test_programs_in_strings_import_from_the_new_places(project):
    program = 'CODE = """\nfrom perdure.a import ONE, TWO\n"""\n'
    program += 'LINE = "import os; from perdure.a import ONE, TWO; print(ONE)"\n'
    made = project(
        {
            **below({"a.py": "from .b import TWO\n\nONE = TWO\n", "b.py": "TWO = 2\n"}),
            "tests/test_a.py": program,
        }
    )
    made.move("+\tperdure._in\tInside.", "perdure.a\tperdure._in.a", "perdure.b\tperdure._in.b")
    text = made.read("tests/test_a.py")
    assert "\nfrom perdure._in.a import ONE\nfrom perdure._in.b import TWO\n" in text
    assert "os; from perdure._in.a import ONE; from perdure._in.b import TWO; print" in text


def test_the_file_of_a_program_beside_a_module_is_found_from_its_new_place(project):
    made = project(
        below({"p/__init__.py": "", "p/a.py": '"""See `worker.py`."""\n\nPROGRAM = "worker.py"\n', "p/worker.py": ""})
    )
    made.move("perdure.p\t-", "+\tperdure._a\tA.", "+\tperdure._b\tB.", "perdure.p.a\tperdure._a.a",
              "perdure.p.worker\tperdure._b.main")  # fmt: skip
    assert made.read("src/perdure/_a/a.py") == '"""See `_b/main.py`."""\n\nPROGRAM = "../_b/main.py"\n'


def test_what_tells_of_the_past_keeps_the_old_names(project):
    texts = dict.fromkeys(("CHANGELOG.md", "docs/decisions/1.md", "scripts/move/rooms.tsv"), "perdure.a\n")
    made = project({**below({"a.py": ""}), **texts})
    made.move("perdure.a\tperdure.b")
    assert [made.read(place) for place in texts] == ["perdure.a\n"] * 3


@pytest.mark.parametrize(
    ("text", "docstring"),
    [
        ("One line.", '"""One line."""\n'),
        ("The first. " + "and more " * 12 + "words.", '"""The first.\n\n' + "and more " * 12 + 'words.\n"""\n'),
        ("nine chars " * 10 + "and more " * 2 + "end.", '"""' + "nine chars " * 10 + 'and\nmore and more end.\n"""\n'),
    ],
)
def test_a_long_docstring_of_a_package_has_its_first_sentence_on_the_first_line(text, docstring):
    assert write_docstring(text) == docstring


def test_a_table_without_lines_changes_nothing(project):
    files = {
        **below({"p/__init__.py": "from .a import ONE as ONE\n", "p/a.py": "ONE = 1\n"}),
        "tests/test_p.py": "from perdure.p import (ONE)\n",
        "docs/page.md": "`perdure.p.ONE`, from perdure.p import ONE",
    }
    made = project(files)
    assert not made.move()
    assert {place: made.read(place) for place in files} == files


@pytest.mark.parametrize("folder", ["src/perdure/runtime", "src/perdure/models", "tests/runtime", "docs/how-to"])
def test_a_table_without_lines_would_change_no_file_of_this_project(tmp_path, folder):
    table = tmp_path / "empty.tsv"
    table.touch()
    sources = Sources(ROOT)
    moves = Moves(read_table(table, sources), sources)
    texts = {path: path.read_text("utf-8") for path in list_texts(ROOT) if path.is_relative_to(ROOT / folder)}
    assert len(texts) > 10
    assert [path for path, text in texts.items() if rewrite_file(path, text, moves) != text] == []


def test_a_check_says_what_would_change_and_changes_nothing(project, capsys):
    made = project(below({"a.py": "", "b.py": "import perdure.a\n"}))
    table = made.root.with_suffix(".tsv")
    table.write_text("perdure.a\tperdure.c\n", "utf-8")
    assert main([str(table), "--check"], made.root) == 1
    assert "    src/perdure/b.py" in capsys.readouterr().out
    assert made.read("src/perdure/b.py") == "import perdure.a\n"


def test_public_names_are_imported_from_one_public_module(project):
    made = project(
        {
            **below(
                {"_in/__init__.py": "", "_in/a.py": 'ONE = 1\n_TWO = 2\nE = "perdure._in.a.ONE"  # perdure._in.a\n'}
            ),
            "tests/test_a.py": "from perdure._in.a import ONE, _TWO\n\nCODE = 'from perdure._in.a import ONE'\n",
            "docs/a.md": (
                "`perdure._in.a.ONE.real` of `perdure._in.a`\n\n"
                "```python\nfrom perdure._in.a import (\n    ONE,\n)\n```\n"
            ),
            "docs/b.md": 'tools = ["perdure._in.a:ONE"] and `perdure._in.a._TWO`\nfrom perdure._in import a\n',
        }
    )
    made.open_door(Public("perdure._in.a", "ONE", "perdure.tools"))
    assert made.read("tests/test_a.py") == (
        "from perdure._in.a import _TWO\nfrom perdure.tools import ONE\n\nCODE = 'from perdure.tools import ONE'\n"
    )
    assert made.read("docs/a.md") == (
        "`perdure.tools.ONE.real` of `perdure.tools`\n\n```python\nfrom perdure.tools import (\n    ONE,\n)\n```\n"
    )
    assert made.read("docs/b.md") == (
        'tools = ["perdure.tools:ONE"] and `perdure._in.a._TWO`\nfrom perdure._in import a\n'
    )
    assert made.read("src/perdure/_in/a.py") == 'ONE = 1\n_TWO = 2\nE = "perdure.tools.ONE"  # perdure.tools\n'


def test_a_name_that_leaves_the_package_itself_is_imported_from_its_public_module(project):
    made = project(
        {
            **below({"_in/__init__.py": "", "_in/a.py": "ONE = 1\nTWO = 2\n"}),
            "examples/a.py": "from perdure import ONE, TWO\n\nprint(ONE, TWO)  # perdure.ONE\n",
        }
    )
    made.open_door(Public("perdure._in.a", "ONE", "perdure.tools"), Public("perdure._in.a", "TWO", "perdure"))
    assert made.read("examples/a.py") == (
        "from perdure import TWO\nfrom perdure.tools import ONE\n\nprint(ONE, TWO)  # perdure.tools.ONE\n"
    )


def test_a_public_module_is_a_table_of_names_that_are_imported_at_first_use(project):
    made = project(below({"_in/__init__.py": "", "_in/a.py": "ONE = 1\nTWO = 2\n"}))
    made.open_door(*[Public("perdure._in.a", name, "perdure.tools") for name in ("TWO", "ONE")])
    program = "from perdure import tools; print(tools.__all__, tools.ONE, dir(tools)); tools.THREE"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=made.root / "src", capture_output=True, text=True, check=False
    )
    assert result.stdout == "['ONE', 'TWO'] 1 ['ONE', 'TWO']\n"
    assert "module 'perdure.tools' has no attribute 'THREE'" in result.stderr


def test_public_names_of_a_module_that_does_not_exist_are_refused(project):
    with pytest.raises(SystemExit, match=r"names 'perdure\._in\.a', and there is no such module: move first"):
        project({}).open_door(Public("perdure._in.a", "ONE", "perdure.tools"))


@pytest.mark.parametrize(
    ("text", "message"),
    [("perdure.a\tONE\n", "module, name and facade"), ("p\tONE\tperdure\n" * 2, "two lines for 'ONE' of p")],
)
def test_a_list_of_public_names_that_cannot_be_meant_is_refused(tmp_path, text, message):
    path = tmp_path / "door.tsv"
    path.write_text(text, "utf-8")
    with pytest.raises(SystemExit, match=message):
        read_front_door(path)


def test_every_public_name_is_listed_at_a_place_that_the_table_makes():
    targets = {*read_lines(ROOMS).names.values()}
    names = read_front_door(FRONT_DOOR)
    assert sorted({each.module for each in names} - targets) == []
    assert {each.facade for each in names} == DOCSTRINGS.keys()


def test_no_folder_of_the_table_has_more_than_fifteen_files():
    lines = read_lines(ROOMS)
    modules = {new for new in [*lines.names.values(), *lines.packages] if "._" in new}
    folders = {new.rpartition(".")[0] for new in modules}
    places = Counter(new if new in folders else new.rpartition(".")[0] for new in modules)
    assert [(folder, files) for folder, files in places.items() if files > MOST_FILES] == []


def test_modules_without_a_line_in_the_table_are_listed(project):
    made = project(below({"a.py": "", "b.py": ""}))
    table = made.root.with_suffix(".tsv")
    table.write_text("perdure\tperdure\nperdure.a\tperdure.a\n", "utf-8")
    assert list_without_line(table, Sources(made.root), "perdure") == ["perdure.b"]
