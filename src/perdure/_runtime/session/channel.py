"""The channel of a session: the command queue and the watchers that all its `Session` objects share.

A session is the same one whichever object it is reached by: another `Session`, another `Agent`, another store object
for the same file, or a part of a store. So its commands wait for each other, and its watchers see all of its events.
Sharing is limited to one event loop: between event loops, as between processes, the lease of the store decides.

A channel lives as long as something uses it: a `Session` object, a subscription, a run, or a background task.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from perdure._core.log.store import SessionPlace, Store, finish_before_cancel, get_process_wide_session_key
from perdure._core.values.clock import Clock
from perdure._core.values.error import SessionBusy, UsageError
from perdure._core.watch import Fanout, Subscription, Watcher
from perdure._runtime.agent.spec import AgentSpec

from .commands import DriverCommand

if TYPE_CHECKING:
    from perdure._core.run.run import Run

    from .driver import SessionDriver

DRAIN_SECONDS = 1.0
"""The longest time that the end of a run waits for watchers to catch up."""

_channels: "WeakValueDictionary[tuple[int, SessionPlace], SessionChannel]" = WeakValueDictionary()
"""The channels of this process, by event loop and session. A channel keeps its loop, so that no other gets its `id`."""

_awaited_places: dict[SessionPlace, list[SessionPlace]] = {}
"""For each session with a run whose tool waits for a turn in other sessions: those sessions."""


_late_releases: "set[asyncio.Task[None]]" = set()
"""Tasks that remove watchers once background work has ended: the event loop has only weak references to tasks."""


class SessionChannel:
    """The command queue and watchers of one session, shared by all objects that use it on one event loop."""

    __slots__ = (
        "__weakref__",
        "_held_watchers",
        "driver",
        "fanout",
        "lock",
        "loop",
        "queued",
        "store",
        "users",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store, clock: Clock) -> None:
        self.loop = loop
        self.store = store
        """Kept alive: the place of a session may be the `id` of its store."""
        self.lock = asyncio.Lock()
        """Held by the command in progress."""
        self.queued = 0
        """The number of commands that have the lock or wait for it."""
        self.driver: SessionDriver | None = None
        """The driver whose command is in progress."""
        self.users = 0
        """The number of drivers that have attached themselves, and not detached."""
        self._held_watchers: dict[int, _HeldWatcher] = {}
        """The watchers of agents, each once, by the `id` of the function."""
        self.fanout = Fanout(clock)

    def hold_watchers(self, watchers: Sequence[Watcher]) -> Callable[[], None]:
        """Register watchers, each called once with each event, until the returned function is called."""
        if not watchers:
            return remove_no_watchers
        held = [self._hold_watcher(each) for each in watchers]

        def release() -> None:
            while held:
                self._release_watcher(held.pop())

        return release

    @property
    def is_in_use(self) -> bool:
        """True if a command is in progress or queued, or an agent's watcher is attached."""
        return bool(self.queued or self._held_watchers)

    def _hold_watcher(self, watcher: Watcher) -> "_HeldWatcher":
        held = self._held_watchers.get(id(watcher))
        if held is None:
            held = self._held_watchers[id(watcher)] = _HeldWatcher(watcher, self.fanout.add_watcher(watcher))
        held.holds += 1
        return held

    def _release_watcher(self, held: "_HeldWatcher") -> None:
        held.holds -= 1
        if not held.holds:
            del self._held_watchers[id(held.watcher)]
            held.remove()


def remove_no_watchers() -> None:
    """Do nothing: given as the `release` function where no watchers have to be removed."""


class _HeldWatcher:
    """A watcher of an agent, with the number of runs and background tasks that currently use it."""

    __slots__ = ("holds", "remove", "watcher")

    def __init__(self, watcher: Watcher, remove: Callable[[], None]) -> None:
        self.watcher = watcher
        self.remove = remove
        self.holds = 0


