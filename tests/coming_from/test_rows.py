"""Every row of docs/coming-from that says *same* or *better* is shown by a test, and no test shows any other row."""

from pathlib import Path

import pytest

from tests.coming_from.shows import CLAIMS, claims_of, marks_in, shown, without_a_test
from tests.docs.reference_names import SYSTEMS
from tests.docs.test_coming_from import page_of

HERE = Path(__file__).parent


def is_complete(system: str) -> bool:
    """Whether every row of a system's page has to have its test: a system that is not there yet says so in a file."""
    return not (HERE / system.replace("-", "_") / "INCOMPLETE").exists()


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_row_that_says_same_or_better_has_a_test(system):
    if not is_complete(system):
        pytest.skip(f"{len(without_a_test(system))} names of {system} have no test yet")
    assert without_a_test(system) == [], f"no test shows these names; {page_of(system).name} says same or better"


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_name_that_a_test_shows_is_in_a_row(system):
    known = {name for claim in claims_of(system) for name in claim.names}
    unknown = [f"{each.name} ({each.test})" for each in shown() if each.system == system and each.name not in known]
    assert unknown == [], f"{page_of(system).name} has no such row"


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_test_shows_what_its_row_does_not_claim(system):
    verdicts = {name: claim.row.verdict for claim in claims_of(system) for name in claim.names}
    named = [each for each in shown() if each.system == system and each.name in verdicts]
    assert [f"{each.name} ({each.test})" for each in named if verdicts[each.name] not in CLAIMS] == []


def test_the_marks_above_tests_are_read():
    text = '@shows("glove", "Glove.fold", "Tool")\n@other\nasync def test_it(): ...\n\n@shows\ndef test_no(): ...\n'
    found = [(each.system, each.name, each.test) for each in marks_in(text, Path("tests/test_a.py"))]
    assert found == [("glove", "Glove.fold", "tests/test_a.py::test_it"), ("glove", "Tool", "tests/test_a.py::test_it")]
