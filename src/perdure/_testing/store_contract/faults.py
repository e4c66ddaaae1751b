"""Tests in `check_store`: stored entries survive a crash, and a full disk leaves no half-written entry."""

import random
from base64 import b64encode

from perdure._core.log.store import Lease, Post, Store
from perdure._core.values.error import Conflict, Fenced, SessionBusy, StoreError, UnsupportedByStore
from perdure._core.values.event import Custom, Entry

from .setup import (
    CheckSkipped,
    StoreCheck,
    StoreUnderTest,
    build_entries,
    build_user_entries,
    expect_equal,
    expect_error,
    store_session,
)

_TRIES = 5
"""Writes of 300 kB that a supposedly full disk may accept before it must fail."""
_LARGE = 300_000


async def _what_was_acknowledged_survives_a_crash(trial: StoreUnderTest) -> None:
    """Check that stored data survives a crash: the first store is abandoned without releasing or closing anything."""
    survivor = await trial.open_second_store()
    victim, name = trial.store, trial.name
    lease = await victim.acquire(name)
    entries = build_user_entries(1, "one", "two", "three", "four")
    await victim.append(lease, entries[:3], sync=True)
    post, taken = Post("p", "steer", "now"), Post(entries[3].id, "steer")
    await victim.post(name, post)
    await victim.post(name, taken)
    await victim.append(lease, entries[3:], sync=False)
    await victim.fork(name, name + "fork", at=2)
    await store_session(victim, name + "gone", "one")
    await victim.delete(name + "gone")
    expect_equal(await survivor.read(name), entries, "acknowledged entries survive a crash")
    expect_equal(await survivor.posts(name), [post], "acknowledged posts survive a crash, and taken ones stay taken")
    expect_equal(await survivor.read(name + "fork"), entries[:2], "a fork survives a crash")
    expect_equal(await survivor.read(name + "gone"), [], "a deleted session does not come back after a crash")
    new = await _acquire_after_crash(victim, survivor, name)
    expect_equal(max(lease.fence + 1, new.fence), new.fence, "the fence grows over a crash")
    await survivor.append(new, entries, sync=True)
    await survivor.append(new, build_user_entries(5, "five"), sync=True)
    expect_equal(len(await survivor.read(name)), 5, "after a crash the session goes on where it ended")


async def _acquire_after_crash(victim: Store, survivor: Store, session_id: str) -> Lease:
    """Return a lease for a session whose driver is gone. A store that must notice its death first is closed."""
    try:
        return await survivor.acquire(session_id, take_over=True)
    except (UnsupportedByStore, SessionBusy):
        await victim.aclose()
        return await survivor.acquire(session_id)


async def _on_a_full_disk_nothing_is_half_written(trial: StoreUnderTest) -> None:
    if trial.full_disk is None:
        raise CheckSkipped("check_store was not told how to fill the disk: pass `full_disk`")
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    kept = build_user_entries(1, "one")
    await store.append(lease, kept, sync=True)
    with trial.full_disk(store):
        for sync in (True, False):
            kept += await _append_until_full(store, lease, len(kept), sync=sync)
            expect_equal(
                await store.read(name), kept, "on a full disk what was acknowledged stays, and nothing else is there"
            )
        large = Post("large", "steer", _random_text(0))
        await expect_error(StoreError, store.post(name, large), "post() on a full disk")
        expect_equal(await store.posts(name), [], "a post that failed is not there")
    lease = await _keep_or_renew_lease(store, lease)
    more = build_entries(len(kept) + 1, [Custom("data", _random_text(1))])
    await store.append(lease, more, sync=True)
    expect_equal(await store.read(name), kept + more, "when there is room again, the log goes on")
    expect_equal(await store.post(name, large), expected=True, promise="when there is room again, a post is kept")
    expect_equal(await store.posts(name), [large], "and it is there")


async def _append_until_full(store: Store, lease: Lease, head: int, *, sync: bool) -> list[Entry]:
    """Append until the disk is full, and return the acknowledged entries."""
    kept: list[Entry] = []
    for number in range(_TRIES):
        batch = build_entries(head + len(kept) + 1, [Custom("data", _random_text(number)), Custom("end")])
        try:
            await store.append(lease, batch, sync=sync)
        except (Conflict, Fenced) as error:
            raise AssertionError(f"broken promise: append() on a full disk raises StoreError, not {error!r}") from error
        except StoreError as error:
            expect_equal(bool(str(error)), expected=True, promise="append() on a full disk is refused with a message")
            return kept
        except Exception as error:
            raise AssertionError(f"broken promise: append() on a full disk raises StoreError, not {error!r}") from error
        kept += batch
    raise AssertionError(f"the disk is not full: {_TRIES} appends of {_LARGE} bytes succeeded; look at `full_disk`")


async def _keep_or_renew_lease(store: Store, lease: Lease) -> Lease:
    """Return the lease if it survived the fault, or else a new one."""
    try:
        return await store.acquire(lease.session_id)
    except SessionBusy:
        return lease


def _random_text(seed: int) -> str:
    """Return text that takes about as much space as it is long."""
    return b64encode(random.Random(seed).randbytes(_LARGE * 3 // 4)).decode()  # noqa: S311 - no secret


CHECKS: tuple[StoreCheck, ...] = (
    _what_was_acknowledged_survives_a_crash,
    _on_a_full_disk_nothing_is_half_written,
)
