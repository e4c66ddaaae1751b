"""How matches are shown to a model."""

from perdure.toolkits.file_search_backend import SearchMatch, SearchResult
from perdure.toolkits.search_tools import MOST_LINE_CHARACTERS, format_matches


def found(*matches: SearchMatch, is_truncated: bool = False) -> SearchResult:
    return SearchResult(matches, is_truncated)


def test_a_line_may_be_exactly_so_long_before_it_is_cut():
    for size, shown in ((MOST_LINE_CHARACTERS, MOST_LINE_CHARACTERS), (MOST_LINE_CHARACTERS + 1, MOST_LINE_CHARACTERS)):
        text = format_matches(found(SearchMatch("a.py", 3, "x" * size)))
        assert text == "a.py:3: " + "x" * shown + ("" if size == shown else "…")


def test_lines_that_do_not_follow_one_another_are_kept_apart_when_those_around_are_shown():
    matches = (
        SearchMatch("a.py", 1, "before", is_context=True),
        SearchMatch("a.py", 2, "match"),
        SearchMatch("a.py", 4, "match"),
        SearchMatch("b.py", 5, "match"),
    )
    assert format_matches(found(*matches)).splitlines() == [
        "a.py-1- before",
        "a.py:2: match",
        "--",
        "a.py:4: match",
        "--",
        "b.py:5: match",
    ]
    assert "--" not in format_matches(found(*matches[1:]))


def test_files_and_counts_are_one_line_for_each_file_and_what_is_left_out_is_told():
    matches = [SearchMatch("a.py", 1, "x"), SearchMatch("a.py", 7, "x"), SearchMatch("b.py", 1, "x")]
    assert format_matches(found(*matches), "files") == "a.py\nb.py"
    assert format_matches(found(*matches), "counts") == "a.py:2\nb.py:1"
    assert format_matches(found(*matches, is_truncated=True), "files").splitlines()[2].startswith("[more than ")
    assert format_matches(found()) == "(no matches)"
