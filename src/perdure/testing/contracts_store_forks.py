"""The contract of stores on forks: they share what was, and go their own way. Above: `contracts.py`."""

from perdure.core.error import ConfigError, Conflict, SessionBusy, SessionExists, SessionNotFound
from perdure.core.event import Custom, Entry, SessionConfigured
from perdure.core.store import Post

from .contracts_store_trial import Chapter, Trial, begun, expect, numbered, refused, said


async def _a_fork_begins_with_what_it_shares(trial: Trial) -> None:
    store, name = trial.store, trial.name
    entries = said(1, "one", "two", "three", "four")
    lease = await store.acquire(name)
    await store.append(lease, entries, sync=False)
    await store.fork(name, name + "some", at=2)
    await store.fork(name, name + "all")
    expect(
        await store.read(name + "some"), entries[:2], "fork(at=2) begins with the first two entries, also of one driven"
    )
    expect(await store.read(name + "some", after=1), entries[1:2], "read(after=1) of a fork leaves out the first entry")
    expect(await store.read(name + "some", after=2), [], "read(after=the last) of a fork gives nothing")
    expect(await store.read(name + "all"), entries, "fork() begins with all entries")
    await store.fork(name + "some", name + "one", at=1)
    expect(await store.read(name + "one"), entries[:1], "a fork of a fork begins with what that one shares")
    for child, parent, at in (("some", "", 2), ("all", "", 4), ("one", "some", 1)):
        info = await store.info(name + child)
        found = info and (info.entries, info.parent, info.at, info.title)
        expect(
            found,
            (at, name + parent, at, "one"),
            "info() of a fork tells its entries, parent, how many it shares, title",
        )
    listed = {info.session_id.removeprefix(name) for info in await store.list(prefix=name)}
    expect(listed, {"", "some", "all", "one"}, "list() gives forks like other sessions")


async def _a_fork_goes_its_own_way(trial: Trial) -> None:
    store, name = trial.store, trial.name
    shared = await begun(store, name, "one", "two", "three")
    await store.fork(name, name + "child", at=2)
    parent, child = await store.acquire(name), await store.acquire(name + "child")
    ours, theirs = said(4, "of the parent"), said(3, "of the child", "more of it")
    await store.append(parent, ours, sync=False)
    await store.append(child, theirs, sync=True)
    both = [shared + ours, shared[:2] + theirs]
    expect([await store.read(name), await store.read(name + "child")], both, "a fork and its parent grow apart")
    await refused(Conflict, store.append(child, said(2, "instead"), sync=False), "append() over what a fork shares")
    await store.append(child, shared[:2], sync=False)
    expect(await store.read(name + "child"), both[1], "append() of entries that a fork shares already adds nothing")
    await store.fork(name + "child", name + "grandchild", at=3)
    grandchild = await store.acquire(name + "grandchild")
    last = said(4, "of the grandchild")
    await store.append(grandchild, last, sync=False)
    expect(await store.read(name + "grandchild"), shared[:2] + theirs[:1] + last, "a fork of a fork goes its own way")
    expect(await store.read(name + "grandchild", after=1), shared[1:2] + theirs[:1] + last, "read(after=1) of it")
    expect([await store.read(name), await store.read(name + "child")], both, "which changes neither of the others")
    info = await store.info(name + "child")
    expect(info and (info.entries, info.parent, info.at), (4, name, 2), "info() of a fork that has grown")


async def _a_fork_is_titled_by_what_it_holds(trial: Trial) -> None:
    store, name = trial.store, trial.name
    await begun(store, name, "the beginning")
    lease = await store.acquire(name)
    await store.append(lease, numbered(2, [SessionConfigured({"title": "Harbour"})]), sync=True)
    for at, title in ((1, "the beginning"), (2, "Harbour")):
        await store.fork(name, f"{name}{at}", at=at)
        info = await store.info(f"{name}{at}")
        expect(info and info.title, title, "the title of a fork is that of the entries which it shares")
    fork = await store.acquire(f"{name}2")
    await store.append(fork, numbered(3, [SessionConfigured({"title": "Lantern"})]), sync=True)
    titles = [info and info.title for info in (await store.info(name), await store.info(f"{name}2"))]
    expect(titles, ["Harbour", "Lantern"], "a fork that is renamed does not rename its parent")


