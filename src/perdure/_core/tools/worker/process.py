"""Worker processes that can be killed, for isolated tools and for regular expressions on untrusted text."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from perdure._core.values.error import ConfigError, ToolError

from .main import exit_if_importing_main, read_frame, write_frame
from .threads import THREAD_POOL

if TYPE_CHECKING:
    from typing import BinaryIO


MAX_IDLE_WORKERS = 2
"""Workers that are kept for later calls."""

Request = tuple[str, str, dict[str, Any]]
"""Module and name of a function, and its arguments."""


class ToolWorkerProcess:
    """A worker process that calls functions for this process, one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._life: int | None = None
        self._is_killed = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The id of the process; 0 before it is started."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        """True if the process waits for a call."""
        return self._process is not None and self._process.poll() is None

    def call(self, request: Request) -> tuple[bool, Any]:
        """Make a call, and wait for its value or its error. Raises `EOFError` if the process ends before."""
        process = self._start()
        try:
            write_frame(cast("BinaryIO", process.stdin), request)
            return cast("tuple[bool, Any]", read_frame(cast("BinaryIO", process.stdout)))
        except BrokenPipeError:
            raise EOFError from None

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._is_killed:
                raise EOFError
            if self._process is None:
                self._process = self._spawn()
            return self._process

    def _spawn(self) -> "subprocess.Popen[bytes]":
        from multiprocessing import spawn

        exit_if_importing_main()
        preparation = spawn.get_preparation_data("perdure-worker")
        del preparation["authkey"]  # which must not be pickled, and is for pools of multiprocessing
        life, self._life = os.pipe()
        program = (
            f"import sys; sys.path[:0] = {sys.path!r}; from perdure._core.tools.worker.main import run; run({life})"
        )
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(life,),
        )
        os.close(life)
        write_frame(cast("BinaryIO", process.stdin), preparation)
        return process

    def kill(self) -> None:
        """Kill the process, with everything that it started."""
        with self._lock:
            self._is_killed = True
            process, life, self._life = self._process, self._life, None
        if process is None or life is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        os.close(life)
        process.wait()  # it is dead: this only removes its entry
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError, ValueError):
                cast("BinaryIO", stream).close()


class ToolWorkerPool:
    """Pool of idle worker processes, which are reused for later calls of isolated tools."""

    def __init__(self) -> None:
        self._idle: list[ToolWorkerProcess] = []
        self._lock = threading.Lock()

    def take(self) -> ToolWorkerProcess:
        """Return a worker that waits, or a new one."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive:
                    return worker
                worker.kill()
        return ToolWorkerProcess()

    def give_back(self, worker: ToolWorkerProcess) -> None:
        """Keep a worker for the next call, unless enough are kept."""
        with self._lock:
            if len(self._idle) < MAX_IDLE_WORKERS:
                self._idle.append(worker)
                return
        worker.kill()

    def close(self) -> None:
        """End the workers that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()


WORKERS = ToolWorkerPool()


async def call_isolated(
    confirm_lease: Callable[[], None], session_id: str, module: str, name: str, arguments: dict[str, Any]
) -> Any:
    """Call a function in a worker process, after a last look at the lease. A cancelled call kills the process."""
    worker = WORKERS.take()

    def call_unless_fenced() -> tuple[bool, Any]:
        confirm_lease()
        return worker.call((module, name, arguments))

    try:
        is_value, result = await THREAD_POOL.run(call_unless_fenced, (), {}, session_id=session_id)
    except BaseException as error:
        worker.kill()
        if isinstance(error, EOFError):
            raise ToolError("the process of the tool has ended in the middle of the call") from None
        raise
    WORKERS.give_back(worker)
    if is_value:
        return result
    raise result


def locate_isolated_function(function: Any, context_parameter: str | None, receiver: str | None) -> tuple[str, str]:
    """Return the module and name by which a worker finds a function. Raises `ConfigError` if it cannot call it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if context_parameter is not None:
        problem = f"it has a parameter {context_parameter!r} for the ToolContext, which stays in this process"
    elif receiver is not None or not isinstance(module, str) or not name or "<" in name:
        problem = "a worker process finds only functions at the top level of a module"
    elif not hasattr(os, "fork"):
        problem = "this system has no process groups"
    else:
        return module, name
    raise ConfigError(f"@tool(isolate=True) cannot be used for {function!r}: {problem}")


_MULTIPLYING = frozenset("*+?{|")
"""Characters of repetitions and alternatives: the time of a search without them is that of reading the text."""


def search_within_time(pattern: "re.Pattern[str]", text: str, seconds: float) -> bool:
    """Return True if a pattern is found in a text. Raises `TimeoutError` after `seconds`. To be called on a thread.

    On a system without process groups it is searched here, without a time limit.
    """
    if _MULTIPLYING.isdisjoint(pattern.pattern) or not hasattr(os, "fork"):
        return has_match(pattern, text)
    worker, is_late = WORKERS.take(), threading.Event()

    def expire() -> None:
        is_late.set()
        worker.kill()

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), expire)
    timer.daemon = True
    timer.start()
    try:
        is_value, result = worker.call((__name__, "has_match", {"pattern": pattern, "text": text}))
    except BaseException:
        worker.kill()
        if is_late.is_set():  # whatever the end of its pipes looks like
            raise TimeoutError(f"the search took longer than {seconds:g} seconds, and was ended") from None
        raise
    finally:
        timer.cancel()
    WORKERS.give_back(worker)
    if not is_value:
        raise result
    found: bool = result
    return found


def has_match(pattern: "re.Pattern[str]", text: str) -> bool:
    """Return True if a pattern is found in a text."""
    return pattern.search(text) is not None
