"""Interrupted sessions in a store of files: found at the ends of their files, whatever stands there."""

import os
from pathlib import Path
from typing import Any

import pytest

from perdure._stores.file.catalogue import FileRunCache
from perdure._stores.file.disk import open_file
from perdure._stores.file.scan import Header, encode_header
from perdure.events import Custom, Entry, Event, RunEnded, RunStarted, RunWaiting
from perdure.stores import FileStore, InterruptedSession, Post

STARTED, ENDED = RunStarted("agent", run_id="r"), RunEnded("done", run_id="r")


def cut_off(session_id: str, entries: int, at: float, posts: int = 0) -> InterruptedSession:
    return InterruptedSession(session_id, "cut_off", entries, at, posts)


async def keep(store: FileStore, session_id: str, *events: Event, at: float = 1.0, first: int = 1) -> None:
    """Append events, all at once, to a session that nobody drives. The last is as old as is said, the others older."""
    lease = await store.acquire(session_id)
    last = first + len(events) - 1
    log = [Entry(seq, at + seq - last, event, f"e-{seq}") for seq, event in enumerate(events, first)]
    await store.append(lease, log, sync=False)
    await store.release(lease)


@pytest.mark.parametrize("size", [0, 1_000, 16_000, 17_000, 130_000, 140_000, 1_100_000])
async def test_a_run_is_found_however_much_was_stored_since_it_began(files: FileStore, size: int) -> None:
    await keep(files, "s", Custom("x"), STARTED, *[Custom("large", "x" * (size // 4))] * 4, at=9.0)
    await keep(files, "over", STARTED, ENDED, *[Custom("large", "x" * (size // 4))] * 4)
    await keep(files, "none", *[Custom("large", "x" * (size // 4))] * 4)
    assert await files.list_interrupted() == [cut_off("s", 6, 9.0)]


async def test_the_longest_idle_come_first_and_of_equals_the_first_by_name(files: FileStore) -> None:
    for name, at in (("c", 2.0), ("b", 1.0), ("a", 2.0), ("other", 0.5)):
        await keep(files, name, STARTED, at=at)
    await keep(files, "w", STARTED, RunWaiting(("q",), 5.0, run_id="r"), at=1.5)
    assert await files.list_interrupted(now=5.0) == [
        cut_off("other", 1, 0.5),
        cut_off("b", 1, 1.0),
        InterruptedSession("w", "waiting", 2, 1.5, 0, 5.0),
        cut_off("a", 1, 2.0),
        cut_off("c", 1, 2.0),
    ]
    assert await files.list_interrupted(prefix="o", now=5.0) == [cut_off("other", 1, 0.5)]
    assert await files.list_interrupted(prefix="w", now=4.9) == []


async def test_a_session_that_was_posted_to_is_as_old_as_its_first_post_until_it_has_entries(files: FileStore) -> None:
    for name, at in (("p", 7.0), ("q", 8.0)):
        await files.post("new", Post(name, "steer", None, at))
        await files.post("there", Post(name, "steer", None, at))
    await keep(files, "there", Custom("x"), at=3.0)
    await files.release(await files.acquire("empty"))
    assert await files.list_interrupted() == []
    assert await files.list_interrupted(include_posts=True) == [
        InterruptedSession("there", "over", 1, 3.0, 2),
        InterruptedSession("new", "over", 0, 7.0, 2),
    ]
    lease = await files.acquire("new")
    assert [each.session_id for each in await files.list_interrupted(include_posts=True)] == ["there"]
    await files.release(lease)
    assert [each.session_id for each in await files.list_interrupted(include_posts=True, prefix="n")] == ["new"]


async def test_an_id_that_is_too_long_for_a_name_is_read_from_the_file(folder: Any, files: FileStore) -> None:
    log, mailbox = "log" * 100, "mailbox" * 100
    await keep(files, log, STARTED, at=2.0)
    await files.post(mailbox, Post("p", "steer", None, 1.0))
    there = [InterruptedSession(mailbox, "over", 0, 1.0, 1), cut_off(log, 1, 2.0)]
    assert await files.list_interrupted(include_posts=True) == there
    assert await files.list_interrupted(include_posts=True, prefix="mail") == there[:1]
    (posted,) = folder.glob("*.posts")
    for content in (b"", b"no header\n", posted.read_bytes()[5:]):
        posted.write_bytes(content)
        assert await files.list_interrupted(include_posts=True) == there[1:]
    (kept,) = folder.glob("*.session")
    for content in (b"", b"no header\n"):
        kept.write_bytes(content)
        assert await files.list_interrupted(include_posts=True) == []


async def test_an_append_that_was_cut_off_does_not_end_a_run(folder: Any, files: FileStore) -> None:
    await keep(files, "s", STARTED, Custom("x"), at=4.0)
    await keep(files, "s", ENDED, Custom("x"), Custom("x"), first=3, at=9.0)
    assert await files.list_interrupted() == []
    path = folder / "s.session"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for left in (4, 5):  # of a header and five entries
        path.write_bytes(b"".join(lines[:left]))
        assert await files.list_interrupted() == [cut_off("s", 2, 4.0)]
    path.write_bytes(b"".join(lines[:2]))  # nothing of the first append counts either
    assert await files.list_interrupted() == []
    path.write_bytes(whole[:-9] + b"\0" + whole[-8:])
    assert await files.list_interrupted() == [cut_off("s", 2, 4.0)]
    path.write_bytes(whole)
    assert await files.list_interrupted() == []


async def test_what_is_no_session_is_left_out_and_costs_the_others_nothing(folder: Any, files: FileStore) -> None:
    await keep(files, "s", STARTED)
    await keep(files, "newer", STARTED)
    path = folder / "newer.session"
    _, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(encode_header(Header("session-file", 99, "newer", "", "", 0.0)) + rest)
    (folder / "linked.session").symlink_to(folder / "s.session")
    (folder / "folder.session").mkdir()
    (folder / "garbage.session").write_bytes(os.urandom(100))
    (folder / "notes.txt").write_text("mine")
    assert await files.list_interrupted(include_posts=True) == [cut_off("s", 1, 1.0)]


def candidates(cache: FileRunCache, *, include_posts: bool = False) -> list[tuple[str, bool]]:
    """The sessions that may be interrupted, and whether there are posts for each."""
    found = cache.find_candidates("", include_posts=include_posts)
    return sorted((each.session_id, is_posted) for each, is_posted in found)


async def test_only_a_file_that_has_changed_is_read_again(
    folder: Any, files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def note_and_open(path: str, flags: int) -> int:
        read.append(Path(path).name)
        return open_file(path, flags)

    monkeypatch.setattr("perdure._stores.file.catalogue.open_file", note_and_open)
    cache = FileRunCache(str(folder))
    assert cache.find_candidates("", include_posts=True) == []
    await keep(files, "a", STARTED)
    await keep(files, "b", STARTED, ENDED)
    (folder / "c.session").write_bytes(b"garbage")
    for again in (["a.session", "b.session", "c.session"], []):
        assert candidates(cache, include_posts=True) == [("a", False)]
        assert sorted(read) == again
        read.clear()
    await files.post("b", Post("p", "steer"))
    assert candidates(cache, include_posts=True) == [("a", False), ("b", True)]
    assert candidates(cache) == [("a", False)]
    assert read == []
    await keep(files, "b", STARTED, first=3)
    assert candidates(cache) == [("a", False), ("b", True)]
    assert read == ["b.session"]
    (folder / "a.session").unlink()
    assert candidates(cache) == [("b", True)]
    assert sorted(cache._known) == ["b", "c"]
