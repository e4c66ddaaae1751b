"""The contract of stores finds what is wrong with a store, and says what."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from perdure import ConfigError, StoreError
from perdure._testing.store_contract import listing, maintenance, suite
from perdure._testing.store_contract import search as store_contract_search
from perdure._testing.store_contract.search import HOSTILE_QUERIES
from perdure.events import MessageAdded, RunEnded
from perdure.stores import (
    Conflict,
    FileStore,
    Hit,
    Lease,
    MemoryStore,
    SessionInfo,
    SqliteStore,
    StoreSize,
    UnsupportedByStore,
)
from perdure.testing import check_store
from tests.small_disk import mounted


class Forgetful(MemoryStore):
    async def append(self, lease, entries, *, sync):
        if not sync:
            await super().append(lease, entries, sync=sync)


class Unnumbered(MemoryStore):
    async def append(self, lease, entries, *, sync):
        session = self._sessions[lease.session_id]
        session.entries.extend(entries)


class Unfenced(MemoryStore):
    async def append(self, lease, entries, *, sync):
        session = self._sessions[lease.session_id]
        await super().append(Lease(lease.session_id, session.fence), entries, sync=sync)


class Impatient(MemoryStore):
    async def append(self, lease, entries, *, sync):
        if entries and len(await self.read(lease.session_id)) >= entries[0].seq:
            raise Conflict("seen before")
        await super().append(lease, entries, sync=sync)


class Generous(MemoryStore):
    async def acquire(self, session_id, *, take_over=False):
        return await super().acquire(session_id, take_over=True)


class Confident(MemoryStore):
    async def holds(self, lease):
        return True


class Delicate(MemoryStore):
    async def append(self, lease, entries, *, sync):
        for entry in entries:
            repr(entry).encode("ascii")
            if "NUL" in repr(entry):
                raise ValueError("cannot encode this")
        await super().append(lease, entries, sync=sync)


class Disorderly(MemoryStore):
    async def list(self, *, prefix="", limit=50, offset=0):
        found = await super().list(prefix=prefix, limit=limit, offset=offset)
        return sorted(found, key=lambda info: info.session_id)


class Clinging(MemoryStore):
    async def delete(self, session_id):
        if session_id not in self._sessions:
            raise KeyError(session_id)
        await super().delete(session_id)


class Eager(MemoryStore):
    def append_now(self, lease, entries, *, sync):
        super().append_now(lease, entries, sync=sync)
        return False

    async def append(self, lease, entries, *, sync):
        super().append_now(lease, entries, sync=sync)


class Cursory(MemoryStore):
    async def events(self, session_id, *, after=0):
        entries = await self.read(session_id, after=after)
        return [entry.event for entry in entries[:32]], entries[-1].seq if entries else after


# -- sessions and posts ------------------------------------------------------------------------------------------------


class Nameless(MemoryStore):
    async def info(self, session_id):
        info = await super().info(session_id)
        return info and msgspec.structs.replace(info, title="")


class Deaf(MemoryStore):
    async def post(self, session_id, post):
        return True


class Repetitive(MemoryStore):
    async def post(self, session_id, post):
        if not await super().post(session_id, post):
            await super().post(session_id, msgspec.structs.replace(post, id=post.id + "again"))
        return True


class Replacing(MemoryStore):
    async def post(self, session_id, post):
        is_new = await super().post(session_id, post)
        if not is_new:
            self._sessions[session_id].posts[post.id] = post
        return is_new


class Hasty(MemoryStore):
    async def info(self, session_id):
        found = await super().info(session_id)
        return found or (SessionInfo(session_id, 0, 0.0, 0.0) if await self.posts(session_id) else None)


class Untaken(MemoryStore):
    async def posts(self, session_id):
        return list(self._sessions[session_id].posts.values()) if session_id in self._sessions else []


class Careless(MemoryStore):
    async def post(self, session_id, post):
        return await super().post(session_id or "nobody", post)


class Anxious(MemoryStore):
    async def list_interrupted(self, *, prefix="", include_posts=False, now=None):
        for session in self._sessions.values():
            session.seen_for_run = 0  # a fork counts the run that it was cut from
        return await super().list_interrupted(prefix=prefix, include_posts=include_posts, now=now)


class Calm(MemoryStore):
    async def list_interrupted(self, *, prefix="", include_posts=False, now=None):
        return []


class Childish(MemoryStore):
    async def list_interrupted(self, *, prefix="", include_posts=False, now=None):
        found = await super().list_interrupted(prefix=prefix, include_posts=include_posts, now=now)
        return [each for each in found if not isinstance((await self.read(each.session_id))[-1].event, RunEnded)]


class Barren(MemoryStore):
    async def list_interrupted(self, *, prefix="", include_posts=False, now=None):
        found = await super().list_interrupted(prefix=prefix, include_posts=include_posts, now=now)
        return [each for each in found if not self._sessions[each.session_id].parent]


class Intrusive(MemoryStore):
    async def list_interrupted(self, *, prefix="", include_posts=False, now=None):
        driven = {session_id for session_id, session in self._sessions.items() if session.driven}
        for session_id in driven:
            self._sessions[session_id].driven = False
        found = await super().list_interrupted(prefix=prefix, include_posts=include_posts, now=now)
        for session_id in driven:
            self._sessions[session_id].driven = True
        return found


# -- forks and redaction -----------------------------------------------------------------------------------------------


class Whole(MemoryStore):
    async def fork(self, session_id, new_id, *, at=None):
        await super().fork(session_id, new_id)


class Entangled(MemoryStore):
    async def fork(self, session_id, new_id, *, at=None):
        await super().fork(session_id, new_id, at=at)
        if at is None or at == len(self._sessions[session_id].entries):
            self._sessions[new_id].entries = self._sessions[session_id].entries


class Overwriting(MemoryStore):
    async def fork(self, session_id, new_id, *, at=None):
        self._sessions.pop(new_id if new_id != session_id else "", None)
        await super().fork(session_id, new_id, at=at)


class Cruel(MemoryStore):
    async def delete(self, session_id):
        forks = [name for name, session in self._sessions.items() if session.parent == session_id]
        await super().delete(session_id)
        for fork in forks:
            self._sessions[fork].entries.clear()


class Faithful(MemoryStore):
    async def delete(self, session_id):
        forks = [session for session in self._sessions.values() if session.parent == session_id]
        await super().delete(session_id)
        for fork in forks:
            fork.parent = session_id


class Talkative(MemoryStore):
    async def redact(self, lease, entry):
        self._session_of_lease(lease).entries[entry.seq - 1] = entry


class Outspoken(MemoryStore):
    async def redact(self, lease, entry):
        await super().redact(lease, entry)
        self._sessions[lease.session_id]._beginning = "the secret word is kestrel"


class Sealed(MemoryStore):
    def __init__(self):
        super().__init__()
        self._redacted = set()

    async def redact(self, lease, entry):
        await super().redact(lease, entry)
        self._redacted.add(lease.session_id)

    async def append(self, lease, entries, *, sync):
        if lease.session_id not in self._redacted or entries[-1].seq <= len(self._sessions[lease.session_id].entries):
            await super().append(lease, entries, sync=sync)


class Unlocked(MemoryStore):
    async def redact(self, lease, entry):
        await super().redact(Lease(lease.session_id, self._sessions[lease.session_id].fence), entry)


# -- two of them -------------------------------------------------------------------------------------------------------


class Shared(MemoryStore):
    """Several objects of one place, as files and databases have them."""

    place: ClassVar[dict] = {}

    def __init__(self):
        super().__init__()
        self._sessions = self.place
        self._given = []

    async def acquire(self, session_id, *, take_over=False):
        self._fence = max([self._fence, *(session.fence for session in self.place.values())])
        self._given.append(await super().acquire(session_id, take_over=take_over))
        return self._given[-1]

    async def aclose(self):
        for lease in self._given:
            await self.release(lease)


class Blind(Shared):
    async def acquire(self, session_id, *, take_over=False):
        ours = any(lease.session_id == session_id for lease in self._given)
        return await super().acquire(session_id, take_over=take_over or not ours)


class Stubborn(Shared):
    async def acquire(self, session_id, *, take_over=False):
        if take_over and session_id in self._sessions and self._sessions[session_id].driven:
            raise UnsupportedByStore("whoever holds it has a lock")
        return await super().acquire(session_id)


class Selfish(Shared):
    async def aclose(self):
        for session in self.place.values():
            session.driven, session.fence = False, 0


# -- search and upkeep -------------------------------------------------------------------------------------------------


class Searching(MemoryStore):
    """Looks at every word that anybody has said."""

    async def search(self, query, *, syntax="words", session_id="", prefix="", role="", limit=20, offset=0, **times):
        return [hit async for hit in self._hits(query)][offset : offset + limit]

    async def _hits(self, query):
        for session_id, session in self._sessions.items():
            for entry in session.entries:
                words = entry.event.message.text if isinstance(entry.event, MessageAdded) else ""
                if all(word.lower() in words.lower().split() for word in query.split()):
                    yield Hit(session_id, entry.seq, "user", f"«{query}»", 1.0, entry.at)


class Once(MemoryStore):
    """Does not bear a lease that is given back a second time."""

    def __init__(self):
        super().__init__()
        self._given_back = set()

    async def release(self, lease):
        if lease in self._given_back:
            raise ValueError("it was given back before")
        self._given_back.add(lease)
        await super().release(lease)


class Strict(MemoryStore):
    """Does not bear that a lease of a session that is not there is given back."""

    async def release(self, lease):
        if lease.session_id not in self._sessions:
            raise ValueError("there is no such session")
        await super().release(lease)


class Swollen(MemoryStore):
    async def size(self):
        return StoreSize(0, 0, 0, {})

    async def vacuum(self):
        self._sessions.clear()

    async def backup(self, path):
        raise UnsupportedByStore("there is nothing to keep")


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Forgetful, "all entries as they were appended"),
        (Unnumbered, "raises Conflict, and it did not"),
        (Unfenced, "with a lease that was replaced raises Fenced"),
        (Impatient, "seen before"),
        (Generous, "raises SessionBusy, and it did not"),
        (Confident, "holds\\(\\) of a lease that was released"),
        (Delicate, "cannot encode this"),
        (Disorderly, "the most recently used session first"),
        (Clinging, "deleted"),
        (Eager, "that returns False has done nothing"),
        (Cursory, "events\\(after=0\\) gives what follows"),
        (Nameless, "the line of the list"),
        (Deaf, "posts\\(\\) gives what was posted"),
        (Repetitive, "post\\(\\) of an id that is waiting gives False"),
        (Replacing, "post\\(\\) of an id that is waiting changes nothing"),
        (Hasty, "a session that has posts and no entries holds nothing"),
        (Untaken, "an append takes the posts of the ids of its entries"),
        (Anxious, "a fork that was cut from the middle of a run is not interrupted"),
        (Calm, "lists a session whose run has begun and not ended"),
        (Childish, "the end of a subagent's run ends no other run"),
        (Barren, "a run that was begun in a fork counts"),
        (Intrusive, "a session that a living process drives is not interrupted"),
        (Careless, "post\\('', …\\) raises ConfigError, and it did not"),
        (Whole, "begins with the first two entries"),
        (Entangled, "a fork that is renamed does not rename its parent"),
        (Overwriting, "which holds something raises SessionExists, and it did not"),
        (Cruel, "what forks share with a deleted session stays"),
        (Faithful, "a fork whose parent was deleted has none"),
        (Talkative, "a fork shares the redacted entry"),
        (Outspoken, "a title does not keep what was redacted"),
        (Sealed, "the log goes on after a redaction"),
        (Unlocked, "redact\\(\\) (with a lease|by a driver) that was replaced raises Fenced, and it did not"),
        (Blind, "acquire\\(\\) of a session that is driven through another store raises SessionBusy, and it did not"),
        (Selfish, "append\\(\\) after another store of the same place was closed does not fail"),
        (Searching, "search\\('harbour'\\) finds what holds all the words"),
        (Swollen, "a store that holds something takes bytes"),
        (Once, "it was given back before"),
        (Strict, "release\\(\\) of a lease of a session that is not there does not fail"),
    ],
)
async def test_a_store_that_breaks_a_promise_is_told_which(kind, promise):
    with pytest.raises(Exception, match=promise):
        await check_store(kind)


class Orphaned(SqliteStore):
    """A backup that has lost what forks share with their parents."""

    async def read(self, session_id, **narrowed):
        return [] if session_id.endswith("fork") else await super().read(session_id, **narrowed)


class Silent(SqliteStore):
    """A backup that has lost what was posted."""

    async def posts(self, session_id):
        return []


@pytest.fixture
def only_maintenance(monkeypatch):
    """The last chapter alone: in an SQLite file, all of them take a second each time."""
    monkeypatch.setattr(suite, "_CHECKS", maintenance.CHECKS)


@pytest.mark.usefixtures("only_maintenance")
@pytest.mark.parametrize(("kind", "promise"), [(Orphaned, "a backup holds forks"), (Silent, "a backup holds posts")])
async def test_a_backup_that_is_not_whole_is_told(kind, promise, tmp_path):
    with pytest.raises(AssertionError, match=promise):
        await check_store(lambda: SqliteStore(tmp_path / "sessions.db"), restored=kind)


async def test_each_store_that_was_made_is_closed():
    closed = []

    class Closing(MemoryStore):
        async def aclose(self):
            closed.append(self)

    made = []

    def make():
        made.append(Closing())
        return made[-1]

    await check_store(make)
    assert made == closed
    assert len(made) > 5


# -- what is left out --------------------------------------------------------------------------------------------------

ALONE = "`make` gives a store of another place each time"
IN_MEMORY = (
    "the store is not `EventReadingStore`",
    "the store is not `SearchableStore`",
    "the store is not `MaintainableStore`",
    "check_store was not told how to fill the disk",
)


async def test_what_could_not_be_tried_is_told_with_the_reason():
    left_out = await check_store(MemoryStore)
    assert all(reason.startswith((ALONE, *IN_MEMORY)) for reason in left_out.values())
    assert left_out["two stores of one place agree"].startswith(ALONE)
    assert left_out["what was acknowledged survives a crash"].startswith(ALONE)
    store = MemoryStore()
    assert "the same object each time" in (await check_store(lambda: store))["two stores of one place agree"]


@pytest.mark.usefixtures("only_maintenance")
async def test_a_store_that_cannot_be_backed_up_in_this_way_says_why(tmp_path):
    class Elsewhere(SqliteStore):
        async def backup(self, path):
            raise UnsupportedByStore("its server makes the backups")

    left_out = await check_store(lambda: Elsewhere(tmp_path / "sessions.db"), restored=SqliteStore)
    assert left_out["a backup is whole"] == ("the store cannot be backed up in this way: its server makes the backups")


async def test_stores_of_one_place_are_tried_against_each_other():
    left_out = await check_store(Shared)
    assert all(reason.startswith(IN_MEMORY) for reason in left_out.values())


async def test_a_store_that_cannot_take_over_is_known_by_what_it_raises():
    left_out = await check_store(Stubborn)
    assert left_out.pop("a session can be taken over") == (
        "the store cannot take a session over: whoever holds it has a lock"
    )
    assert "a lock" in left_out.pop("a session can be taken over from elsewhere")
    assert all(reason.startswith(IN_MEMORY) for reason in left_out.values())


# -- a full disk -------------------------------------------------------------------------------------------------------


class Full(MemoryStore):
    """Its disk can be full, and then it refuses; or, when it is `torn`, it keeps half of what it refuses."""

    is_full = False
    is_torn = False
    error: type[Exception] = StoreError

    @contextlib.contextmanager
    def filled(self):
        self.is_full = True
        yield
        self.is_full = False

    def append_now(self, lease, entries, *, sync):
        if self.is_full:
            if self.is_torn:
                super().append_now(lease, entries[:1], sync=sync)
            raise self.error("the disk is full: make room")
        return super().append_now(lease, entries, sync=sync)

    async def post(self, session_id, post):
        if self.is_full:
            raise self.error("the disk is full: make room")
        return await super().post(session_id, post)


class Torn(Full):
    is_torn = True


class Rough(Full):
    error = OSError


class Confused(Full):
    error = Conflict


async def test_a_full_disk_is_tried_by_whoever_can_fill_it():
    left_out = await check_store(Full, full_disk=Full.filled)
    assert "on a full disk nothing is half written" not in left_out


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Torn, "on a full disk what was acknowledged stays, and nothing else is there"),
        (Rough, "append\\(\\) on a full disk raises StoreError, not OSError"),
        (Confused, "append\\(\\) on a full disk raises StoreError, not Conflict"),
    ],
)
async def test_a_store_that_does_not_bear_a_full_disk_is_told(kind, promise):
    with pytest.raises(AssertionError, match=promise):
        await check_store(kind, full_disk=kind.filled)


async def test_a_disk_that_does_not_fill_is_told():
    with pytest.raises(AssertionError, match=r"the disk is not full: .* look at `full_disk`"):
        await check_store(Full, full_disk=lambda _: contextlib.nullcontext())


@pytest.fixture
def small_disk(tmp_path):
    """A disk that is large enough for the contract, and no larger."""
    with mounted(tmp_path, "96m") as place:
        yield place


@contextlib.contextmanager
def ballast(place: Path):
    """Something that takes all the room on a disk."""
    room = shutil.disk_usage(place).free
    with (place / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room)
    try:
        yield
    finally:
        (place / "ballast").unlink()


FILES_CANNOT = {
    "a session can be taken over",
    "a session can be taken over from elsewhere",
    "what was said is found",
    "a search can be narrowed",
    "a search has pages",
    "what is gone is not found",
    "what forks share is found",
    "hostile text is found",
    "no query is too hostile",
}


@pytest.mark.parametrize(("kind", "cannot"), [(FileStore, FILES_CANNOT), (SqliteStore, set())])
async def test_our_stores_keep_every_chapter_also_that_of_the_full_disk(kind, cannot, small_disk):
    left_out = await check_store(
        lambda: kind(small_disk / "sessions.db"), full_disk=lambda _: ballast(small_disk), restored=kind
    )
    assert set(left_out) == cannot


@pytest.mark.parametrize("hook", ["full_disk", "restored"])
async def test_a_hook_that_is_no_function_is_refused(hook):
    hooks: dict[str, Any] = {hook: 5}
    with pytest.raises(ConfigError, match=f"check_store\\({hook}=5\\): give a function, or leave it out"):
        await check_store(MemoryStore, **hooks)


# -- searches that fail ------------------------------------------------------------------------------------------------


class Choosy(SqliteStore):
    """Fails at one of the queries that are hard to read."""

    hard = ""
    error: Exception = ConfigError("I cannot read this")

    async def search(self, query, **options):
        if query == self.hard and options.get("syntax", "words") == "words":
            raise self.error
        return await super().search(query, **options)


@pytest.fixture
def only_hostile_queries(monkeypatch):
    monkeypatch.setattr(suite, "_CHECKS", store_contract_search.CHECKS[-1:])


HARD = next(query for query in HOSTILE_QUERIES if any(map(str.isalnum, query)) and len(query) < 50)
SENSELESS = next(query for query in HOSTILE_QUERIES if not any(map(str.isalnum, query)))


@pytest.mark.usefixtures("only_hostile_queries")
@pytest.mark.parametrize(
    ("query", "raised", "told"),
    [
        (
            HARD,
            ConfigError("no"),
            f"search({HARD!a}, syntax='words') raises nothing, not ConfigError('no'); expected True",
        ),
        (HARD, OSError("odd"), f"search({HARD!a}, syntax='words') raises nothing, not OSError('odd')"),
        (
            SENSELESS,
            OSError("odd"),
            f"search({SENSELESS!a}, syntax='words') raises ConfigError or nothing, not OSError",
        ),
        (SENSELESS, ConfigError(""), "a query that makes no sense is refused with a message; expected True"),
    ],
    ids=["refused", "failed", "failed at nothing", "without a message"],
)
async def test_a_search_that_does_not_bear_a_query_is_told(query, raised, told, tmp_path, monkeypatch):
    monkeypatch.setattr(Choosy, "hard", query)
    monkeypatch.setattr(Choosy, "error", raised)
    with pytest.raises(AssertionError) as broken:
        await check_store(lambda: Choosy(tmp_path / "sessions.db"))
    assert str(broken.value).startswith(f"broken promise: {told}")


@pytest.mark.usefixtures("only_hostile_queries")
async def test_a_search_may_refuse_a_query_that_makes_no_sense(tmp_path, monkeypatch):
    monkeypatch.setattr(Choosy, "hard", SENSELESS)
    assert await check_store(lambda: Choosy(tmp_path / "sessions.db")) == {}


async def test_a_full_disk_that_refuses_without_a_message_is_told():
    class Mute(Full):
        def append_now(self, lease, entries, *, sync):
            if self.is_full:
                raise StoreError("")
            return super().append_now(lease, entries, sync=sync)

    with pytest.raises(AssertionError) as broken:
        await check_store(Mute, full_disk=Mute.filled)
    assert str(broken.value) == (
        "broken promise: append() on a full disk is refused with a message; expected True, found False"
    )


# -- leases of deleted sessions ----------------------------------------------------------------------------------------


class Reviving(MemoryStore):
    """Gives a session that is made anew by one of its methods the fence that the deleted one had."""

    revived_by: ClassVar[str]

    def __init__(self):
        super().__init__()
        self._fences = {}

    async def delete(self, session_id):
        if session_id in self._sessions:
            self._fences[session_id] = self._sessions[session_id].fence
        await super().delete(session_id)

    async def post(self, session_id, post):
        is_new = await super().post(session_id, post)
        self._revive("post()", session_id)
        return is_new

    async def fork(self, session_id, new_id, *, at=None):
        await super().fork(session_id, new_id, at=at)
        self._revive("fork()", new_id)

    def _revive(self, method, session_id):
        if method == self.revived_by and session_id in self._fences:
            self._sessions[session_id].fence = self._fences[session_id]


@pytest.mark.parametrize("method", ["post()", "fork()"])
async def test_a_lease_that_outlives_its_session_is_told_with_what_has_made_the_new_one(method, monkeypatch):
    monkeypatch.setattr(suite, "_CHECKS", listing.CHECKS)
    monkeypatch.setattr(Reviving, "revived_by", method, raising=False)
    with pytest.raises(AssertionError) as broken:
        await check_store(Reviving)
    assert str(broken.value) == (
        f"broken promise: append() with the lease of a deleted session, when {method} has made one of the same id "
        "raises Fenced, and it did not"
    )
