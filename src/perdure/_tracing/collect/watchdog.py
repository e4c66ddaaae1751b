"""A watchdog for the asyncio event loop: it reports the tool whose function blocks the loop.

An async tool that computes, or calls something that blocks, stops every session of the process. The watchdog is a
thread: while tools run it asks the loop for a sign of life, and when none comes it looks at what the loop is doing.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

from msgspec import Struct

from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Arguments, Tool
from perdure._core.tools.wrappers import around
from perdure._core.values import checks

THRESHOLD_SECONDS: Final = 0.25
_LOGGER: Final = logging.getLogger("perdure")


class BlockedLoop(Struct, frozen=True):
    """Report of the watchdog that the event loop was blocked: by which tool, for how long, and where."""

    tool: str
    """The tool that blocks it; empty if the code that does is not that of a tool."""
    seconds: float
    """How long the loop had not run when the report was made; it may go on."""
    place: str
    """File, line and function that the thread of the loop was in."""

    def __str__(self) -> str:
        who = f"the tool {self.tool!r}" if self.tool else "the program"
        advice = "make it a plain function, which runs on a thread, or mark it @tool(isolate=True)"
        return f"{who} has blocked the event loop for {self.seconds:.2f} s at {self.place}: {advice}"


Report: TypeAlias = Callable[[BlockedLoop], object]
"""A function that gets reports; it is called on the thread of the watchdog."""


class LoopWatchdog:
    """A watchdog that reports tools which block the event loop for longer than a threshold.

    `wrap` makes a tool watched.
    """

    def __init__(self, threshold_seconds: float = THRESHOLD_SECONDS, report: Report | None = None) -> None:
        if not threshold_seconds > 0:
            checks.raise_config_error(
                "LoopWatchdog", "threshold_seconds", threshold_seconds, "give a number above zero"
            )
        checks.require_plain_function_or_none("LoopWatchdog", "report", report)
        self._threshold = threshold_seconds
        self._report: Report = report or log_blocked_loop
        self._changed = threading.Condition()
        self._running: dict[object, _WatchedCall] = {}
        self._has_thread = False

    def wrap(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """Return the tool, watched while its calls run."""
        code = get_code_object(tool.function)

        async def watch(
            call_next: Callable[[], Awaitable[Any]], arguments: Arguments, context: ToolContext[Any]
        ) -> Any:
            del arguments, context
            with self._watch(tool.name, code):
                return await call_next()

        return around(tool, watch)

    @contextmanager
    def _watch(self, name: str, code: CodeType | None) -> Generator[None, None, None]:
        key = object()
        with self._changed:
            self._running[key] = _WatchedCall(name, code, asyncio.get_running_loop(), threading.get_ident())
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._work, name="perdure-watchdog", daemon=True).start()
        try:
            yield
        finally:
            with self._changed:
                del self._running[key]
                self._changed.notify()

    def _work(self) -> None:
        """Ask the loops of running calls for a sign of life, until no call runs."""
        while True:
            with self._changed:
                calls = list(self._running.values())
                if not calls:
                    self._has_thread = False
                    return
            for loop in {id(each.loop): each for each in calls}.values():
                self._look(loop)
            with self._changed:
                self._changed.wait_for(lambda: not self._running, self._threshold)

    def _look(self, call: "_WatchedCall") -> None:
        """Report a loop that gives no sign of life within the threshold, once for each time that it is blocked."""
        alive = threading.Event()
        try:
            call.loop.call_soon_threadsafe(alive.set)
        except RuntimeError:
            return  # it is closed
        if alive.wait(self._threshold):
            return
        frame = sys._current_frames().get(call.thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        with self._changed:
            calls = [each for each in self._running.values() if each.loop is call.loop]
        if frame is not None and calls and call.loop.is_running():
            self._send_report(BlockedLoop(find_blocking_tool(frame, calls), self._threshold, describe_frame(frame)))
        while not alive.wait(self._threshold) and self._has_calls_on(call.loop):
            pass  # it is still the same block

    def _has_calls_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return False if no watched call runs on the loop any more: a loop that has ended gives no sign of life."""
        with self._changed:
            return loop.is_running() and any(each.loop is loop for each in self._running.values())

    def _send_report(self, blocked: BlockedLoop) -> None:
        try:
            self._report(blocked)
        except Exception:
            _LOGGER.exception("the function that gets the reports of the watchdog has failed")


class _WatchedCall(Struct, eq=False):
    """A call that runs on an event loop."""

    name: str
    code: CodeType | None
    loop: asyncio.AbstractEventLoop
    thread: int


def get_code_object(function: object) -> CodeType | None:
    """Return the code object of a function, without its wrappers, by which the function is recognized on a stack."""
    while (inner := getattr(function, "__wrapped__", None) or getattr(function, "func", None)) is not None:
        function = inner
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def find_blocking_tool(frame: FrameType, calls: "list[_WatchedCall]") -> str:
    """Return the name of the called tool whose function is on the stack of a frame; empty if there is none."""
    names = {each.code: each.name for each in calls if each.code is not None}
    at: FrameType | None = frame
    while at is not None:
        if at.f_code in names:
            return names[at.f_code]
        at = at.f_back
    return ""


def describe_frame(frame: FrameType) -> str:
    """Format the position of a stack frame as text: file, line and function."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def log_blocked_loop(blocked: BlockedLoop) -> None:
    """Log a report of a blocked event loop as a warning."""
    _LOGGER.warning("%s", blocked)
