"""Streamed Markdown: blocks are handed out when they are complete."""

import pytest

from perdure._cli.chat.view import MarkdownBlockSplitter

TEXT = "# Head\n\nA paragraph\nof two lines.\n\n```python\na = 1\n\nb = 2\n```\n\n- one\n- two\n"
BLOCKS = ["# Head\n", "A paragraph\nof two lines.\n", "```python\na = 1\n\nb = 2\n```\n", "- one\n- two\n"]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_pieces_in_which_a_text_arrives_do_not_matter(size):
    splitter = MarkdownBlockSplitter()
    found = [block for at in range(0, len(TEXT), size) for block in splitter.feed(TEXT[at : at + size])]
    assert [*found, *splitter.finish()] == BLOCKS
    assert splitter.tail == ""


def test_a_code_block_that_is_not_closed_is_not_cut():
    splitter = MarkdownBlockSplitter()
    assert splitter.feed("~~~~\nx\n\n~~~\n\ny\n") == []
    assert splitter.feed("~~~~\n\nafter\n\n") == ["~~~~\nx\n\n~~~\n\ny\n~~~~\n", "after\n"]


def test_blank_text_is_no_block():
    splitter = MarkdownBlockSplitter()
    assert splitter.feed("\n\n \n") == []
    assert splitter.finish() == []
    assert splitter.feed("\n\na\n \nb") == ["a\n "]
    assert splitter.tail == "b"
    assert splitter.finish() == ["b"]
    assert splitter.finish() == []


def test_a_fence_is_closed_by_one_of_its_kind_that_is_as_long_and_has_nothing_after_it():
    splitter = MarkdownBlockSplitter()
    assert splitter.feed("````\n```\n\n~~~~\n\n```` no\n\n`````  \n\nend\n\n") == [
        "````\n```\n\n~~~~\n\n```` no\n\n`````  \n",
        "end\n",
    ]
    assert splitter.feed("```\n\n") == []
    assert splitter.finish() == ["```\n\n"]
    assert splitter.feed("after\n\n") == ["after\n"]
