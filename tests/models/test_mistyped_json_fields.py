"""JSON of somebody else: what is not as it should be counts as absent."""

import msgspec
import pytest

from perdure._models.wires.lenient_json import as_count, as_dict, as_dicts, as_list, as_text, parse_lenient_json


def test_what_is_as_it_should_be_is_taken() -> None:
    assert as_dict({"a": 1}) == {"a": 1}
    assert as_dicts([{"a": 1}, 2, {}]) == [{"a": 1}, {}]
    assert as_text("a") == "a"
    assert [as_count(each) for each in (0, 1, 3)] == [0, 1, 3]


def test_anything_else_counts_as_absent() -> None:
    assert as_dict([1]) == {}
    assert as_dicts({"a": 1}) == []
    assert as_text(None) == ""
    assert [as_count(each) for each in (-1, True, "3", 2.5, None)] == [0, 0, 0, 0, 0]


def test_json_that_only_browsers_take_is_read_with_text_that_can_be_encoded() -> None:
    assert parse_lenient_json(b'{"a": "\\ud800", "b": NaN}') == {"a": "\ufffd", "b": "NaN"}
    assert parse_lenient_json('{"a": "\t"}') == {"a": "\t"}


@pytest.mark.parametrize("told", [b"", b"{", b'{"a": "\xff', b"[" * 100_000, "no"])
def test_what_is_no_json_says_so_in_one_way(told: bytes | str) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse_lenient_json(told)


def test_a_list_is_itself_and_anything_else_is_empty():
    assert list(as_list([1, "a"])) == [1, "a"]
    assert [*map(list, map(as_list, (None, "ab", {"a": 1}, 7)))] == [[], [], [], []]
