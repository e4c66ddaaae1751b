"""What may be so long is taken as it is at that length, and one character less; one more is too long."""

from collections.abc import Callable

import pytest

from perdure import ConfigError, Message, Text, ToolResult
from perdure._core.model import size_limit
from perdure._core.model.size_limit import check_content_size, replace_oversized_result, truncate_oversized_reply
from perdure._core.values.jsonable import MAX_ERROR_CHARACTERS, error_message, short_repr
from perdure._core.values.message import MAX_TOKENS, is_cost
from perdure.tools import to_jsonable

MOST = 50


def is_kept_of_an_error(length: int) -> bool:
    text = "x" * length
    return error_message(ValueError(text)) == text


def is_taken_from_a_caller(length: int) -> bool:
    try:
        check_content_size([Text("x" * (length - 1)), Text("y")], "the prompt")
    except ConfigError:
        return False
    return True


def is_stored_as_a_reply(length: int) -> bool:
    reply = Message("assistant", (Text("x" * (length - 1)), Text("y")))
    return truncate_oversized_reply(reply) == reply


def is_stored_as_a_result(length: int) -> bool:
    result = ToolResult("c", "look", (Text("x" * length),))
    return replace_oversized_result(result) == result


@pytest.mark.parametrize(
    ("most", "is_taken"),
    [
        (MAX_ERROR_CHARACTERS, is_kept_of_an_error),
        (MOST, is_taken_from_a_caller),
        (MOST, is_stored_as_a_reply),
        (MOST, is_stored_as_a_result),
    ],
)
def test_a_length_is_allowed_up_to_its_bound(monkeypatch, most: int, is_taken: Callable[[int], bool]):
    monkeypatch.setattr(size_limit, "MAX_CONTENT_CHARACTERS", MOST)
    assert [is_taken(most - 1), is_taken(most), is_taken(most + 1)] == [True, True, False]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_whole_number_is_one_up_to_the_largest_that_a_log_can_have(sign):
    largest = 2**63 - 1
    numbers = [sign * (largest - 1), sign * largest, sign * (largest + 1)]
    assert to_jsonable(numbers) == [*numbers[:2], str(numbers[2])]


def test_a_repr_is_shown_whole_up_to_its_length():
    assert [short_repr("x" * length, 10) for length in (7, 8, 9)] == ["'xxxxxxx'", "'xxxxxxxx'", "'xxxxxxxx…"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-1, False),
        (-1e-9, False),
        (0, True),
        (0.0, True),
        (1e-9, True),
        (MAX_TOKENS - 1, True),
        (MAX_TOKENS, True),
        (float(MAX_TOKENS), True),
        (MAX_TOKENS + 1, False),
        (float("inf"), False),
        (float("nan"), False),
        (True, False),
        (None, False),
        ("1", False),
    ],
)
def test_a_cost_is_a_number_within_its_bounds(value, expected):
    assert is_cost(value) is expected
