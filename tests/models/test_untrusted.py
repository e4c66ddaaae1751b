"""JSON of somebody else: what is not as it should be counts as absent."""

import msgspec
import pytest

from perdure.models.untrusted import count, mapping, mappings, parsed, text


def test_what_is_as_it_should_be_is_taken() -> None:
    assert mapping({"a": 1}) == {"a": 1}
    assert mappings([{"a": 1}, 2, {}]) == [{"a": 1}, {}]
    assert text("a") == "a"
    assert count(3) == 3


def test_anything_else_counts_as_absent() -> None:
    assert mapping([1]) == {}
    assert mappings({"a": 1}) == []
    assert text(None) == ""
    assert [count(each) for each in (-1, True, "3", 2.5, None)] == [0, 0, 0, 0, 0]


def test_json_that_only_browsers_take_is_read_with_text_that_can_be_encoded() -> None:
    assert parsed(b'{"a": "\\ud800", "b": NaN}') == {"a": "\ufffd", "b": "NaN"}
    assert parsed('{"a": "\t"}') == {"a": "\t"}


@pytest.mark.parametrize("told", [b"", b"{", b'{"a": "\xff', b"[" * 100_000, "no"])
def test_what_is_no_json_says_so_in_one_way(told: bytes | str) -> None:
    with pytest.raises(msgspec.DecodeError):
        parsed(told)
