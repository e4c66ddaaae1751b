"""What may be asked of a search."""

from typing import Any

import pytest

from perdure import ConfigError
from perdure._stores.checks import (
    MAX_HITS,
    MAX_QUERY_LENGTH,
    MAX_QUERY_TERMS,
    SearchRequest,
    split_query,
    validate_search,
)


def test_what_makes_sense_is_taken_as_it_is():
    found = validate_search("two words", {"role": "tool", "since": 1, "until": 2.5, "limit": MAX_HITS, "offset": 7})
    assert (found.query, found.role, found.since, found.until, found.limit, found.offset) == (
        "two words",
        "tool",
        1,
        2.5,
        100,
        7,
    )


def test_what_no_database_can_hold_is_replaced():
    assert validate_search("a\0b \ud800", {}).query == "a b \ufffd"


@pytest.mark.parametrize("query", ["", " \t\n", None, 7, b"words", "x" * (MAX_QUERY_LENGTH + 1)])
def test_a_query_that_is_none_is_refused(query):
    with pytest.raises(ConfigError):
        validate_search(query, {})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("syntax", "regex", "syntax='regex' is not known"),
        ("role", "system", "role='system' says nothing that is kept"),
        ("limit", 0, "limit=0 is not possible: pass 1 to 100"),
        ("limit", 101, "limit=101 is not possible: pass 1 to 100, and use offset"),
        ("limit", "20", "limit='20' is not possible"),
        ("offset", -1, "offset=-1 is not possible"),
        ("since", "yesterday", "since='yesterday' is no time"),
        ("since", True, "since=True is no time"),
        ("until", float("nan"), "until=nan is no time"),
        ("session_id", "a\0", "a session id must be text"),
        ("prefix", 7, "a prefix must be a string"),
        ("author", "me", "cannot be narrowed by author: use syntax, session_id, prefix, role"),
    ],
)
def test_anything_else_that_makes_no_sense_is_refused(name, value, complaint):
    narrowed: Any = {name: value}
    with pytest.raises(ConfigError, match=complaint):
        validate_search("words", narrowed)


def test_a_word_that_is_said_twice_counts_once():
    assert split_query(" rain  in\nOslo rain ") == ["rain", "in", "Oslo"]


def test_there_are_only_so_many_words():
    words = [f"w{number}" for number in range(MAX_QUERY_TERMS)]
    assert split_query(" ".join(words)) == words
    with pytest.raises(ConfigError, match="64 words at most, and this one has 65"):
        split_query(" ".join([*words, "more"]))


def test_what_is_not_said_covers_everything_and_finds_twenty() -> None:
    assert validate_search("rain", {}) == SearchRequest("rain", "words", "", "", "", None, None, 20, 0)


def test_the_largest_query_and_the_smallest_page_are_taken() -> None:
    query = "x" * MAX_QUERY_LENGTH
    assert validate_search(query, {"limit": 1}) == SearchRequest(query, limit=1)
    with pytest.raises(ConfigError) as refused:
        validate_search(query + "x", {})
    assert str(refused.value).startswith(f"a query has {MAX_QUERY_LENGTH} characters at most, and ")
    assert str(refused.value).endswith(f" has {MAX_QUERY_LENGTH + 1}")


@pytest.mark.parametrize(
    "narrowed", [{"syntax": "query"}, {"role": "user"}, {"role": "assistant"}, {"since": 0}, {"until": -1.5}]
)
def test_each_way_to_narrow_a_search_is_taken(narrowed: Any) -> None:
    assert validate_search("rain", narrowed) == SearchRequest("rain", **narrowed)


@pytest.mark.parametrize(
    ("query", "narrowed", "problem"),
    [
        (" ", {}, "there is nothing to look for in ' ': pass a word or several"),
        (
            "rain",
            {"b": 1, "a": 2},
            ("a search cannot be narrowed by a, b: use syntax, session_id, prefix, role, since, until, limit, offset"),
        ),
        ("rain", {"syntax": "x"}, "syntax='x' is not known: pass 'words' or 'query'"),
        (
            "rain",
            {"role": "x"},
            "role='x' says nothing that is kept: pass one of user, assistant, tool, or leave it out",
        ),
        ("rain", {"limit": 0}, "limit=0 is not possible: pass 1 to 100, and use offset for further pages"),
        (
            "rain",
            {"until": float("inf")},
            "until=inf is no time: pass seconds since 1970, as time.time() gives them",
        ),
    ],
)
def test_what_makes_no_sense_is_told_with_what_does(query: str, narrowed: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_search(query, narrowed)
    assert str(refused.value) == problem
