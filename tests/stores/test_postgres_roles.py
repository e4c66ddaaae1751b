"""Other roles of the same database: what they plant there is not run with the rights of the store."""

import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import StoreError, user
from perdure._stores.postgres import schema
from perdure.events import Entry, MessageAdded
from perdure.stores import Post

pytestmark = pytest.mark.needs("postgres")

SOURCES = Path(schema.__file__).parent
TYPES = [
    "text", "varchar", "bytea", "oid", "smallint", "integer", "bigint", "numeric", "double precision", "boolean",
    "json", "regconfig", "tsvector", "tsquery", "text[]", "timestamptz", "name",
]  # fmt: skip
PLANT = """
CREATE TABLE public.taken(by text);
GRANT ALL ON public.taken TO PUBLIC;
CREATE SCHEMA {schema};
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.taken VALUES(current_user); RETURN NEW; END $$"""


@pytest.fixture
def database(postgres):
    return postgres.new_database()


@pytest.fixture
def role(postgres, database) -> Iterator[str]:
    """A role that may make things in the database, as everybody can in `public` up to PostgreSQL 14."""
    name = f"mallory_{database}"
    postgres.ask(f"CREATE ROLE {name} LOGIN")
    postgres.ask(f"GRANT CREATE ON DATABASE {database} TO {name}")
    postgres.ask(f"GRANT ALL ON SCHEMA public TO {name}", database=database)
    try:
        yield name
    finally:
        with contextlib.suppress(Exception):
            postgres.ask(f"DROP OWNED BY {name} CASCADE", database=database)
        postgres.ask(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def as_role(postgres, database, role) -> str:
    return postgres.address(database).replace("perdure@", f"{role}@")


async def store_much(store) -> None:
    lease = await store.acquire("s")
    await store.append(lease, [Entry(seq, 1.0, MessageAdded(user("a word"))) for seq in range(1, 3000)], sync=True)


async def use(store) -> None:
    """Everything that a store does."""
    lease = await store.acquire("s")
    said = [Entry(seq, 1.0, MessageAdded(user(f"hello {seq}")), f"e-{seq}") for seq in (1, 2)]
    await store.append(lease, said, sync=True)
    await store.append(lease, [Entry(3, 1.0, MessageAdded(user("more")), "e-3")], sync=False)
    assert await store.read("s", after=1)
    await store.redact(lease, Entry(2, 1.0, MessageAdded(user("clean")), "e-2"))
    assert await store.holds(lease)
    for syntax in ("words", "query"):
        assert await store.search("hello", syntax=syntax, since=0, until=9)
    assert await store.size()
    assert await store.post("s", Post("p", "steer", {}, 1.0))
    assert await store.posts("s")
    assert await store.list(prefix="s")
    assert await store.info("s")
    assert await store.list_interrupted(include_posts=True, now=50) is not None
    await store.fork("s", "f")
    await store.release(lease)
    await store.delete("s")
    await store.vacuum()


def plant_overloads(postgres, database) -> int:
    """A function in `public` for each that the store calls and any one or two types, each noting that it was run."""
    import psycopg

    words = set(re.findall(r"[a-z_0-9]+", " ".join(path.read_text() for path in SOURCES.glob("*.py"))))
    known = """
    SELECT DISTINCT proname::text, pronargs, pg_get_function_result(oid) FROM pg_proc
    WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind IN ('f', 'a') AND pronargs BETWEEN 1 AND 2
        AND proname = ANY(%s)"""
    made = 0
    with psycopg.connect(postgres.address(database), autocommit=True) as connection:
        connection.execute("CREATE TABLE public.taken(by text)")
        for name, count, result in connection.execute(known, ([*words],)).fetchall():
            for types in itertools.product(TYPES, repeat=count):
                returns = re.sub("any[a-z]*", "text", result or "text")
                answer = "RETURN" if "SETOF" in returns else "RETURN NULL"
                with contextlib.suppress(psycopg.Error):  # such as two results for the same types
                    planted = f"""
                        CREATE FUNCTION public."{name}"({", ".join(types)}) RETURNS {returns} LANGUAGE plpgsql AS $$
                        BEGIN INSERT INTO public.taken VALUES('{name}({", ".join(types)})'); {answer}; END $$"""
                    connection.execute(planted.encode())
                    made += 1
    return made


async def test_functions_in_public_that_fit_better_than_those_of_the_server_are_not_run(postgres, database, store_of):
    assert plant_overloads(postgres, database) > 3000
    await use(store_of(postgres.address(database)))
    assert postgres.ask("SELECT DISTINCT by FROM public.taken", database=database) == []


async def test_tables_that_another_role_has_planted_are_not_used(postgres, database, store_of, role):
    trigger = "CREATE TRIGGER t BEFORE INSERT ON perdure.session FOR EACH ROW EXECUTE FUNCTION public.note()"
    filled = "INSERT INTO perdure.meta VALUES('', 'version', 1); GRANT ALL ON SCHEMA perdure TO PUBLIC"
    postgres.ask(
        f"SET ROLE {role}; {PLANT.format(schema='perdure')}; {schema.TABLES}; {filled}; {trigger}; "
        "GRANT ALL ON ALL TABLES IN SCHEMA perdure TO PUBLIC",
        database=database,
    )
    store = store_of(postgres.address(database))
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"belongs to the role '{role}'.*owner='{role}'.*drop what it made"):
            await store.acquire("s")
    assert postgres.ask("SELECT by FROM public.taken", database=database) == []


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE SCHEMA perdure; GRANT ALL ON SCHEMA perdure TO PUBLIC",
        "CREATE FUNCTION perdure.vector(text, json) RETURNS tsvector LANGUAGE sql AS $$ SELECT ''::tsvector $$",
        "CREATE VIEW perdure.extra AS SELECT 1",
        "CREATE TRIGGER t BEFORE INSERT ON perdure.session FOR EACH ROW EXECUTE FUNCTION public.note()",
    ],
)
async def test_a_part_of_the_schema_that_another_role_has_made_is_not_used(postgres, database, store_of, role, planted):
    if "SCHEMA" not in planted:
        await store_of(postgres.address(database)).list()
        postgres.ask(
            f"GRANT ALL ON SCHEMA perdure TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA perdure TO {role}",
            database=database,
        )
    postgres.ask(f"SET ROLE {role}; {PLANT.format(schema='other')}; {planted}", database=database)
    with pytest.raises(StoreError, match=f"belongs to the role '{role}'"):
        await store_of(postgres.address(database)).acquire("s")


