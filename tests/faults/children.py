"""A process that drives conversations and may be killed or paused at any time. Above: `scene.py`. Below: Perdure.

It takes each conversation from wherever it finds it to its end, so it may die and be started any number of times. It
tells what outsiders can know: every entry that it has seen stored, every request that reached the model, every call
that was allowed. Its tools write each effect into a ledger outside.

    python -m tests.faults.children ORDER      is such a process in an interpreter of its own
"""

import asyncio
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from perdure import Agent, Message, Permissions, Session, SessionBusy, UsageError, user
from perdure._core.people.mailbox import STEER_POST, build_message_post
from perdure._core.values import faults
from perdure._core.values.clock import new_id
from perdure._stores.postgres.store import LEASE_SECONDS
from perdure.engines import fold_entries
from perdure.events import Entry, RunStarted, SessionOpened, ToolFinished
from perdure.models import Request
from perdure.permissions import PermissionRequest, Verdict
from perdure.stores import Fenced, PostgresStore, Store, open_store
from perdure.testing import ScriptedModel
from tests.faults.mistakes import MISTAKES
from tests.faults.plan import FORBIDDEN, STEERING, Item, plan, reply_to
from tests.faults.tools import tools
from tests.transcript import assert_valid

Tell: TypeAlias = Callable[[str], object]

LETTERS = 5
"""What is posted from outside."""


class Place(msgspec.Struct, frozen=True):
    """Where conversations are kept."""

    address: str
    """As `open_store` takes it."""
    tenant: str = ""
    """For a database that several trials share."""
    lease_seconds: float = LEASE_SECONDS
    """After how long a driver of that database which does not renew its lease loses it."""

    def opened(self) -> Store:
        """A store of this process."""
        if self.tenant:
            return PostgresStore(self.address, tenant=self.tenant, lease_seconds=self.lease_seconds)
        return open_store(self.address)


class Order(msgspec.Struct, frozen=True):
    """What a driver is to do."""

    place: Place
    ledger: str
    seed: str
    """Of the plan."""
    sessions: Sequence[str]
    faults: str = ""
    """Points at which it kills or stops itself, as in the environment variable."""
    afresh: bool = False
    """Whether a run that was cut off is left as it is, and the next prompt given."""
    take_over: bool = False
    """Whether the sessions are taken from whoever holds them."""
    bug: str = ""
    """The name of a bug to have, for the tests of the test."""


def drive(order: Order, tell: Tell) -> None:
    """Take the conversations to their ends, in this process."""
    if order.bug:
        MISTAKES[order.bug]()
    if order.faults:
        faults.arm_from_text(order.faults)
    asyncio.run(_drive(order, tell))


