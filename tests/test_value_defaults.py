"""The defaults of all public values, functions and methods are those of the table."""

from tests.value_defaults import TABLE, list_defaults

HOW = "if the change is meant, run `python -m tests.value_defaults` and look at what changed"


def test_every_public_default_is_the_one_in_the_table():
    known, found = TABLE.read_text(encoding="utf-8").splitlines(), list_defaults()
    assert sorted(set(found) ^ set(known)) == [], HOW
    assert len(found) > 500