async def test_being_made_a_member_of_a_role_is_no_trust_in_it(postgres, database, store_of, role):
    postgres.ask(f"CREATE ROLE plain_{database} LOGIN; GRANT {role} TO plain_{database}")
    try:
        planted = "CREATE SCHEMA perdure; GRANT ALL ON SCHEMA perdure TO PUBLIC"
        postgres.ask(f"SET ROLE {role}; {planted}", database=database)
        with pytest.raises(StoreError, match=f"belongs to the role '{role}'"):
            await store_of(as_role(postgres, database, f"plain_{database}")).list()
    finally:
        postgres.ask(f"DROP ROLE plain_{database}")


async def test_a_role_without_the_tables_uses_those_of_the_owner_that_it_is_told(postgres, database, store_of, role):
    """The rights that the page lists are enough, and no others are needed."""
    await store_of(as_role(postgres, database, role)).list()
    worker, reader = f"worker_{database}", f"reader_{database}"
    for name, rights in ((worker, "SELECT, INSERT, UPDATE, DELETE"), (reader, "SELECT")):
        postgres.ask(
            f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA perdure TO {name}; "
            f"GRANT {rights} ON ALL TABLES IN SCHEMA perdure TO {name}",
            database=database,
        )
    try:
        working = store_of(as_role(postgres, database, worker), owner=role)
        lease = await working.acquire("s")
        await working.append(lease, [Entry(1, 1.0, MessageAdded(user("hello")), "e-1")], sync=True)
        await working.redact(lease, Entry(1, 1.0, MessageAdded(user("hello again")), "e-1"))
        await working.post("s", Post("p", "steer", {}, 1.0))
        await working.fork("s", "f")
        await working.release(lease)
        await working.delete("f")
        reading = store_of(as_role(postgres, database, reader), owner=role)
        assert len(await reading.read("s")) == 1
        assert [hit.session_id for hit in await reading.search("again")] == ["s"]
        with pytest.raises(StoreError, match=r"this user may not do that: .*session"):
            await reading.acquire("s")
        with pytest.raises(StoreError, match=f"belongs to the role '{role}'"):
            await store_of(as_role(postgres, database, worker)).list()
        await working.aclose()
        await reading.aclose()
    finally:
        postgres.ask(f"DROP OWNED BY {worker}, {reader}; DROP ROLE {worker}, {reader}", database=database)


