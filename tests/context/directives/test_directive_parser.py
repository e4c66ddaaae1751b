"""`/name` and `@path` in a text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._context.directives.parser import MAX_TOKENS, SlashToken, mark_slash_names, parse_mentions


def marked(text: str, *names: str) -> tuple[str, list[SlashToken]]:
    return mark_slash_names(text, names.__contains__)


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
    assert mark_slash_names(text, lambda _: False) == (text, [])


@given(st.text("/ab `\n~", max_size=60))
def test_what_is_marked_is_no_token_any_more(text):
    once, found = marked(text, "a", "b", "ab")
    assert marked(once, "a", "b", "ab") == (once, [])
    assert len(once) == len(text) + 2 * len(found)


def test_only_so_many_are_taken_and_no_text_takes_long():
    began = time.process_time()
    text, found = marked("/a " * 50_000, "a")
    assert (len(found), text.count("[/a]")) == (MAX_TOKENS, MAX_TOKENS)
    assert marked("/b " * 50_000, "a")[1] == []
    assert time.process_time() - began < 2


# -- mentions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("@a.py", ["a.py"]),
        ("See @src/a.py, @b (and @c!) and '@d'.", ["src/a.py", "b", "c", "d"]),
        ('@"my notes.txt" @"unfinished', ["my notes.txt"]),
        ("@a @a @b", ["a", "b"]),
        ("@node_modules/@types/x.d.ts", ["node_modules/@types/x.d.ts"]),
        ("@../up @/etc/passwd @~/x", ["../up", "/etc/passwd", "~/x"]),
        ("@dir/", ["dir/"]),
        ("@.env", [".env"]),
    ],
)
def test_mentions_are_found_and_stay_in_the_text(text, paths):
    assert parse_mentions(text) == (text, paths)


@pytest.mark.parametrize(
    "text",
    ["somebody@example.org", "a@b", "@ b", "@", "@...", "`@a`", "```\n@a\n```", '@""', "@@ -1,3 +1,4 @@", "x@@y", "@@"],
)
def test_anything_else_is_no_mention(text):
    assert parse_mentions(text) == (text, [])


@pytest.mark.parametrize(
    ("text", "after"), [("@@a", "@a"), ("x @@a.b y", "x @a.b y"), ('@@"a b"', '@"a b"'), ("@@@a", "@@@a")]
)
def test_two_signs_are_an_escape(text, after):
    assert parse_mentions(text) == (after, [])


@given(st.text() | st.text("@a/. \"'`\n", max_size=60))
def test_no_text_raises_and_only_escapes_are_changed(text):
    after, paths = parse_mentions(text)
    assert after == text or ("@@" in text and len(after) < len(text))
    assert all(path and path in text for path in paths)
