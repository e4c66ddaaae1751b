"""The list of attacks names tests that exist, and every file of this folder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", INDEX)))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_every_test_that_is_named_exists(path, name):
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^(?:async )?def {name}\(" if name else r"^(?:async )?def test_", text, re.MULTILINE)


def test_every_file_of_attacks_is_named():
    files = {f"tests/security/{each.name}" for each in Path(__file__).parent.glob("test_*.py")}
    assert files - {path for path, _ in NAMED} == {"tests/security/test_index.py"}


def test_every_test_that_a_table_of_the_security_page_names_exists():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| [^\n]*\| test \|\n((?:\|[^\n]*\n)+)", page, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()[1:]]
    last_cells = [row.rstrip("| ").rpartition("|")[2] for row in rows]
    assert len(rows) > 25
    assert [
        row for row, cell in zip(rows, last_cells, strict=True) if not re.search(r"`test_\w+`|the same", cell)
    ] == []
    named = {name for row in rows for name in re.findall(r"`(test_\w+)`", row)}
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE)}
    assert named - defined == set()


def test_every_cell_about_macos_says_what_was_run():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\|[^\n]*\| Perdure on macOS \| test \|\n((?:\|[^\n]*\n)+)", page, re.MULTILINE)
    cells = [row.split("|")[-3] for table in tables for row in table.splitlines()[1:]]
    assert len(cells) > 20
    said = re.compile(r"simulated, `test_\w+`|not run|does not apply")
    assert [cell for cell in cells if not said.search(cell)] == []
