"""`@path` in a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.directives.mention import mentions_in


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
    assert mentions_in(text) == (text, paths)


@pytest.mark.parametrize(
    "text",
    ["somebody@example.org", "a@b", "@ b", "@", "@...", "`@a`", "```\n@a\n```", '@""', "@@ -1,3 +1,4 @@", "x@@y", "@@"],
)
def test_anything_else_is_no_mention(text):
    assert mentions_in(text) == (text, [])


@pytest.mark.parametrize(
    ("text", "after"), [("@@a", "@a"), ("x @@a.b y", "x @a.b y"), ('@@"a b"', '@"a b"'), ("@@@a", "@@@a")]
)
def test_two_signs_are_an_escape(text, after):
    assert mentions_in(text) == (after, [])


@given(st.text() | st.text("@a/. \"'`\n", max_size=60))
def test_no_text_raises_and_only_escapes_are_changed(text):
    after, paths = mentions_in(text)
    assert after == text or ("@@" in text and len(after) < len(text))
    assert all(path and path in text for path in paths)
