"""Ties the rows of docs/coming-from to the tests that show them.

    python -m tests.coming_from.shows      lists the names whose rows have no test yet, by system

A row that says *same* or *better* is shown by a test that does with our name what the other system's reference says of
theirs. Such a test says which rows it shows:

    @shows("glove", "IGloveRunnable.processRequest", "Message.text")
    async def test_a_request_is_answered(): ...

A name is written as in the first column of the page, after the owner that the heading above its table names, if it has
one: `Owner.member`, `Owner."literal"`, or `name`. tests/coming_from/test_rows.py compares the two sides.
"""

import ast
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.docs.pages import ROOT
from tests.docs.reference_names import SYSTEMS, kept
from tests.docs.test_coming_from import Row, rows_of

F = TypeVar("F", bound=Callable[..., object])

CLAIMS = frozenset({"same", "better"})
"""The verdicts that need a test."""


def shows(system: str, *names: str) -> Callable[[F], F]:
    """Mark a test as one that shows the rows of these names."""
    assert system in SYSTEMS, f"{system!r} has no page: use one of {', '.join(SYSTEMS)}"
    assert names, "a test shows at least one row"
    return lambda test: test


class Shown(NamedTuple):
    """A name that a test says it shows."""

    system: str
    name: str
    test: str
    """Its file and its function."""


@functools.cache
def shown() -> tuple[Shown, ...]:
    """What the tests of the repository say they show; read from their source, so none of them is imported."""
    found: list[Shown] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "@shows(" in text:
            found += marks_in(text, path.relative_to(ROOT))
    return tuple(found)


def marks_in(text: str, place: Path) -> Iterator[Shown]:
    """Every name in the `@shows(…)` above each test of a file."""
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "shows":
                system, *names = [ast.literal_eval(argument) for argument in mark.args]
                yield from (Shown(system, name, f"{place.as_posix()}::{node.name}") for name in names)


class Claim(NamedTuple):
    """A word of a page's first column, with what its row says of it."""

    row: Row
    names: tuple[str, ...]
    """The documented names that it stands for: several when the owners above the table share it."""


def claims_of(system: str) -> list[Claim]:
    """Every word of the first columns of a page."""
    known = set(kept(system))
    return [
        Claim(row, tuple(row._replace(there=(word,)).names(known))) for row in rows_of(system) for word in row.there
    ]


def without_a_test(system: str) -> list[str]:
    """The names whose rows say *same* or *better*, and that no test shows."""
    names = {each.name for each in shown() if each.system == system}
    claims = [claim for claim in claims_of(system) if claim.row.verdict in CLAIMS]
    return [claim.names[0] for claim in claims if not names & set(claim.names)]


def main() -> None:
    """Print what is missing."""
    for system in SYSTEMS:
        names = without_a_test(system)
        sys.stdout.write(f"{system}: {len(names)} names without a test\n" + "".join(f"    {name}\n" for name in names))


if __name__ == "__main__":
    main()
