"""Arithmetic is found in sentences, and dates, ranges and versions are left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.arithmetic_in_text import find_arithmetic
from perdure.toolkits.arithmetic_evaluator import evaluate_arithmetic


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("What is 17 * 23?", 391),
        ("2+2", 4),
        ("What is 7/2?", 3.5),
        ("how much is 10 - 3", 7),
        ("calculate 7-3", 4),
        ("3 plus 4", 7),
        ("What is 3 times 4 plus 2?", 14),
        ("12 divided by 4", 3),
        ("12.5% of 80", 10),
        ("15 percent of 80, please", 12),
        ("the square root of 144", 12),
        ("sqrt(16) + 2", 6),
        ("2 to the power of 10", 1024),
        ("5 squared", 25),
        ("12 x 12", 144),
        ("1,000 * 3", 3000),
        ("Was ist (17 + 4) * 2?", 42),
        ("-5 + 3", -2),
        ("6*7=", 42),
    ],
)
def test_arithmetic_in_signs_and_words_is_found_and_can_be_calculated(sentence, value):
    (formula,) = find_arithmetic(sentence)
    assert evaluate_arithmetic(formula) == value


@pytest.mark.parametrize(
    "sentence",
    [
        "I was born in 1990-05-12",
        "on 12/05/1990",
        "open 24/7",
        "in 2-3 days",
        "call 555-1234",
        "python 3.11/3.12",
        "version 1.2.3",
        "at 10:30",
        "10%",
        "I have 3 cats and 4 dogs",
        "C++ 17",
        "",
    ],
)
def test_other_numbers_are_not_arithmetic(sentence):
    assert find_arithmetic(sentence) == []


@pytest.mark.parametrize("unit", ["1", "1 ", "(", "1+", "sqrt", "1,", "1 percent of "])
def test_a_long_sentence_is_read_quickly(unit):
    find_arithmetic(unit * 400)


@given(st.text(max_size=200))
def test_any_sentence_can_be_searched(sentence):
    assert all(formula.strip() for formula in find_arithmetic(sentence))


@pytest.mark.parametrize(
    ("sentence", "formulas"),
    [
        ("10-3", ["10-3"]),
        ("What is 10/4?", ["10/4"]),
        ("What's 10-3 = ?", ["10-3"]),
        ("the range 10-3", []),
        ("calculate 10-3 and 8/2", ["10-3", "8/2"]),
        ("10-3 10-3", ["10-3 10-3"]),
        ("10-3? 10-3", []),
        ("calculate 2024-01-02", []),
        ("2 + 2, or 3 * 4", ["2 + 2", "3 * 4"]),
        ("10 - 3 apples", ["10 - 3"]),
    ],
)
def test_digits_with_a_dash_or_slash_are_arithmetic_where_nothing_else_is_said(sentence, formulas):
    assert find_arithmetic(sentence) == formulas
