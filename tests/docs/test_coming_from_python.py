"""The pages for people who come from pydantic-ai, openai-agents and LangGraph name what is there, on both sides."""

import json
import re
import subprocess
from typing import NamedTuple

import pytest
from markdown_it.token import Token

from tests.docs.pages import ROOT, tokens_of
from tests.docs.perdure_names import problem_of
from tests.docs.rival_names import problem_of as problem_of_theirs
from tests.docs.test_coming_from import codes

PINS = dict(
    re.sub(r"\[.*\]", "", line).split("==")
    for path in (ROOT / "bench" / "peers" / "requirements").glob("*.txt")
    for line in path.read_text(encoding="utf-8").split()
)
ROOTS = {
    "pydantic-ai": ["pydantic_ai"],
    "openai-agents": ["agents"],
    "langgraph": [
        "langgraph.graph",
        "langgraph.graph.state",
        "langgraph.types",
        "langgraph.func",
        "langgraph.prebuilt",
        "langgraph.errors",
        "langgraph.runtime",
        "langchain.agents",
        "langchain.agents.middleware",
        "langchain_core.tools",
        "langchain_core.messages",
    ],
}
"""The modules that the names of a page are in, unless it writes their full paths."""


class Row(NamedTuple):
    """A row of a table: their names and ours."""

    line: int
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    text: str


def page_of(system: str):
    return ROOT / "docs" / "coming-from" / f"{system}.md"


def rows_of(system: str) -> list[Row]:
    """The rows of the tables whose second and last column is about Perdure."""
    found: list[Row] = []
    cells: list[Token] = []
    ours = False
    tokens = tokens_of(page_of(system))
    for at, token in enumerate(tokens):
        if token.type == "tr_open":
            cells = []
        elif token.type in {"th_open", "td_open"}:
            cells.append(tokens[at + 1])
        elif token.type == "thead_close":
            ours = cells[-1].content == "Perdure"
        elif token.type == "tr_close" and ours and tokens[at - 1].type == "td_close":
            theirs, here = cells
            found.append(Row((theirs.map or [0])[0] + 1, codes(theirs), codes(here), here.content))
    return found


@pytest.mark.parametrize("system", ROOTS)
def test_every_row_names_something_of_theirs_and_says_what_it_is_here(system):
    assert len(rows_of(system)) >= 40
    for row in rows_of(system):
        assert row.theirs, f"{system}.md:{row.line}"
        assert row.ours or "not" in row.text, f"{system}.md:{row.line}: names nothing of ours, and does not say so"


@pytest.mark.parametrize("system", ROOTS)
def test_every_name_of_ours_is_there(system):
    names = {name for row in rows_of(system) for name in row.ours if not name.startswith('"')}
    assert sorted({problem_of(name) for name in names} - {""}) == []


@pytest.mark.parametrize("system", ROOTS)
def test_no_name_of_theirs_has_two_rows(system):
    names = [name for row in rows_of(system) for name in row.theirs]
    assert sorted({name for name in names if names.count(name) > 1}) == []


@pytest.mark.parametrize("system", ROOTS)
def test_the_page_says_which_version_it_is_about_and_what_is_missing_here(system):
    text = page_of(system).read_text(encoding="utf-8")
    package = {"pydantic-ai": "pydantic-ai-slim"}.get(system, system)
    assert PINS[package] in text.partition("\n## ")[0], (
        "bench/peers/requirements pins another version: read the page again"
    )
    assert re.search(r"^## What \S+ has and Perdure does not$", text, re.MULTILINE)


@pytest.mark.parametrize("system", ROOTS)
def test_every_name_of_theirs_is_there(system):
    python = ROOT / ".venv-bench" / system / "bin" / "python"
    if not python.exists():
        pytest.skip("the packages are not installed: `make peers` makes .venv-bench")
    asked = {"roots": ROOTS[system], "names": sorted({name for row in rows_of(system) for name in row.theirs})}
    done = subprocess.run(
        [python, ROOT / "tests" / "docs" / "rival_names.py"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("name", ["Path", "Path.read_text(encoding=…)", "@Path", "json.decoder.JSONDecoder(strict=…)"])
def test_a_name_of_theirs_that_is_there_is_found(name):
    assert problem_of_theirs(name, ["pathlib"]) == ""


@pytest.mark.parametrize("name", ["Paht", "Path.red_text", "Path.read_text(encodign=…)", "json.decodre", "a name"])
def test_a_name_of_theirs_that_is_not_there_is_noticed(name):
    assert problem_of_theirs(name, ["pathlib"]).startswith(f"{name}: ")
