"""The tables of a PostgreSQL store, and databases that cannot have them."""

import asyncio

import pytest

from perdure.core.error import ConfigError, StoreError
from perdure.core.event import Custom, Entry, MessageAdded, RunEnded, RunStarted, RunWaiting, ToolFinished
from perdure.core.log_codec import encode_event
from perdure.core.message import Text, ToolResult, assistant, user
from perdure.stores.postgres import schema_setup as postgres_schema
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.postgres.table_migrations import MIGRATIONS
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


async def test_older_tables_are_brought_up_to_date_and_keep_what_they_hold(postgres, database, store_of, monkeypatch):
    address = postgres.address(database)
    old = store_of(address)
    await old.append(await old.acquire("s"), entries(1), sync=True)
    migrations = (*MIGRATIONS, "ALTER TABLE perdure.session ADD COLUMN colour text")
    for name, value in (("MIGRATIONS", migrations), ("FORMAT", len(migrations))):
        monkeypatch.setattr(postgres_schema, name, value)
    stores = [store_of(address) for _ in range(3)]
    for found in await asyncio.gather(*[store.read("s") for store in stores]):
        assert found == entries(1)
    assert postgres.ask("SELECT colour FROM perdure.session", database=database) == [None]


def old_tables(postgres, database) -> None:
    """The tables of the first format, with a session of two tenants in them."""
    postgres.ask("CREATE SCHEMA perdure", database=database)
    postgres.ask(MIGRATIONS[0], database=database)
    postgres.ask("INSERT INTO perdure.meta VALUES('', 'format', 1)", database=database)
    events = [
        RunStarted(run_id="r"),
        MessageAdded(user("Hello harbour")),
        MessageAdded(assistant("a lantern")),
        Custom("x"),
    ]
    result = ToolResult("c", "t", (Text("a kestrel"),))
    events += [ToolFinished("c", "t", result), MessageAdded(user("more"))]
    for tenant in ("one", "two"):
        insert = """
        INSERT INTO perdure.session(tenant, id, head, fence, created_at, updated_at, title)
        VALUES(%s, 's', %s, 7, 1, 1, 'Hello harbour') RETURNING key"""
        (key,) = postgres.ask(insert, tenant, len(events) + 1, database=database)
        rows = [(str(event.__struct_config__.tag), encode_event(event)) for event in events]
        for seq, (kind, body) in enumerate([*rows, ("message_added", b"damaged")], 1):
            add = "INSERT INTO perdure.entry VALUES(%s, %s, %s, %s, false, 1, 1, %s)"
            postgres.ask(add, key, seq, f"e-{seq}", kind, body, database=database)


async def test_tables_of_the_first_format_are_brought_up_to_date(postgres, database, store_of, monkeypatch):
    monkeypatch.setattr("perdure.stores.postgres.table_migrations._BATCH", 3)
    old_tables(postgres, database)
    address = postgres.address(database)
    stores = [store_of(address, tenant=tenant, patience_seconds=20) for tenant in ("one", "two", "one")]
    for info in await asyncio.gather(*[store.info("s") for store in stores]):
        assert (info.title, info.entries, info.parent, info.at) == ("Hello harbour", 7, "", 0)
    store = stores[0]
    for query, seq in (("harbour", 2), ("lantern", 3), ("kestrel", 5)):
        assert [(hit.session_id, hit.seq) for hit in await store.search(query)] == [("s", seq)]
    assert [(each.session_id, each.progress) for each in await store.list_interrupted()] == [("s", "cut_off")]
    lease = await store.acquire("s")
    assert lease.fence == 8
    await store.append(lease, entries(8), sync=True)
    await store.redact(lease, Entry(2, 1.0, MessageAdded(user("clean")), "e-2"))
    assert (await store.info("s")).title == "clean"
    assert (await stores[1].info("s")).title == "Hello harbour"
    await store.fork("s", "f", at=5)
    assert len(await store.read("f")) == 5


async def test_interrupted_sessions_of_older_tables_are_found(postgres, database, store_of, monkeypatch):
    monkeypatch.setattr("perdure.stores.postgres.table_migrations._BATCH", 2)
    address = postgres.address(database)
    store = store_of(address)
    child = [RunStarted("b", run_id="r/1", path="b"), RunEnded("done", run_id="r/1", path="b")] * 2
    for session_id, events in {
        "cut": [RunStarted(run_id="r"), *child],
        "waiting": [RunStarted(run_id="r"), RunWaiting(("q",), 50.0, run_id="r")],
        "over": [RunStarted(run_id="r"), *child, RunEnded("done", run_id="r")],
    }.items():
        lease = await store.acquire(session_id)
        await store.append(lease, [Entry(seq, 1.0, each, f"e-{seq}") for seq, each in enumerate(events, 1)], sync=True)
        await store.release(lease)
    await store.fork("cut", "fork")
    await store.aclose()
    postgres.ask("ALTER TABLE perdure.session DROP COLUMN progress, DROP COLUMN due_at", database=database)
    postgres.ask("UPDATE perdure.meta SET value = 4 WHERE name = 'format'", database=database)
    found = await store_of(address).list_interrupted(now=50.0)
    assert [(each.session_id, each.progress, each.due_at) for each in found] == [
        ("cut", "cut_off", None),
        ("waiting", "waiting", 50.0),
    ]


