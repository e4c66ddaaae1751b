"""Setup for `check_store` (the test suite every store must pass): hostile inputs, the store under test, assertions."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from perdure._core.log.store import Store
from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError, PerdureError
from perdure._core.values.event import Custom, Entry, MessageAdded
from perdure._core.values.event_class import Event
from perdure._core.values.message import user

HOSTILE_TEXTS = (
    "\0before and after a NUL\0",
    "every kind of line end \r \n \r\n \x0b \x0c \x85 \u2028 \u2029",
    "\x1b[31mred\x1b[0m \x07 \x7f \u202eright to left\u202c \ufeff",
    "'; DROP TABLE entry; -- \" \\ %s {} $1 ?1 :name",
    "e\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0010ffff \ufffe",
    "",
    " ",
)
"""Texts that a store must return unchanged."""

UNENCODABLE = ("\ud800", "half a pair \udc00 and more", "\ud83d")
"""Texts that cannot be encoded: a store accepts them, and may mark what was lost."""

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
"""Session ids that a store must keep apart, whatever they mean to a file system or a query."""

MakeStore: TypeAlias = Callable[[], Store]
FullDisk: TypeAlias = Callable[[Any], AbstractContextManager[object]]
OpenBackup: TypeAlias = Callable[[str], Store]


class CheckSkipped(Exception):
    """Raised by a test of `check_store` that does not apply to the store under test; the message is the reason."""


class StoreUnderTest:
    """The store that one test of `check_store` uses, and a prefix for session ids that no other test uses."""

    def __init__(self, make: MakeStore, title: str, full_disk: FullDisk | None, restored: OpenBackup | None) -> None:
        self.name = f"{title}-{new_id()}-"
        self.full_disk = full_disk
        """Function that fills the store's disk for a while, if the caller gave one."""
        self.restored = restored
        """Function that opens a backup, if the caller gave one."""
        self._make = make
        self._made: list[Store] = []
        self.store = self._open_store()

    async def open_second_store(self) -> Store:
        """Open a second store of the same location. Raises `CheckSkipped` if `make` cannot do that."""
        other = self._open_store()
        if other is self.store:
            raise CheckSkipped("`make` gives the same object each time: let it make a new one, of the same place")
        mark = self.name + "mark"
        lease = await self.store.acquire(mark)
        await self.store.append(lease, build_entries(1, [Custom("mark")]), sync=True)
        await self.store.release(lease)
        if not await other.read(mark):
            raise CheckSkipped("`make` gives a store of another place each time: let it give stores of the same place")
        return other

    async def close(self) -> None:
        """Close every store that the check opened."""
        for store in self._made:
            await store.aclose()

    def _open_store(self) -> Store:
        store = self._make()
        if not callable(getattr(store, "acquire", None)):
            raise ConfigError(f"check_store({self._make!r}) got {store!r}: give a function that makes a store")
        if not any(store is each for each in self._made):
            self._made.append(store)
        return store


StoreCheck: TypeAlias = Callable[[StoreUnderTest], Awaitable[None]]


def build_user_entries(first: int, *texts: str) -> list[Entry]:
    """Build log entries with one user message each, numbered from `first`."""
    return build_entries(first, [MessageAdded(user(text)) for text in texts])


def build_entries(first: int, events: Sequence[Event], *, at: float = 1.25) -> list[Entry]:
    """Build log entries from events, numbered from `first`, each with a new id."""
    return [Entry(first + place, at, event, new_id()) for place, event in enumerate(events)]


async def store_session(store: Store, session_id: str, *texts: str) -> list[Entry]:
    """Store a new session with the given user messages, release its lease, and return its entries."""
    entries = build_user_entries(1, *texts)
    lease = await store.acquire(session_id)
    await store.append(lease, entries, sync=True)
    await store.release(lease)
    return entries


def expect_equal(found: object, expected: object, promise: str) -> None:
    """Raise `AssertionError`, naming the guarantee `promise` as broken, unless both values are equal."""
    if found != expected:
        raise AssertionError(f"broken promise: {promise}; expected {_shorten(expected)}, found {_shorten(found)}")


async def expect_error(
    error: type[PerdureError] | tuple[type[PerdureError], ...], work: Awaitable[object], what: str
) -> None:
    """Raise `AssertionError` unless awaiting `work` raises `error` with a message."""
    errors = error if isinstance(error, tuple) else (error,)
    name = " or ".join(each.__name__ for each in errors)
    try:
        await work
    except errors as refusal:
        expect_equal(bool(str(refusal)), expected=True, promise=f"{what} is refused with a message")
    except Exception as other:
        raise AssertionError(f"broken promise: {what} raises {name}, not {other!r}") from other
    else:
        raise AssertionError(f"broken promise: {what} raises {name}, and it did not")


async def expect_no_error(work: Awaitable[object], what: str) -> None:
    """Raise `AssertionError` if awaiting `work` raises an error."""
    try:
        await work
    except Exception as error:
        raise AssertionError(f"broken promise: {what} does not fail, and it raised {error!r}") from error


def _shorten(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 500 else f"{text[:500]}…"  # noqa: PLR2004
