"""Processes that change files in a session, undo and redo them, and are killed: at a point, or from outside.

    python -m tests.faults.undo_worker          serve jobs, a line of JSON each, every one in a process of its own

Everything is imported once, so that a job costs little more than its work.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from perdure import Agent
from perdure._core.values import faults
from perdure.hosts import LocalShell, SnapshotFolder
from perdure.permissions import allow_all
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from perdure.tools import FileHistory, coding

_SUBREAPER = 36
"""Orphans below this process become its children."""
CALLS = ("rename", "link", "unlink", "mkdir", "rmdir", "fsync", "symlink", "fchmod", "replace")
"""System calls at which a process can be killed, just before it makes one."""


def edit(path: str, old: str, new: str) -> Any:
    return call("edit", path=path, old_string=old, new_string=new)


RUNS: dict[str, tuple[Any, ...]] = {
    "one": (
        call("read", path="a.txt"), edit("a.txt", "a0", "a1"), call("read", path="b.txt"), edit("b.txt", "b0", "b1"),
        call("write", path="new/c.txt", content="c1\n"), edit("a.txt", "a1", "a1\na1 more"),
    ),
    "two": (
        call("bash", command="rm -rf old && sed -i s/b1/b2/ b.txt && mkdir -p made/deep && echo d2 > made/deep/d.txt"),
        call("read", path="a.txt"), edit("a.txt", "a1 more", "a2 more"),
    ),
    "three": (
        call("bash", command="chmod 700 a.txt && rm link && ln -s b.txt link && mv made moved && rm new/c.txt"),
        call("write", path="e.txt", content="e3\n"),
    ),
    "four": (
        call("write", path="f.txt", content="f4\n"),
        call("bash", command="echo g4 > g.txt; rm -rf moved; echo b4 >> b.txt"),
        call("write", path="h/i.txt", content="i4\n"),
    ),
    "five": (call("write", path="k.txt", content="k5\n"),),
}  # fmt: skip
"""What each run does; every one changes something that is not there before it."""


def create_folder(root: Path) -> None:
    """Create the folder in which the session begins."""
    (root / "old" / "deep").mkdir(parents=True)
    for name, text in (("a.txt", "a0\n"), ("b.txt", "b0\n"), ("old/x.txt", "x0\n"), ("old/deep/y.txt", "y0\n")):
        (root / name).write_text(text)
    (root / "a.txt").chmod(0o755)
    (root / "link").symlink_to("a.txt")


def open_session(place: str, runs: tuple[str, ...] = ()) -> tuple[Any, FileHistory]:
    """Return the session of a place, with a model that does these runs next, and the history of its files."""
    snapshots = SnapshotFolder(f"{place}/snapshots")
    shell = LocalShell(f"{place}/root", sandbox="off")
    replies = [step for run in runs for step in (*RUNS[run], "Done.")]
    agent = Agent(
        ScriptedModel(*replies),
        extensions=[coding(f"{place}/root", snapshots=snapshots, shell=shell, git=False, people=False)],
        permission=allow_all,
        store=open_store(f"sqlite:{place}/log.db"),
    )
    session = agent.session("s")
    return session, FileHistory(session, snapshots)


async def do(job: dict[str, Any]) -> None:
    """Carry out a job."""
    work, given = job["do"], job.get("given", [])
    session, history = open_session(job["place"], tuple(given) if work == "run" else ())
    if work == "run":
        for each in given:
            await session.run(each)
    elif work == "fork":
        await history.fork(f"{job['place']}/copy", session_id="copy")
    else:
        await (history.undo if work == "undo" else history.redo)(overwrite=bool(given))
    await session.store.aclose()


def die_at(name: str, number: int) -> None:
    """Let this process be killed just before the n-th system call of a name."""
    usual, left = getattr(os, name), number

    def make(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return usual(*arguments, **named)

    setattr(os, name, make)


def start(job: dict[str, Any]) -> int:
    """Do a job in a process of its own, and return its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setpgid(0, 0)
        faults.arm_from_text(job.get("faults", ""))
        if "call" in job:
            die_at(*job["call"])
        asyncio.run(do(job))
        code = 0
    except Exception:  # noqa: BLE001 - whatever it is, the test reads it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(child: int, seconds: float) -> int:
    """Wait for a process, kill it after so many seconds, and return its exit code; negative for a signal."""
    handle = os.pidfd_open(child)
    if not select.select([handle], [], [], seconds)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(ChildProcessError):
        while True:  # what its commands have left is ours now, and about to be ended by their supervisor
            os.wait()
    return code


def main() -> None:
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    for line in sys.stdin:
        job = json.loads(line)
        print(wait(start(job), job.get("after", 60.0)), flush=True)  # noqa: T201 - for the test


if __name__ == "__main__":
    main()
