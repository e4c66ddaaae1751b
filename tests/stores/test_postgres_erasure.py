"""What is redacted or deleted in a PostgreSQL store is gone: from every table, and from the rows that are dead."""

import pytest

from perdure import StoreError, user
from perdure._stores.postgres import operations as postgres_database
from perdure.events import Custom, Entry, MessageAdded, SessionConfigured
from perdure.stores import Conflict, Post
from tests.stores.material import entries

pytestmark = pytest.mark.needs("postgres")

SECRET = "kestrel0123456789"


def said(seq: int, text: str) -> Entry:
    return Entry(seq, 1.0, MessageAdded(user(text)), f"e-{seq}")


@pytest.fixture
def database(postgres):
    return postgres.new_database()


def rows_with_it(postgres, database) -> list[str]:
    """The tables of which a row, as the server would show it, holds the secret."""
    found = []
    for table in ("session", "entry", "said", "post"):
        body = "|| convert_from(body, 'UTF8')" if table in {"entry", "post"} else ""
        question = f"SELECT 1 FROM perdure.{table} AS t WHERE t::text {body} LIKE '%{SECRET}%'"
        found += [table] * bool(postgres.ask(question, database=database))
    return found


def files_with_it(postgres, database) -> list[str]:
    """The tables and indexes whose file holds the secret."""
    postgres.ask("CHECKPOINT")
    ours = "FROM pg_class WHERE relnamespace = 'perdure'::regnamespace AND relkind IN ('r', 'i')"
    names = postgres.ask(f"SELECT relname {ours} ORDER BY oid", database=database)
    paths = postgres.ask(f"SELECT pg_relation_filepath(oid) {ours} ORDER BY oid", database=database)
    files = zip(names, paths, strict=True)
    return [name for name, path in files if SECRET.encode() in (postgres.folder / "data" / path).read_bytes()]


async def test_a_redacted_entry_leaves_no_row_with_its_text(postgres, database, store_of):
    store = store_of(postgres.address(database))
    await store.post("s", Post("e-1", "follow_up", SECRET))
    lease = await store.acquire("s")
    await store.append(lease, [said(1, SECRET), said(2, "two"), said(3, "three")], sync=False)
    await store.fork("s", "f")
    assert rows_with_it(postgres, database) == ["entry", "said", "post"]
    await store.redact(lease, said(1, "it was taken out"))
    assert rows_with_it(postgres, database) == []
    assert [info.title for info in await store.list()] == ["it was taken out"] * 2
    assert await store.search(SECRET) == []
    assert [hit.seq for hit in await store.search("taken out")] == [1]
    assert await store.posts("s") == []


async def test_a_redacted_entry_leaves_the_tables_on_the_disk_and_with_a_vacuum_the_index(postgres, database, store_of):
    store = store_of(postgres.address(database))
    lease = await store.acquire("s")
    await store.append(lease, [said(1, "one"), said(2, SECRET), *[said(seq, "more") for seq in range(3, 9)]], sync=True)
    assert files_with_it(postgres, database) == ["entry", "said", "said_words"]
    await store.redact(lease, said(2, "clean"))
    assert files_with_it(postgres, database) == ["said_words"]
    await store.vacuum()
    assert files_with_it(postgres, database) == []


async def test_an_entry_can_be_replaced_by_one_that_says_nothing(store_of):
    store = store_of()
    lease = await store.acquire("s")
    events = [MessageAdded(user("one")), SessionConfigured({"title": "Harbour"}), MessageAdded(user("two"))]
    await store.append(lease, [Entry(seq, 1.0, event, f"e-{seq}") for seq, event in enumerate(events, 1)], sync=True)
    await store.redact(lease, Entry(2, 1.0, Custom("redacted"), "e-2"))
    await store.redact(lease, Entry(1, 1.0, Custom("redacted"), "e-1"))
    assert (await store.info("s")).title == "two"
    assert await store.search("one", session_id="s") == []


async def test_a_deleted_session_leaves_no_row_with_its_text(postgres, database, store_of):
    store = store_of(postgres.address(database))
    lease = await store.acquire(f"s-{SECRET}")
    await store.append(lease, [said(1, "shared"), said(2, SECRET)], sync=True)
    await store.post(f"s-{SECRET}", Post("p", "steer", SECRET))
    await store.release(lease)
    await store.fork(f"s-{SECRET}", "f", at=1)
    await store.delete(f"s-{SECRET}")
    assert rows_with_it(postgres, database) == []
    assert [hit.session_id for hit in await store.search("shared")] == ["f"]


async def test_what_was_redacted_does_not_come_back_when_the_server_crashes(postgres, tenant, store_of):
    """A driver keeps what was stored since the last barrier, to store it again."""
    store = store_of()
    lease = await store.acquire("s")
    await store.append(lease, [said(1, SECRET)], sync=False)
    await store.append(lease, [said(2, "two")], sync=False)
    postgres.ask("DELETE FROM perdure.entry USING perdure.session WHERE session = key AND tenant = %s", tenant)
    postgres.ask("DELETE FROM perdure.said USING perdure.session WHERE session = key AND tenant = %s", tenant)
    postgres.ask("UPDATE perdure.session SET head = 0 WHERE tenant = %s", tenant)
    await store.redact(lease, said(1, "clean"))
    assert store._database.leases.get_valid(lease).unsynced == []
    assert [entry.event.message.text for entry in await store.read("s")] == ["clean", "two"]


async def test_a_redaction_can_be_repeated(store_of):
    store = store_of()
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 2), sync=True)
    for _ in range(2):
        await store.redact(lease, said(2, "clean"))
    assert (await store.read("s"))[1] == said(2, "clean")


async def test_the_name_of_another_entry_is_refused(store_of):
    store = store_of()
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 2), sync=True)
    with pytest.raises(Conflict):
        await store.redact(lease, Entry(2, 1.0, Custom("data"), "e-1"))
    assert await store.read("s") == entries(1, 2)


async def test_a_sweep_that_fails_is_told_and_undoes_nothing(store_of, monkeypatch, caplog):
    async def refuse(connection) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(postgres_database, "vacuum_dead_rows", refuse)
    store = store_of()
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    await store.redact(lease, said(1, "clean"))
    assert await store.read("s") == [said(1, "clean")]
    assert "erased in session 's' is still on the disk as a dead row: no room" in caplog.text


async def test_a_user_who_may_not_vacuum_can_redact_and_delete(postgres, database, store_of):
    store = store_of(postgres.address(database))
    await store.list()
    postgres.ask(
        """
        CREATE ROLE writer LOGIN;
        GRANT USAGE ON SCHEMA perdure TO writer;
        GRANT ALL ON ALL TABLES IN SCHEMA perdure TO writer;
        GRANT ALL ON ALL SEQUENCES IN SCHEMA perdure TO writer""",
        database=database,
    )
    try:
        guest = store_of(postgres.address(database).replace("perdure@", "writer@"))
        lease = await guest.acquire("s")
        await guest.append(lease, [said(1, SECRET)], sync=True)
        await guest.redact(lease, said(1, "clean"))
        await guest.release(lease)
        assert await guest.read("s") == [said(1, "clean")]
        await guest.delete("s")
        await guest.aclose()
    finally:
        postgres.ask("DROP OWNED BY writer; DROP ROLE writer", database=database)
