"""Arithmetic from text."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ToolError
from perdure._tools.basic import MOST_BITS, MOST_CHARACTERS, evaluate_arithmetic, format_number


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("17 * 23", "391"),
        ("(17 + 4) * 2 - 1", "41"),
        ("7 // 2 + 7 % 2", "4"),
        ("2^10", "1024"),
        ("2 ** -1", "0.5"),
        ("10 / 4", "2.5"),
        ("10 / 5", "2"),
        ("0.1 + 0.2", "0.3"),
        ("6 × 7 − 2 ÷ 2", "41"),  # noqa: RUF001 - as people type it
        ("-(+3)", "-3"),
        ("1_000 * 1e3", "1000000"),
        ("max(1, 2, min(9, 8)) + abs(-2)", "10"),
        ("round(2.6) + floor(2.6) + ceil(2.2)", "8"),
        ("sqrt(16) * pi", "12.5663706143592"),
        ("1 ** 1000000000", "1"),
    ],
)
def test_it_calculates(expression, result):
    assert format_number(evaluate_arithmetic(expression)) == result


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "invalid syntax"),
        ("1 +", "invalid syntax"),
        ("1 2", "invalid syntax"),
        ("((1)", "never closed"),
        ("1 / 0", "divides by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("1e308 * 10", "too large"),
        ("1e999", "too large"),
        ("sqrt(10 ** 800)", "too large"),
        ("10 ** 1000 * 10 ** 1000", "too large"),
        ("(-8) ** 0.5", "no real result"),
        ("sqrt(-1)", "cannot be calculated"),
        ("(1, 2)", "'(1, 2)' is no number"),
        ("1()", "is no number"),
        ("min(3)", "cannot be calculated"),
        ("round(2.5, 1000000000)", "cannot be calculated"),
        ("pi(2)", "is no number"),
        ("sqrt", "'sqrt' is no number"),
        ("__import__('os').system('ls')", 'not arithmetic from "__import__'),
        ("(1).real", "not arithmetic from '.real' on"),
        ("1 if 2 else 3", "not arithmetic from 'if 2 else 3' on"),
        ("1if 2else 3", "not arithmetic"),
        ("'a' * 10", "not arithmetic"),
        ("1" * (MOST_CHARACTERS + 1), "501 characters, and 500 are the most"),
        ("\0", "not arithmetic"),
    ],
)
def test_what_cannot_be_calculated_is_said(expression, problem):
    with pytest.raises(ToolError) as raised:
        evaluate_arithmetic(expression)
    assert problem in str(raised.value)


@given(st.text("0123456789.eE+-*/%^() ,abcdefghilmnopqrstux_", max_size=60))
def test_no_expression_raises_anything_else_or_takes_long(expression):
    began = time.process_time()
    with contextlib.suppress(ToolError):
        assert format_number(evaluate_arithmetic(expression))
    assert time.process_time() - began < 1


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_whole_numbers_are_exact(one, other):
    assert evaluate_arithmetic(f"({one}) * ({other}) + {one}") == one * other + one


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((1e15 - 1, "999999999999999"), (1e15, "1e+15"), (-1e15, "-1e+15")),
        *((1 / 3, "0.333333333333333"), (10**16, "1" + "0" * 16)),
    ],
)
def test_a_whole_number_is_written_out_as_long_as_it_is_exact(number, text):
    assert format_number(number) == text


@pytest.mark.parametrize("base", ["2", "-2", "3", "-3"])
def test_a_power_that_is_too_large_is_not_computed(base):
    with pytest.raises(ToolError, match="it becomes too large"):
        evaluate_arithmetic(f"({base}) ** 100000000000")


def test_a_number_may_have_as_many_bits_as_the_limit_says():
    half, most = MOST_BITS // 2, 2**MOST_BITS - 1
    assert 2 * half == MOST_BITS
    assert evaluate_arithmetic(f"(2 ** {half} - 1) * (2 ** {half} + 1)") == most
    with pytest.raises(ToolError, match="it becomes too large"):
        evaluate_arithmetic(f"(2 ** {half} - 1) * (2 ** {half} + 1) + 1")
