"""The contract of stores on redaction: an entry is replaced wherever it is seen. Above: `contracts.py`."""

from perdure.core.error import Conflict, Fenced
from perdure.core.event import Entry, MessageAdded
from perdure.core.message import user
from perdure.core.store import Lease, Store

from .contracts_store_trial import Chapter, Trial, begun, expect, refused, said

_SECRET = "the secret word is kestrel"  # noqa: S105 - it opens nothing
_CLEAN = MessageAdded(user("it was taken out"))


def _without(entry: Entry) -> Entry:
    return Entry(entry.seq, entry.at, _CLEAN, entry.id)


async def _a_redacted_entry_is_replaced(trial: Trial) -> None:
    store, name = trial.store, trial.name
    entries = said(1, _SECRET, "two", _SECRET, "four", _SECRET)
    lease = await store.acquire(name)
    await store.append(lease, entries, sync=True)
    for place in (0, 2, 4):
        await store.redact(lease, _without(entries[place]))
    expected = [_without(entry) if entry.seq % 2 else entry for entry in entries]
    expect(await store.read(name), expected, "redact() puts the entry in its place, and numbers and ids stay")
    expect(await store.read(name, after=4), expected[4:], "read(after=…) gives the redacted entry")
    info = await store.info(name)
    expect(info and (info.entries, info.title), (5, "it was taken out"), "a title does not keep what was redacted")
    await store.append(lease, entries[4:], sync=True)
    expect(await store.read(name), expected, "append() of an entry that was redacted does not bring it back")
    more = said(6, "six")
    await store.append(lease, more, sync=True)
    expect(await store.read(name), expected + more, "the log goes on after a redaction")


async def _forks_see_a_redaction(trial: Trial) -> None:
    store, name = trial.store, trial.name
    entries = await begun(store, name, _SECRET, "two", "three")
    await store.fork(name, name + "child", at=2)
    await store.fork(name + "child", name + "grandchild", at=1)
    child = await store.acquire(name + "child")
    own = said(3, _SECRET)
    await store.append(child, own, sync=True)
    lease = await store.acquire(name)
    await store.redact(lease, _without(entries[0]))
    await store.redact(child, _without(own[0]))
    clean = [_without(entries[0]), entries[1]]
    expect(await store.read(name), [*clean, entries[2]], "redact() of what a fork holds alone changes nothing else")
    expect(await store.read(name + "child"), [*clean, _without(own[0])], "a fork shares the redacted entry")
    expect(await store.read(name + "grandchild"), clean[:1], "a fork of a fork shares the redacted entry")
    await store.redact(child, _without(entries[1]))
    both = [await store.read(name), await store.read(name + "child")]
    expect(
        [each[1] for each in both], [_without(entries[1])] * 2, "redact() by a fork of what it shares is seen by all"
    )
    for session_id in (name, name + "child", name + "grandchild"):
        info = await store.info(session_id)
        expect(info and info.title, "it was taken out", "no title keeps what was redacted, nor in forks")


async def _an_orphan_can_be_redacted(trial: Trial) -> None:
    """What a deleted session has left to its forks can be taken out there, for nobody else could."""
    store, name = trial.store, trial.name
    entries = await begun(store, name, "one", _SECRET)
    await store.fork(name, name + "child")
    await store.delete(name)
    lease = await store.acquire(name + "child")
    await store.redact(lease, _without(entries[1]))
    expected = [entries[0], _without(entries[1])]
    expect(await store.read(name + "child"), expected, "redact() of what a fork shared with a deleted session")


async def _redactions_that_make_no_sense_are_refused(trial: Trial) -> None:
    store, name = trial.store, trial.name
    entries = await begun(store, name, "one", "two")
    old = await store.acquire(name)
    await store.release(old)
    lease = await store.acquire(name)
    for seq in (0, 3, 99):
        missing = Entry(seq, 1.0, _CLEAN, "missing")
        await refused(Conflict, store.redact(lease, missing), f"redact() of number {seq}, of which there is no entry")
    await refused(Fenced, store.redact(old, _without(entries[0])), "redact() with a lease that was replaced")
    await _refused_elsewhere(store, name + "missing", entries[0])
    expect(await store.read(name), entries, "a redaction that is refused changes nothing")


async def _refused_elsewhere(store: Store, session_id: str, entry: Entry) -> None:
    work = store.redact(Lease(session_id, 1), _without(entry))
    await refused(Fenced, work, "redact() in a session that is not there")


CHAPTERS: tuple[Chapter, ...] = (
    _a_redacted_entry_is_replaced,
    _forks_see_a_redaction,
    _an_orphan_can_be_redacted,
    _redactions_that_make_no_sense_are_refused,
)
