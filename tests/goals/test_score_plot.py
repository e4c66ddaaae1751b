"""Plots of scores: any title makes well-formed XML, and any score a place in the picture."""

import math
from xml.dom.minidom import parseString

import pytest

from perdure.background import draw_score_svg, draw_sparkline


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
    assert draw_score_svg([0.0, 0.5, 1.0], title="Boat & sail").replace("><", ">\n<").splitlines() == [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 240" role="img" font-family="sans-serif"'
            ' font-size="11">'
        ),
        "<title>Boat &amp; sail</title>",
        '<rect width="640" height="240" fill="#fff"/>',
        '<text x="36" y="18" font-size="13">Boat &amp; sail</text>',
        '<line x1="36" x2="604" y1="204.0" y2="204.0" stroke="#ddd"/>',
        '<text x="30" y="208.0" text-anchor="end">0</text>',
        '<line x1="36" x2="604" y1="120.0" y2="120.0" stroke="#ddd"/>',
        '<text x="30" y="124.0" text-anchor="end">0.5</text>',
        '<line x1="36" x2="604" y1="36.0" y2="36.0" stroke="#ddd"/>',
        '<text x="30" y="40.0" text-anchor="end">1</text>',
        '<polyline points="36.0,204.0 320.0,120.0 604.0,36.0" fill="none" stroke="#2a6fdb" stroke-width="2"/>',
        '<circle cx="36.0" cy="204.0" r="4" fill="#2a6fdb">',
        "<title>iteration 1: 0.00</title>",
        "</circle>",
        '<text x="36.0" y="228" text-anchor="middle">1</text>',
        '<circle cx="320.0" cy="120.0" r="4" fill="#2a6fdb">',
        "<title>iteration 2: 0.50</title>",
        "</circle>",
        '<text x="320.0" y="228" text-anchor="middle">2</text>',
        '<circle cx="604.0" cy="36.0" r="4" fill="#2a6fdb">',
        "<title>iteration 3: 1.00</title>",
        "</circle>",
        '<text x="604.0" y="228" text-anchor="middle">3</text>',
        "</svg>",
    ]
    assert 'points="36.0,36.0"' in draw_score_svg([1.0])
    assert 'points="36.0,204.0 604.0,36.0"' in draw_score_svg([-1.0, 2.0])
