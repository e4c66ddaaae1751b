"""The tools glob and grep: what they ask their backend for, and how matches are shown to a model."""

from typing import Any

import pytest

from perdure import Agent, Permissions, allow, deny
from perdure._tools.search.tools import MOST_LINE_CHARACTERS
from perdure.hosts import FileRefused, GlobQuery, GlobResult, SearchMatch, SearchQuery, SearchResult
from perdure.permissions import PathTarget, allow_all, path
from perdure.testing import MemoryFiles, ScriptedModel
from perdure.tools import format_matches, glob_tool, grep_tool


def open_session(files: MemoryFiles, permission: Any = allow_all) -> Any:
    tools = [glob_tool(files, files), grep_tool(files, files)]
    return Agent(ScriptedModel(), tools=tools, permission=permission).session()


def found(*matches: SearchMatch, is_truncated: bool = False) -> SearchResult:
    return SearchResult(matches, is_truncated)


def test_a_line_may_be_exactly_so_long_before_it_is_cut():
    for size, shown in ((MOST_LINE_CHARACTERS, MOST_LINE_CHARACTERS), (MOST_LINE_CHARACTERS + 1, MOST_LINE_CHARACTERS)):
        text = format_matches(found(SearchMatch("a.py", 3, "x" * size)))
        assert text == "a.py:3: " + "x" * shown + (
            "" if size == shown else f"… [cut off: the line has {size:,} characters]"
        )


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


@pytest.mark.parametrize(
    ("permission", "shown"),
    [
        (allow_all, "a.py:1: x = 1\nprivate/b.py:1: x = 2"),
        (Permissions(allow("*"), deny(target=path("private/**"))), "a.py:1: x = 1"),
    ],
)
async def test_what_a_rule_denies_is_not_found(permission: Any, shown: str) -> None:
    session = open_session(MemoryFiles({"a.py": "x = 1", "private/b.py": "x = 2"}), permission)
    assert (await session.call("grep", {"pattern": "x"})).text == shown
    paths = [line.partition(":")[0] for line in shown.split("\n")]
    assert (await session.call("glob", {"pattern": "*.py"})).text == "\n".join(paths)


class NotedSearch(MemoryFiles):
    """Notes what is asked for, and finds what it is given."""

    def __init__(self) -> None:
        super().__init__({"a.py": ""})
        self.asked: list[Any] = []
        self.is_truncated = False
        self.refusal = ""

    async def search_lines(self, target: PathTarget, query: SearchQuery) -> SearchResult:
        self.asked.append((self.show(target), query))
        if self.refusal:
            raise FileRefused(self.refusal)
        return SearchResult((), self.is_truncated)

    async def find_files(self, target: PathTarget, query: GlobQuery) -> GlobResult:
        self.asked.append((self.show(target), query))
        if self.refusal:
            raise FileRefused(self.refusal)
        return GlobResult((), self.is_truncated)


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ({"pattern": "x"}, SearchQuery("x")),
        ({"pattern": "(?i)x", "glob": "*.py"}, SearchQuery("x", ignore_case=True, glob="*.py")),
        ({"pattern": "x", "ignore_case": True}, SearchQuery("x", ignore_case=True)),
        ({"pattern": "x", "context_lines": 10}, SearchQuery("x", context_lines=10)),
        ({"pattern": "x", "context_lines": 11}, SearchQuery("x", context_lines=10)),
        ({"pattern": "x", "context_lines": 1}, SearchQuery("x", context_lines=1)),
        ({"pattern": "x", "context_lines": -1}, SearchQuery("x")),
        ({"pattern": "x", "context_lines": 2, "output": "files"}, SearchQuery("x", counts_only=True)),
        ({"pattern": "x", "context_lines": 2, "output": "counts"}, SearchQuery("x", counts_only=True)),
    ],
)
async def test_a_search_asks_its_backend_for_this(arguments: dict[str, Any], query: SearchQuery) -> None:
    files = NotedSearch()
    result = await open_session(files).call("grep", arguments)
    assert (result.text, files.asked) == ("(no matches)", [(".", query)])


async def test_what_a_search_leaves_out_or_cannot_search_is_told() -> None:
    files = NotedSearch()
    files.is_truncated = True
    session = open_session(files)
    assert (await session.call("glob", {"pattern": "*.py", "path": "sub"})).text == (
        "[more than 200 files: use a narrower pattern or path]"
    )
    assert (await session.call("grep", {"pattern": "x"})).text == (
        "[more than 200 matches: use a narrower pattern, path or glob]"
    )
    files.refusal = "there is no such folder"
    for name, pattern in (("glob", "*.py"), ("grep", "x")):
        result = await session.call(name, {"pattern": pattern, "path": "sub"})
        assert (result.status, result.text) == ("error", "'sub' cannot be searched: there is no such folder")
    assert files.asked[0] == ("sub", GlobQuery("*.py"))


@pytest.mark.parametrize("arguments", [{"pattern": "x", "glob": "x" * 2_000}, {"pattern": "("}])
async def test_a_pattern_that_cannot_be_is_refused_before_the_search(arguments: dict[str, Any]) -> None:
    files = NotedSearch()
    assert (await open_session(files).call("grep", arguments)).status == "error"
    assert files.asked == []


@pytest.mark.parametrize("name", ["glob", "grep"])
async def test_a_folder_that_may_contain_secrets_is_not_searched(name: str) -> None:
    files = NotedSearch()
    result = await open_session(files).call(name, {"pattern": "x", "path": ".ssh"})
    assert result.text.startswith("'.ssh' cannot be searched: files like '.ssh/' may contain secrets")
    assert files.asked == []


async def test_a_pattern_for_paths_that_cannot_be_is_refused_before_the_search() -> None:
    files = NotedSearch()
    assert (await open_session(files).call("glob", {"pattern": "x" * 2_000})).status == "error"
    assert files.asked == []


def test_a_result_is_complete_unless_it_says_otherwise() -> None:
    assert (GlobResult(()).is_truncated, SearchResult(()).is_truncated) == (False, False)