async def test_tables_of_the_owner_of_the_database_are_used_without_being_told(postgres, database, store_of, role):
    postgres.ask(f"ALTER DATABASE {database} OWNER TO {role}")
    await store_of(as_role(postgres, database, role)).list()
    assert await store_of(postgres.address(database)).list() == []
    postgres.ask(f"ALTER DATABASE {database} OWNER TO perdure")


async def test_a_role_that_keeps_the_lock_of_the_tables_is_named(postgres, database, store_of, role, monkeypatch):
    import psycopg

    monkeypatch.setattr(schema, "LOCK_SECONDS", 0.2)
    with psycopg.connect(as_role(postgres, database, role), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (int.from_bytes(b"perdure"),))
        process = other.info.backend_pid
        with pytest.raises(StoreError, match=rf"process {process} of the server, of the role '{role}', has held .*end"):
            await store_of(postgres.address(database)).acquire("s")
    lease = await store_of(postgres.address(database)).acquire("s")
    await store_of(postgres.address(database)).list()
    assert lease.fence == 1


async def test_settings_of_a_role_do_no_harm(postgres, database, store_of, role):
    name = f"strange_{database}"
    postgres.ask(f"CREATE ROLE {name} LOGIN; GRANT CREATE ON DATABASE {database} TO {name}")
    for setting in (
        "search_path = public", "row_security = off", "DateStyle = 'SQL, DMY'", "bytea_output = escape",
        "IntervalStyle = sql_standard", "default_transaction_isolation = serializable", "TimeZone = 'Asia/Tokyo'",
        "default_transaction_deferrable = on", "lock_timeout = '5s'", "xmloption = document",
        "extra_float_digits = -15", "default_tablespace = ''", "plpgsql.variable_conflict = error",
        "client_encoding = 'LATIN1'",
    ):  # fmt: skip
        postgres.ask(f"ALTER ROLE {name} SET {setting}")
    try:
        store = store_of(as_role(postgres, database, name))
        at = 1234567890.123456
        lease = await store.acquire("größe")
        await store.append(lease, [Entry(1, at, MessageAdded(user("größe ✓")), "e-1")], sync=True)
        assert (await store.read("größe"))[0].at == at
        await use(store)
        await store.aclose()
    finally:
        postgres.ask(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}", database=database)


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("default_transaction_read_only = on", "the role may be set to only read"),
        ("statement_timeout = '1ms'", "the role may have a statement_timeout"),
    ],
)
async def test_a_setting_of_a_role_that_forbids_the_work_is_named(postgres, database, store_of, setting, advice):
    await store_of(postgres.address(database)).list()
    name = f"narrow_{database}"
    postgres.ask(f"CREATE ROLE {name} LOGIN SUPERUSER; ALTER ROLE {name} SET {setting}")
    try:
        store = store_of(as_role(postgres, database, name), patience_seconds=0.3)
        with pytest.raises(StoreError, match=advice):
            await store_much(store)
        await store.aclose()
    finally:
        postgres.ask(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}", database=database)
