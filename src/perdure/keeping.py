"""A session as it is kept: what can be seen of it, and what can be done with it as a whole. Above: `session.py`, which
talks. Below: `driver.py`, `core`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from .core import check
from .core.clock import new_id
from .core.error import SessionNotFound, Unsupported, UsageError
from .core.event import Entry, Event, QuestionAsked, SessionConfigured, SlotOpened
from .core.fanout import Subscription
from .core.fold import State, fold_events
from .core.message import Message
from .core.redact import redacted, retold_in
from .core.secrecy import Secrecy
from .core.store import Hit, Lease, Log, Narrowed, Searchable, SessionInfo, Store, events_of, insisted
from .core.tool import D
from .driver import Driver

if TYPE_CHECKING:
    from .agent import Agent
    from .toolkits.tasks import Task

WATCH_SECONDS = 1.0
"""How often `watch` looks for what other processes have stored."""
_PAGE = 500


class KeptSession(Generic[D]):
    """One conversation, as it is kept."""

    def __init__(
        self,
        agent: "Agent[D]",
        session_id: str,
        store: Store,
        role: str = "",
        secrecy: Secrecy | None = None,
        *,
        forgotten: bool = False,
    ) -> None:
        self.agent = agent
        self.session_id = session_id
        self.store = store
        self.role = role
        """What its runs are, unless one of them asks for another role."""
        self._driver = Driver(agent, session_id, store, secrecy)
        self._driver.may_wait = not forgotten  # nobody could answer later

    # -- looking -------------------------------------------------------------------------------------------------------

    async def messages(self) -> Sequence[Message]:
        """The conversation as it is kept."""
        return (await self._kept()).messages

    async def kept(self, name: str, default: Any = None) -> Any:
        """What tools have left in the log under that name: tasks, notes, or whatever of your own."""
        check.text("session.kept", "name", name, filled=True)
        return (await self._state()).kept.get(name, default)

    async def tasks(self) -> "list[Task]":
        """What the agent says that it has to do, when it has the tools for it (`task_tools`)."""
        from .toolkits.tasks import tasks_of

        return tasks_of(await self.kept("tasks"))

    async def watch(self, *, after: int = 0) -> AsyncGenerator[Entry]:
        """Every entry of the log after that number, then everything that happens from now on.

        Also while another process drives the session: what it stores is seen within a second, its deltas are not.
        """
        subscription = self.subscribe()
        coming: asyncio.Future[Entry | None] | None = None
        live: Entry | None = None
        try:
            while True:
                if live is None or live.seq > after + 1:  # others may have stored something that nobody here has seen
                    for entry in await self.store.read(self.session_id, after=after):
                        after = entry.seq
                        yield entry
                elif live.seq in {0, after + 1}:
                    after = max(after, live.seq)
                    yield live
                if len(subscription):
                    live = subscription.take()
                    continue
                coming = coming or asyncio.ensure_future(_next(subscription))
                arrived, _ = await asyncio.wait((coming,), timeout=WATCH_SECONDS)
                live = coming.result() if arrived else None
                if arrived and live is None:
                    return  # the session was closed
                coming = None if arrived else coming
        finally:
            subscription.close()
            if coming is not None:
                coming.cancel()

    def subscribe(self, *, backpressure: bool = False) -> Subscription[Entry]:
        """Everything that happens from now on, as entries. Close it when done."""
        self._driver.settle_in()
        return self._driver.fanout.subscribe(backpressure=backpressure)

    def run_in_place_of(self, run_id: str) -> str:
        """The run that was taken up when this one was asked for; empty when there is none."""
        return self._driver.became.get(run_id, "")

    async def info(self) -> SessionInfo | None:
        """The session's line in the list; `None` when there is nothing in it yet."""
        return await self.store.info(self.session_id)

    async def search(self, query: str, **narrowed: Unpack[Narrowed]) -> list[Hit]:
        """What was said in this session. Takes what `Searchable.search` takes; whatever it says, it stays in here."""
        here: Narrowed = {**narrowed, "session_id": self.session_id}
        return await searchable(self.store).search(query, **here)

    # -- keeping -------------------------------------------------------------------------------------------------------

    async def fork(self, session_id: str | None = None, *, at: int | None = None) -> Self:
        """Another session, which begins with the first `at` entries of this one; without `at`, a clone of it."""
        name = new_id() if session_id is None else session_id
        await self.store.fork(self.session_id, name, at=at)
        return type(self)(self.agent, name, self.store, self.role, secrecy=self._driver.secrecy)

    async def lineage(self) -> list[SessionInfo]:
        """The sessions that this one was forked from, the first one first, and this one last."""
        line: list[SessionInfo] = []
        info = await self.store.info(self.session_id)
        while info is not None:
            line.append(info)
            info = await self.store.info(info.parent) if info.parent else None
        return line[::-1]

    async def forks(self) -> list[SessionInfo]:
        """The sessions that were forked from this one."""
        return [each async for each in every(self.store) if each.parent == self.session_id]

    async def rename(self, title: str) -> None:
        """Give it a title, which lists show instead of its first words."""
        check.text("session.rename", "title", title, filled=True)
        await self._note(SessionConfigured({"title": title}))

    async def redact(self, seq: int) -> None:
        """Take the words out of an entry, and leave no byte of them: in the log, the search index, nor any fork.

        The entry stays, so the conversation stays valid. Summaries that were made of it are taken out as a whole: the
        model is told that there was one. Raises `SessionBusy` while the session is being driven.
        """
        async with self._leased() as (lease, entries):
            found = next((each for each in entries if each.seq == seq), None)
            if found is None:
                raise UsageError(f"session {self.session_id!r} has no entry {seq!r}: it has {len(entries)}")
            for each in (*retold_in(entries, found), found):  # itself last: cut off before, it can be asked for again
                await self.store.redact(lease, Entry(each.seq, each.at, redacted(each.event), each.id))

    async def delete(self) -> None:
        """Forget it, and leave no byte of it. What forks share with it stays, for them."""
        await self.store.delete(self.session_id)

    async def aclose(self) -> None:
        """Let watchers finish. The session itself stays where it is kept."""
        await self._driver.aclose()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self.agent.clock.now()

    async def _state(self) -> State:
        """What the log amounts to now."""
        run = self._driver.run
        return run.state if run is not None else await self._kept()

    async def _kept(self) -> State:
        """What the log amounts to as it is kept."""
        events, _ = await events_of(self.store, self.session_id)
        return fold_events(events)

    def _below(self, state: State, *, done: bool = False) -> dict[str, Self]:
        """The sessions in which agents work for this one in the background, by handle; with `done`, or have worked."""
        if not (state.inbox or done):
            return {}
        from .subagents.job import jobs_of  # which stands above this

        jobs = [job for job in jobs_of(state) if done or job.item_id in state.inbox]
        return {
            job.handle: type(self)(self.agent, job.session_id, self.store, secrecy=self._driver.secrecy)
            for job in jobs
            if job.session_id.startswith(f"{self.session_id}/")  # else it is of the session that this was forked from
        }

    async def _knows(self, ask_id: str) -> bool:
        """Whether that was ever asked here, or below."""
        if await self._has_had(ask_id):
            return True
        below = self._below(await self._state(), done=True).values()
        return any([await each._knows(ask_id) for each in below])  # noqa: SLF001 - of its own kind

    async def _has_had(self, slot_id: str) -> bool:
        """Whether there has ever been a question, or a slot, of that id."""
        events, _ = await events_of(self.store, self.session_id)
        return any(
            (isinstance(each, QuestionAsked) and each.ask_id == slot_id)
            or (isinstance(each, SlotOpened) and each.slot_id == slot_id)
            for each in events
        )

    async def _note(self, *events: Event, begin: bool = False) -> None:
        """Add something to the log between runs. With `begin`, a session that is not there is made."""
        async with self._leased(begin=begin) as (lease, entries):
            head = entries[-1].seq if entries else 0
            log = Log(self.store, lease, head, self.agent.clock)
            scrubbed = [self._driver.secrecy.event(each) for each in events]
            await log.append(scrubbed, sync=True, stored=lambda _: None)

    @asynccontextmanager
    async def _leased(self, *, begin: bool = False) -> AsyncGenerator[tuple[Lease, list[Entry]]]:
        """Have the session, as long as nobody drives it. One that is not there is not made, unless it is to begin."""
        if not begin and await self.store.info(self.session_id) is None:
            raise SessionNotFound(f"there is no session {self.session_id!r}: use run() to begin it")
        lease = await self.store.acquire(self.session_id)
        try:
            yield lease, await self.store.read(self.session_id)
        finally:
            await insisted(lambda: self.store.release(lease))


def path_below(handle: str, path: str) -> str:
    """Where something is, seen from the session that has given a task, which knows it by this handle."""
    return f"{handle}/{path}" if path else handle


async def _next(subscription: Subscription[Entry]) -> Entry | None:
    """What comes next; `None` when nothing does."""
    async for entry in subscription:
        return entry
    return None


def searchable(store: Store) -> Searchable:
    """The store, if it can be searched."""
    if not isinstance(store, Searchable):
        kind = type(store).__name__
        raise Unsupported(f"a {kind} cannot be searched: keep sessions in 'sqlite:PATH' or 'postgresql://…'")
    return store


async def every(store: Store, *, prefix: str = "") -> AsyncIterator[SessionInfo]:
    """Every session of a store, page by page."""
    offset = 0
    while page := await store.list(prefix=prefix, limit=_PAGE, offset=offset):
        for each in page:
            yield each
        offset += len(page)
