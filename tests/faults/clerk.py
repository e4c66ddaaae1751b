"""A process that keeps house in a store: it makes sessions, forks, redacts and deletes them, and posts to them.

Above: `kills.py`, where it is killed. Below: the stores. It tells what it is about to do and what is done, so that
`complain` can hold the store against it: what was acknowledged is so, and everything else is whole or not at all.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from perdure._core.log.redaction import erase_event_content
from perdure._core.values import faults
from perdure.events import Custom, Entry
from perdure.stores import Post, Store
from tests.faults.children import Place, Tell

ENTRIES = 5
"""Of each session."""
SHARED = 3
"""Of these, what its fork has."""
SECRET = 2
"""The entry that is redacted."""
ROUNDS = 4


class Family(NamedTuple):
    """A session, and the one that was forked from it."""

    name: str

    @property
    def fork(self) -> str:
        """The name of its fork."""
        return f"{self.name}-fork"

    @property
    def entries(self) -> list[Entry]:
        """What was stored in it."""
        numbers = range(1, ENTRIES + 1)
        return [
            Entry(number, 0.0, Custom("note", f"{self.name} {number}"), f"{self.name}-{number}") for number in numbers
        ]

    @property
    def secret(self) -> Entry:
        """What comes in the place of the entry that is redacted."""
        entry = self.entries[SECRET - 1]
        return Entry(entry.seq, entry.at, erase_event_content(entry.event), entry.id)


def families(clerk: str) -> list[Family]:
    """Those of one clerk."""
    return [Family(f"{clerk}-{number}") for number in range(ROUNDS)]


def keep_house(place: Place, clerk: str, armed: str, lies: bool, tell: Tell) -> None:
    """Do everything that can be done to sessions, again and again; or only say so."""
    faults.arm_from_text(armed)
    asyncio.run(_keep_house(place, clerk, tell, lies=lies))


async def _keep_house(place: Place, clerk: str, tell: Tell, *, lies: bool) -> None:
    store = place.opened()
    for number, family in enumerate(families(clerk)):
        await _make(store, family, tell)
        await _post(store, family, tell)
        await _fork(store, family, tell)
        await _redact(store, family, tell)
        await _delete(store, family.fork if number % 2 else family.name, tell, lies=lies)
    await store.aclose()
    tell("finished")


async def _make(store: Store, family: Family, tell: Tell) -> None:
    lease = await store.acquire(family.name)
    tell(f"making {family.name}")
    await store.append(lease, family.entries, sync=True)
    tell(f"made {family.name}")
    await store.release(lease)


async def _post(store: Store, family: Family, tell: Tell) -> None:
    post = Post(f"{family.name}-post", "steer", {"text": family.name}, 1.0)
    new, again = await store.post(family.name, post), await store.post(family.name, post)
    tell(f"posted {family.name}" if new and not again else f"CRASHED: posting twice gave {new} and {again}")


async def _fork(store: Store, family: Family, tell: Tell) -> None:
    tell(f"making {family.fork}")
    await store.fork(family.name, family.fork, at=SHARED)
    tell(f"made {family.fork}")


async def _redact(store: Store, family: Family, tell: Tell) -> None:
    lease = await store.acquire(family.name)
    tell(f"redacting {family.name}")
    await store.redact(lease, family.secret)
    tell(f"redacted {family.name}")
    await store.release(lease)


async def _delete(store: Store, name: str, tell: Tell, *, lies: bool) -> None:
    tell(f"deleting {name}")
    if not lies:
        await store.delete(name)
    tell(f"deleted {name}")


# -- afterwards --------------------------------------------------------------------------------------------------------


def complain(place: Place, clerk: str, told: Sequence[str], tell: Tell) -> None:
    """Tell what is wrong with the sessions of a clerk that was killed; and clear up after it, which has to work."""
    for complaint in asyncio.run(_complaints(place, clerk, told)):
        tell(complaint)


async def _complaints(place: Place, clerk: str, told: Sequence[str]) -> list[str]:
    store = place.opened()
    found: dict[str, list[Entry]] = {}
    posts: dict[str, list[Post]] = {}
    if place.address.startswith("postgresql:"):  # the server may still be at the last wish of a client that was killed
        for name in [name for family in families(clerk) for name in (family.name, family.fork)]:
            await store.release(await store.acquire(name))
    listed = {info.session_id for info in await store.list(prefix=clerk, limit=100)}
    for name in [name for family in families(clerk) for name in (family.name, family.fork)]:
        found[name], posts[name] = await store.read(name), await store.posts(name)
    wrong = [
        *_unlisted(found, listed),
        *[each for family in families(clerk) for each in _of_family(family, found, posts, told)],
        *[each for name in found for each in await _of_usage(store, name, found[name])],
    ]
    await store.aclose()
    return wrong


def _unlisted(found: Mapping[str, Sequence[Entry]], listed: set[str]) -> Iterator[str]:
    """The list has what can be read, and nothing else."""
    for name, entries in found.items():
        if bool(entries) != (name in listed):
            yield f"{name} has {len(entries)} entries, and is {'' if name in listed else 'not '}listed"


def _of_family(
    family: Family, found: Mapping[str, list[Entry]], posts: Mapping[str, list[Post]], told: Sequence[str]
) -> Iterator[str]:
    """What was acknowledged is so; what was begun is whole or not at all."""
    plain = family.entries
    blacked = [*plain[: SECRET - 1], family.secret, *plain[SECRET:]]
    for name, length in ((family.name, ENTRIES), (family.fork, SHARED)):
        possible: list[list[Entry]] = []
        if f"made {name}" not in told or f"deleting {name}" in told:
            possible.append([])
        if f"making {name}" in told and f"deleted {name}" not in told:
            possible += [plain[:length]] if f"redacted {family.name}" not in told else []
            possible += [blacked[:length]] if f"redacting {family.name}" in told else []
        if found[name] not in possible:
            yield f"{name} is none of the {len(possible)} things that it may be: {found[name]}"
    is_posted = [post.id for post in posts[family.name]] == [f"{family.name}-post"]
    if f"posted {family.name}" in told and f"deleting {family.name}" not in told and not is_posted:
        yield f"the post to {family.name} is lost: {posts[family.name]}"
    if f"deleted {family.name}" in told and posts[family.name]:
        yield f"{family.name} is deleted, and has posts"


async def _of_usage(store: Store, name: str, entries: Sequence[Entry]) -> list[str]:
    """Whatever was left behind can be driven, and deleted."""
    lease = await store.acquire(name)
    await store.append(lease, [Entry(len(entries) + 1, 0.0, Custom("more"), f"{name}-more")], sync=False)
    await store.release(lease)
    grown = len(await store.read(name))
    await store.delete(name)
    left = len(await store.read(name))
    if (grown, left) == (len(entries) + 1, 0):
        return []
    return [f"{name} had {len(entries)} entries; one more made it {grown}, and deleting it left {left}"]
