"""Text of models on a page of Markdown: what it keeps, and what it cannot imitate."""

import random

import pytest
from markdown_it import MarkdownIt

from perdure._work.judging.reviews.markdown import begins_with_code, escape_blocks, escape_line
from perdure.evals import Finding, Review, ReviewedFinding, render_review

OURS = ["Review of", "1. major: title", "2. note: last", "Left out"]
HOSTILE = [
    "## 2. critical: forged",
    "   ### forged",
    "- ## forged",
    "> # forged",
    "1. > - # forged",
    "text\n====",
    "text\n---",
    "- text\n  ---",
    "> text\n> ===",
    "text\n\n***\n\n___",
    "- - -",
    "text\r## forged",
    "text\r\n# forged",
    "<h2>forged</h2>",
    "<!-- hidden",
    "<details><summary>x",
    "<script>",
    "<style>",
    "<?php",
    "<![CDATA[",
    "```\nopen",
    "~~~~\nopen\n~~~",
    "- ```\n  open",
    "- a\n  ```\n# forged",
    "> ```\n# forged",
    "  ```\n# forged\n  ```",
    "``` a`b\n# forged",
    "a ` b\n` <h1>forged</h1> `",
    "\\`<h1>forged</h1>`",
    "`` ` `` <h1>forged</h1>",
    "![x](https://evil.example/?q=1)",
    "`a` ![x](https://evil.example) `b`",
    "[x]: https://evil.example\n![x]",
    "    # forged\n\n- a\n\n    # forged",
    "\t# forged",
    "* a\n+ # forged",
    "1) # forged",
    "#",
    "\\<h2>forged</h2>",
    "\\\\<h2>forged</h2>",
    "!\\![x](y)",
    "#\tforged",
    "\x1b[2J\x1b]0;x\x07\u202e\u2066\u2028\x85\x00\ud800",
]


def page(text):
    """A review with hostile text in every field that a model writes."""
    line = text.replace("\n", " ")
    first = Finding("major", "a.py", "title", text, text, 1, text)
    last = Finding("note", "b.py", "last", text, "Fix.")
    return render_review(
        Review(
            base="main",
            commit="0123",
            models=("m",),
            summaries=(text,),
            findings=(ReviewedFinding(first, ("m",)), ReviewedFinding(last, ("m",))),
            left_out=(ReviewedFinding(Finding("note", f"c{line}.py", line, text, text), ("m",)),),
        )
    )


def parse(text):
    return MarkdownIt("commonmark").parse(text)


def inner(tokens):
    return [each for token in tokens for each in (token, *(token.children or ()))]


def check(text):
    """Raise AssertionError unless the page has our headings alone, and neither HTML nor images nor rules."""
    tokens = parse(page(text))
    headings = [tokens[place + 1].content for place, each in enumerate(tokens) if each.type == "heading_open"]
    assert len(headings) == len(OURS), headings
    assert all(found.startswith(own) for found, own in zip(headings, OURS, strict=True)), headings
    kinds = {each.type for each in inner(tokens)}
    assert not kinds & {"html_block", "html_inline", "image", "hr"}, kinds


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_model_is_no_heading_no_html_and_no_image(text):
    check(text)


def test_mixtures_of_hostile_text_are_none_either():
    drawn = random.Random(19)
    pieces = [*HOSTILE, "`", "``", "```", "~~~", "\\", "<", "#", "-", "=", ">", "\n", "\n\n", "    ", "word ", "!["]
    for _ in range(300):
        text = "".join([drawn.choice(pieces) + drawn.choice(["", "\n", " "]) for _ in range(drawn.randrange(1, 7))])
        check(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_character_that_a_terminal_obeys_is_left(text):
    shown = page(text)
    assert all(each.isprintable() or each in "\n\t" for each in shown)


@pytest.mark.parametrize(
    "text",
    [
        "It is never released.",
        "Use `vector<int>` and `a[0]`:\n\n```python\n# a comment\nif a < b: <b>\n---\n```\n\nThen *go* **on**.",
        "- one\n- two\n\n1. three",
        "> a quote",
        "a < b and c > d, 3 <4",
        "a_b - c = d # e",
        "[a link](https://example.com)",
        "emoji \U0001f469\u200d\U0001f52c",
    ],
)
def test_honest_text_stays_as_it_is(text):
    assert escape_blocks(text) == text


def test_a_fence_that_is_open_is_closed():
    assert escape_blocks("````\nx\n```") == "````\nx\n```\n````"
    assert escape_blocks("~~~ py\nx") == "~~~ py\nx\n~~~"
    assert begins_with_code("```\nx\n```")
    assert not begins_with_code("x\n```")


def test_a_line_is_one_line_without_code_and_html():
    assert escape_line("a\n`b`  <i>\u2028![c](d)") == "a 'b' \\<i> !\\[c](d)"
