"""Writing files for tools: snapshots and the log come first, and what cannot be read or written is not replaced."""

from typing import Any

import pytest

from perdure import Agent
from perdure._io.files.jail import compute_digest
from perdure._tools.files.tools import show_path
from perdure.hosts import FileRefused
from perdure.permissions import PathTarget, allow_all
from perdure.testing import MemoryFiles, ScriptedModel
from perdure.tools import edit_tool, read_tool, write_tool


class NotedFiles(MemoryFiles):
    """Files that note when they are written."""

    def __init__(self, done: list[Any]) -> None:
        super().__init__({"a.txt": "old"})
        self._done = done
        self.problem = ""

    async def read_file(self, target: PathTarget) -> Any:
        if self.problem == "read":
            raise FileRefused("it is too large")
        return await super().read_file(target)

    async def write_file(self, target: PathTarget, data: bytes, *, expected: str | None = None) -> Any:
        self._done.append(("write", data, expected))
        if self.problem == "write":
            raise FileRefused("the disk is full")
        return await super().write_file(target, data, expected=expected)


class NotedSnapshots:
    """Notes what is saved."""

    def __init__(self, done: list[Any]) -> None:
        self._done = done

    async def save(self, data: bytes) -> str:
        self._done.append(("save", data))
        return compute_digest(data)

    async def load(self, digest: str) -> bytes:
        raise NotImplementedError


@pytest.fixture
def done() -> list[Any]:
    return []


@pytest.fixture
def files(done: list[Any]) -> NotedFiles:
    return NotedFiles(done)


@pytest.fixture
def session(files: NotedFiles, done: list[Any]) -> Any:
    snapshots = NotedSnapshots(done)
    tools = [read_tool(files), write_tool(files, snapshots=snapshots), edit_tool(files, snapshots=snapshots)]
    return Agent(ScriptedModel(), tools=tools, permission=allow_all).session("s")


async def test_the_content_of_a_new_file_is_saved_before_it_is_written(session: Any, done: list[Any]) -> None:
    assert (await session.call("write", {"path": "b.txt", "content": "new"})).text == "created b.txt: 3 bytes"
    assert done == [("save", b"new"), ("write", b"new", "")]


async def test_both_contents_of_a_file_are_saved_before_it_is_replaced(session: Any, done: list[Any]) -> None:
    await session.call("read", {"path": "a.txt"})
    arguments = {"path": "a.txt", "old_string": "old", "new_string": "new"}
    assert (await session.call("edit", arguments)).status == "ok"
    assert done == [("save", b"old"), ("save", b"new"), ("write", b"new", compute_digest(b"old"))]


async def test_a_file_that_cannot_be_read_is_not_taken_for_a_new_one(
    session: Any, files: NotedFiles, done: list[Any]
) -> None:
    files.problem = "read"
    result = await session.call("write", {"path": "a.txt", "content": "new", "overwrite": True})
    assert (result.status, result.text) == ("error", "'a.txt' cannot be written: it is too large")
    assert done == []


async def test_a_file_that_cannot_be_written_says_why(session: Any, files: NotedFiles) -> None:
    files.problem = "write"
    result = await session.call("write", {"path": "b.txt", "content": "new"})
    assert (result.status, result.text) == ("error", "'b.txt' cannot be written: the disk is full")


async def test_a_file_that_has_the_content_already_counts_as_read(session: Any, files: NotedFiles) -> None:
    result = await session.call("write", {"path": "a.txt", "content": "old"})
    assert result.text == "a.txt has this content: 3 bytes"
    result = await session.call("edit", {"path": "a.txt", "old_string": "old", "new_string": "new"})
    assert result.status == "ok"
    assert files.files == {"a.txt": b"new"}


def test_a_path_outside_is_shown_as_it_is(files: NotedFiles) -> None:
    assert show_path(files, files.resolve("a.txt")) == "a.txt"
    assert show_path(files, files.resolve("/etc/hosts")) == "/etc/hosts"
