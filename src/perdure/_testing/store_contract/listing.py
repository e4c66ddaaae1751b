"""Tests in `check_store`: session ids are kept as given, and lists show titles and no deleted session.

They are a part of `check_store`.
"""

from perdure._core.log.store import Lease, Post, Store
from perdure._core.values.error import ConfigError, Fenced, SessionBusy
from perdure._core.values.event import Entry, MessageAdded, SessionConfigured
from perdure._core.values.message import assistant, user

from .setup import (
    HOSTILE_IDS,
    StoreCheck,
    StoreUnderTest,
    build_entries,
    build_user_entries,
    expect_equal,
    expect_error,
    expect_no_error,
    store_session,
)


async def _sessions_are_listed_newest_first(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    for place, at in (("a%b", 30.0), ("a_b", 10.0), ("aXb", 20.0), ("A%b", 40.0), ("é\U0001f600", 50.0)):
        lease = await store.acquire(name + place)
        first = [MessageAdded(assistant("not this")), MessageAdded(user(f"  hello\n\x1b[1m {place} " + "x" * 200))]
        later = [MessageAdded(user("nor this"))]
        await store.append(lease, build_entries(1, first, at=at - 1), sync=False)
        await store.append(lease, build_entries(3, later, at=at), sync=False)
        await store.release(lease)

    async def page(prefix: str = "", limit: int = 50, offset: int = 0) -> list[str]:
        found = await store.list(prefix=name + prefix, limit=limit, offset=offset)
        return [info.session_id.removeprefix(name) for info in found]

    newest_first = ["é\U0001f600", "A%b", "a%b", "aXb", "a_b"]
    expect_equal(await page(), newest_first, "list() gives the most recently used session first")
    expect_equal(await page(limit=2), newest_first[:2], "list(limit=2) gives two")
    expect_equal(await page(limit=2, offset=3), newest_first[3:], "list(offset=3) leaves out three")
    expect_equal(await page(limit=0), [], "list(limit=0) gives none")
    expect_equal(await page(offset=99), [], "list() beyond the end gives none")
    expect_equal(await page("a"), ["a%b", "aXb", "a_b"], "list(prefix) tells capital letters from small ones")
    for prefix, expected in (("a%", ["a%b"]), ("a_", ["a_b"]), ("*", []), ("é", ["é\U0001f600"]), ("'", [])):
        expect_equal(await page(prefix), expected, f"list(prefix={prefix!r}) takes the prefix literally")
    info = (await store.list(prefix=name + "a%"))[0]
    expect_equal(
        (info.entries, info.updated_at), (3, 30.0), "list() tells how many entries there are, and of when the last"
    )
    beginning = "hello [1m a%b "
    expect_equal(
        info.title, beginning + "x" * (80 - len(beginning)), "the title is the first user message, 80 on one line"
    )


async def _the_line_of_one_session_is_that_of_the_list(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    expect_equal(await store.info(name), None, "info() of a session that is not there gives None")
    lease = await store.acquire(name)
    expect_equal(await store.info(name), None, "info() of a session that holds nothing gives None")
    expect_equal(await store.list(prefix=name), [], "list() leaves out a session that holds nothing")
    await store.append(lease, build_user_entries(1, "one", "two"), sync=False)
    info = await store.info(name)
    expect_equal([info], await store.list(prefix=name), "info() gives the line of the list")
    if info is None:
        raise AssertionError("broken promise: info() of a session that holds something gives its line")
    found = (info.session_id, info.entries, info.updated_at, info.title, info.parent, info.at)
    expect_equal(
        found, (name, 2, 1.25, "one", "", 0), "info() tells id, entries, time and title; no parent, at=0 for no fork"
    )


async def _a_session_can_be_renamed(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    number = 0

    async def configure(**changes: object) -> None:
        nonlocal number
        number += 1
        work = store.append(lease, build_entries(number, [SessionConfigured(changes)]), sync=True)
        await expect_no_error(work, f"append() of SessionConfigured({changes!r})")

    await configure(title="Harbour")
    expect_equal(await _title(store, name), "Harbour", "the `title` of a SessionConfigured is the session's title")
    await store.append(lease, build_user_entries(2, "the first message"), sync=False)
    number = 2
    expect_equal(await _title(store, name), "Harbour", "a message does not change the title that a session was given")
    await configure(title="Lantern")
    expect_equal(await _title(store, name), "Lantern", "the last title counts")
    await configure(model="another")
    expect_equal(await _title(store, name), "Lantern", "a SessionConfigured without a title leaves it as it is")
    for nonsense in (5, None, ["x"], ""):
        await configure(title=nonsense)
        expect_equal(await _title(store, name), "Lantern", f"a title that is {nonsense!r} is none")
    await configure(title="  two\nlines\0 " + "x" * 200)
    expect_equal(
        await _title(store, name), "two lines " + "x" * 70, "a title is shown on one line, 80 characters of it"
    )


async def _title(store: Store, session_id: str) -> str | None:
    info = await store.info(session_id)
    return None if info is None else info.title


async def _a_deleted_session_is_gone(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    await store.append(lease, build_user_entries(1, "one"), sync=True)
    await expect_error(SessionBusy, store.delete(name), "delete() of a session that is being driven")
    await store.release(lease)
    await expect_no_error(store.delete(name), "delete()")
    await expect_no_error(store.delete(name), "delete() of a session that is deleted")
    expect_equal(await store.read(name), [], "a deleted session has no entries")
    expect_equal(await store.list(prefix=name), [], "a deleted session is not listed")
    expect_equal(await store.info(name), None, "a deleted session has no line")
    await expect_error(
        Fenced, store.append(lease, build_user_entries(1, "one"), sync=False), "append() to a deleted session"
    )
    new = await store.acquire(name)
    expect_equal(max(lease.fence + 1, new.fence), new.fence, "the fence grows also when a session is made anew")
    await expect_error(
        Fenced, store.append(lease, build_user_entries(1, "one"), sync=False), "append() with a deleted one's lease"
    )
    await store.append(new, build_user_entries(1, "one"), sync=False)
    expect_equal(len(await store.read(name)), 1, "a session can be made anew under the id of a deleted one")


async def _no_lease_outlives_its_session(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    entries = await store_session(store, name + "another", "one", "two")
    for made_by in ("post()", "fork()"):
        session_id = name + made_by
        old = await store.acquire(session_id)
        await store.append(old, build_user_entries(1, "one"), sync=True)
        await store.release(old)
        await store.delete(session_id)
        if made_by == "post()":
            await store.post(session_id, Post("p", "steer"))
        else:
            await store.fork(name + "another", session_id)
        expected = await store.read(session_id)
        late = build_user_entries(len(expected) + 1, "late")
        what = f"with the lease of a deleted session, when {made_by} has made one of the same id"
        await expect_error(Fenced, store.append(old, late, sync=True), f"append() {what}")
        await expect_error(Fenced, store.redact(old, entries[0]), f"redact() {what}")
        expect_equal(await store.read(session_id), expected, f"append() {what}, writes nothing")


async def _sessions_of_hostile_ids_are_kept_apart(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    kept: dict[str, list[Entry]] = {}
    for hostile in HOSTILE_IDS:
        session_id = name + hostile
        kept[session_id] = await store_session(store, session_id, f"of {hostile!a}")
    long_id = name + "x" * 1000
    kept[long_id] = await store_session(store, long_id, "of a long one")
    for session_id, entries in kept.items():
        expect_equal(await store.read(session_id), entries, f"the session {session_id!r} keeps what is its own")
    listed = [info.session_id for info in await store.list(prefix=name, limit=len(kept) + 1)]
    expect_equal(sorted(listed), sorted(kept), "list() gives ids as they are")
    for session_id in kept:
        await store.delete(session_id)
        expect_equal(await store.read(session_id), [], f"the session {session_id!r} can be deleted")
    expect_equal(await store.list(prefix=name), [], "what was deleted is not listed")


async def _what_makes_no_sense_is_refused(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    for session_id in ("", "\0", name + "\ud800"):
        await expect_error(ConfigError, store.acquire(session_id), f"acquire({session_id!r})")
        await expect_error(ConfigError, store.read(session_id), f"read({session_id!r})")
        await expect_error(ConfigError, store.delete(session_id), f"delete({session_id!r})")
        await expect_error(ConfigError, store.info(session_id), f"info({session_id!r})")
    await expect_error(ConfigError, store.read(name, after=-1), "read(after=-1)")
    await expect_error(ConfigError, store.list(prefix="\0"), "list(prefix='\\0')")
    for number in (-1, 2**63):
        await expect_error(ConfigError, store.list(limit=number), f"list(limit={number})")
        await expect_error(ConfigError, store.list(offset=number), f"list(offset={number})")
    await expect_no_error(store.release(Lease(name, 1)), "release() of a lease that was never given")


CHECKS: tuple[StoreCheck, ...] = (
    _sessions_are_listed_newest_first,
    _the_line_of_one_session_is_that_of_the_list,
    _a_session_can_be_renamed,
    _a_deleted_session_is_gone,
    _no_lease_outlives_its_session,
    _sessions_of_hostile_ids_are_kept_apart,
    _what_makes_no_sense_is_refused,
)
