"""Names of tools that every provider takes."""

import pytest

from perdure._models.wires.tools import sanitize_tool_name


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("weather", "weather"),
        ("get-file_2", "get-file_2"),
        ("functions.weather", "functions_weather"),
        ("with blanks é\0", "with_blanks_"),
        ("", "_"),
        ("x" * 65, "x" * 64),
    ],
)
def test_a_name_of_any_kind_becomes_one_that_is_taken(name, taken):
    assert sanitize_tool_name(name) == taken
