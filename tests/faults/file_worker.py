"""A process that edits and writes files in a session, and dies at one of the writes: before, during or after it."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from perdure import Agent
from perdure.hosts import LocalFiles, SnapshotFolder
from perdure.permissions import allow_all
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from perdure.tools import edit_tool, read_tool, write_tool

SCRIPT: Sequence[Any] = (
    call("read", path="a.txt"),
    call("edit", path="a.txt", old_string="one", new_string="one one"),
    call("write", path="new/b.txt", content="new\n"),
    call("edit", path="a.txt", old_string="one one", new_string="two"),
    "Done.",
)
"""The replies of the model. The first edit, made twice, would leave another text than made once."""


class DyingFiles(LocalFiles):
    """Files of a folder, at whose n-th write the process is killed."""

    def __init__(self, folder: str, at: int, when: str) -> None:
        super().__init__(folder)
        self._left, self._when = at, when

    def write_file(self, target: Any, data: bytes, *, expected: str | None = None) -> Any:
        """Write a file, unless the process is killed before, or while it does; kill it after."""
        self._left -= 1
        if self._left == 0 and self._when == "before":
            die()
        if self._left == 0 and self._when == "when it is complete":
            os.fsync = die
        if self._left == 0 and self._when == "when it is renamed":
            os.rename = die
        done = super().write_file(target, data, expected=expected)
        if self._left == 0:
            die()
        return done


def die(*_: Any, **__: Any) -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def build_agent(place: str, files: LocalFiles, replies: Sequence[Any]) -> Agent[Any]:
    """Return an agent with file tools, whose log and snapshots are in a folder."""
    snapshots = SnapshotFolder(f"{place}/snapshots")
    tools = [read_tool(files), write_tool(files, snapshots=snapshots), edit_tool(files, snapshots=snapshots)]
    store = open_store(f"sqlite:{place}/log.db")
    return Agent(ScriptedModel(*replies), tools=tools, permission=allow_all, store=store)


def main() -> None:
    place, at, when = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    agent = build_agent(place, DyingFiles(f"{place}/root", at, when), SCRIPT)
    asyncio.run(agent.session("s").run("Go."))


if __name__ == "__main__":
    main()
