"""Where values are in a file, and what is too much of a file."""

import pytest

from perdure.configuring.line_numbers import MAX_DEPTH, MAX_UNQUOTED, MAX_VALUES, LineNumbersBuilder, ScanError


def test_a_value_is_on_the_line_where_it_begins_the_first_time_and_an_unknown_one_where_its_parent_is():
    builder = LineNumbersBuilder("a\nb\nc")
    builder.add(("x",), 0)
    builder.add(("y",), 2)
    builder.add(("y",), 4)
    lines = builder.build()
    assert [lines.line_of(path) for path in (("x",), ("y",), ("y", "z"), ("w",))] == [1, 2, 2, 0]
    assert ("y",) in lines
    assert ("y", "z") not in lines


def test_a_path_that_is_written_out_leads_to_the_nearest_parent_with_a_line():
    builder = LineNumbersBuilder("a\nb\nc")
    builder.add(("x",), 0)
    builder.add(("x", 0), 2)
    builder.add(("x", 0, "y"), 4)
    lines = builder.build()
    paths = ("x", "x[0]", "x[0].y", "x[0].y.z", "x[0].w", "x[1].y", "x.w", "w", "w.x[0]", "")
    assert [lines.line_of(path) for path in paths] == [1, 2, 3, 3, 2, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(("place", "line"), [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3)])
def test_the_end_of_a_line_belongs_to_it(place, line):
    assert LineNumbersBuilder("a\nb\nc").line_at(place) == line


def test_there_may_be_exactly_so_many_values():
    builder = LineNumbersBuilder("")
    for number in range(MAX_VALUES):
        builder.add((str(number),), 0)
    builder.add(("0",), 0)  # which is there already
    with pytest.raises(ScanError, match="there are more than 10,000 values"):
        builder.add(("one more",), 0)


def test_a_value_may_be_nested_exactly_so_deep():
    builder = LineNumbersBuilder("")
    builder.add(("x",) * MAX_DEPTH, 0)
    with pytest.raises(ScanError, match="nested deeper than 24 levels"):
        builder.add(("x",) * (MAX_DEPTH + 1), 0)


def test_a_value_without_quotes_may_be_exactly_so_long():
    builder = LineNumbersBuilder("")
    builder.check_unquoted("1" * MAX_UNQUOTED, 0)
    with pytest.raises(ScanError, match="this value has 301 characters and no quotes"):
        builder.check_unquoted("1" * (MAX_UNQUOTED + 1), 0)
