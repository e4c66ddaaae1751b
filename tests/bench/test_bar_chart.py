"""bench/bar_chart.py: bars as SVG that is well-formed, self-contained and described."""

from xml.etree import ElementTree as ET

import pytest

from bench.bar_chart import Bars, Chart, draw_chart

SVG = "{http://www.w3.org/2000/svg}"


def chart(*bars: Bars) -> Chart:
    return Chart("Cost of <a turn>", "ms", ["early", "late"], bars, "A & B")


def bars_of(svg: str) -> list[float]:
    """The widths of the bars, without the page and the legend."""
    found = ET.fromstring(svg).iterfind(f"{SVG}g/{SVG}rect")
    return [float(rect.get("width") or 0) for rect in found]


def test_a_picture_is_well_formed_and_says_what_it_shows():
    root = ET.fromstring(draw_chart(chart(Bars("a & b", [1.0, 2.0]))))
    assert root.findtext(f"{SVG}title") == "Cost of <a turn>"
    assert root.findtext(f"{SVG}desc") == "A & B"
    assert "a & b" in [text.text for text in root.iter(f"{SVG}text")]


def test_bars_are_as_long_as_their_values():
    first, second = bars_of(draw_chart(chart(Bars("a", [1.0, 2.0]))))
    assert second == pytest.approx(2 * first, abs=0.2)


def test_values_far_apart_get_a_logarithmic_scale_that_is_named():
    svg = draw_chart(chart(Bars("a", [1.0, 10.0]), Bars("b", [100.0, 1000.0])))
    assert "logarithmic scale" in svg
    one, ten, hundred, thousand = bars_of(svg)
    assert ten - one == pytest.approx(hundred - ten, abs=0.2) == pytest.approx(thousand - hundred, abs=0.2)


def test_a_missing_value_has_no_bar_and_says_so():
    svg = draw_chart(chart(Bars("a", [1.0, None])))
    assert len(bars_of(svg)) == 1
    assert ">has none<" in svg


def test_a_picture_can_be_read_in_light_and_dark_and_loads_nothing():
    svg = draw_chart(chart(Bars("a", [1.0, 2.0], is_own=True)))
    assert "prefers-color-scheme: dark" in svg
    assert 'class="page"' in svg
    assert svg.count("http") == 1  # the name space
