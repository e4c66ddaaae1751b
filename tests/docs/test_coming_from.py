"""docs/coming-from says of every name of four other systems what it is here, and names nothing that is not there."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from markdown_it.token import Token

from tests.docs.pages import ROOT, tokens_of
from tests.docs.perdure_names import problem_of
from tests.docs.reference_names import FOLDER, SYSTEMS, extracted, is_there, kept, unknown_exclusions

VERDICTS = ("same", "better", "left out", "planned")

needs_the_documents = pytest.mark.skipif(
    not is_there(), reason=f"the reference documents are not in {FOLDER}; PERDURE_SEEDS says where they are"
)


class Row(NamedTuple):
    """A row of a page: what it is called there, and what became of it."""

    line: int
    owners: tuple[str, ...]
    """What the heading above names: the types that the names of the row may be members of."""
    there: tuple[str, ...]
    verdict: str
    text: str
    here: tuple[str, ...]
    """The names of ours in it."""

    def names(self, known: set[str]) -> Iterator[str]:
        """The documented names that it is about."""
        for word in self.there:
            members = [f"{owner}.{word}" for owner in self.owners if f"{owner}.{word}" in known]
            yield from members or [word]


def page_of(system: str):
    return ROOT / "docs" / "coming-from" / f"{system}.md"


def codes(token: Token) -> tuple[str, ...]:
    """What stands in backticks."""
    return tuple(child.content for child in token.children or [] if child.type == "code_inline")


def rows_of(system: str) -> Iterator[Row]:
    """The rows of the tables whose last column is about Perdure."""
    owners: tuple[str, ...] = ()
    cells: list[Token] = []
    ours = False
    tokens = tokens_of(page_of(system))
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            owners = codes(tokens[at + 1])
        elif token.type == "tr_open":
            cells = []
        elif token.type in {"th_open", "td_open"}:
            cells.append(tokens[at + 1])
        elif token.type == "thead_close":
            ours = cells[-1].content == "Perdure"
        elif token.type == "tr_close" and ours and tokens[at - 1].type == "td_close":
            there, verdict, here = cells
            yield Row((there.map or [0])[0] + 1, owners, codes(there), verdict.content, here.content, codes(here))


def verdicts(system: str) -> dict[str, str]:
    """What each documented name's row says of it."""
    known = set(kept(system))
    return {name: row.verdict for row in rows_of(system) for name in row.names(known)}


def tally(system: str) -> str:
    """The last line of a page, as it has to be."""
    counts = Counter(verdicts(system).values())
    return f"{counts.total()} names: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS) + "."


# -- the lists ---------------------------------------------------------------------------------------------------------


@needs_the_documents
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_list_of_names_is_what_the_documents_hold(system):
    assert kept(system) == extracted(system), "run `python -m tests.docs.reference_names`"


@needs_the_documents
@pytest.mark.parametrize("system", SYSTEMS)
def test_nothing_is_excluded_that_no_document_holds(system):
    assert unknown_exclusions(system) == []


@pytest.mark.parametrize(
    ("system", "least"), [("glove", 350), ("glue", 350), ("open-agent-loops", 300), ("agentlib", 170)]
)
def test_the_lists_are_long(system, least):
    assert len(set(kept(system))) >= least


# -- the pages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_documented_name_has_a_row(system):
    assert sorted(set(kept(system)) - set(verdicts(system))) == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_name_has_two_rows_and_no_row_is_about_nothing(system):
    known = set(kept(system))
    named = Counter(name for row in rows_of(system) for name in row.names(known))
    assert sorted(name for name, count in named.items() if count > 1) == []
    assert sorted(set(named) - known) == []
    assert [row.line for row in rows_of(system) if not row.there] == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_row_says_what_became_of_its_name_and_where_or_why(system):
    for row in rows_of(system):
        place = f"{page_of(system).name}:{row.line}"
        assert row.verdict in VERDICTS, place
        assert row.text, f"{place}: says nothing"
        assert row.here or row.verdict in {"left out", "planned"}, f"{place}: names nothing of ours"


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_name_of_ours_is_there(system):
    problems = {problem_of(name) for row in rows_of(system) for name in row.here}
    assert sorted(problems - {""}) == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_last_line_counts(system):
    last = page_of(system).read_text(encoding="utf-8").rstrip().splitlines()[-1]
    assert last == tally(system)


STILL_PLANNED = {"glove": 4, "glue": 26, "open-agent-loops": 106, "agentlib": 18}
"""How many names of each system have no answer yet. The numbers go down only."""


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_more_names_are_planned_than_were(system):
    assert Counter(verdicts(system).values())["planned"] <= STILL_PLANNED[system]


# -- what the tests above rely on --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        "Agent",
        "Agent(stop=…)",
        "Session.run(input_id=…, model=…)",
        "@tool(effect=…)",
        "ToolContext.call_id",
        "ToolResult.render",
        "TextDelta",
        "Limits(max_turns=…)",
        "Agent(…).run",
        "perdure.stores.namespaced(…)",
        "perdure.ToolOptions",
        "asyncio.timeout",
        "perdure sessions fork",
        "perdure run --json",
    ],
)
def test_a_name_that_is_there_is_found(written):
    assert problem_of(written) == ""


@pytest.mark.parametrize(
    "written",
    [
        "Agnet",
        "Agent(stopp=…)",
        "Agent.stop_it",
        "Session.run(inputs=…)",
        "ToolContext.no_such",
        "ToolContext._run",
        "perdure.storess",
        "perdure._core.log.fold",
        "asyncio.no_such",
        "perdure sessions frok",
        "perdure run --jsno",
        "a name in words",
        "3",
        "open_model(…).stream",
    ],
)
def test_a_name_that_is_not_there_is_noticed(written):
    assert re.search(r": .", problem_of(written))
