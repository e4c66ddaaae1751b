"""Which line of a JSON text each value stands on, held against what the parser of Python reads."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.configuring.json_line_numbers import find_json_line_numbers
from perdure.configuring.line_numbers import ScanError
from tests.configuring.test_toml_line_numbers import paths_in

DOCUMENT = """{
  "a": 1,
  "b\\u0062": [
    {"c": "}"},
    null, true
  ], "d": {}
}
"""


def test_each_value_has_the_line_of_its_key():
    lines = find_json_line_numbers(DOCUMENT)
    assert lines.line_of(()) == 1
    assert lines.line_of(("a",)) == 2
    assert lines.line_of(("bb",)) == 3
    assert lines.line_of(("bb", 0, "c")) == 4
    assert lines.line_of(("bb", 2)) == 5
    assert lines.line_of(("d",)) == 6


def test_a_key_that_is_there_twice_is_refused():
    with pytest.raises(ScanError) as caught:
        find_json_line_numbers('{"a": 1,\n"\\u0061": 2}')
    assert caught.value.line == 2
    assert caught.value.message == "the key 'a' is there twice: keep one"


@pytest.mark.parametrize(
    "text", ["", "{", "{a: 1}", '{"a" 1}', '{"a": }', "[1 2]", "{} {}", '"\n"', '{"\\q": 1}', "[1", '{"a":1']
)
def test_what_is_no_json_is_noticed(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    with pytest.raises(ScanError):
        find_json_line_numbers(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_what_is_too_deep_is_refused(text):
    with pytest.raises(ScanError, match="nested deeper"):
        find_json_line_numbers(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([None, 1, 4]), st.booleans())
def test_whatever_is_written_as_json_has_lines(value, indent, ascii_only):
    lines = find_json_line_numbers(json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    assert [path for path in paths_in(value) if path not in lines] == []
