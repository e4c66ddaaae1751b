"""Tests in `check_store`: a fork begins with the entries of its parent, and both continue independently."""

from perdure._core.log.store import Post
from perdure._core.values.error import ConfigError, Conflict, SessionBusy, SessionExists, SessionNotFound
from perdure._core.values.event import Custom, Entry, SessionConfigured

from .setup import (
    StoreCheck,
    StoreUnderTest,
    build_entries,
    build_user_entries,
    expect_equal,
    expect_error,
    store_session,
)


async def _a_fork_begins_with_what_it_shares(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    entries = build_user_entries(1, "one", "two", "three", "four")
    lease = await store.acquire(name)
    await store.append(lease, entries, sync=False)
    await store.fork(name, name + "some", at=2)
    await store.fork(name, name + "all")
    expect_equal(
        await store.read(name + "some"), entries[:2], "fork(at=2) begins with the first two entries, also of one driven"
    )
    expect_equal(
        await store.read(name + "some", after=1), entries[1:2], "read(after=1) of a fork leaves out the first entry"
    )
    expect_equal(await store.read(name + "some", after=2), [], "read(after=the last) of a fork gives nothing")
    expect_equal(await store.read(name + "all"), entries, "fork() begins with all entries")
    await store.fork(name + "some", name + "one", at=1)
    expect_equal(await store.read(name + "one"), entries[:1], "a fork of a fork begins with what that one shares")
    for child, parent, at in (("some", "", 2), ("all", "", 4), ("one", "some", 1)):
        info = await store.info(name + child)
        found = info and (info.entries, info.parent, info.at, info.title)
        expect_equal(
            found,
            (at, name + parent, at, "one"),
            "info() of a fork tells its entries, parent, how many it shares, title",
        )
    listed = {info.session_id.removeprefix(name) for info in await store.list(prefix=name)}
    expect_equal(listed, {"", "some", "all", "one"}, "list() gives forks like other sessions")


async def _a_fork_goes_its_own_way(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    shared = await store_session(store, name, "one", "two", "three")
    await store.fork(name, name + "child", at=2)
    parent, child = await store.acquire(name), await store.acquire(name + "child")
    ours, theirs = build_user_entries(4, "of the parent"), build_user_entries(3, "of the child", "more of it")
    await store.append(parent, ours, sync=False)
    await store.append(child, theirs, sync=True)
    both = [shared + ours, shared[:2] + theirs]
    expect_equal([await store.read(name), await store.read(name + "child")], both, "a fork and its parent grow apart")
    await expect_error(
        Conflict, store.append(child, build_user_entries(2, "instead"), sync=False), "append() over what a fork shares"
    )
    await store.append(child, shared[:2], sync=False)
    expect_equal(
        await store.read(name + "child"), both[1], "append() of entries that a fork shares already adds nothing"
    )
    await store.fork(name + "child", name + "grandchild", at=3)
    grandchild = await store.acquire(name + "grandchild")
    last = build_user_entries(4, "of the grandchild")
    await store.append(grandchild, last, sync=False)
    expect_equal(
        await store.read(name + "grandchild"), shared[:2] + theirs[:1] + last, "a fork of a fork goes its own way"
    )
    expect_equal(await store.read(name + "grandchild", after=1), shared[1:2] + theirs[:1] + last, "read(after=1) of it")
    expect_equal(
        [await store.read(name), await store.read(name + "child")], both, "which changes neither of the others"
    )
    info = await store.info(name + "child")
    expect_equal(info and (info.entries, info.parent, info.at), (4, name, 2), "info() of a fork that has grown")


async def _a_fork_is_titled_by_what_it_holds(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    await store_session(store, name, "the beginning")
    lease = await store.acquire(name)
    await store.append(lease, build_entries(2, [SessionConfigured({"title": "Harbour"})]), sync=True)
    for at, title in ((1, "the beginning"), (2, "Harbour")):
        await store.fork(name, f"{name}{at}", at=at)
        info = await store.info(f"{name}{at}")
        expect_equal(info and info.title, title, "the title of a fork is that of the entries which it shares")
    fork = await store.acquire(f"{name}2")
    await store.append(fork, build_entries(3, [SessionConfigured({"title": "Lantern"})]), sync=True)
    titles = [info and info.title for info in (await store.info(name), await store.info(f"{name}2"))]
    expect_equal(titles, ["Harbour", "Lantern"], "a fork that is renamed does not rename its parent")


async def _forks_that_make_no_sense_are_refused(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    entries = await store_session(store, name, "one", "two")
    there = await store_session(store, name + "there", "another")
    new = name + "new"
    await expect_error(SessionNotFound, store.fork(name + "missing", new), "fork() of a session that is not there")
    await expect_error(
        SessionNotFound, store.fork(name + "missing", new, at=1), "fork(at=1) of a session that is not there"
    )
    for at in (3, 0, -1, 2**63):
        await expect_error(ConfigError, store.fork(name, new, at=at), f"fork(at={at}) of a session of two entries")
    for taken in (name + "there", name):
        await expect_error(SessionExists, store.fork(name, taken, at=1), f"fork() to {taken!r}, which holds something")
    for bad in ("", "\0", "\ud800"):
        await expect_error(ConfigError, store.fork(name, bad), f"fork() to {bad!r}")
        await expect_error(ConfigError, store.fork(bad, new), f"fork() of {bad!r}")
    expect_equal(await store.read(new), [], "a fork that is refused makes nothing")
    expect_equal(await store.info(new), None, "a fork that is refused is not listed")
    expect_equal([await store.read(name), await store.read(name + "there")], [entries, there], "nor changes anything")
    await store.release(await store.acquire(new))
    await store.fork(name, new)
    expect_equal(await store.read(new), entries, "fork() to a session that is empty and has no driver")


async def _a_fork_outlives_its_parent(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    shared = await store_session(store, name, "one", "two", "three")
    await store.fork(name, name + "child", at=2)
    child = await store.acquire(name + "child")
    await store.append(child, build_user_entries(3, "of the child"), sync=True)
    kept = await store.read(name + "child")
    await store.fork(name + "child", name + "grandchild")
    parent = await store.acquire(name)
    await expect_error(SessionBusy, store.delete(name), "delete() of a parent that is being driven")
    await store.release(parent)
    await store.delete(name)
    expect_equal(await store.read(name), [], "a deleted session is gone, though it has forks")
    expect_equal(await store.info(name), None, "a deleted session is not listed, though it has forks")
    for orphan in ("child", "grandchild"):
        expect_equal(await store.read(name + orphan), kept, "what forks share with a deleted session stays, for them")
    info = await store.info(name + "child")
    expect_equal(info and (info.parent, info.entries), ("", 3), "a fork whose parent was deleted has none")
    await expect_error(SessionNotFound, store.fork(name, name + "late"), "fork() of a deleted session that has forks")
    anew = await store_session(store, name, "anew")
    expect_equal(
        [await store.read(name), await store.read(name + "child")], [anew, kept], "a session made anew shares nothing"
    )
    info = await store.info(name + "child")
    expect_equal(info and info.parent, "", "a session made anew is not the parent of the forks of the deleted one")
    await store.append(child, build_user_entries(4, "more"), sync=True)
    expect_equal(len(await store.read(name + "child")), 4, "a fork whose parent was deleted can go on")
    await store.release(child)
    await store.delete(name + "child")
    expect_equal(
        [await store.read(name), await store.read(name + "grandchild")], [anew, kept], "so does a fork of that one"
    )
    await store.delete(name + "grandchild")
    expect_equal(
        [info.session_id for info in await store.list(prefix=name)], [name], "when all are deleted, all are gone"
    )
    expect_equal(shared[:2], kept[:2], "the same entries all the way")


async def _posts_stay_with_the_original(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    early, waiting, taken = Post("early", "steer"), Post("waiting", "steer"), Post("taken", "steer")
    await store.post(name + "child", early)
    for post in (waiting, taken):
        await store.post(name, post)
    lease = await store.acquire(name)
    await store.append(lease, [Entry(1, 1.0, Custom("taken"), "taken")], sync=True)
    await store.fork(name, name + "child")
    expect_equal(
        await store.posts(name + "child"), [early], "posts stay with the original, and those for the fork with that"
    )
    expect_equal(await store.posts(name), [waiting], "fork() leaves the posts of the original as they are")
    new = await store.post(name + "child", taken)
    expect_equal(new, expected=False, promise="a post has been taken where an entry of its id is shared")
    expect_equal(
        await store.post(name + "child", waiting), expected=True, promise="a post that waits elsewhere is new here"
    )


CHECKS: tuple[StoreCheck, ...] = (
    _a_fork_begins_with_what_it_shares,
    _a_fork_goes_its_own_way,
    _a_fork_is_titled_by_what_it_holds,
    _forks_that_make_no_sense_are_refused,
    _a_fork_outlives_its_parent,
    _posts_stay_with_the_original,
)
