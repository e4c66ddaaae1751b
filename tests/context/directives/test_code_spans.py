"""Where a text is code."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._context.directives.parser import CodeSpans


def without_code(text: str) -> str:
    code = CodeSpans(text)
    return "".join([each for place, each in enumerate(text) if place not in code])


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("nothing", "nothing"),
        ("a `b` c", "a  c"),
        ("a ``b ` c`` d", "a  d"),
        ("a ` b", "a ` b"),
        ("a `` b ` c ` d", "a `` b  d"),
        ("a `b\nc` d", "a  d"),
        ("a ` b\n\nc ` d", "a ` b\n\nc ` d"),
        ("a ` b\n \t\nc ` d", "a ` b\n \t\nc ` d"),
        ("a\n```py\nb\n```\nc", "a\n\nc"),
        ("a\n````\nb\n```\nc\n````\nd", "a\n\nd"),
        ("a\n```\nb", "a\n"),
        ("a\n```\nb\n``` c\nd", "a\n"),
        ("a\n~~~\nb ` c\n~~~\nd `e`", "a\n\nd "),
        ("a\n~~~\nb\n```\nc", "a\n"),
        ("  > ```\nb\n> ```\nc", "\nc"),
        ("a ```b``` c", "a  c"),
        ("```b``` c", " c"),
        ("`a```", "`a```"),
    ],
)
def test_fences_and_spans_are_code(text, rest):
    assert without_code(text) == rest


@given(st.text("`~ab \n>", max_size=200))
def test_any_text_has_its_code_in_order(text):
    code = CodeSpans(text)
    borders = [place for pair in zip(code._starts, code._ends, strict=True) for place in pair]
    assert borders == sorted(borders)
    assert all(0 <= place <= len(text) for place in borders)
    assert without_code(text).count("`") <= text.count("`")


@pytest.mark.parametrize(
    "text",
    [
        " ".join("`" * length for length in range(1, 600)),
        "`" * 200_000,
        "` `` " * 40_000,
        "```\n" * 50_000,
        " " * 200_000,
    ],
)
def test_no_text_takes_long(text):
    began = time.process_time()
    CodeSpans(text)
    assert time.process_time() - began < 2
