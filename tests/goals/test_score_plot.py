"""Plots of scores: any title makes well-formed XML, and any score a place in the picture."""

import math
from xml.dom.minidom import parseString

import pytest

from perdure.goals import draw_score_svg, draw_sparkline


@pytest.mark.parametrize(
    "title",
    ["</title><script>alert(1)</script>", "\x1b[31m\x00\x0b & \"'", "\ud800\uffff", ""],
    ids=["markup", "controls", "surrogate", "empty"],
)
def test_a_hostile_title_is_text_in_a_picture_that_can_be_read(title):
    picture = draw_score_svg([0.0, 0.5, 1.0], title=title).encode()
    document = parseString(picture)
    assert document.getElementsByTagName("script") == []
    assert len(document.getElementsByTagName("circle")) == 3


def test_scores_beyond_the_bounds_are_drawn_at_the_edge():
    assert draw_sparkline([-1.0, 0.0, 1.0, 7.0, math.inf, math.nan]) == "▁▁███▁"
    assert draw_sparkline([]) == ""
    parseString(draw_score_svg([]))


def test_a_sparkline_has_a_bar_for_each_score_from_the_lowest_to_the_highest():
    assert draw_sparkline([0, 0.5, 1]) == "▁▅█"
    assert draw_sparkline([]) == ""


def test_a_plot_goes_over_its_whole_width_and_names_each_score():
    picture = draw_score_svg([0.0, 0.5, 1.0], title="Boat")
    assert 'points="36.0,204.0 320.0,120.0 604.0,36.0"' in picture
    assert [f"iteration {number}: {score:.2f}" in picture for number, score in ((1, 0), (2, 0.5), (3, 1))] == [True] * 3
    assert 'points="36.0,36.0"' in draw_score_svg([1.0])
