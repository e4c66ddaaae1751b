"""Arguments that come value by value."""

import json

import pytest

from perdure._models.wires.gemini.reply import PartialCallBuilder


def arguments(*pieces: dict) -> dict:
    call = PartialCallBuilder("f", "", "")
    for piece in pieces:
        call.add_piece(piece)
    return json.loads(call.arguments)


def test_a_text_goes_on_where_it_stopped():
    assert arguments(
        {"jsonPath": "$.city", "stringValue": "Bos", "willContinue": True},
        {"jsonPath": "$.city", "stringValue": "ton", "willContinue": True},
        {"jsonPath": "$.city", "stringValue": ""},
    ) == {"city": "Boston"}


def test_a_text_that_was_finished_is_replaced():
    assert arguments({"jsonPath": "$.a", "stringValue": "x"}, {"jsonPath": "$.a", "stringValue": "y"}) == {"a": "y"}


def test_values_of_all_kinds_go_to_their_places():
    assert arguments(
        {"jsonPath": "$.n", "numberValue": 1.5},
        {"jsonPath": "$.b", "boolValue": False},
        {"jsonPath": "$.z", "nullValue": "NULL_VALUE"},
        {"jsonPath": "$.place.city", "stringValue": "Rome"},
        {"jsonPath": "$['a key'].x", "numberValue": 1},
        {"jsonPath": '$["it\\"s"]', "numberValue": 2},
        {"jsonPath": "$.list[0].name", "stringValue": "one"},
        {"jsonPath": "$.list[1].name", "stringValue": "two"},
        {"jsonPath": "$.list[1].size", "numberValue": 3},
        {"jsonPath": "$.grid[0][0]", "numberValue": 4},
        {"jsonPath": "$.grid[0][0]", "numberValue": 5},
    ) == {
        "n": 1.5,
        "b": False,
        "z": None,
        "place": {"city": "Rome"},
        "a key": {"x": 1},
        'it"s': 2,
        "list": [{"name": "one"}, {"name": "two", "size": 3}],
        "grid": [[5]],
    }


def test_an_element_far_beyond_the_end_is_the_next_one():
    assert arguments({"jsonPath": "$.l[999999999999]", "numberValue": 1}) == {"l": [1]}


@pytest.mark.parametrize("path", ["", "$", "city", "$..x", "$.a[b]", "$.s.inside", "$.s.in.side", "$.s[0]", "$[0]"])
def test_a_value_whose_place_cannot_be_reached_is_kept_under_the_name_of_the_place(path):
    found = arguments({"jsonPath": "$.s", "stringValue": "text"}, {"jsonPath": path, "numberValue": 7})
    assert found == {"s": "text", path: 7}


@pytest.mark.parametrize("piece", [{}, {"jsonPath": "$.a"}, {"jsonPath": 3, "numberValue": 1}, {"stringValue": "x"}])
def test_a_piece_that_says_nothing_changes_nothing(piece):
    assert arguments(piece) == {}


def test_arguments_that_came_at_once_are_the_beginning():
    call = PartialCallBuilder("f", "", "", '{"a": 1}')
    call.add_piece({"jsonPath": "$.b", "numberValue": 2})
    assert json.loads(call.arguments) == {"a": 1, "b": 2}
    assert PartialCallBuilder("f", "", "", "[1]").arguments == "{}"