async def _forks_that_make_no_sense_are_refused(trial: Trial) -> None:
    store, name = trial.store, trial.name
    entries = await begun(store, name, "one", "two")
    there = await begun(store, name + "there", "another")
    new = name + "new"
    await refused(SessionNotFound, store.fork(name + "missing", new), "fork() of a session that is not there")
    await refused(SessionNotFound, store.fork(name + "missing", new, at=1), "fork(at=1) of a session that is not there")
    for at in (3, 0, -1, 2**63):
        await refused(ConfigError, store.fork(name, new, at=at), f"fork(at={at}) of a session of two entries")
    for taken in (name + "there", name):
        await refused(SessionExists, store.fork(name, taken, at=1), f"fork() to {taken!r}, which holds something")
    for bad in ("", "\0", "\ud800"):
        await refused(ConfigError, store.fork(name, bad), f"fork() to {bad!r}")
        await refused(ConfigError, store.fork(bad, new), f"fork() of {bad!r}")
    expect(await store.read(new), [], "a fork that is refused makes nothing")
    expect(await store.info(new), None, "a fork that is refused is not listed")
    expect([await store.read(name), await store.read(name + "there")], [entries, there], "nor changes anything")
    await store.release(await store.acquire(new))
    await store.fork(name, new)
    expect(await store.read(new), entries, "fork() to a session that holds nothing and that nobody drives")


async def _a_fork_outlives_its_parent(trial: Trial) -> None:
    store, name = trial.store, trial.name
    shared = await begun(store, name, "one", "two", "three")
    await store.fork(name, name + "child", at=2)
    child = await store.acquire(name + "child")
    await store.append(child, said(3, "of the child"), sync=True)
    kept = await store.read(name + "child")
    await store.fork(name + "child", name + "grandchild")
    parent = await store.acquire(name)
    await refused(SessionBusy, store.delete(name), "delete() of a parent that is being driven")
    await store.release(parent)
    await store.delete(name)
    expect(await store.read(name), [], "a deleted session is gone, though it has forks")
    expect(await store.info(name), None, "a deleted session is not listed, though it has forks")
    for orphan in ("child", "grandchild"):
        expect(await store.read(name + orphan), kept, "what forks share with a deleted session stays, for them")
    info = await store.info(name + "child")
    expect(info and (info.parent, info.entries), ("", 3), "a fork whose parent was deleted has none")
    await refused(SessionNotFound, store.fork(name, name + "late"), "fork() of a deleted session that has forks")
    anew = await begun(store, name, "anew")
    expect(
        [await store.read(name), await store.read(name + "child")], [anew, kept], "a session made anew shares nothing"
    )
    info = await store.info(name + "child")
    expect(info and info.parent, "", "a session made anew is not the parent of the forks of the deleted one")
    await store.append(child, said(4, "more"), sync=True)
    expect(len(await store.read(name + "child")), 4, "a fork whose parent was deleted can go on")
    await store.release(child)
    await store.delete(name + "child")
    expect([await store.read(name), await store.read(name + "grandchild")], [anew, kept], "so does a fork of that one")
    await store.delete(name + "grandchild")
    expect([info.session_id for info in await store.list(prefix=name)], [name], "when all are deleted, all are gone")
    expect(shared[:2], kept[:2], "the same entries all the way")


async def _posts_stay_with_the_original(trial: Trial) -> None:
    store, name = trial.store, trial.name
    early, waiting, taken = Post("early", "steer"), Post("waiting", "steer"), Post("taken", "steer")
    await store.post(name + "child", early)
    for post in (waiting, taken):
        await store.post(name, post)
    lease = await store.acquire(name)
    await store.append(lease, [Entry(1, 1.0, Custom("taken"), "taken")], sync=True)
    await store.fork(name, name + "child")
    expect(await store.posts(name + "child"), [early], "posts stay with the original, and those for the fork with that")
    expect(await store.posts(name), [waiting], "fork() leaves the posts of the original as they are")
    new = await store.post(name + "child", taken)
    expect(new, expected=False, promise="a post has been taken where an entry of its id is shared")
    expect(await store.post(name + "child", waiting), expected=True, promise="a post that waits elsewhere is new here")


CHAPTERS: tuple[Chapter, ...] = (
    _a_fork_begins_with_what_it_shares,
    _a_fork_goes_its_own_way,
    _a_fork_is_titled_by_what_it_holds,
    _forks_that_make_no_sense_are_refused,
    _a_fork_outlives_its_parent,
    _posts_stay_with_the_original,
)