def take_the_old_name(postgres, database) -> None:
    """Make of the tables what they were while the project was called Windlass."""
    postgres.ask("ALTER SCHEMA perdure RENAME TO windlass", database=database)
    functions = "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'windlass'::regnamespace"
    for function in postgres.ask(functions, database=database):
        postgres.ask(function.replace("perdure.", "windlass."), database=database)


def schemas(postgres, database) -> set[str]:
    names = "SELECT nspname FROM pg_namespace WHERE nspname IN ('windlass', 'perdure')"
    return set(postgres.ask(names, database=database))


async def test_a_schema_of_the_old_name_is_renamed_with_all_that_is_in_it(postgres, database, store_of):
    address = postgres.address(database)
    store = store_of(address)
    lease = await store.acquire("s")
    said = [Entry(seq, 1.0, MessageAdded(user(f"a lantern {seq}")), f"e-{seq}") for seq in (1, 2, 3)]
    await store.append(lease, said, sync=True)
    await store.aclose()
    take_the_old_name(postgres, database)
    assert schemas(postgres, database) == {"windlass"}

    stores = [store_of(address) for _ in range(4)]
    for found in await asyncio.gather(*[store.read("s") for store in stores]):
        assert found == said
    assert schemas(postgres, database) == {"perdure"}
    assert postgres.ask("SELECT value FROM perdure.meta WHERE name = 'format'", database=database) == [
        postgres_schema.FORMAT
    ]
    bodies = "SELECT prosrc FROM pg_proc WHERE pronamespace = 'perdure'::regnamespace"
    found = postgres.ask(bodies, database=database)
    assert len(found) == 4
    assert not any("windlass" in body for body in found)

    store = stores[0]
    lease = await store.acquire("s")
    assert lease.fence == 2
    await store.append(lease, [Entry(4, 1.0, MessageAdded(user("a kestrel")), "e-4")], sync=True)
    await store.redact(lease, Entry(2, 1.0, MessageAdded(user("clean")), "e-2"))
    assert {hit.seq for hit in await store.search("lantern")} == {1, 3}
    assert [hit.seq for hit in await store.search("kestrel")] == [4]
    await store.fork("s", "f", at=3)
    await store.release(lease)
    await store.delete("s")
    assert [entry.seq for entry in await store.read("f")] == [1, 2, 3]
    await store.vacuum()
    assert (await store.size()).sessions.keys() == {"f"}


async def test_tables_of_an_older_format_under_the_old_name_are_brought_up_to_date(postgres, database, store_of):
    old_tables(postgres, database)
    take_the_old_name(postgres, database)
    store = store_of(postgres.address(database), tenant="one")
    assert [hit.seq for hit in await store.search("lantern")] == [3]
    assert schemas(postgres, database) == {"perdure"}
    await store.delete("s")
    assert await store.list() == []


async def test_a_schema_of_the_old_name_beside_the_new_one_is_left_as_it_is(postgres, database, store_of):
    address = postgres.address(database)
    old = store_of(address)
    await old.append(await old.acquire("s"), entries(1), sync=True)
    await old.aclose()
    take_the_old_name(postgres, database)
    postgres.ask("CREATE SCHEMA perdure", database=database)
    with pytest.raises(StoreError, match="there is a schema 'perdure' without our tables: rename or drop that one"):
        await store_of(address).list()
    postgres.ask("DROP SCHEMA perdure", database=database)
    store = store_of(address)
    assert await store.read("s") == entries(1)
    postgres.ask("CREATE SCHEMA windlass; CREATE TABLE windlass.meta(mine text)", database=database)
    assert await store_of(address).read("s") == entries(1)
    assert schemas(postgres, database) == {"windlass", "perdure"}


async def test_an_upgrade_that_fails_leaves_the_old_name(postgres, database, store_of, monkeypatch):
    old_tables(postgres, database)
    take_the_old_name(postgres, database)
    migrations = (*MIGRATIONS, "SELECT 1 / 0")
    for name, value in (("MIGRATIONS", migrations), ("FORMAT", len(migrations))):
        monkeypatch.setattr(postgres_schema, name, value)
    with pytest.raises(StoreError, match="DivisionByZero"):
        await store_of(postgres.address(database)).list()
    assert schemas(postgres, database) == {"windlass"}


async def test_an_upgrade_that_fails_changes_nothing(postgres, database, store_of, monkeypatch):
    old_tables(postgres, database)
    migrations = (*MIGRATIONS, "SELECT 1 / 0")
    for name, value in (("MIGRATIONS", migrations), ("FORMAT", len(migrations))):
        monkeypatch.setattr(postgres_schema, name, value)
    with pytest.raises(StoreError, match="DivisionByZero"):
        await store_of(postgres.address(database)).list()
    assert postgres.ask("SELECT value FROM perdure.meta WHERE name = 'format'", database=database) == [1]
    columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'perdure' AND column_name = %s"
    assert postgres.ask(columns, "parent", database=database) == []
    assert postgres.ask(columns, "lease_until", database=database) == ["lease_until"]


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
    postgres.ask("UPDATE perdure.meta SET value = 99 WHERE name = 'format'", database=database)
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


def test_the_format_is_the_number_of_migrations():
    assert len(MIGRATIONS) == postgres_schema.FORMAT


def test_a_store_that_was_never_used_needs_no_server():
    async def close():
        await PostgresStore("postgresql://nowhere.invalid/x").aclose()

    asyncio.run(close())
    with pytest.raises(ConfigError):
        asyncio.run(PostgresStore("postgresql://nowhere.invalid/x").read(""))
