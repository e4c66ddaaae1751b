"""Posts in a PostgreSQL store: kept once, taken once, swept away."""

import asyncio

import pytest

from perdure.events import Custom, Entry
from perdure.stores import Post

pytestmark = pytest.mark.needs("postgres")


def waiting(postgres, tenant) -> list[str]:
    return postgres.ask("SELECT id FROM perdure.post WHERE tenant = %s ORDER BY id", tenant)


def taking(seq: int, *ids: str) -> list[Entry]:
    return [Entry(seq + place, 1.0, Custom("taken"), post_id) for place, post_id in enumerate(ids)]


async def test_what_was_taken_is_swept_away_when_the_session_is_given_back(postgres, tenant, store_of):
    store = store_of()
    for post_id in ("a", "b", "c"):
        await store.post("s", Post(post_id, "steer"))
        await store.post("other", Post(post_id, "steer"))
    lease = await store.acquire("s")
    await store.append(lease, taking(1, "a", "c"), sync=False)
    assert [post.id for post in await store.posts("s")] == ["b"]
    assert waiting(postgres, tenant) == ["a", "a", "b", "b", "c", "c"]
    await store.release(lease)
    assert waiting(postgres, tenant) == ["a", "b", "b", "c"]
    assert [post.id for post in await store.posts("s")] == ["b"]
    assert not await store.post("s", Post("a", "steer"))


async def test_tenants_have_posts_of_their_own(store_of):
    ours, theirs = store_of(tenant="ours"), store_of(tenant="theirs")
    assert await ours.post("s", Post("p", "steer", "ours"))
    assert await theirs.post("s", Post("p", "steer", "theirs"))
    await theirs.append(await theirs.acquire("s"), taking(1, "p"), sync=True)
    assert [post.body for post in await ours.posts("s")] == ["ours"]
    assert await theirs.posts("s") == []
    await theirs.aclose()
    await theirs.delete("s")
    assert [post.body for post in await ours.posts("s")] == ["ours"]
    await ours.delete("s")


async def test_of_many_that_post_the_same_at_once_one_has_posted_it(store_of):
    stores = [store_of(), store_of()]
    for number in range(10):
        tries = [store.post("s", Post(f"p{number}", "steer", place)) for place, store in enumerate(stores * 3)]
        assert sorted(await asyncio.gather(*tries)) == [False] * 5 + [True]
    assert len(await stores[0].posts("s")) == 10


async def test_a_post_waits_for_the_disk(postgres, store_of):
    database = postgres.new_database()
    store = store_of(postgres.address(database))
    await store.list()
    postgres.ask(
        """
        CREATE TABLE seen(mode text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO seen VALUES(current_setting('synchronous_commit')); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON perdure.post
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
        ALTER DATABASE """
        + database
        + " SET synchronous_commit = off",
        database=database,
    )
    await store.post("s", Post("p", "steer"))
    assert postgres.ask("SELECT mode FROM seen", database=database) == ["on"]
