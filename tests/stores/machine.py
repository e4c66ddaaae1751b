"""Does the same things to a store and to a model of it, and compares. For test_state_machine.py."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from perdure import PerdureError, SessionBusy, user
from perdure.events import Custom, Entry, Event, MessageAdded, SessionConfigured
from perdure.stores import Lease, NonBlockingAppendStore, Post, Store, encode_entry
from tests.stores.model import Errors, Model
from tests.stores.victim import Killer, Order, Report

T = TypeVar("T")

MEMORY: Final = Path("/dev/shm")
"""Processes die here, and power does not fail: a disk would only be slower."""
REFUSED: Final = object()
LARGE: Final = "0123456789" * 2_000
"""More than a store keeps in one piece, and the same each time: what several hold, and one of them gives up."""
SESSIONS: Final = ("a", "b", "c", "d", "%_é")


class Place(NamedTuple):
    """Somewhere to keep sessions."""

    open: Callable[[], Store]
    """A store object of this place; for memory, always the same one."""
    spec: str = ""
    """How another process opens it; empty when none can."""
    tenant: str = ""


class Kind(NamedTuple):
    """A kind of store, and what is its own."""

    place: Callable[[Path], Place]
    """A new one, in a folder that is thrown away."""
    takes_over: bool = True
    """Whether a session can be taken from a driver that lives."""
    is_lax: bool = False
    """Whether it may still take appends with a lease that was given back, as long as nobody else has got it."""
    keeps_fences: bool = True
    """Whether every store of the place knows the fence of a deleted session, so that one made anew goes on from there.
    Where it does not, a lease is of use only to the store object that gave it."""
    redacts_anywhere: bool = True
    """Whether an entry can be redacted, too, that is shared with a session which another store is driving."""


sessions = st.sampled_from(SESSIONS)
places = st.integers(0, 1)
recent = st.integers(0, 11)
flags = st.booleans()
WAYS: Final = ("next", "next", "next", "repeated", "gap", "stale", "torn", "mixed", "zero")


class Driven(NamedTuple):
    """A lease, and which of the two stores has given it."""

    lease: Lease
    which: int


def same(found: object, expected: object, what: str) -> None:
    """Hold what a store gave against what the model says."""
    assert found == expected, f"{what}: the model has {expected!r}, and the store {found!r}".replace(LARGE, "LARGE")


def mostly(place: int, sensible: Sequence[T], any_of_them: Sequence[T]) -> T:
    """One that is worth trying, most of the time; now and then any."""
    chosen = sensible if sensible and place < 9 else any_of_them
    return chosen[place % len(chosen)]


class Machine(RuleBasedStateMachine):
    """Does the same to a store and to the model, and compares."""

    def __init__(self, kind: Kind, killer: Killer | None) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-machine-", dir=MEMORY if MEMORY.is_dir() else None))
        self.place = kind.place(self.folder)
        self.killer = killer if self.place.spec else None
        self.loop = asyncio.new_event_loop()
        self.stores = [self.place.open(), self.place.open()]
        self.model = Model(kind.takes_over, kind.is_lax, kind.keeps_fences, kind.redacts_anywhere)
        self.leases: list[Driven] = []
        self.made = self.compared = 0

    def teardown(self) -> None:
        try:
            self.compare_all()
        finally:
            for store in self.stores:
                self.run(store.aclose())
            self.loop.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- leases --------------------------------------------------------------------------------------------------------

    @rule(session_id=sessions, which=places, take_over=flags)
    def acquire(self, session_id: str, which: int, take_over: bool) -> None:
        refusals = self.model.refusals_of_acquire(session_id, take_over=take_over)
        options: dict[str, Any] = {"take_over": True} if take_over and self.model.log(session_id).is_driven else {}
        lease = self.attempt(self.stores[which].acquire(session_id, **options), refusals)
        if not refusals:
            self.model.acquire(lease)
            # Where fences begin again, a lease of a deleted session may look like this one: it is not tried any more.
            self.leases = [*(each for each in self.leases if each.lease != lease), Driven(lease, which)]
        self.compare(session_id)

    @rule(place=recent)
    def release(self, place: int) -> None:
        driven = self.lease(place)
        self.run(self.stores[driven.which].release(driven.lease))
        self.model.release(driven.lease)

    @rule(place=recent)
    def ask_for_lease(self, place: int) -> None:
        driven = self.lease(place)
        found = self.run(self.stores[driven.which].holds(driven.lease))
        same(found, self.model.is_good(driven.lease), f"holds({driven.lease})")

    # -- entries -------------------------------------------------------------------------------------------------------

    @initialize(which=places)
    def begin(self, which: int) -> None:
        """Something to work with."""
        for session_id, count in (("a", 3), ("b", 1)):
            self.grow(session_id, which, count, sync=False, taking=False)

    @rule(session_id=sessions, which=places, count=st.integers(1, 3), sync=flags, taking=flags)
    def grow(self, session_id: str, which: int, count: int, sync: bool, taking: bool) -> None:
        """What happens most: whoever drives a session, or else we, append what follows."""
        if not self.model.log(session_id).is_driven:
            self.acquire(session_id, which, take_over=False)
        driven = next(each for each in self.leases if each.lease == self.model.log(session_id).lease)
        entries = self.entries(session_id, "next", count)
        self.append_entries(driven, self.taking(session_id, entries) if taking else entries, sync=sync)

    @rule(place=recent, way=st.sampled_from(WAYS), count=st.integers(1, 3), sync=flags)
    def append(self, place: int, way: str, count: int, sync: bool) -> None:
        """Any numbers; and every other time a lease that was lost, as of a driver that was paused and wakes."""
        lost = [each for each in self.leases if not self.model.is_good(each.lease)]
        driven = mostly(place // 2, lost, self.leases) if place % 2 else self.lease(place // 2)
        self.append_entries(driven, self.entries(driven.lease.session_id, way, count), sync=sync)

    def append_entries(self, driven: Driven, entries: list[Entry], *, sync: bool) -> None:
        refusals = self.model.refusals_of_append(driven.lease, entries)
        work = self.appended(self.stores[driven.which], driven.lease, entries, sync=sync)
        if self.attempt(work, refusals, is_lax=self.model.may_be_lax(driven.lease)) is not REFUSED:
            self.model.append(driven.lease, entries)
        self.compare(driven.lease.session_id)

    @rule(place=recent, seq=st.integers(0, 6))
    def redact(self, place: int, seq: int) -> None:
        driven = self.lease(place)
        there = {entry.seq: entry for entry in self.model.log(driven.lease.session_id).entries}
        old = there.get(seq, Entry(seq, 1.0, Custom("none"), "none"))
        new = Entry(seq, old.at, Custom("redacted", self.number()), old.id)
        refusals = self.model.refusals_of_redact(driven.lease, seq)
        is_lax = self.model.may_be_lax(driven.lease)
        if not refusals and self.model.may_be_held(driven.lease, seq):
            refusals, is_lax = {SessionBusy}, True
        work = self.stores[driven.which].redact(driven.lease, new)
        if self.attempt(work, refusals, is_lax=is_lax) is not REFUSED:
            self.model.redact(driven.lease, new)
        self.compare_all()

    # -- everybody else ------------------------------------------------------------------------------------------------

    @rule(session_id=sessions, which=places, number=st.integers(0, 3))
    def post(self, session_id: str, which: int, number: int) -> None:
        post = Post(f"p{number}", "steer", {"number": self.number()}, float(number))
        found = self.run(self.stores[which].post(session_id, post))
        same(found, self.model.post(session_id, post), f"post({session_id!r}, {post.id!r})")
        self.compare(session_id)

    @rule(place=recent, new_place=recent, which=places, at=st.none() | st.integers(0, 4))
    def fork(self, place: int, new_place: int, which: int, at: int | None) -> None:
        """Mostly of a session that holds something, to one that does not."""
        holding = self.model.listed()
        session_id = mostly(place, sorted(holding), SESSIONS)
        new = mostly(new_place, [each for each in SESSIONS if each not in holding], SESSIONS)
        refusals = self.model.refusals_of_fork(session_id, new, at)
        self.attempt(self.stores[which].fork(session_id, new, at=at), refusals)
        if not refusals:
            self.model.fork(session_id, new, at)
        self.compare(new)

    @rule(place=recent, which=places)
    def delete(self, place: int, which: int) -> None:
        """Mostly of a session that holds something, and that nobody drives."""
        free = [session_id for session_id, log in self.model.listed().items() if not log.is_driven]
        session_id = mostly(place, free, SESSIONS)
        refusals = self.model.refusals_of_delete(session_id)
        self.attempt(self.stores[which].delete(session_id), refusals)
        if not refusals:
            self.model.delete(session_id)
        self.compare_all()

    # -- what happens to stores ----------------------------------------------------------------------------------------

    @rule(which=places)
    def close_and_open_again(self, which: int) -> None:
        """Closing gives back what the store has out."""
        self.run(self.stores[which].aclose())
        if self.place.spec:
            for driven in self.leases:
                if driven.which == which:
                    self.model.release(driven.lease)
            self.stores[which] = self.place.open()

    @precondition(lambda self: self.killer)
    @rule(session_id=sessions, take_over=flags, sizes=st.lists(st.integers(1, 2), max_size=2), posting=flags)
    def crash(self, session_id: str, take_over: bool, sizes: list[int], posting: bool) -> None:
        """Another process takes the session, appends, and is killed: its session is free, and its entries are there."""
        assert self.killer is not None
        take_over = take_over and self.model.log(session_id).is_driven
        refusals = self.model.refusals_of_acquire(session_id, take_over=take_over)
        batches: list[list[Entry]] = []
        for size in sizes:
            first = len(self.model.log(session_id).cells) + sum(map(len, batches)) + 1
            batches.append([self.entry(first + place) for place in range(size)])
        post = Post("of the dead", "steer", self.number()) if posting else None
        lines = [[encode_entry(entry).decode() for entry in batch] for batch in batches]
        order = Order(self.place.spec, self.place.tenant, session_id, take_over, lines, post)
        self.bury(session_id, self.killer.kill(order), refusals, batches, post)

    def bury(
        self, session_id: str, report: Report, refusals: Errors, batches: list[list[Entry]], post: Post | None
    ) -> None:
        """Tell the model what a process was acknowledged before it was killed."""
        if post is not None:
            same(report.posted, self.model.post(session_id, post), "post()")
        if refusals:
            assert report.refusal in {error.__name__ for error in refusals}
        else:
            assert report.lease is not None, report.refusal
            assert report.appended == len(batches)
            self.model.acquire(report.lease)
            for batch in batches:
                self.model.append(report.lease, batch)
            self.model.release(report.lease)
        self.compare(session_id)

    # -- what holds at any time ----------------------------------------------------------------------------------------

    @rule(session_id=sessions, which=places, after=st.integers(0, 5))
    def look(self, session_id: str, which: int, after: int) -> None:
        listed = self.run(self.stores[which].list())
        found = {info.session_id: info.entries for info in listed}
        same(found, {session_id: len(log.cells) for session_id, log in self.model.listed().items()}, "list()")
        times = [info.updated_at for info in listed]
        same(times, sorted(times, reverse=True), "times in list()")
        found = self.run(self.stores[which].read(session_id, after=after))
        same(found, self.model.log(session_id).entries[after:], f"read({session_id!r}, {after=})")

    def compare_all(self) -> None:
        """Each session in both stores."""
        for session_id in (*SESSIONS, *reversed(SESSIONS)):
            self.compare(session_id)

    def compare(self, session_id: str) -> None:
        """The two stores, in turn, give what the model has of a session."""
        self.compared += 1
        log, store = self.model.log(session_id), self.stores[self.compared % 2]
        same(self.run(store.read(session_id)), log.entries, f"read({session_id!r})")
        same(self.run(store.posts(session_id)), log.waiting(), f"posts({session_id!r})")
        info = self.run(store.info(session_id))
        found = info and (info.session_id, info.entries, info.title, info.parent, info.at if info.parent else 0)
        expected = (session_id, len(log.cells), log.title, log.parent, log.at) if log.cells else None
        same(found, expected, f"info({session_id!r})")

    # -- how it is done ------------------------------------------------------------------------------------------------

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def attempt(self, work: Awaitable[Any], refusals: Errors, *, is_lax: bool = False) -> Any:
        """What comes of it; `REFUSED` when it was refused as it had to be."""
        try:
            result = self.run(work)
        except PerdureError as error:
            assert type(error) in refusals, f"{error!r} where {refusals or 'no error'} was promised"  # noqa: PT017
            return REFUSED
        assert not refusals or (is_lax and len(refusals) == 1), f"{refusals} was promised, and it was done"
        return result

    async def appended(self, store: Store, lease: Lease, entries: list[Entry], *, sync: bool) -> None:
        """As a driver does it."""
        if not (isinstance(store, NonBlockingAppendStore) and store.append_now(lease, entries, sync=sync)):
            await store.append(lease, entries, sync=sync)

    def lease(self, place: int) -> Driven:
        """One of the leases that were given: mostly one that is good, else any, the last one first."""
        return mostly(place, [each for each in self.leases if self.model.is_good(each.lease)], self.leases[::-1])

    # -- what is appended ----------------------------------------------------------------------------------------------

    def number(self) -> int:
        """Another one each time."""
        self.made += 1
        return self.made

    def entry(self, seq: int) -> Entry:
        number = self.number()
        events: list[Event] = [
            SessionConfigured({"title": f"title {number}"}),
            MessageAdded(user(f"text {number}")),
            MessageAdded(user(f"text {number}")),
            Custom("large", LARGE),
            Custom("small", number),
        ]
        return Entry(seq, 1000.0 + number, events[number % len(events)], f"e{number}")

    def entries(self, session_id: str, way: str, count: int) -> list[Entry]:
        """Entries for an append, numbered as they should be, or not."""
        there = self.model.log(session_id).entries
        head = len(there)
        following = [self.entry(head + place) for place in range(1, count + 1)]
        match way:
            case "repeated" if there:
                return there[-count:]
            case "mixed" if there:
                return [there[-1], *following]
            case "gap":
                return [self.entry(head + 1 + place) for place in range(1, count + 1)]
            case "stale":
                return [self.entry(head - 1 + place) for place in range(1, count + 1)]
            case "torn":
                return [*following, self.entry(head + count + 2)]
            case "zero":
                return [self.entry(0)]
            case _:
                return following

    def taking(self, session_id: str, entries: list[Entry]) -> list[Entry]:
        """The same, the first one of which has the id of a post: one that waits, or one that has not come yet."""
        log = self.model.log(session_id)
        posts = [post.id for post in log.waiting()] or [
            f"p{number}" for number in range(4) if f"p{number}" not in log.ids
        ]
        first, *others = entries
        return [Entry(first.seq, first.at, first.event, posts[0]), *others] if posts else entries
