"""What the chapters of the contract of stores work with. Above: `contracts_store_*.py`. Below: `core/store.py`."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from perdure.core.clock import new_id
from perdure.core.error import ConfigError, PerdureError
from perdure.core.event import Custom, Entry, Event, MessageAdded
from perdure.core.message import user
from perdure.core.store import Store

HOSTILE_TEXTS = (
    "\0before and after a NUL\0",
    "every kind of line end \r \n \r\n \x0b \x0c \x85 \u2028 \u2029",
    "\x1b[31mred\x1b[0m \x07 \x7f \u202eright to left\u202c \ufeff",
    "'; DROP TABLE entry; -- \" \\ %s {} $1 ?1 :name",
    "e\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0010ffff \ufffe",
    "",
    " ",
)
"""Texts that a store gives back exactly as they were."""

UNENCODABLE = ("\ud800", "half a pair \udc00 and more", "\ud83d")
"""Texts that no encoding can hold: a store takes them, and may mark what could not be kept."""

HOSTILE_IDS = (
    "a/../b",
    ".",
    "..",
    "-",
    "~",
    "CON",
    "a b\tc\nd",
    "%s{}$1?1",
    "'\";--",
    "é",
    "e\u0301",
    "\u202e",
    "A",
    "a",
)
"""Ids of sessions that a store keeps apart, whatever they would mean to a file system or a query."""

Make: TypeAlias = Callable[[], Store]
FullDisk: TypeAlias = Callable[[Any], AbstractContextManager[object]]
Restored: TypeAlias = Callable[[str], Store]


class LeftOut(Exception):
    """A chapter is not about this store; the words say why."""


class Trial:
    """A store to try, and a name that no session of another trial begins with."""

    def __init__(self, make: Make, title: str, full_disk: FullDisk | None, restored: Restored | None) -> None:
        self.name = f"{title}-{new_id()}-"
        self.full_disk = full_disk
        """What fills the store's disk for a while, if the caller has such a thing."""
        self.restored = restored
        """What opens a backup, if the caller has such a thing."""
        self._make = make
        self._made: list[Store] = []
        self.store = self._opened()

    async def second(self) -> Store:
        """A second store object of the same place, which knows of the first only what lies there."""
        other = self._opened()
        if other is self.store:
            raise LeftOut("`make` gives the same object each time: let it make a new one, of the same place")
        mark = self.name + "mark"
        lease = await self.store.acquire(mark)
        await self.store.append(lease, numbered(1, [Custom("mark")]), sync=True)
        await self.store.release(lease)
        if not await other.read(mark):
            raise LeftOut("`make` gives a store of a place of its own each time: let it give stores of the same place")
        return other

    async def close(self) -> None:
        """Close every store that was made here."""
        for store in self._made:
            await store.aclose()

    def _opened(self) -> Store:
        store = self._make()
        if not callable(getattr(store, "acquire", None)):
            raise ConfigError(f"check_store({self._make!r}) got {store!r}: give a function that makes a store")
        if not any(store is each for each in self._made):
            self._made.append(store)
        return store


Chapter: TypeAlias = Callable[[Trial], Awaitable[None]]


def said(first: int, *texts: str) -> list[Entry]:
    """Entries with what a person said, numbered from `first`."""
    return numbered(first, [MessageAdded(user(text)) for text in texts])


def numbered(first: int, events: Sequence[Event], *, at: float = 1.25) -> list[Entry]:
    """Entries of these events, numbered from `first`, each with an id of its own."""
    return [Entry(first + place, at, event, new_id()) for place, event in enumerate(events)]


async def begun(store: Store, session_id: str, *texts: str) -> list[Entry]:
    """A session that holds these texts, and that nobody drives."""
    entries = said(1, *texts)
    lease = await store.acquire(session_id)
    await store.append(lease, entries, sync=True)
    await store.release(lease)
    return entries


def expect(found: object, expected: object, promise: str) -> None:
    """Hold what was found against what was promised."""
    if found != expected:
        raise AssertionError(f"broken promise: {promise}; expected {_short(expected)}, found {_short(found)}")


async def refused(
    error: type[PerdureError] | tuple[type[PerdureError], ...], work: Awaitable[object], what: str
) -> None:
    """Hold a store to its refusal, which has a message."""
    errors = error if isinstance(error, tuple) else (error,)
    name = " or ".join(each.__name__ for each in errors)
    try:
        await work
    except errors as refusal:
        expect(bool(str(refusal)), expected=True, promise=f"{what} is refused with a message")
    except Exception as other:
        raise AssertionError(f"broken promise: {what} raises {name}, not {other!r}") from other
    else:
        raise AssertionError(f"broken promise: {what} raises {name}, and it did not")


async def survived(work: Awaitable[object], what: str) -> None:
    """Hold a store to its word that this does not fail."""
    try:
        await work
    except Exception as error:
        raise AssertionError(f"broken promise: {what} does not fail, and it raised {error!r}") from error


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 500 else f"{text[:500]}…"  # noqa: PLR2004
