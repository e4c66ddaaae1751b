"""All stores against one model: whatever is done, in whatever order, by two writers and by processes that are killed.

PERDURE_SEARCH=long    searches for much longer, elsewhere each time
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from perdure._core.values.clock import new_id
from perdure.stores import FileStore, Lease, MemoryStore, PostgresStore, SqliteStore
from tests.stores.machine import Kind, Machine, Place
from tests.stores.victim import Killer

LONG = os.environ.get("PERDURE_SEARCH") == "long"

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def killer():
    killer = Killer()
    yield killer
    killer.close()


def search(kind: Kind, killer: Killer | None, *, examples: int, long: int, is_random: bool = True) -> None:
    """Try so many series of steps.

    The long search looks for the shortest series that fails, which may take minutes.
    """
    how = settings(
        max_examples=long if LONG else examples,
        stateful_step_count=60,
        derandomize=not is_random,
        print_blob=True,
        database=None,
        deadline=None,
        phases=set(Phase) if LONG else {Phase.generate},
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: Machine(kind, killer), settings=how)  # type: ignore[arg-type]


def test_the_store_in_memory_does_what_the_model_does():
    def place(_):
        store = MemoryStore()
        return Place(lambda: store)

    search(Kind(place, is_lax=True), None, examples=25, long=20_000)


def test_the_store_of_files_does_what_the_model_does(killer):
    def place(folder):
        return Place(lambda: FileStore(folder / "sessions"), f"file:{folder / 'sessions'}")

    search(Kind(place, takes_over=False, keeps_fences=False, redacts_anywhere=False), killer, examples=8, long=2_000)


def test_the_store_in_an_sqlite_file_does_what_the_model_does(killer):
    def place(folder):
        return Place(lambda: SqliteStore(folder / "sessions.db"), f"sqlite:{folder / 'sessions.db'}")

    search(Kind(place, is_lax=True), killer, examples=8, long=2_000)


@pytest.mark.needs("postgres")
def test_the_store_in_a_postgres_database_does_what_the_model_does(postgres, killer):
    address = postgres.address()

    def place(_):
        tenant = new_id()
        return Place(lambda: PostgresStore(address, tenant=tenant), address, tenant)

    search(Kind(place), killer, examples=5, long=1_000)


# -- the search itself -------------------------------------------------------------------------------------------------


class Forgetful(MemoryStore):
    """Loses every fourth entry."""

    def append_now(self, lease, entries, *, sync):
        return super().append_now(lease, [each for each in entries if each.seq % 4], sync=sync)


class Talkative(MemoryStore):
    """Leaves to forks what was redacted."""

    async def redact(self, lease, entry):
        others = [
            (session, list(session.entries)) for name, session in self._sessions.items() if name != lease.session_id
        ]
        await super().redact(lease, entry)
        for session, entries in others:
            session.entries = entries


class Repetitive(MemoryStore):
    """Takes a post again when it was taken before."""

    async def post(self, session_id, post):
        session = self._sessions.get(session_id)
        if session is not None and post.id not in {each.id for each in session.drop_taken_posts()}:
            session.posts.pop(post.id, None)
            session.posts[post.id] = post
            return True
        return await super().post(session_id, post)


class Unfenced(MemoryStore):
    """Believes any lease of a session."""

    def _session_of_lease(self, lease):
        session = self._sessions.get(lease.session_id)
        return super()._session_of_lease(lease if session is None else Lease(lease.session_id, session.fence))


class Faithful(MemoryStore):
    """Names a parent that is no more."""

    async def delete(self, session_id):
        forks = [session for session in self._sessions.values() if session.parent == session_id]
        await super().delete(session_id)
        for fork in forks:
            fork.parent = session_id


@pytest.mark.parametrize("kind", [Forgetful, Talkative, Repetitive, Unfenced, Faithful])
def test_the_search_finds_what_is_wrong(kind):
    def place(_):
        store = kind()
        return Place(lambda: store)

    with pytest.raises(AssertionError):  # always the same series: it is shown that it can be found
        search(Kind(place, is_lax=True), None, examples=400, long=1_000, is_random=False)