class SessionChannelHandle:
    """Base class of `SessionDriver`: access to the session's channel, active run, watchers and subscriptions."""

    def __init__(self, agent: AgentSpec[Any], session_id: str, store: Store) -> None:
        self.agent = agent
        self.session_id = session_id
        self.store = store
        self.place = get_process_wide_session_key(store, session_id)
        """The session itself, however this process reaches it: by this store object, another one, or a part of it."""
        self.may_wait = True
        """True if its runs may end as `waiting`, because the session can be found again, and by others too."""
        self.command: DriverCommand | None = None
        """The command in progress."""
        self._channel: SessionChannel | None = None
        """The channel on the event loop that the driver is used on; `None` before it is used."""
        self._watcher_removers: list[Callable[[], None]] = []
        """Remove the watchers that were added here."""

    def attach_to_loop(self) -> SessionChannel:
        """Return the channel of the session on the running event loop, and keep using it.

        A session may be used in several event loops, one after another.
        """
        loop, before = asyncio.get_running_loop(), self._channel
        if before is not None:
            if before.loop is loop:
                return before
            if self.command is not None and before.loop.is_running():
                message = (
                    f"session {self.session_id!r} has a run on another event loop: "
                    "use agent.session(…) to get a Session for this one"
                )
                raise UsageError(message)
            before.users -= 1
        self._channel = channel = self._open_channel(loop)
        channel.users += 1
        return channel

    def find_active_driver(self) -> "SessionDriver | None":
        """Return the driver of this session that has a command in progress on this event loop, if there is one."""
        channel = self.find_channel()
        return None if channel is None else channel.driver

    def find_channel(self) -> SessionChannel | None:
        """Return the channel of the session on the running event loop, if there is one, without attaching to it."""
        loop, channel = asyncio.get_running_loop(), self._channel
        return channel if channel is not None and channel.loop is loop else _channels.get((id(loop), self.place))

    def find_active_run(self) -> "Run | None":
        """Return the run of this session that is in progress on this event loop, whichever object began it."""
        driver = self.find_active_driver()
        return None if driver is None else driver.run

    def add_watcher(self, watcher: Watcher) -> Callable[[], None]:
        """Call a watcher with each event of the session, until the returned function is called or this is closed."""
        remove = self.attach_to_loop().fanout.add_watcher(watcher)
        self._watcher_removers.append(remove)
        return remove

    def subscribe(self, *, backpressure: bool) -> Subscription:
        """Subscribe to every event of the session from now on, whichever object causes it."""
        return self.attach_to_loop().fanout.subscribe(backpressure=backpressure, owner=self)

    async def aclose(self) -> None:
        """Wait until watchers have finished, close the subscriptions of this object, and detach from the event loop."""
        channel = self._channel
        if channel is None or channel.loop is not asyncio.get_running_loop():
            return
        self._channel = None
        channel.users -= 1
        removers, self._watcher_removers = self._watcher_removers, []
        channel.fanout.close_subscriptions(self)
        if channel.users > 0 or channel.is_in_use:
            await channel.fanout.drain(DRAIN_SECONDS)
            for remove in removers:
                remove()
            return
        key = (id(channel.loop), self.place)
        if _channels.get(key) is channel:  # the next user opens another one
            del _channels[key]
        await channel.fanout.aclose(DRAIN_SECONDS)

    def _open_channel(self, loop: asyncio.AbstractEventLoop) -> SessionChannel:
        """Return the channel of the session; create one if there is none that other objects can reach."""
        if not self.may_wait:  # to register it would cost time, for nothing
            return SessionChannel(loop, self.store, self.agent.clock)
        return get_or_create_channel(self.place, self.store, self.agent.clock)


def get_or_create_channel(place: SessionPlace, store: Store, clock: Clock) -> SessionChannel:
    """Return the channel (command queue and watchers) of a session on the running event loop, created if needed."""
    loop = asyncio.get_running_loop()
    key = (id(loop), place)
    channel = _channels.get(key)
    if channel is None:
        channel = _channels[key] = SessionChannel(loop, store, clock)
    return channel


@asynccontextmanager
async def pause_commands(channel: SessionChannel, session_id: str) -> AsyncGenerator[None]:
    """Async context manager that makes the commands of a session wait while the block changes its log.

    Raises `SessionBusy` if one is in progress.
    """
    if channel.driver is not None:
        raise SessionBusy(f"session {session_id!r} has a run in progress: wait until it ends, or cancel() it")
    channel.queued += 1
    try:
        async with channel.lock:
            yield
    finally:
        channel.queued -= 1


async def drain_and_remove_watchers(
    channel: SessionChannel, release: Callable[[], None], list_tasks: "Callable[[], Sequence[asyncio.Task[Any]]]"
) -> None:
    """Wait until an agent's watchers have handled all events, for a limited time, then call `release` to remove them.

    While tasks in the background still work for the session, they stay.
    """
    try:
        if channel.fanout.is_watched:
            await finish_before_cancel(lambda: channel.fanout.drain(DRAIN_SECONDS))
    finally:
        if tasks := list_tasks():
            task = asyncio.ensure_future(_release_after_tasks(tasks, channel, release))
            _late_releases.add(task)
            task.add_done_callback(_late_releases.discard)
        else:
            release()


async def _release_after_tasks(
    tasks: "Sequence[asyncio.Task[Any]]", channel: SessionChannel, release: Callable[[], None]
) -> None:
    """Remove the watchers of an agent when background tasks have ended, and their events have been handled."""
    try:
        await asyncio.wait(tasks)
        await channel.fanout.drain(DRAIN_SECONDS)
    finally:
        release()


@asynccontextmanager
async def hold_command_turn(
    channel: SessionChannel, place: SessionPlace, inside: Iterable[SessionPlace]
) -> AsyncGenerator[None]:
    """Async context manager that holds a session's command lock, so that its commands run one at a time.

    `inside` are the sessions whose runs the caller is part of, as a tool is. Raises `UsageError` if a run of the
    session waits for one of them, so that neither would ever continue.
    """
    waiting = list(inside)
    if waiting and _is_waiting_for(place, waiting):
        message = (
            "a tool of the session that is to be run waits for a run that this tool is part of, "
            "so both would wait for ever: let one of them finish first"
        )
        raise UsageError(message)
    for each in waiting:
        _awaited_places.setdefault(each, []).append(place)
    try:
        await channel.lock.acquire()
    finally:
        for each in waiting:
            _stop_waiting(each, place)
    try:
        yield
    finally:
        channel.lock.release()


def _is_waiting_for(place: SessionPlace, others: list[SessionPlace]) -> bool:
    """Return True if a run of this session waits, directly or through other sessions, for one of the others."""
    seen: set[SessionPlace] = set()
    ahead = [place]
    while ahead:
        each = ahead.pop()
        if each in others:
            return True
        if each not in seen:
            seen.add(each)
            ahead += _awaited_places.get(each, ())
    return False


def _stop_waiting(place: SessionPlace, awaited: SessionPlace) -> None:
    found = _awaited_places[place]
    found.remove(awaited)
    if not found:
        del _awaited_places[place]
