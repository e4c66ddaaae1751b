"""What a PostgreSQL store takes, and how it is looked after."""

import pytest

from perdure import StoreError, user
from perdure.events import Entry, MessageAdded
from perdure.stores import MaintainableStore, SearchableStore, UnsupportedByStore
from tests.stores.postgres_server import limit_patience

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture
def address(postgres):
    return postgres.address(postgres.new_database())


async def filled(store, session_id: str, count: int, text: str) -> None:
    lease = await store.acquire(session_id)
    said = [Entry(seq, 1.0, MessageAdded(user(f"{text} {seq}")), f"e-{seq}") for seq in range(1, count + 1)]
    await store.append(lease, said, sync=True)
    await store.release(lease)


async def test_it_says_by_its_type_what_it_can(store_of):
    assert isinstance(store_of(), SearchableStore)
    assert isinstance(store_of(), MaintainableStore)


async def test_its_size_is_that_of_the_tables_and_of_ones_own_sessions(address, store_of):
    ours, theirs = store_of(address), store_of(address, tenant="theirs")
    empty = await ours.size()
    await filled(ours, "large", 200, "lantern " * 40)
    await filled(ours, "small", 1, "lantern")
    await filled(theirs, "other", 1, "lantern")
    await ours.fork("large", "fork")
    size = await ours.size()
    assert empty.total_bytes < size.total_bytes
    assert 0 < size.search_bytes < size.total_bytes
    assert 0 <= size.free_bytes <= size.total_bytes
    assert size.sessions.keys() == {"large", "small", "fork"}
    assert size.sessions["fork"] == 0 < size.sessions["small"] < size.sessions["large"]


async def test_a_vacuum_forgets_the_words_that_nobody_says_any_more(postgres, address, store_of):
    store = store_of(address)
    await filled(store, "s", 300, " ".join(f"word{number}" for number in range(200)))
    await filled(store, "kept", 1, "lantern")
    before = (await store.size()).search_bytes
    await store.delete("s")
    await store.vacuum()
    assert (await store.size()).search_bytes < before
    assert [hit.session_id for hit in await store.search("lantern")] == ["kept"]


async def test_a_vacuum_may_take_longer_than_a_call(address, store_of):
    store = store_of(address)
    await store.list()
    limit_patience(store, 0.3)
    database, done = store._database, []

    async def long_work(connection) -> None:
        await connection.execute("SELECT pg_sleep(0.5)")
        done.append(connection)

    await database.run(long_work, has_deadline=False)
    with pytest.raises(StoreError, match=r"could not be used for 0\.3 s"):
        await database.run(long_work)
    assert len(done) == 1


async def test_a_backup_is_left_to_the_tools_of_the_server(store_of):
    with pytest.raises(UnsupportedByStore, match="use pg_dump"):
        await store_of().backup("sessions.backup")
