"""Tests in `check_store`: posts (durable messages to a session) wait in order until an entry consumes them."""

import asyncio

from perdure._core.log.store import Lease, NonBlockingAppendStore, Post, Store
from perdure._core.values.error import ConfigError, Conflict, Fenced
from perdure._core.values.event import Custom, Entry

from .setup import (
    HOSTILE_TEXTS,
    UNENCODABLE,
    StoreCheck,
    StoreUnderTest,
    build_user_entries,
    expect_equal,
    expect_error,
    expect_no_error,
    store_session,
)


async def _posts_wait_in_the_order_in_which_they_came(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    expect_equal(await store.posts(name), [], "posts() of a session that is not there gives nothing")
    posts = [Post("z", "steer", "one", 30.0), Post("a", "answer", {"yes": [1, None, 2.5]}, 20.0), Post("m", "cancel")]
    for post in posts:
        expect_equal(await store.post(name, post), expected=True, promise="post() of a new post gives True")
    expect_equal(await store.posts(name), posts, "posts() gives what was posted, in the order in which it came")
    (await store.posts(name)).clear()
    expect_equal(len(await store.posts(name)), 3, "what posts() gave belongs to the caller, who may change it")
    expect_equal(await store.info(name), None, "a session that has posts and no entries holds nothing")
    expect_equal(await store.read(name), [], "a post is no entry")
    lease = await store.acquire(name)
    await store.append(lease, build_user_entries(1, "one"), sync=False)
    await store.release(lease)
    expect_equal(
        await store.posts(name), posts, "posts wait for their session to begin, and while others are driving it"
    )


async def _a_post_is_kept_once(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    first = Post("p", "steer", "first", 1.0)
    expect_equal(await store.post(name, first), expected=True, promise="post() of a new post gives True")
    again = Post("p", "follow_up", "second", 2.0)
    expect_equal(await store.post(name, again), expected=False, promise="post() of an id that is waiting gives False")
    expect_equal(await store.posts(name), [first], "post() of an id that is waiting changes nothing")
    other = await store.post(name + "other", again)
    expect_equal(other, expected=True, promise="the same id in another session is another post")
    answers = await asyncio.gather(*[store.post(name, Post("at once", "steer", number)) for number in range(10)])
    expect_equal(sorted(answers), [False] * 9 + [True], "of posts of one id that come at once, one is kept")
    await asyncio.gather(*[store.post(name, Post(f"each {number}", "steer")) for number in range(10)])
    expect_equal(len(await store.posts(name)), 12, "posts that come at once are all kept")


async def _an_entry_of_its_id_takes_a_post(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    posts = [Post(f"p{number}", "steer", number) for number in range(5)]
    for post in posts:
        await store.post(name, post)
    lease = await store.acquire(name)
    taking = [Entry(1, 1.0, Custom("of its own"), "e-1"), Entry(2, 1.0, Custom("taken"), "p1")]
    await store.append(lease, taking, sync=True)
    await store.append(lease, [Entry(3, 1.0, Custom("taken"), "p3")], sync=False)
    await store.append(lease, taking, sync=True)
    waiting = [posts[0], posts[2], posts[4]]
    expect_equal(await store.posts(name), waiting, "an append takes the posts of the ids of its entries, and no others")
    for post in (posts[1], posts[3]):
        expect_equal(await store.post(name, post), expected=False, promise="post() of an id that was taken gives False")
    own = await store.post(name, Post("e-1", "steer"))
    expect_equal(own, expected=False, promise="post() of the id of any entry gives False")
    expect_equal(await store.posts(name), waiting, "post() of an id that was taken changes nothing")
    if isinstance(store, NonBlockingAppendStore):
        await _append_at_once(store, lease, Entry(4, 1.0, Custom("taken"), "p4"))
        expect_equal(await store.posts(name), waiting[:2], "append_now() takes the posts of the ids of its entries")


async def _append_at_once(store: Store, lease: Lease, entry: Entry) -> None:
    if not (isinstance(store, NonBlockingAppendStore) and store.append_now(lease, [entry], sync=False)):
        await store.append(lease, [entry], sync=False)


async def _an_append_that_is_refused_takes_no_post(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    post = Post("p", "steer")
    await store.post(name, post)
    old = await store.acquire(name)
    gap = [Entry(2, 1.0, Custom("taken"), "p")]
    await expect_error(Conflict, store.append(old, gap, sync=True), "append() with a gap")
    expect_equal(await store.posts(name), [post], "an append that raises Conflict takes no post")
    await store.release(old)
    new = await store.acquire(name)
    fitting = [Entry(1, 1.0, Custom("taken"), "p")]
    await expect_error(Fenced, store.append(old, fitting, sync=True), "append() with a lease that was replaced")
    expect_equal(await store.posts(name), [post], "an append that raises Fenced takes no post")
    await store.append(new, fitting, sync=True)
    expect_equal(await store.posts(name), [], "the driver can take it after all")


async def _posts_go_with_their_session(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    posts = [Post("waiting", "steer"), Post("taken", "steer")]
    for post in posts:
        await store.post(name, post)
        await store.post(name + "empty", post)
    lease = await store.acquire(name)
    await store.append(lease, [Entry(1, 1.0, Custom("taken"), "taken")], sync=True)
    await store.release(lease)
    for session_id in (name, name + "empty"):
        await store.delete(session_id)
        expect_equal(await store.posts(session_id), [], "a deleted session has no posts")
        for post in posts:
            new = await store.post(session_id, post)
            expect_equal(new, expected=True, promise="a session that is made anew knows no post of the deleted one")


async def _no_content_makes_posting_fail(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    large = "0123456789abcdef" * (1024 * 1024 // 16)
    bodies: list[object] = [*HOSTILE_TEXTS, large, list(HOSTILE_TEXTS), {text: text for text in HOSTILE_TEXTS}]
    bodies += [None, True, 2**53, -1.5, [], {}]
    exact = [Post(f"{number} '; DROP TABLE post; -- é\U0001f600", "inbox", body) for number, body in enumerate(bodies)]
    for post in exact:
        await expect_no_error(store.post(name, post), f"post() of {ascii(post)[:200]}")
    for expected, found in zip(exact, await store.posts(name), strict=True):
        expect_equal(found, expected, "a post comes back as it was")
    for number, body in enumerate((float("nan"), 10**400, *UNENCODABLE, object(), {1: {2}})):
        await expect_no_error(
            store.post(name, Post(f"hostile {number}", "inbox", body)), f"post() of {ascii(body)[:200]}"
        )
    expect_equal(len(await store.posts(name)), len(exact) + 7, "posts with data that JSON cannot hold are kept")


async def _posts_that_make_no_sense_are_refused(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    await store_session(store, name, "one")
    for session_id in ("", "\0", name + "\ud800"):
        await expect_error(ConfigError, store.post(session_id, Post("p", "steer")), f"post({session_id!r}, …)")
        await expect_error(ConfigError, store.posts(session_id), f"posts({session_id!r})")
    for post_id in ("", "\0", "\ud800"):
        await expect_error(ConfigError, store.post(name, Post(post_id, "steer")), f"post() of the id {post_id!r}")
    expect_equal(await store.posts(name), [], "a post that is refused is not kept")


CHECKS: tuple[StoreCheck, ...] = (
    _posts_wait_in_the_order_in_which_they_came,
    _a_post_is_kept_once,
    _an_entry_of_its_id_takes_a_post,
    _an_append_that_is_refused_takes_no_post,
    _posts_go_with_their_session,
    _no_content_makes_posting_fail,
    _posts_that_make_no_sense_are_refused,
)
