"""The tables of a PostgreSQL store, and databases that cannot have them."""

import asyncio

import pytest

from perdure import ConfigError, StoreError
from perdure._stores.postgres import schema as postgres_schema
from perdure._stores.postgres.schema import TABLES
from perdure.stores import PostgresStore
from tests.stores.material import entries
from tests.stores.postgres_server import free_port

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture
def database(postgres):
    return postgres.new_database()


async def test_the_tables_lie_beside_whatever_else_is_there(postgres, database, store_of):
    postgres.ask("CREATE TABLE session(mine text); CREATE TABLE entry(mine text)", database=database)
    store = store_of(postgres.address(database))
    await store.append(await store.acquire("s"), entries(1), sync=True)
    question = "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname IN ('public', 'perdure')"
    ours = {f"perdure.{name}" for name in ("session", "entry", "meta", "post", "said")}
    assert set(postgres.ask(question, database=database)) == {"public.session", "public.entry", *ours}


async def test_many_may_make_the_tables_at_once(postgres, database, store_of):
    stores = [store_of(postgres.address(database)) for _ in range(6)]
    await asyncio.gather(*[store.acquire(f"s{number}") for number, store in enumerate(stores)])
    assert postgres.ask("SELECT value FROM perdure.meta", database=database) == [postgres_schema.FORMAT]


async def test_tables_that_cannot_be_made_leave_nothing(postgres, database, store_of, monkeypatch):
    monkeypatch.setattr(postgres_schema, "TABLES", f"{TABLES}; SELECT 1 / 0")
    with pytest.raises(StoreError, match="DivisionByZero"):
        await store_of(postgres.address(database)).list()
    assert postgres.ask("SELECT nspname FROM pg_namespace WHERE nspname = 'perdure'", database=database) == []


async def test_tables_from_before_the_first_release_are_refused_and_left_as_they_are(postgres, database, store_of):
    address = postgres.address(database)
    store = store_of(address)
    await store.append(await store.acquire("s"), entries(1), sync=True)
    await store.aclose()
    postgres.ask("UPDATE perdure.meta SET name = 'format', value = 1 WHERE name = 'version'", database=database)
    for _ in range(2):
        with pytest.raises(StoreError, match="is of a version of perdure before the first release, and has been left"):
            await store_of(address).read("s")
    assert postgres.ask("SELECT name FROM perdure.meta", database=database) == ["format"]
    assert postgres.ask("SELECT count(*) FROM perdure.entry", database=database) == [1]


async def test_who_runs_an_older_version_beside_a_newer_one_is_told_so(postgres, database, store_of):
    store = store_of(postgres.address(database))
    await store.list()
    postgres.ask("ALTER TABLE perdure.session RENAME COLUMN head TO tip", database=database)
    with pytest.raises(StoreError, match="a newer version has brought its tables up to date: upgrade perdure"):
        await store.list()


async def test_tables_of_a_newer_format_are_refused(postgres, database, store_of):
    store = store_of(postgres.address(database))
    await store.acquire("s")
    await store.aclose()
    postgres.ask("UPDATE perdure.meta SET value = 99 WHERE name = 'version'", database=database)
    newest = postgres_schema.FORMAT
    for _ in range(2):
        with pytest.raises(StoreError, match=f"has format 99, and this version knows {newest} at most: upgrade"):
            await store.list()


async def test_tables_that_are_not_ours_are_left_as_they_are(postgres, database, store_of):
    postgres.ask("CREATE SCHEMA perdure; CREATE TABLE perdure.session(mine text)", database=database)
    for _ in range(2):
        with pytest.raises(StoreError, match="holds tables that are not ours"):
            await store_of(postgres.address(database)).list()
    assert postgres.ask("SELECT tablename FROM pg_tables WHERE schemaname = 'perdure'", database=database) == [
        "session"
    ]


async def test_tables_that_are_gone_are_an_error_that_says_so(postgres, database, store_of):
    store = store_of(postgres.address(database))
    await store.list()
    postgres.ask("DROP SCHEMA perdure CASCADE", database=database)
    with pytest.raises(StoreError, match="its tables are gone"):
        await store.list()
    await store.aclose()
    assert await store.list() == []


async def test_a_database_that_cannot_hold_all_text_is_refused(postgres, store_of):
    database = postgres.new_database("ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(StoreError, match="keeps text as LATIN1, not as UTF-8"):
        await store_of(postgres.address(database)).list()


async def test_other_defaults_of_the_database_do_no_harm(postgres, database, store_of):
    for setting in ("default_transaction_isolation = serializable", "synchronous_commit = off", "search_path = ''"):
        postgres.ask(f"ALTER DATABASE {database} SET {setting}")
    stores = [store_of(postgres.address(database)) for _ in range(4)]
    for number, store in enumerate(stores):
        lease = await store.acquire(f"s{number}")
        await store.append(lease, entries(1), sync=True)
        await store.release(lease)
        await store.fork(f"s{number}", f"f{number}")
    await asyncio.gather(*[store.delete(f"s{number}") for number, store in enumerate(stores)])
    assert len(await stores[0].list()) == 4


async def test_a_user_without_rights_is_told_so(postgres, database):
    postgres.ask("CREATE ROLE guest LOGIN")
    address = postgres.address(database)
    try:
        guest = PostgresStore(address.replace("perdure@", "guest@"))
        with pytest.raises(StoreError, match="this user may not do that"):
            await guest.list()
        await guest.aclose()
    finally:
        postgres.ask("DROP ROLE guest")


async def test_where_nobody_listens_the_call_waits_and_then_says_so(postgres, store_of):
    store = store_of(postgres.address(port=free_port()), patience_seconds=0.2)
    with pytest.raises(StoreError, match=r"could not be used for 0\.2 s .*[Cc]onnection refused.* then try again"):
        await store.list()


async def test_a_server_that_does_not_let_us_in_is_not_waited_for(postgres, store_of):
    store = store_of(postgres.address("no_such_database"), patience_seconds=60)
    with pytest.raises(StoreError, match=r"does not let us in \(.*no_such_database.*\): check user, password"):
        await store.list()


def test_a_store_that_was_never_used_needs_no_server():
    async def close():
        await PostgresStore("postgresql://nowhere.invalid/x").aclose()

    asyncio.run(close())
    with pytest.raises(ConfigError):
        asyncio.run(PostgresStore("postgresql://nowhere.invalid/x").read(""))
