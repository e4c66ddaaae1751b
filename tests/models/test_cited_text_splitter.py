"""A text divided at its cited passages, as a provider that cites by block wants it back."""

from typing import Any

import pytest

from perdure import Citation, Text, Thinking
from perdure._core.values.message import Part
from perdure._models.wires.anthropic.messages import CitedPassage, split_cited_text


def cite(start: int | None, end: int | None, name: str = "a") -> Citation:
    return Citation(name, start=start, end=end, details={"name": name})


@pytest.mark.parametrize(
    ("citations", "passages"),
    [
        ([(0, 3)], [("One", 1), (" two three", 0)]),
        ([(4, 7)], [("One ", 0), ("two", 1), (" three", 0)]),
        ([(8, 13)], [("One two ", 0), ("three", 1)]),
        ([(0, 13)], [("One two three", 1)]),
        ([(0, 3), (0, 3)], [("One", 2), (" two three", 0)]),
        ([(0, 3), (4, 7)], [("One ", 1), ("two", 1), (" three", 0)]),
        ([(0, 7), (4, 13)], [("One two", 1), (" three", 1)]),
        ([(0, 7), (4, 6)], [("One two", 2), (" three", 0)]),
        ([(None, None)], [("One two three", 0)]),
        ([(3, 3)], [("One two three", 0)]),
        ([(9, 99)], [("One two three", 0)]),
    ],
)
def test_a_text_is_divided_where_its_citations_begin_and_end(citations, passages):
    parts: list[Part] = [
        Text("One two three"),
        *[cite(start, end, f"{place}") for place, (start, end) in enumerate(citations)],
    ]
    found: list[Any] = list(split_cited_text(parts))
    assert [(each.text, len(getattr(each, "citations", ()))) for each in found] == passages
    assert "".join(each.text for each in found) == "One two three"


def test_spans_count_from_the_start_of_the_first_text():
    parts: list[Part] = [Text("One. "), cite(0, 4), Thinking("Hm"), Text("Two."), cite(5, 9, "b")]
    assert list(split_cited_text(parts)) == [
        CitedPassage("One. ", (cite(0, 4),)),
        Thinking("Hm"),
        CitedPassage("Two.", (cite(5, 9, "b"),)),
    ]


def test_a_blank_passage_joins_the_next_one_if_there_is_none_before_it():
    assert list(split_cited_text([Text(" \nOne"), cite(2, 5)])) == [CitedPassage(" \nOne", (cite(2, 5),))]


def test_a_citation_that_has_nothing_to_send_back_is_left_out():
    assert list(split_cited_text([Text("One"), Citation("a", start=0, end=3)])) == [Text("One")]
