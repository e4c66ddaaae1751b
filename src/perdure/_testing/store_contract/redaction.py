"""Tests in `check_store`: a redacted entry is replaced in the log, in the session's title and in all forks."""

from perdure._core.log.store import Lease, Store
from perdure._core.values.error import Conflict, Fenced
from perdure._core.values.event import Entry, MessageAdded
from perdure._core.values.message import user

from .setup import (
    StoreCheck,
    StoreUnderTest,
    build_user_entries,
    expect_equal,
    expect_error,
    store_session,
)

_SECRET = "the secret word is kestrel"  # noqa: S105 - it opens nothing
_CLEAN = MessageAdded(user("it was taken out"))


def _redact_entry(entry: Entry) -> Entry:
    return Entry(entry.seq, entry.at, _CLEAN, entry.id)


async def _a_redacted_entry_is_replaced(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    entries = build_user_entries(1, _SECRET, "two", _SECRET, "four", _SECRET)
    lease = await store.acquire(name)
    await store.append(lease, entries, sync=True)
    for place in (0, 2, 4):
        await store.redact(lease, _redact_entry(entries[place]))
    expected = [_redact_entry(entry) if entry.seq % 2 else entry for entry in entries]
    expect_equal(await store.read(name), expected, "redact() puts the entry in its place, and numbers and ids stay")
    expect_equal(await store.read(name, after=4), expected[4:], "read(after=…) gives the redacted entry")
    info = await store.info(name)
    expect_equal(
        info and (info.entries, info.title), (5, "it was taken out"), "a title does not keep what was redacted"
    )
    await store.append(lease, entries[4:], sync=True)
    expect_equal(await store.read(name), expected, "append() of an entry that was redacted does not bring it back")
    more = build_user_entries(6, "six")
    await store.append(lease, more, sync=True)
    expect_equal(await store.read(name), expected + more, "the log goes on after a redaction")


async def _forks_see_a_redaction(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    entries = await store_session(store, name, _SECRET, "two", "three")
    await store.fork(name, name + "child", at=2)
    await store.fork(name + "child", name + "grandchild", at=1)
    child = await store.acquire(name + "child")
    own = build_user_entries(3, _SECRET)
    await store.append(child, own, sync=True)
    lease = await store.acquire(name)
    await store.redact(lease, _redact_entry(entries[0]))
    await store.redact(child, _redact_entry(own[0]))
    clean = [_redact_entry(entries[0]), entries[1]]
    expect_equal(
        await store.read(name), [*clean, entries[2]], "redact() of what a fork holds alone changes nothing else"
    )
    expect_equal(await store.read(name + "child"), [*clean, _redact_entry(own[0])], "a fork shares the redacted entry")
    expect_equal(await store.read(name + "grandchild"), clean[:1], "a fork of a fork shares the redacted entry")
    await store.redact(child, _redact_entry(entries[1]))
    both = [await store.read(name), await store.read(name + "child")]
    expect_equal(
        [each[1] for each in both],
        [_redact_entry(entries[1])] * 2,
        "redact() by a fork of what it shares is seen by all",
    )
    for session_id in (name, name + "child", name + "grandchild"):
        info = await store.info(session_id)
        expect_equal(info and info.title, "it was taken out", "no title keeps what was redacted, nor in forks")


async def _an_orphan_can_be_redacted(trial: StoreUnderTest) -> None:
    """Check that a fork can redact entries that it shares with a deleted session."""
    store, name = trial.store, trial.name
    entries = await store_session(store, name, "one", _SECRET)
    await store.fork(name, name + "child")
    await store.delete(name)
    lease = await store.acquire(name + "child")
    await store.redact(lease, _redact_entry(entries[1]))
    expected = [entries[0], _redact_entry(entries[1])]
    expect_equal(await store.read(name + "child"), expected, "redact() of what a fork shared with a deleted session")


async def _forks_of_a_deleted_fork_see_a_redaction(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    entries = await store_session(store, name, _SECRET)
    await store.fork(name, name + "child")
    await store.fork(name + "child", name + "grandchild")
    await store.fork(name, name + "sister")
    await store.delete(name + "child")
    await store.redact(await store.acquire(name), _redact_entry(entries[0]))
    for session_id in (name, name + "grandchild", name + "sister"):
        info = await store.info(session_id)
        expect_equal(
            (await store.read(session_id), info and info.title),
            ([_redact_entry(entries[0])], "it was taken out"),
            "redact() reaches all forks, also those of a fork that was deleted",
        )


async def _redactions_that_make_no_sense_are_refused(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    entries = await store_session(store, name, "one", "two")
    old = await store.acquire(name)
    await store.release(old)
    lease = await store.acquire(name)
    for seq in (0, 3, 99):
        missing = Entry(seq, 1.0, _CLEAN, "missing")
        await expect_error(
            Conflict, store.redact(lease, missing), f"redact() of number {seq}, of which there is no entry"
        )
    await expect_error(Fenced, store.redact(old, _redact_entry(entries[0])), "redact() with a lease that was replaced")
    await _expect_redact_refused(store, name + "missing", entries[0])
    expect_equal(await store.read(name), entries, "a redaction that is refused changes nothing")


async def _expect_redact_refused(store: Store, session_id: str, entry: Entry) -> None:
    work = store.redact(Lease(session_id, 1), _redact_entry(entry))
    await expect_error(Fenced, work, "redact() in a session that is not there")


CHECKS: tuple[StoreCheck, ...] = (
    _a_redacted_entry_is_replaced,
    _forks_see_a_redaction,
    _an_orphan_can_be_redacted,
    _forks_of_a_deleted_fork_see_a_redaction,
    _redactions_that_make_no_sense_are_refused,
)