async def _drive(order: Order, tell: Tell) -> None:
    store = order.place.opened()
    drivers = [Driver(order, store, session_id, tell) for session_id in order.sessions]
    for ended in await asyncio.gather(*[driver.converse() for driver in drivers], return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended
    await store.aclose()


def post(order: Order, tell: Tell) -> None:
    """Tell the models something from outside, while others drive the sessions or nobody does."""
    asyncio.run(_post(order, tell))


async def _post(order: Order, tell: Tell) -> None:
    store = order.place.opened()
    for number in range(LETTERS):
        for session_id in order.sessions:
            name = new_id()
            words = user(f"{STEERING}, this is letter {number} of {os.getpid()}", origin="steering")
            await store.post(session_id, build_message_post(STEER_POST, words, name, 0.0))
            tell(f"{session_id} posted {name}")
    await store.aclose()


class Driver:
    """One conversation in this process."""

    def __init__(self, order: Order, store: Store, session_id: str, tell: Tell) -> None:
        self._order = order
        self._store = store
        self._id = session_id
        self._items = plan(order.seed, session_id)
        self._tell = lambda words: tell(f"{session_id} {words}")
        agent = Agent(
            ScriptedModel(self._answer, repeat_last=True),
            tools=tools(order.ledger),
            store=store,
            permission=Permissions(handler=self._judge),
        )
        # Without watchers, appends are joined; a driver that takes over has to be told when it has the session.
        is_watched = order.take_over or zlib.crc32(f"{order.seed} {session_id}".encode()) % 2
        self._session: Session = agent.replace(watchers=[self._watch] if is_watched else []).session(session_id)
        self._steered = False
        self._takes_over = order.take_over
        """Until it has the session."""

    async def converse(self) -> None:
        """Until everything has been done; or until somebody else drives the session, which is told."""
        try:
            while await self._do_next():
                pass
            await self._session.aclose()
            self._tell("finished")
        except Fenced as error:
            self._tell(f"fenced {error}")
        except SessionBusy as error:
            self._tell(f"busy {error}")

    async def _do_next(self) -> bool:
        """Go on with what was cut off, or begin the next thing; says whether there was anything."""
        entries = await self._store.read(self._id)
        state = fold_entries(entries)
        begun = sum(isinstance(entry.event, RunStarted) for entry in entries)
        left = self._items[begun:]
        was_call = 0 < begun <= len(self._items) and self._items[begun - 1].is_call
        if state.is_interrupted and not (left and (self._order.afresh or was_call)):
            await self._resume()
        elif left:
            await self._begin(left[0], left[0].name)
        elif (
            state.run_ended_event and state.run_ended_event.status == "parked"
        ):  # it was killed too often at the same place
            await self._begin(self._items[-1], f"{self._items[-1].name} {begun}")
        else:
            return False
        return True

    async def _resume(self) -> None:
        try:
            outcome = await self._session.resume(take_over=self._takes_over)
        except SessionBusy:
            raise
        except UsageError as error:  # whoever had it before has just come to the end of the run
            self._tell(f"late {error}")
        else:
            self._tell(f"ended {outcome.status} {outcome.reason}")

    async def _begin(self, item: Item, input_id: str) -> None:
        self._steered = not item.steered
        if item.is_call:
            wish = item.turns[0][0]
            result = await self._session.call(wish.tool, {"what": wish.what})
            self._tell(f"ended {result.status}")
        else:
            outcome = await self._session.run(item.name, input_id=input_id, take_over=self._takes_over)
            self._tell(f"ended {outcome.status} {outcome.reason}")

    async def _watch(self, entry: Entry) -> None:
        if entry.seq:
            self._tell(f"stored {entry.seq} {entry.id}")
        elif isinstance(entry.event, SessionOpened):
            self._takes_over = False
            self._tell("opened")
        if isinstance(entry.event, ToolFinished) and not self._steered:
            self._steered = True
            await self._steer(f"{STEERING}, {entry.event.call_id} is done")

    async def _steer(self, words: str) -> None:
        """Tell the model something more; once that is acknowledged, it must not be lost."""
        name = new_id()
        if await self._session.steer(words, post_id=name):
            self._tell(f"posted {name}")

    async def _judge(self, requests: Sequence[PermissionRequest]) -> list[Verdict]:
        await asyncio.sleep(0)
        verdicts = [Verdict(allow=not str(each.arguments["what"]).startswith(FORBIDDEN)) for each in requests]
        for each, verdict in zip(requests, verdicts, strict=True):
            self._tell(f"{'allowed' if verdict.allow else 'denied'} {each.call_id} {each.arguments_hash}")
        return verdicts

    def _answer(self, request: Request) -> Any:
        """As a provider: a request that is not valid is told."""
        try:
            assert_valid(request.messages)
        except AssertionError as error:
            self._tell(f"INVALID {error}")
        self._tell(f"request {len(request.messages)} {checksum(request.messages)}")
        return reply_to(request, self._items)


async def read(place: Place, session_id: str) -> list[Entry]:
    """What is stored."""
    store = place.opened()
    try:
        return await store.read(session_id)
    finally:
        await store.aclose()


def checksum(messages: Sequence[Message]) -> int:
    """Tells one history from another."""
    return zlib.crc32(msgspec.json.encode(list(messages)))


if __name__ == "__main__":
    drive(msgspec.json.decode(sys.argv[1], type=Order), print)
