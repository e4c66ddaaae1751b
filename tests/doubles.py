"""Doubles that tests of runs share: stores and tools that note what is done to them, or stand still when told to."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from perdure import StoreError, Tool, tool
from perdure.events import Entry, Event
from perdure.stores import Lease, MemoryStore, Store

SECONDS = 30
"""No test waits longer than this for anything; on a loaded machine little is quick."""

E = TypeVar("E", bound=Event)
T = TypeVar("T")


class Append(NamedTuple):
    """One append to a log."""

    events: tuple[Event, ...]
    sync: bool

    @property
    def kinds(self) -> list[str]:
        return [kind(event) for event in self.events]


class NotedStore(MemoryStore):
    """A store in memory that notes each append."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[Append] = []

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        self.appends.append(Append(tuple(entry.event for entry in entries), sync))
        return super().append_now(lease, entries, sync=sync)


class WaitingStore:
    """A store that always has to wait, as one behind a network does. It can be made to stand still, and to fail."""

    def __init__(self) -> None:
        self._memory = MemoryStore()
        self.holds_back: type[Event] = Event
        """Which appends stand still while it is not open: those with an event of this kind."""
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = asyncio.Event()
        """Set once an append stands still."""
        self.error: Exception | None = None
        """What the next append raises."""
        self.acquire = self._memory.acquire
        self.release = self._memory.release
        self.holds = self._memory.holds
        self.read = self._memory.read
        self.list = self._memory.list
        self.delete = self._memory.delete
        self.info = self._memory.info
        self.post = self._memory.post
        self.posts = self._memory.posts
        self.list_interrupted = self._memory.list_interrupted
        self.fork = self._memory.fork
        self.redact = self._memory.redact
        self.aclose = self._memory.aclose

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        await asyncio.sleep(0)
        if not self.open.is_set() and any(isinstance(entry.event, self.holds_back) for entry in entries):
            self.waiting.set()
            await self.open.wait()
        if self.error is not None:
            raise self.error
        await self._memory.append(lease, entries, sync=sync)


class Held:
    """A tool that stands still until the test lets it go on."""

    def __init__(self, name: str = "held", **options: Any) -> None:
        self.started = asyncio.Event()
        self.released = asyncio.Event()
        self.cancelled = 0
        """How often its calls were cancelled."""

        @tool(name=name, description="Stands still.", **options)
        async def hold() -> str:
            self.started.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return "released"

        self.tool: Tool[..., Any] = hold


def deaf_tool(name: str = "deaf", **options: Any) -> tuple[Tool[..., Any], asyncio.Event, asyncio.Event]:
    """A tool that ignores its cancel; what tells that it has begun, and what ends it."""
    started, released = asyncio.Event(), asyncio.Event()

    @tool(name=name, description="Does not listen.", **options)
    async def deaf() -> str:
        started.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    return deaf, started, released


def kind(event: Event) -> str:
    """The wire name of an event."""
    return str(event.__struct_config__.tag)


async def log_of(store: Store, session_id: str) -> list[Event]:
    """The events of a session's log."""
    return [entry.event for entry in await store.read(session_id)]


def of(events: Sequence[Event], wanted: type[E]) -> list[E]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, wanted)]


async def crashed(store: Store, session_id: str, *events: Event) -> None:
    """Leave a log behind as a process does that dies after these events."""
    lease = await store.acquire(session_id)
    before = len(await store.read(session_id))
    entries = [Entry(before + place, 0.0, event, f"crash-{before + place}") for place, event in enumerate(events, 1)]
    await store.append(lease, entries, sync=True)
    await store.release(lease)


async def until(holds: Callable[[], object], pause: float = 0.0) -> None:
    """Wait until something holds that nobody tells when it does."""
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(pause)


async def elsewhere(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do something on another event loop, which shares no more with this one than another process does."""
    return await asyncio.to_thread(lambda: asyncio.run(work()))


async def rounds(count: int = 30) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


class LineCount:
    """Counts the lines of Python that this thread executes: work, however slow the machine is."""

    def __init__(self) -> None:
        self.lines = 0

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, _frame: Any, event: str, _argument: Any) -> Any:
        self.lines += event == "line"
        return self._trace


class FailingStore:
    """A store whose n-th append fails, as if its process had died just before."""

    def __init__(self, inner: Any, place: int) -> None:
        self._inner = inner
        self._left = place
        self.has_failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, lease: Any, entries: Any, *, sync: bool) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_failed = True
            raise StoreError("the disk is gone")
        await self._inner.append(lease, entries, sync=sync)


def list_open_below(folder: Any) -> list[str]:
    """The open files and folders of this process that lie below a folder; those of earlier tests do not count."""
    root, found = os.path.realpath(folder), []
    for number in os.listdir("/dev/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # that of the list itself is closed
            found.append(os.readlink(f"/dev/fd/{number}"))  # noqa: PTH115
    return [each for each in found if each.startswith(root)]
