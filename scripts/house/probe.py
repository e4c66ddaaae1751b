"""Run a small program with Perdure, and print which of its functions that passes, as a line of JSON.

    python -P probe.py append          one synced append on a SQLite store, by an engine that emits an event
    python -P probe.py run URL#MODEL   one `run_sync` of an agent, with a model at this URL

`steps.py` starts it with the interpreter and the source of the checkout that is measured. It uses nothing but Perdure,
by names that have stayed or by both the old and the new one, so that one program measures checkouts of any age.
"""

import asyncio
import inspect
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

SYNC_SECONDS = 0.002
"""How long the disk takes at least: on a quick one the store may take another way, and the figures would differ."""
WARM, COUNTED = 5, 15
"""Appends before the first that counts, and those that count; the one in the middle is told."""


class Passed(NamedTuple):
    """What was passed: functions as `file:function`, with the path of the file below the package."""

    home: str
    functions: list[str]
    below: list[str]
    """Those of them that work for the store: of its folder, called by it, or on another thread."""
    attempts: int
    """Calls of functions `append…` of the store by anything which is not the store's."""


class Recorder:
    """Records which functions of a package are called, on all threads, between `begin` and `end`.

    A comprehension is no function here, nor is the body of a module or a class, nor what an import calls: so it makes
    no difference whether a module was imported before.
    """

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._inside = f"{home}{os.sep}"
        self._stores = tuple(f"{self._inside}{name}{os.sep}" for name in ("stores", "_stores"))
        self._thread = 0  # that of `begin`; 0 while nothing is recorded
        self._functions: set[str] = set()
        self._below: set[str] = set()
        self._attempts = 0

    def begin(self) -> None:
        """Forget what was recorded, and record from now on."""
        self._functions, self._below, self._attempts = set(), set(), 0
        self._thread = threading.get_ident()

    def end(self) -> Passed:
        """Record nothing more, and return what was recorded."""
        self._thread = 0
        return Passed(self._home, sorted(self._functions), sorted(self._below), self._attempts)

    def notice(self, frame: FrameType, event: str, _: object) -> None:
        """Record a call; for `sys.setprofile`."""
        code = frame.f_code
        if event != "call" or not self._thread or not code.co_filename.startswith(self._inside):
            return
        if not is_function(code) or any(map(is_import, callers(frame))):
            return
        name = f"{Path(code.co_filename.removeprefix(self._inside)).as_posix()}:{code.co_qualname}"
        self._functions.add(name)
        above = [self._is_of_store(each) for each in callers(frame)]
        if any(above) or threading.get_ident() != self._thread:
            self._below.add(name)
        if code.co_name.startswith("append") and above[:2] == [True, False]:
            self._attempts += 1

    def _is_of_store(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._stores)


def is_function(code: CodeType) -> bool:
    """Return True for functions, methods and lambdas; False for bodies of modules and classes, and comprehensions."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and (code.co_name[0] != "<" or code.co_name == "<lambda>")


def is_import(frame: FrameType) -> bool:
    """Return True if the frame is that of a module which is being imported."""
    return frame.f_code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__"


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frame, and those below which it was called."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def slow(sync: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that syncs a file like `sync`, on a disk that is never quick."""

    def wait_and_sync(descriptor: int) -> None:
        time.sleep(SYNC_SECONDS)
        sync(descriptor)

    return wait_and_sync


async def append_often(recorder: Recorder, folder: str) -> list[Passed]:
    """Append events with a sync, one by one, and return what each passed."""
    from perdure import Agent, events
    from perdure.testing import ScriptedModel

    kind: Any = getattr(events, "CustomEvent", None) or events.Custom
    found: list[Passed] = []

    async def engine(run: Any) -> Any:
        for number in range(WARM + COUNTED):
            recorder.begin()
            await run.emit(kind("note", {"number": number}), sync=True)
            found.append(recorder.end())
        return run.outcome("done")

    agent = Agent(ScriptedModel("done"), engine=engine, store=f"sqlite:{Path(folder) / 'log.db'}")
    (await agent.session("measured").run("Go")).unwrap()
    await agent.store.aclose()
    return found


def measure_append(recorder: Recorder) -> Passed:
    """Return what a synced append usually passes: now and then one has more to do."""
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(append_often(recorder, folder))
    return sorted(found[WARM:], key=lambda each: len(each.functions))[COUNTED // 2]


def measure_run(recorder: Recorder, model: str) -> Passed:
    """Return what the first run of a process passes; the agent is made before."""
    from perdure import Agent

    agent = Agent(model)
    recorder.begin()
    outcome = agent.run_sync("Go")
    found = recorder.end()
    outcome.unwrap()
    return found


def main(what: str, *arguments: str) -> Passed:
    """Measure an append or a run."""
    for name in {"fsync", "fdatasync"} & set(dir(os)):
        setattr(os, name, slow(getattr(os, name)))
    import perdure  # after that: what it imports may take the functions by name

    recorder = Recorder(Path(perdure.__file__).parent)
    threading.setprofile(recorder.notice)
    sys.setprofile(recorder.notice)
    return measure_append(recorder) if what == "append" else measure_run(recorder, *arguments)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])._asdict()))
