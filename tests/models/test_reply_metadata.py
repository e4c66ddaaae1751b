"""What providers say about a reply, under common names."""

import pytest

from perdure._models.wires.reply_metadata import drop_empty_fields, get_served_model, has_content_filter_hit


def test_fields_that_are_empty_are_left_out():
    assert drop_empty_fields(a=None, b="", c=[], d={}, e=0, f=False, g="x", h=[0]) == {
        "e": 0,
        "f": False,
        "g": "x",
        "h": [0],
    }


@pytest.mark.parametrize(
    ("served", "requested", "told"),
    [
        ("gpt-5-2025", "gpt-5", "gpt-5-2025"),
        ("gpt-5", "gpt-5", ""),
        ("openai/gpt-5", "gpt-5", ""),
        ("gpt-5", "openai/gpt-5", ""),
        ("a/b/gpt-5", "c/gpt-5", ""),
        ("openai/gpt-5", "gpt-4", "openai/gpt-5"),
        (None, "gpt-5", ""),
        (5, "gpt-5", ""),
    ],
)
def test_the_model_that_answered_is_told_only_if_it_is_another(served, requested, told):
    assert get_served_model(served, requested) == told


@pytest.mark.parametrize(
    ("filters", "is_hit"),
    [
        ({"hate": {"filtered": True}}, True),
        ({"hate": {"filtered": False}, "jailbreak": {"detected": True}}, True),
        ([{"a": 1}, {"b": [{"blocked": True}]}], True),
        ({"filtered": "yes"}, False),
        ({"filtered": 1}, False),
        ({"other": True}, False),
        ({"hate": {"filtered": False, "severity": "safe"}}, False),
        ([], False),
        ({}, False),
        (None, False),
        (True, False),
    ],
)
def test_a_filter_has_found_something_wherever_it_says_so(filters, is_hit):
    assert has_content_filter_hit(filters) is is_hit
