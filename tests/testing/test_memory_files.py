"""Files in memory refuse and find what a folder of this machine refuses and finds."""

import re
from typing import Any

import pytest

from perdure import Agent, ConfigError
from perdure.hosts import (
    FileChanged,
    FileRefused,
    FolderEntry,
    GlobQuery,
    GlobResult,
    LocalFiles,
    LocalSearch,
    SearchMatch,
    SearchQuery,
    SearchResult,
)
from perdure.permissions import allow_all
from perdure.testing import MemoryFiles, ScriptedModel
from perdure.tools import edit_tool, glob_tool, grep_tool, list_tool, read_tool, write_tool

TREE = {"a.py": "boat\nBoat\n", "sub/b.py": "a boat\n", "sub/c.txt": "boat\n", ".env": "boat\n"}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read", {"path": "a.py"}),
    ("read", {"path": "missing"}),
    ("read", {"path": "sub"}),
    ("read", {"path": "../x"}),
    ("read", {"path": ".env"}),
    ("list", {"path": "sub"}),
    ("list", {"path": "a.py"}),
    ("list", {"path": "nowhere"}),
    ("glob", {"pattern": "*.py"}),
    ("glob", {"pattern": "b*", "path": "sub"}),
    ("glob", {"pattern": "*", "path": "nowhere"}),
    ("grep", {"pattern": "boat"}),
    ("grep", {"pattern": "BOAT", "ignore_case": True, "glob": "*.py"}),
    ("grep", {"pattern": "boat", "path": "a.py"}),
    ("grep", {"pattern": "boat", "path": "sub", "output": "files"}),
    ("write", {"path": "sub", "content": "x"}),
    ("write", {"path": "perdure.toml", "content": "x"}),
    ("write", {"path": "new/d.py", "content": "boat\n"}),
    ("grep", {"pattern": "boat", "path": "new"}),
    ("edit", {"path": "a.py", "old_string": "boat", "new_string": "ship"}),
    ("read", {"path": "a.py"}),
]


@pytest.mark.parametrize("ripgrep", [False])
async def test_every_call_has_the_same_result_as_over_a_folder(tmp_path, ripgrep):
    root = tmp_path / "root"
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    memory, local = MemoryFiles(TREE, root=str(root)), LocalFiles(root)
    sessions = []
    for files, search in ((memory, memory), (local, LocalSearch(local, use_ripgrep=ripgrep))):
        tools = [
            read_tool(files), list_tool(files), write_tool(files), edit_tool(files), glob_tool(files, search),
            grep_tool(files, search),
        ]  # fmt: skip
        sessions.append(Agent(ScriptedModel(), tools=tools, permission=allow_all).session())
    for name, arguments in CALLS:
        ours, theirs = [await each.call(name, arguments) for each in sessions]
        assert ours.status == theirs.status, (name, arguments, ours.text, theirs.text)
        if ours.status == "ok" or "no such folder" not in theirs.text:
            assert ours.text == theirs.text, (name, arguments)


def test_contents_are_kept_as_bytes_by_their_path_from_the_root():
    files = MemoryFiles({"./a.txt": "hé", "/boat/sub/../b.bin": b"\0"}, root="/boat/")
    assert (files.root, files.files) == ("/boat", {"a.txt": "hé".encode(), "b.bin": b"\0"})
    assert MemoryFiles().files == {}
    assert files.show(files.resolve(".")) == "."
    assert files.check(files.resolve("sub/c.py")) == ("sub", "c.py")
    assert MemoryFiles({"a/b": "x"}, root="/").files == {"a/b": b"x"}


@pytest.mark.parametrize("given", [{"a.txt": 5}, {5: "text"}])
def test_what_is_no_path_or_no_content_is_refused(given: Any):
    ((path, data),) = given.items()
    with pytest.raises(ConfigError) as refused:
        MemoryFiles(given)
    assert str(refused.value) == f"MemoryFiles({path!r}: {data!r}): give paths, and their contents as text or bytes"


@pytest.mark.parametrize("path", ["", " ", "a\0b"])
def test_a_path_that_cannot_be_one_is_refused(path):
    with pytest.raises(FileRefused, match=r"^it is not a valid path$"):
        MemoryFiles().resolve(path)


