"""The program that looks for lines with Python's regular expressions: which lines it finds, and what it answers."""

import io
import json
import re
import sys
from types import SimpleNamespace

import pytest

from perdure._tools.search.line_search import find_lines, has_match, main, read_content_batches


def find(data: bytes, pattern: str, context: int = 0, most: int = 100) -> list[tuple[int, str, bool]]:
    return find_lines(data, re.compile(pattern), context, most).lines


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"boat\nx\nboat", [(1, "boat", False), (3, "boat", False)]),
        (b"boat\r\nx\r\n", [(1, "boat", False)]),
        (b"\xef\xbb\xbfboat\n", [(1, "boat", False)]),
        (b"x\nboat\n", [(2, "boat", False)]),
        (b"a boat\xff\n", [(1, "a boat\ufffd", False)]),
        (b"boat\0", []),
        ("x\nboat\n".encode("utf-16"), [(2, "boat", False)]),
        (b"\xfe\xff" + "boat".encode("utf-16-be"), [(1, "boat", False)]),
        (b"", []),
    ],
)
def test_the_lines_that_match_are_found_with_their_numbers(data, found):
    assert find(data, "boat$|a boat") == found


def test_an_empty_line_is_one_and_what_follows_the_last_line_end_is_none():
    assert find(b"\n\nx\n", "^$") == [(1, "", False), (2, "", False)]
    assert find(b"x", "^$") == []


def test_lines_around_a_match_are_found_once_and_in_order():
    data = b"1\n2\nboat\n4\nboat\n6\n7\n8\n"
    assert find(data, "boat", context=1) == [
        (2, "2", True),
        (3, "boat", False),
        (4, "4", True),
        (5, "boat", False),
        (6, "6", True),
    ]
    assert find(b"boat\n2\n3\n", "boat", context=2) == [(1, "boat", False), (2, "2", True), (3, "3", True)]
    assert find(b"1\n2\nboat", "boat", context=1) == [(2, "2", True), (3, "boat", False)]


def test_no_more_lines_are_found_than_wanted():
    data = b"boat\n" * 5
    assert [number for number, _, _ in find(data, "boat", most=2)] == [1, 2]
    assert [number for number, _, _ in find(data, "boat", most=1, context=1)] == [1, 2]


@pytest.mark.parametrize(
    ("line", "pattern", "matches"),
    [
        (b"a boat", "boat", True),
        (b"a boat", "ship", False),
        (b"a \xff boat", "boat", True),
        (b"boat \xff a", "boat", True),
        (b"a \xff boat \xff a", " boat ", True),
        (b"a\xffb", "a.b", False),
        (b"a\xffb", "ab", False),
        (b"\xff", ".", False),
        (b"a\xff", "a$", True),
        (b"\xe5t", "t", True),
    ],
)
def test_what_is_no_utf_8_matches_nothing_and_the_rest_of_the_line_does(line, pattern, matches):
    assert has_match(line, re.compile(pattern)) is matches


def test_contents_arrive_in_batches_after_their_sizes():
    stream = io.BytesIO(b"[3,0,4]\nab\nboat[1]\nx")
    assert list(read_content_batches(stream)) == [[b"ab\n", b"", b"boat"], [b"x"]]


@pytest.mark.parametrize(("ignore_case", "numbers"), [(True, [1, 2]), (False, [2])])
def test_each_batch_is_answered_with_a_line(monkeypatch, ignore_case, numbers):
    options = {"pattern": "boat", "ignore_case": ignore_case, "context": 0, "most": 5, "counts_only": False}
    given = json.dumps(options).encode() + b"\n[10]\nBOAT\nboat\n[1]\nx"
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=written))
    main()
    first, second = (json.loads(line) for line in written.getvalue().splitlines())
    assert ([number for number, _, _ in first[0][0]], len(first), second) == (numbers, 1, [[[], 0, False]])


def test_all_lines_are_counted_if_their_number_is_wanted_and_of_a_binary_file_none_is_returned():
    expression = re.compile("boat")
    assert find_lines(b"boat\n" * 9, expression, 2, 3, counts_only=True) == ([], 9, False)
    assert find_lines(b"boat\n" * 9, expression, 0, 3)[1:] == (3, False)
    assert find_lines(b"x\nboat\0\nboat\n", expression, 0, 3) == ([], 1, True)
    assert find_lines(b"x\0", expression, 0, 3) == ([], 0, True)
