"""A process that is killed at a write: resumed, each file is changed exactly once, and everything can be undone."""

import signal
import subprocess
import sys

import pytest

from perdure.hosts import LocalFiles, SnapshotFolder
from perdure.tools import FileHistory
from tests.faults.file_worker import SCRIPT, build_agent

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("when", ["before", "when it is complete", "when it is renamed", "after"])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_run_that_was_killed_at_a_write_goes_on_and_is_undone(tmp_path, at, when):
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    died = start_and_wait(str(tmp_path), at, when)
    assert died == -signal.SIGKILL
    if when != "when it is renamed":  # the one moment in which the new file has another name
        assert list_names(root) <= {"a.txt", "new", "b.txt"}
    agent = build_agent(str(tmp_path), LocalFiles(root), SCRIPT[at + 1 :])
    session = agent.session("s")
    outcome = await session.resume()
    assert (outcome.status, outcome.text) == ("done", "Done.")
    results = [each for message in await session.messages() for each in message.tool_results]
    assert [each.status for each in results] == ["ok"] * 4, [each.text for each in results]
    assert {each.name: each.read_text() for each in root.rglob("*.txt")} == {"a.txt": "two\n", "b.txt": "new\n"}
    assert list_names(root) == {"a.txt", "new", "b.txt"}
    history = FileHistory(session, SnapshotFolder(tmp_path / "snapshots"))
    assert [each.path for each in await history.changes()] == ["a.txt", "new/b.txt", "a.txt"]
    assert {each.status for each in await history.undo()} == {"restored"}
    assert {each.name: each.read_text() for each in root.rglob("*.txt")} == {"a.txt": "one\n"}
    assert {each.status for each in await history.redo()} == {"restored"}
    assert {each.name: each.read_text() for each in root.rglob("*.txt")} == {"a.txt": "two\n", "b.txt": "new\n"}
    await agent.store.aclose()


def list_names(root) -> set[str]:
    return {each.name for each in root.rglob("*")}


def start_and_wait(place, at, when) -> int:
    """Start the process that dies, and return its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.file_worker", place, str(at), when], check=False, timeout=50
    ).returncode
