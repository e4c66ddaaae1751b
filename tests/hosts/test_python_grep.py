"""Searching without ripgrep: files are read in batches, and matched by a process that is ended in time."""

import os
import sys

import pytest

from perdure import ToolError
from perdure._io.files.jail import Jail
from perdure._tools.search import local
from perdure._tools.search.local import search_with_python
from perdure.hosts import SearchMatch, SearchQuery


@pytest.fixture
def jail(tmp_path):
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(f"line {number}\nboat {number}\n")
    (tmp_path / "folder").mkdir()
    jail = Jail(tmp_path)
    yield jail
    jail.close()


NAMES = [(f"{number}.txt",) for number in range(6)]


def test_lines_are_found_in_the_order_of_the_files_and_what_cannot_be_read_is_named(jail):
    paths = [NAMES[3], ("missing.txt",), ("folder",), NAMES[0]]
    found = list(search_with_python(jail, paths, SearchQuery("boat", context_lines=1), 30))
    assert [(each.path, each.problem) for each in found] == [
        ("3.txt", ""),
        ("missing.txt", "there is no such file"),
        ("folder", "it is a folder"),
        ("0.txt", ""),
    ]
    assert [line for each in found for line in each.matches] == [
        SearchMatch("3.txt", 1, "line 3", is_context=True),
        SearchMatch("3.txt", 2, "boat 3"),
        SearchMatch("0.txt", 1, "line 0", is_context=True),
        SearchMatch("0.txt", 2, "boat 0"),
    ]
    found = list(search_with_python(jail, NAMES, SearchQuery("BOAT", ignore_case=True), 30))
    assert [line for each in found for line in each.matches] == [
        SearchMatch(f"{number}.txt", 2, f"boat {number}") for number in range(6)
    ]


@pytest.mark.parametrize(
    ("most_files", "most_bytes", "sizes"),
    [
        (4, 1_000, [4, 2]),
        (6, 1_000, [6]),
        (100, 28, [2, 2, 2]),  # a file has 14 bytes
        (100, 29, [3, 3]),
        (100, 1_000, [6]),
        (2, 28, [2, 2, 2]),
    ],
)
def test_files_are_searched_in_batches_of_so_many_files_or_bytes(jail, monkeypatch, most_files, most_bytes, sizes):
    monkeypatch.setattr(local, "_BATCH_FILES", most_files)
    monkeypatch.setattr(local, "_BATCH_BYTES", most_bytes)
    batches = list(local._read_batches(jail, NAMES))
    assert [len(each) for each in batches] == sizes
    assert [path for each in batches for path, _ in each] == NAMES


def test_a_search_without_files_finds_nothing(jail):
    assert list(search_with_python(jail, [], SearchQuery("boat"), 30)) == []


@pytest.mark.parametrize("seconds", [0.05])
def test_a_search_that_takes_too_long_is_stopped(tmp_path, seconds):
    (tmp_path / "a.txt").write_text("a" * 40 + "b")
    jail = Jail(tmp_path)
    with pytest.raises(ToolError) as raised:
        list(search_with_python(jail, [("a.txt",)], SearchQuery("(a+)+$"), seconds))
    jail.close()
    assert str(raised.value) == "it was stopped after 0.05 seconds: use a simpler pattern, or one folder or file"


def test_a_pattern_that_python_does_not_know_is_told(jail):
    with pytest.raises(ToolError) as raised:
        list(search_with_python(jail, NAMES, SearchQuery("("), 30))
    assert str(raised.value) == "the search failed: the pattern is no regular expression that Python knows"


def test_the_process_of_a_search_is_in_a_session_of_its_own_and_ends_with_it(jail):
    search = local._LineSearch(SearchQuery("boat"), 30)
    assert search._timer.daemon
    with search:
        pid = search._process.pid
        assert search.ask([b"boat\n", b"x\n"]) == [[[[1, "boat", False]], 1, False], [[], 0, False]]
        if sys.platform == "linux":
            assert os.getsid(pid) == pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    search._timer.join(10)
    assert not search._timer.is_alive()
