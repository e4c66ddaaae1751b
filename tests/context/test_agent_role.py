"""A role, and what it cannot be."""

import pytest

from perdure import ConfigError
from perdure.context import Role


def test_a_role_is_a_heading_and_its_instructions():
    assert str(Role("reviewer", "\nFind what is wrong.\n")) == "## Role: reviewer\n\nFind what is wrong."


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"name": ""}, "Role(name=''): give non-empty text"),
        ({"name": "two\nlines"}, "on one line"),
        ({"name": " blank "}, "without blanks"),
        ({"name": "x" * 65}, "at most 64 characters"),
        ({"name": "turned\u202e"}, "on one line"),
        ({"name": 7}, "Role(name=7)"),
        ({"instructions": " "}, "Role(instructions=' '): give non-empty text"),
        ({"instructions": "\ud800"}, "UTF-8"),
        ({"instructions": "a\0b"}, "without NUL"),
        ({"description": None}, "Role(description=None)"),
        ({"description": "x" * 1025}, "at most 1024 characters"),
        ({"model": 7}, "Role(model=7)"),
    ],
)
def test_what_is_no_role_is_refused(fields, complaint):
    with pytest.raises(ConfigError) as caught:
        Role(**{"name": "reviewer", "instructions": "Look.", **fields})
    assert complaint in str(caught.value)
