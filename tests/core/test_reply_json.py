"""JSON in replies of models: found between other words, and a hostile reply is read in bounded time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._core.model import json_reply
from perdure._core.model.json_reply import is_true, list_json_objects, list_json_values, separate_json_from_text


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
    monkeypatch.setattr(json_reply, "_DECODER", decoder)
    assert list_json_values(text) == []
    assert decoder.tries < 400
    assert decoder.characters < 3 * json_reply.MOST_READ


def test_only_so_many_brackets_are_tried():
    assert list_json_values("[x" * (json_reply.MOST_BEGINNINGS - 1) + "[1]") == [[1]]
    assert list_json_values("[x" * json_reply.MOST_BEGINNINGS + "[1]") == []


def test_thinking_that_never_ends_is_text():
    assert list_json_values("<think>" * 20_000 + '{"a": 1}') == [{"a": 1}]
    assert list_json_values('<Think>{"a": 1}</think> <thought>x</thought>{"a": 2} <think>') == [{"a": 2}]


def test_all_objects_are_split_from_the_text_around_them():
    assert separate_json_from_text('{"a": {"b": 1},}') == ([{"a": {"b": 1}}], "")
    assert separate_json_from_text('x {"a": 1,} y [2] {"b": 3} {z') == ([{"a": 1}, {"b": 3}], "x  y [2]  {z")


def test_the_last_value_of_a_reply_comes_first_and_one_in_a_code_fence_before_others():
    assert list_json_values('{"a": 1} then {"a": 2,}') == [{"a": 2}, {"a": 1}]
    assert list_json_values("```json\n[1]\n``` or ```\n[2]\n``` not ```x``` [3]")[:2] == [[2], [1]]
    assert list_json_values(" 5 ") == [5]
    assert list_json_values("no brackets") == []
    assert list_json_objects('[1] {"a": {"b": 1}} and {"c": 2}') == [{"a": {"b": 1}}, {"c": 2}]


@pytest.mark.parametrize("text", ["NaN", '{"score": NaN}', '{"score": -Infinity}', "9" * 5000])
def test_numbers_that_json_does_not_have_are_not_found(text):
    assert list_json_values(text) == []


def test_words_with_which_models_mean_true():
    assert is_true(True)
    assert is_true(" Yes")
    assert not is_true("no")
    assert not is_true(1)


@given(st.text(alphabet='{}[]",:0a \n`<think>/', max_size=200))
def test_no_reply_makes_the_search_for_json_fail(text):
    list_json_values(text)
    separate_json_from_text(text)


def test_no_more_is_read_once_as_much_was_read_as_may_be(monkeypatch):
    monkeypatch.setattr(json_reply, "MOST_READ", 3)
    assert list_json_values("[x[x[1]") == [[1]]
    monkeypatch.setattr(json_reply, "MOST_READ", 2)
    assert list_json_values("[x[x[1]") == []
