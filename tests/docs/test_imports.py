"""What the pages import and install: public names from `perdure` itself, and extras that there are."""

import ast
import re
import tomllib

import pytest

import perdure
from tests.docs.pages import PAGES, ROOT, blocks_of, name_of

AUTHORS = {"docs/how-to/write-a-store.md", "docs/how-to/write-a-provider.md"}
"""Pages that name the modules of the parts they are about."""


@pytest.mark.parametrize("page", [each for each in PAGES if name_of(each) not in AUTHORS], ids=name_of)
def test_a_public_name_is_imported_from_the_package_and_not_from_a_module_within(page):
    found: list[str] = []
    for block in blocks_of(page):
        for line in block.text.splitlines() if block.language == "python" else ():
            if re.match(r"from perdure\.(core|runtime|context|models)\S* import [\w, ]+$", line.strip()):
                (statement,) = ast.parse(line.strip()).body
                assert isinstance(statement, ast.ImportFrom)
                found += [f"{line.strip()}: {each.name}" for each in statement.names if each.name in dir(perdure)]
    assert found == []


def test_the_tour_lists_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    table = page.partition("| extra |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(project["optional-dependencies"])
