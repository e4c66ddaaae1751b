"""The contract of stores on what goes wrong: a store left behind, a disk that is full. Above: `contracts.py`."""

import random
from base64 import b64encode

from perdure.core.error import Conflict, Fenced, SessionBusy, StoreError, Unsupported
from perdure.core.event import Custom, Entry
from perdure.core.store import Lease, Post, Store

from .contracts_store_trial import Chapter, LeftOut, Trial, begun, expect, numbered, refused, said

_TRIES = 5
"""Writes of 300 kB that a disk which is said to be full may take before it has to be so."""
_LARGE = 300_000


async def _what_was_acknowledged_survives_a_crash(trial: Trial) -> None:
    """The first store is left behind as a crash would leave it: nothing is released, nothing closed."""
    survivor = await trial.second()
    victim, name = trial.store, trial.name
    lease = await victim.acquire(name)
    entries = said(1, "one", "two", "three", "four")
    await victim.append(lease, entries[:3], sync=True)
    post, taken = Post("p", "steer", "now"), Post(entries[3].id, "steer")
    await victim.post(name, post)
    await victim.post(name, taken)
    await victim.append(lease, entries[3:], sync=False)
    await victim.fork(name, name + "fork", at=2)
    await begun(victim, name + "gone", "one")
    await victim.delete(name + "gone")
    expect(await survivor.read(name), entries, "acknowledged entries survive a crash")
    expect(await survivor.posts(name), [post], "acknowledged posts survive a crash, and taken ones stay taken")
    expect(await survivor.read(name + "fork"), entries[:2], "a fork survives a crash")
    expect(await survivor.read(name + "gone"), [], "a deleted session does not come back after a crash")
    new = await _inherited(victim, survivor, name)
    expect(max(lease.fence + 1, new.fence), new.fence, "the fence grows over a crash")
    await survivor.append(new, entries, sync=True)
    await survivor.append(new, said(5, "five"), sync=True)
    expect(len(await survivor.read(name)), 5, "after a crash the session goes on where it ended")


async def _inherited(victim: Store, survivor: Store, session_id: str) -> Lease:
    """The lease of a session whose driver is no more. A store that must see it die first sees it closed."""
    try:
        return await survivor.acquire(session_id, take_over=True)
    except (Unsupported, SessionBusy):
        await victim.aclose()
        return await survivor.acquire(session_id)


async def _on_a_full_disk_nothing_is_half_written(trial: Trial) -> None:
    if trial.full_disk is None:
        raise LeftOut("check_store was not told how to fill the disk: pass `full_disk`")
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    kept = said(1, "one")
    await store.append(lease, kept, sync=True)
    with trial.full_disk(store):
        for sync in (True, False):
            kept += await _until_full(store, lease, len(kept), sync=sync)
            expect(
                await store.read(name), kept, "on a full disk what was acknowledged stays, and nothing else is there"
            )
        large = Post("large", "steer", _incompressible(0))
        await refused(StoreError, store.post(name, large), "post() on a full disk")
        expect(await store.posts(name), [], "a post that failed is not there")
    lease = await _still(store, lease)
    more = numbered(len(kept) + 1, [Custom("data", _incompressible(1))])
    await store.append(lease, more, sync=True)
    expect(await store.read(name), kept + more, "when there is room again, the log goes on")
    expect(await store.post(name, large), expected=True, promise="when there is room again, a post is kept")
    expect(await store.posts(name), [large], "and it is there")


async def _until_full(store: Store, lease: Lease, head: int, *, sync: bool) -> list[Entry]:
    """What was acknowledged before the disk was full."""
    kept: list[Entry] = []
    for number in range(_TRIES):
        batch = numbered(head + len(kept) + 1, [Custom("data", _incompressible(number)), Custom("end")])
        try:
            await store.append(lease, batch, sync=sync)
        except (Conflict, Fenced) as error:
            raise AssertionError(f"broken promise: append() on a full disk raises StoreError, not {error!r}") from error
        except StoreError as error:
            expect(bool(str(error)), expected=True, promise="append() on a full disk is refused with a message")
            return kept
        except Exception as error:
            raise AssertionError(f"broken promise: append() on a full disk raises StoreError, not {error!r}") from error
        kept += batch
    raise AssertionError(f"the disk is not full: {_TRIES} appends of {_LARGE} bytes succeeded; look at `full_disk`")


async def _still(store: Store, lease: Lease) -> Lease:
    """The lease, if the store has kept it through the trouble, or else a new one."""
    try:
        return await store.acquire(lease.session_id)
    except SessionBusy:
        return lease


def _incompressible(seed: int) -> str:
    """Text that takes about as much room as it is long."""
    return b64encode(random.Random(seed).randbytes(_LARGE * 3 // 4)).decode()  # noqa: S311 - no secret


CHAPTERS: tuple[Chapter, ...] = (
    _what_was_acknowledged_survives_a_crash,
    _on_a_full_disk_nothing_is_half_written,
)
