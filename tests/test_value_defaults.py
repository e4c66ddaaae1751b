"""The defaults of all public values, functions and methods, and all limits, are those of the table."""

from tests.value_defaults import NUMBER, TABLE, list_rows

HOW = "if the change is meant, run `python -m tests.value_defaults` and look at what changed"


def test_every_public_default_and_every_limit_is_the_one_in_the_table():
    known, found = TABLE.read_text("utf-8").splitlines(), list_rows()
    assert sorted(set(found) ^ set(known)) == [], HOW
    assert len(found) > 1_000


def test_numbers_of_a_module_are_found_whatever_they_look_like():
    source = (
        "MOST = 3\nMAX_BYTES: Final = 64 * 1024  # a page\nON = True\n_OWN = 4\nNAME = 'x'\n  INNER = 1\n"
        "_BOTH = (64, 76)\nANY = {1, 2.5}\nCODES = frozenset({400, 403})\nEMPTY = ()\nUNPACKED, OTHER = 1, 2\n"
    )
    assert NUMBER.findall(source) == [
        ("MOST", "3"),
        ("MAX_BYTES", "64 * 1024"),
        ("ON", "True"),
        ("_OWN", "4"),
        ("_BOTH", "(64, 76)"),
        ("ANY", "{1, 2.5}"),
        ("CODES", "frozenset({400, 403})"),
    ]
