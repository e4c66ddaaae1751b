"""JSON that is still being written."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._runtime.agent.partial_json import PartialJsonParser

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**50), 2**50)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def seen(text: str, cuts: list[int] | None = None) -> list[Any]:
    """The values that were shown, one for each change."""
    growing = PartialJsonParser()
    places = [0, *sorted(cuts), len(text)] if cuts is not None else list(range(len(text) + 1))
    return [growing.value for start, end in itertools.pairwise(places) if growing.feed(text[start:end])]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a": "xy"}', [{}, {"a": ""}, {"a": "x"}, {"a": "xy"}]),
        ('{"a": 12, "b": tr', [{}, {"a": 12}]),
        ('["\\u00e9\\n"]', [[], [""], ["é"], ["é\n"]]),
        ("[1, [2", [[], [1], [1, []]]),
        ('"\\ud83d\\ude00!"', ["", "😀", "😀!"]),
        ('"\\\\u"', ["", "\\", "\\u"]),
        ("no JSON", []),
        ("]", []),
    ],
)
def test_a_value_is_shown_as_far_as_it_has_come(text: str, shown: list[Any]) -> None:
    assert seen(text) == shown


@given(JSON.filter(lambda value: isinstance(value, (dict, list))), st.data())
def test_whatever_the_pieces_the_whole_value_is_seen_in_the_end(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    growing = PartialJsonParser()
    places = [0, *sorted(cuts), len(text)]
    for start, end in itertools.pairwise(places):
        growing.feed(text[start:end])
    assert growing.value == value


@given(st.text())
def test_text_that_is_no_json_never_raises(text: str) -> None:
    seen(text)


def test_a_long_text_in_small_pieces_is_not_decoded_with_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def decode(text: str) -> Any:
        decoded.append(len(text))
        return json.loads(text)

    monkeypatch.setattr("perdure._runtime.agent.partial_json.msgspec.json.decode", decode)
    value = {"rows": [{"name": f"row {number}", "number": number} for number in range(1_000)]}
    text = json.dumps(value)
    growing = PartialJsonParser()
    shown = sum([growing.feed(text[start : start + 4]) for start in range(0, len(text), 4)])
    assert growing.value == value
    assert shown > 100
    assert sum(decoded) < 100 * len(text)


def test_a_short_text_is_shown_with_each_piece() -> None:
    text = json.dumps({"answer": "short"})
    assert len(seen(text)) == len("short") + 2


def test_what_is_nested_without_end_never_raises() -> None:
    growing = PartialJsonParser()
    assert not growing.feed("[" * 100_000)
