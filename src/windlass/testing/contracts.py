"""The contracts of the seams, as tests that anybody can run on a part of their own. Below: the seams themselves.

    async def test_my_store_keeps_the_contract():
        await check_store(MyStore)

A broken promise is an `AssertionError` that says which.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from windlass.core.clock import new_id
from windlass.core.error import ConfigError, Conflict, Fenced, SessionBusy, WindlassError
from windlass.core.event import Custom, Entry, Event, MessageAdded, Unknown
from windlass.core.message import assistant, user
from windlass.core.store import Immediate, Lease, Store

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


async def check_store(make: Callable[[], Store]) -> None:
    """Hold a store against its contract.

    `make` is called for each chapter and gives an open store, at the same place or at a new one; each is closed again.
    Chapters use session ids of their own, so a place that already holds sessions will do, and keeps them.
    """
    if not callable(make):
        raise ConfigError(f"check_store({make!r}): give a function that makes a store, such as lambda: MyStore(...)")
    for chapter in _STORE_CHAPTERS:
        store = make()
        if not callable(getattr(store, "acquire", None)):
            raise ConfigError(f"check_store({make!r}) got {store!r}: give a function that makes a store")
        try:
            await chapter(store, f"{chapter.__name__.strip('_')}-{new_id()}-")
        finally:
            await store.aclose()


# -- the chapters ------------------------------------------------------------------------------------------------------


async def _entries_come_back_in_order(store: Store, name: str) -> None:
    lease = await store.acquire(name)
    written = _entries(1, "one", "two", "three")
    await store.append(lease, written[:2], sync=False)
    await store.append(lease, written[2:], sync=True)
    await store.append(lease, [], sync=True)
    _expect(await store.read(name), written, "read() gives all entries as they were appended")
    _expect(await store.read(name, after=1), written[1:], "read(after=1) leaves out the first entry")
    _expect(await store.read(name, after=3), [], "read(after=the last) gives nothing")
    _expect(await store.read(name, after=99), [], "read(after=more than there are) gives nothing")
    _expect(await store.read(name + "other"), [], "read() of a session that is not there gives nothing")
    (await store.read(name)).clear()
    _expect(len(await store.read(name)), 3, "what read() gave belongs to the caller, who may change it")


async def _numbers_that_do_not_follow_are_refused(store: Store, name: str) -> None:
    lease = await store.acquire(name)
    first = _entries(1, "one", "two")
    await store.append(lease, first, sync=False)
    stale, gap, zero = _entries(2, "another"), _entries(4, "four"), _entries(0, "zero")
    torn = [*_entries(3, "three"), *_entries(5, "five")]
    ahead = [*_entries(1, "late"), *_entries(2, "later"), *_entries(3, "latest")]
    for what, entries in (
        ("an entry numbered like the last one", stale),
        ("a gap", gap),
        ("number 0", zero),
        ("a gap inside", torn),
        ("a beginning that is taken", ahead),
    ):
        await _refused(Conflict, store.append(lease, entries, sync=False), f"append() of entries with {what}")
        _expect(await store.read(name), first, f"append() of entries with {what} writes nothing")
    await store.append(lease, _entries(3, "three"), sync=False)
    _expect(len(await store.read(name)), 3, "after refusals, the entry that follows is taken")


async def _a_lease_that_was_replaced_is_fenced(store: Store, name: str) -> None:
    old = await store.acquire(name)
    first = _entries(1, "one")
    await store.append(old, first, sync=False)
    await store.release(old)
    new = await store.acquire(name)
    _expect(max(old.fence + 1, new.fence), new.fence, "the fence grows each time a session changes hands")
    await _refused(Fenced, store.append(old, _entries(2, "two"), sync=False), "append() with a lease that was replaced")
    await _refused(Fenced, store.append(old, first, sync=False), "a repeated append() with a lease that was replaced")
    _expect(await store.read(name), first, "append() with a lease that was replaced writes nothing")
    await store.release(old)
    await _refused(SessionBusy, store.acquire(name), "acquire() after release() of a lease that was lost before")
    await store.append(new, _entries(2, "two"), sync=True)
    _expect(len(await store.read(name)), 2, "the new lease can append")
    missing = Lease(name + "never", 1)
    await _refused(Fenced, store.append(missing, first, sync=False), "append() to a session that is not there")
    await store.release(missing)


async def _a_repeated_append_adds_nothing(store: Store, name: str) -> None:
    lease = await store.acquire(name)
    first = _entries(1, "one", "two")
    await store.append(lease, first, sync=False)
    await store.append(lease, first, sync=False)
    await store.append(lease, first, sync=True)
    _expect(await store.read(name), first, "append() of entries that are there already adds nothing")
    await store.append(lease, first[1:], sync=True)
    _expect(await store.read(name), first, "append() of some that are there already adds nothing")
    overlapping = [first[1], *_entries(3, "three")]
    await _refused(Conflict, store.append(lease, overlapping, sync=False), "append() of known and new entries together")
    unnamed = [Entry(3, 0.0, Custom("a")), Entry(4, 0.0, Custom("b"))]
    await store.append(lease, unnamed, sync=False)
    await _refused(Conflict, store.append(lease, unnamed, sync=False), "a repeated append() of entries without an id")
    _expect(await store.read(name), [*first, *unnamed], "entries without an id are kept like others")


async def _one_lease_is_out_at_a_time(store: Store, name: str) -> None:
    lease = await store.acquire(name)
    await _refused(SessionBusy, store.acquire(name), "acquire() of a session that is being driven")
    other = await store.acquire(name + "other")
    await store.append(other, _entries(1, "not concerned"), sync=False)
    await store.release(lease)
    await store.release(lease)
    again = await store.acquire(name)
    await store.append(again, _entries(1, "one"), sync=False)
    _expect(len(await store.read(name)), 1, "a lease that was given back can be had again")


async def _no_content_makes_storing_fail(store: Store, name: str) -> None:
    lease = await store.acquire(name)
    large = "0123456789abcdef" * (10 * 1024 * 1024 // 16)
    exact: list[Event] = [MessageAdded(user(text), run_id=text) for text in (*HOSTILE_TEXTS, large)]
    await store.append(lease, _numbered(1, exact), sync=False)
    read = await store.read(name)
    for expected, found in zip(exact, read, strict=True):
        _expect(found.event, expected, "text comes back as it was")
    numbers = [float("nan"), float("inf"), -float("inf"), 2**63, 10**400, -0.0]
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    hostile: list[Event] = [Custom("data", value) for value in (*numbers, *UNENCODABLE, deep, object(), {1: {2}})]
    hostile += [MessageAdded(user(text)) for text in UNENCODABLE]
    await store.append(lease, _numbered(len(exact) + 1, hostile), sync=True)
    kinds = [type(entry.event) for entry in await store.read(name, after=len(exact))]
    _expect(kinds, [type(event) for event in hostile], "entries with data that JSON cannot hold are kept")
    infos = await store.list(prefix=name)
    _expect([info.entries for info in infos], [len(exact) + len(hostile)], "a session of hostile text is listed")


async def _unknown_kinds_are_preserved(store: Store, name: str) -> None:
    lease = await store.acquire(name)
    body = {"kind": "from_the_future", "run_id": "r", "path": "child", "deep": {"list": [1, None, "x"]}}
    event = Unknown("from_the_future", body, run_id="r", path="child")
    await store.append(lease, [Entry(1, 1.5, event, "u-1")], sync=False)
    _expect(await store.read(name), [Entry(1, 1.5, event, "u-1")], "an event of an unknown kind comes back as it was")


async def _sessions_are_listed_newest_first(store: Store, name: str) -> None:
    for place, at in (("a%b", 30.0), ("a_b", 10.0), ("aXb", 20.0), ("A%b", 40.0), ("é\U0001f600", 50.0)):
        lease = await store.acquire(name + place)
        said = [MessageAdded(assistant("not this")), MessageAdded(user(f"  hello\n\x1b[1m {place} " + "x" * 200))]
        later = [MessageAdded(user("nor this"))]
        await store.append(lease, _numbered(1, said, at=at - 1), sync=False)
        await store.append(lease, _numbered(3, later, at=at), sync=False)
        await store.release(lease)

    async def page(prefix: str = "", limit: int = 50, offset: int = 0) -> list[str]:
        found = await store.list(prefix=name + prefix, limit=limit, offset=offset)
        return [info.session_id.removeprefix(name) for info in found]

    newest_first = ["é\U0001f600", "A%b", "a%b", "aXb", "a_b"]
    _expect(await page(), newest_first, "list() gives the most recently used session first")
    _expect(await page(limit=2), newest_first[:2], "list(limit=2) gives two")
    _expect(await page(limit=2, offset=3), newest_first[3:], "list(offset=3) leaves out three")
    _expect(await page(limit=0), [], "list(limit=0) gives none")
    _expect(await page(offset=99), [], "list() beyond the end gives none")
    _expect(await page("a"), ["a%b", "aXb", "a_b"], "list(prefix) tells capital letters from small ones")
    for prefix, expected in (("a%", ["a%b"]), ("a_", ["a_b"]), ("*", []), ("é", ["é\U0001f600"]), ("'", [])):
        _expect(await page(prefix), expected, f"list(prefix={prefix!r}) takes the prefix literally")
    info = (await store.list(prefix=name + "a%"))[0]
    _expect((info.entries, info.updated_at), (3, 30.0), "list() tells how many entries there are, and of when the last")
    beginning = "hello [1m a%b "
    _expect(info.title, beginning + "x" * (80 - len(beginning)), "the title is the first user message, 80 on one line")


async def _a_deleted_session_is_gone(store: Store, name: str) -> None:
    lease = await store.acquire(name)
    await store.append(lease, _entries(1, "one"), sync=True)
    await _refused(SessionBusy, store.delete(name), "delete() of a session that is being driven")
    await store.release(lease)
    await store.delete(name)
    await store.delete(name)
    _expect(await store.read(name), [], "a deleted session has no entries")
    _expect(await store.list(prefix=name), [], "a deleted session is not listed")
    await _refused(Fenced, store.append(lease, _entries(1, "one"), sync=False), "append() to a deleted session")
    new = await store.acquire(name)
    await _refused(Fenced, store.append(lease, _entries(1, "one"), sync=False), "append() with a deleted one's lease")
    await store.append(new, _entries(1, "one"), sync=False)
    _expect(len(await store.read(name)), 1, "a session can be made anew under the id of a deleted one")


async def _what_makes_no_sense_is_refused(store: Store, name: str) -> None:
    for session_id in ("", "\0", name + "\ud800"):
        await _refused(ConfigError, store.acquire(session_id), f"acquire({session_id!r})")
        await _refused(ConfigError, store.read(session_id), f"read({session_id!r})")
        await _refused(ConfigError, store.delete(session_id), f"delete({session_id!r})")
    await _refused(ConfigError, store.read(name, after=-1), "read(after=-1)")
    await _refused(ConfigError, store.list(prefix="\0"), "list(prefix='\\0')")
    for number in (-1, 2**63):
        await _refused(ConfigError, store.list(limit=number), f"list(limit={number})")
        await _refused(ConfigError, store.list(offset=number), f"list(offset={number})")


async def _an_immediate_append_is_done_or_it_is_not(store: Store, name: str) -> None:
    if not isinstance(store, Immediate):
        return
    lease = await store.acquire(name)
    expected: list[Entry] = []
    for number, sync in enumerate((False, True, False, False), 1):
        entries = _entries(number, f"number {number}")
        if store.append_now(lease, entries, sync=sync):
            expected += entries
        else:
            _expect(await store.read(name), expected, "append_now() that returns False has done nothing")
            await store.append(lease, entries, sync=sync)
            expected += entries
        _expect(await store.read(name), expected, "append_now() that returns True has stored the entries")
    await store.release(lease)
    await store.acquire(name)
    try:
        done = store.append_now(lease, _entries(5, "late"), sync=False)
    except Fenced:
        return
    _expect(done, expected=False, promise="append_now() with a lease that was replaced is refused")


async def _sessions_grow_side_by_side(store: Store, name: str) -> None:
    async def grow(session_id: str) -> None:
        lease = await store.acquire(session_id)
        for number in range(1, 11):
            await store.append(lease, _entries(number, f"{session_id} {number}"), sync=number == 10)  # noqa: PLR2004

    ids = [f"{name}{number}" for number in range(20)]
    await asyncio.gather(*[grow(session_id) for session_id in ids])
    for session_id in ids:
        expected = [MessageAdded(user(f"{session_id} {number}")) for number in range(1, 11)]
        _expect([entry.event for entry in await store.read(session_id)], expected, "each session keeps its own order")


_STORE_CHAPTERS: tuple[Callable[[Store, str], Awaitable[None]], ...] = (
    _entries_come_back_in_order,
    _numbers_that_do_not_follow_are_refused,
    _a_lease_that_was_replaced_is_fenced,
    _a_repeated_append_adds_nothing,
    _one_lease_is_out_at_a_time,
    _no_content_makes_storing_fail,
    _unknown_kinds_are_preserved,
    _sessions_are_listed_newest_first,
    _a_deleted_session_is_gone,
    _what_makes_no_sense_is_refused,
    _an_immediate_append_is_done_or_it_is_not,
    _sessions_grow_side_by_side,
)


# -- what the chapters share -------------------------------------------------------------------------------------------


def _entries(first: int, *texts: str) -> list[Entry]:
    return _numbered(first, [MessageAdded(user(text)) for text in texts])


def _numbered(first: int, events: Sequence[Event], *, at: float = 1.25) -> list[Entry]:
    return [Entry(first + place, at, event, new_id()) for place, event in enumerate(events)]


def _expect(found: object, expected: object, promise: str) -> None:
    if found != expected:
        raise AssertionError(f"broken promise: {promise}; expected {_short(expected)}, found {_short(found)}")


async def _refused(error: type[WindlassError], work: Awaitable[object], what: str) -> None:
    try:
        await work
    except error as refusal:
        _expect(bool(str(refusal)), expected=True, promise=f"{what} is refused with a message")
    except Exception as other:
        raise AssertionError(f"broken promise: {what} raises {error.__name__}, not {other!r}") from other
    else:
        raise AssertionError(f"broken promise: {what} raises {error.__name__}, and it did not")


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 500 else f"{text[:500]}…"  # noqa: PLR2004