@pytest.mark.parametrize(
    ("path", "work", "reason"),
    [
        ("../x", "read_file", "it is outside the working folder '/work'"),
        ("/workshop/x", "read_file", "it is outside the working folder '/work'"),
        ("missing", "read_file", "there is no such file"),
        ("sub", "read_file", "it is a folder"),
        (".env", "read_file", "files like '.env*' may contain secrets; do not try again"),
        ("a.py", "list_folder", "there is no such folder"),
        (".ssh", "list_folder", "files like '.ssh/' may contain secrets; do not try again"),
    ],
)
async def test_what_cannot_be_read_or_listed_is_refused_with_the_reason(path, work, reason):
    files = MemoryFiles({**TREE, ".ssh/known": "x"})
    with pytest.raises(FileRefused) as refused:
        await getattr(files, work)(files.resolve(path))
    assert str(refused.value) == reason
    assert isinstance(refused.value.__cause__, FileNotFoundError) == (path == "missing")


async def test_a_folder_lists_its_files_with_their_sizes_and_its_folders_by_name():
    files = MemoryFiles({"b/one": "1", "b/two": "2", "c": "three", "a": "", "b/deep/er": "x"})
    assert await files.list_folder(files.resolve(".")) == [
        FolderEntry("a", "file", 0),
        FolderEntry("b", "folder"),
        FolderEntry("c", "file", 5),
    ]
    assert await files.list_folder(files.resolve("b")) == [
        FolderEntry("deep", "folder"),
        FolderEntry("one", "file", 1),
        FolderEntry("two", "file", 1),
    ]


async def test_a_file_is_written_only_while_it_is_as_expected():
    files = MemoryFiles({"a": "one", "sub/b": "x"})
    first = await files.read_file(files.resolve("a"))
    second = await files.write_file(files.resolve("a"), b"two", expected=first.digest)
    assert (second.data, second) == (b"two", await files.read_file(files.resolve("a")))
    for path, expected in (("a", first.digest), ("a", ""), ("new", first.digest)):
        with pytest.raises(FileChanged, match=r"^its content has changed meanwhile$"):
            await files.write_file(files.resolve(path), b"three", expected=expected)
    assert (await files.write_file(files.resolve("new"), b"new", expected="")).data == b"new"
    assert (await files.write_file(files.resolve("new"), b"newer")).data == b"newer"
    with pytest.raises(FileRefused, match=r"^it is a folder$"):
        await files.write_file(files.resolve("sub"), b"x")
    with pytest.raises(FileRefused, match=r"^files like 'perdure\.toml' are never written by tools; do not try again$"):
        await files.write_file(files.resolve("perdure.toml"), b"x")
    assert files.files == {"a": b"two", "sub/b": b"x", "new": b"newer"}


async def test_as_many_files_and_lines_are_found_as_were_asked_for():
    files = MemoryFiles({"b.py": "boat\nBoat\nship\n", "a.py": "a boat\n", ".env": "boat\n", "sub/c.py": "boats"})
    root = files.resolve(".")

    async def find(max_results: int) -> GlobResult:
        return await files.find_files(root, GlobQuery("**/*.py", max_results=max_results))

    assert await find(2) == GlobResult(("a.py", "b.py"), is_truncated=True)
    assert await find(3) == GlobResult(("a.py", "b.py", "sub/c.py"), is_truncated=False)
    lines = (
        SearchMatch("a.py", 1, "a boat"),
        SearchMatch("b.py", 1, "boat"),
        SearchMatch("sub/c.py", 1, "boats"),
    )
    assert await files.search_lines(root, SearchQuery("boat", max_results=3)) == SearchResult(lines, is_truncated=False)
    assert await files.search_lines(root, SearchQuery("boat", max_results=2)) == SearchResult(
        lines[:2], is_truncated=True
    )
    found = await files.search_lines(root, SearchQuery("BOAT$", ignore_case=True, glob="b.*", max_results=9))
    assert found == SearchResult((lines[1], SearchMatch("b.py", 2, "Boat")), is_truncated=False)
    below = await files.search_lines(files.resolve("sub"), SearchQuery("b", glob="*.py", max_results=9))
    assert below == SearchResult(lines[2:], is_truncated=False)
    for folder, reason in (("nowhere", "there is no such folder"), (".ssh", "files like '.ssh/' may contain secrets")):
        with pytest.raises(FileRefused, match=re.escape(reason)):
            await files.find_files(files.resolve(folder), GlobQuery("*", max_results=1))
