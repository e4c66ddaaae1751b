"""Files in memory refuse and find what a folder of this machine refuses and finds."""

from typing import Any

import pytest

from perdure import Agent, allow_all
from perdure.hosts import LocalFiles, LocalSearch
from perdure.testing import MemoryFiles, ScriptedModel
from perdure.toolkits.edit_tool import edit_tool
from perdure.toolkits.file_tools import list_tool, read_tool, write_tool
from perdure.toolkits.search_tools import glob_tool, grep_tool

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
