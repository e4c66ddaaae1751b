"""`/name` in a text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.directives.token import MOST_TOKENS, Token, mark


def marked(text: str, *names: str) -> tuple[str, list[Token]]:
    return mark(text, names.__contains__)


@pytest.mark.parametrize(
    ("text", "after", "arguments"),
    [
        ("/plan", "[/plan]", [""]),
        ("/plan the  trip ", "[/plan] the  trip ", ["the  trip"]),
        ("Please /plan\nthe trip", "Please [/plan]\nthe trip", [""]),
        ("a\t/plan b\r\nc", "a\t[/plan] b\r\nc", ["b"]),
        ("/plan /plan x", "[/plan] [/plan] x", ["/plan x", "x"]),
        ("/plan\n/plan", "[/plan]\n[/plan]", ["", ""]),
        ("`/plan` and\n```\n/plan\n```\n/plan b", "`/plan` and\n```\n/plan\n```\n[/plan] b", ["b"]),
    ],
)
def test_a_token_is_marked_and_given_the_rest_of_its_line(text, after, arguments):
    result, found = marked(text, "plan")
    assert result == after
    assert [token.arguments for token in found] == arguments


@pytest.mark.parametrize(
    "text", ["/plans", "a/plan", "/plan/b", "//plan", "/plan.", "(/plan)", "[/plan]", "/Plan", "/1", "/", "", "plan"]
)
def test_anything_else_stays_as_it_is(text):
    assert marked(text, "plan", "1", "") == (text, [])


def test_names_may_have_digits_hyphens_and_underscores():
    assert marked("/a-1_b x /é", "a-1_b", "é") == ("[/a-1_b] x /é", [("a-1_b", "x /é")])


@given(st.text() | st.text("/ab `\n", max_size=60))
def test_no_text_raises_and_what_nobody_takes_is_unchanged(text):
    assert mark(text, lambda _: False) == (text, [])


@given(st.text("/ab `\n~", max_size=60))
def test_what_is_marked_is_no_token_any_more(text):
    once, found = marked(text, "a", "b", "ab")
    assert marked(once, "a", "b", "ab") == (once, [])
    assert len(once) == len(text) + 2 * len(found)


def test_only_so_many_are_taken_and_no_text_takes_long():
    began = time.process_time()
    text, found = marked("/a " * 50_000, "a")
    assert (len(found), text.count("[/a]")) == (MOST_TOKENS, MOST_TOKENS)
    assert marked("/b " * 50_000, "a")[1] == []
    assert time.process_time() - began < 2
