"""Variables in texts."""

import pytest

from perdure import ConfigError
from perdure._config.variables import MAX_CHARACTERS, VariableExpander

ENVIRONMENT = {"HOST": "example.org", "EMPTY": "", "LOOP": "${HOST}"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("https://${HOST}/x", "https://example.org/x"),
        ("${HOST}${HOST}", "example.orgexample.org"),
        ("${MISSING:-words}", "words"),
        ("${MISSING:-}", ""),
        ("${HOST:-words}", "example.org"),
        ("${EMPTY}", ""),
        ("${EMPTY:-words}", "words"),
        ("${MISSING:-a:-b}", "a:-b"),
        ("${LOOP}", "${HOST}"),
        ("$HOST ${} ${1} ${HOST $(x)", "$HOST ${} ${1} ${HOST $(x)"),
    ],
)
def test_a_variable_stands_for_what_it_says(text, expanded):
    assert VariableExpander(ENVIRONMENT)(text) == expanded


def test_a_missing_variable_is_named():
    with pytest.raises(ConfigError, match=r"the variable TOKEN is not set: set it, or write \$\{TOKEN:-default\}"):
        VariableExpander({})("x ${TOKEN} y")


def test_all_texts_together_are_bounded():
    expand = VariableExpander({"BIG": "x" * 600_000})
    expand("${BIG}")
    with pytest.raises(ConfigError, match="more than 1,048,576 characters"):
        expand("${BIG}")


def test_as_many_characters_as_the_limit_are_taken_and_not_one_more():
    expand = VariableExpander({})
    assert expand("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    assert expand("") == ""
    with pytest.raises(ConfigError, match="use fewer variables"):
        expand("x")
