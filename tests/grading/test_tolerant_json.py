"""JSON in replies of models: a hostile reply is read in bounded time."""

import json

import pytest

from perdure.grading import tolerant_json
from perdure.grading.tolerant_json import find_json_object, find_json_value, split_json_objects


class CountingDecoder(json.JSONDecoder):
    """Counts the tries, and the characters that they read."""

    tries = 0
    characters = 0

    def raw_decode(self, s, idx=0):
        self.tries += 1
        try:
            return super().raw_decode(s, idx)
        except json.JSONDecodeError as error:
            self.characters += error.pos - idx
            raise


@pytest.mark.parametrize("text", ["[" * 100_000, ("[" + "1," * 40) * 1_900], ids=["deep", "long"])
def test_values_that_never_end_are_given_up_soon(monkeypatch, text):
    decoder = CountingDecoder(strict=False)
    monkeypatch.setattr(tolerant_json, "_DECODER", decoder)
    assert find_json_value(text) is None
    assert decoder.tries < 400
    assert decoder.characters < 3 * tolerant_json.MOST_READ


def test_thinking_that_never_ends_is_text():
    assert find_json_value("<think>" * 20_000 + '{"a": 1}') == ({"a": 1},)
    assert find_json_object('<Think>{"a": 1}</think> <thought>x</thought>{"a": 2} <think>') == {"a": 2}


def test_all_objects_are_split_from_the_text_around_them():
    assert split_json_objects('{"a": {"b": 1},}') == ([{"a": {"b": 1}}], "")
    assert split_json_objects('x {"a": 1,} y [2] {"b": 3} {z') == ([{"a": 1}, {"b": 3}], "x  y [2]  {z")
