"""The store of files: its contract, its leases, its appends, what it lists and deletes."""

import asyncio
import fcntl
import os
import re
import threading

import pytest

from perdure import SessionBusy, StoreError, assistant, user
from perdure._stores.file import layout as file_record
from perdure._stores.file import log_file as file_log
from perdure._stores.file.layout import get_session_paths
from perdure.events import Custom, Entry, MessageAdded, Unknown
from perdure.stores import Conflict, EntryTooNew, Fenced, FileStore, UnsupportedByStore
from perdure.testing import check_store
from tests.stores.material import child, entries

# -- the contract ------------------------------------------------------------------------------------------------------


async def test_it_keeps_the_contract(folder):
    left_out = await check_store(lambda: FileStore(folder), restored=FileStore)
    assert "a backup is whole" not in left_out
    assert "a session can be taken over" in left_out


async def test_it_keeps_the_contract_while_another_store_uses_the_folder(folder, files):
    await files.acquire("other")
    await check_store(lambda: FileStore(folder))
    with pytest.raises(SessionBusy):
        await files.acquire("other")


# -- leases ------------------------------------------------------------------------------------------------------------


async def test_two_stores_of_one_process_know_of_each_others_leases(folder, files, files_at):
    await files.acquire("s")
    other = files_at(folder)
    with pytest.raises(SessionBusy, match=f"'s' is being driven by process {os.getpid()} on .* since 20"):
        await other.acquire("s")
    with pytest.raises(SessionBusy):
        await other.delete("s")


async def test_closing_a_store_gives_its_leases_back_and_no_others(folder, files, files_at):
    other = files_at(folder)
    await files.acquire("kept")
    await other.acquire("freed")
    await other.aclose()
    await files.acquire("freed")
    with pytest.raises(SessionBusy):
        await files.acquire("kept")


async def test_the_fence_goes_on_in_another_store(folder, files_at):
    fences = []
    for _ in range(3):
        store = files_at(folder)
        fences.append((await store.acquire("s")).fence)
        await store.aclose()
    assert fences == [1, 2, 3]


async def test_a_lock_that_cannot_be_read_is_held_by_another_process(folder, files, files_at):
    await files.acquire("s")
    (folder / "s.lock").write_bytes(b"scribble")
    with pytest.raises(SessionBusy, match="driven by another process: end that run"):
        await files_at(folder).acquire("s")


@pytest.mark.parametrize("holder", [b'{"pid": 1}', b'{"fence": "many"}'])
async def test_a_lock_file_without_a_holder_is_free(folder, files, holder):
    folder.mkdir()
    (folder / "s.lock").write_bytes(file_record.encode_line(holder, 0))
    assert (await files.acquire("s")).fence == 1


async def test_a_lock_whose_writer_has_died_is_not_said_to_be_held_by_it(folder, files):
    """Another process has the lock, and has not written its name yet."""
    await files.release(await files.acquire("s"))
    lock = folder / "s.lock"
    content = re.sub(rb'"started":"\d*"', b'"started":"0"', lock.read_bytes()[14:].rstrip())
    lock.write_bytes(file_record.encode_line(content, 0))
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(SessionBusy, match="driven by another process"):
            await files.acquire("s")


async def test_somebody_who_only_looks_keeps_nobody_away(folder, files, monkeypatch):
    await files.release(await files.acquire("s"))
    with (folder / "s.lock").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(reader, fcntl.LOCK_UN))
        await files.acquire("s")


async def test_a_lock_that_stays_shared_is_given_up(folder, files, monkeypatch):
    await files.release(await files.acquire("s"))
    with (folder / "s.lock").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        monkeypatch.setattr("time.sleep", lambda _: None)
        with pytest.raises(SessionBusy):
            await files.acquire("s")


async def test_a_driver_whose_lock_file_was_removed_is_stopped_at_its_next_barrier(folder, files, files_at):
    lease = await files.acquire("s")
    (folder / "s.lock").unlink()
    other = files_at(folder)
    await other.append(await other.acquire("s"), entries(1), sync=False)
    with pytest.raises(Fenced, match=r"lock .* was deleted"):
        await files.append(lease, entries(1), sync=True)
    with pytest.raises(Fenced, match="was changed by another process"):
        files.append_now(lease, entries(1), sync=False)
    assert await other.read("s") == entries(1)


async def test_a_lease_does_not_fit_the_session_of_another_store(folder, files, files_at):
    lease = await files.acquire("s")
    await files.release(lease)
    await files.delete("s")
    other = files_at(folder)
    assert await other.acquire("s") == lease  # it begins anew, but `files` has not got it
    with pytest.raises(Fenced):
        await files.append(lease, entries(1), sync=False)


async def test_an_acquire_that_is_cancelled_holds_nothing(folder, files, files_at):
    await files.read("s")
    task = asyncio.ensure_future(files.acquire("s"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await files_at(folder).acquire("s")


async def test_a_release_that_is_cancelled_is_done_all_the_same(folder, files, files_at):
    lease = await files.acquire("s")
    task = asyncio.ensure_future(files.release(lease))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await files_at(folder).acquire("s")).fence == lease.fence + 1


async def test_a_lease_given_back_after_the_store_was_closed_does_not_open_it_again(folder, files):
    lease = await files.acquire("s")
    await files.aclose()
    await files.release(lease)
    assert files._threads is None


def test_of_several_processes_one_gets_each_session(folder):
    """They also make the folder at the same time."""
    with child("race", folder, 20) as one, child("race", folder, 20) as two, child("race", folder, 20) as three:
        children = (one, two, three)
        for process in children:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        for process in children:
            process.stdin.write("go\n")
            process.stdin.flush()
        won = []
        for process in children:
            while (line := process.stdout.readline()) != "done\n":
                assert line, process.stderr.read()
                won.append(line.strip())
        assert sorted(won) == sorted(f"s{number}" for number in range(20))
        busy = asyncio.run(refusal(folder, "s0"))
    assert re.findall(r"process (\d+) on", busy)[0] in {str(process.pid) for process in children}


async def refusal(folder, session_id: str) -> str:
    store = FileStore(folder)
    with pytest.raises(SessionBusy) as caught:
        await store.acquire(session_id)
    with pytest.raises(SessionBusy):
        await store.delete(session_id)
    await store.aclose()
    return str(caught.value)


# -- appends -----------------------------------------------------------------------------------------------------------


async def test_a_file_is_a_header_and_a_line_for_each_entry(folder, files):
    lease = await files.acquire("S/1")
    await files.append(lease, [Entry(1, 1.5, Custom("é", "\u2028\U0001f600\n"), "e-1"), *entries(2)], sync=False)
    (path,) = folder.glob("*.session")
    assert path.name == "%53%2f1.session"
    header, first, second, rest = path.read_bytes().split(b"\n")
    assert re.fullmatch(rb'\d+ [0-9a-f]{8} {"perdure":"session-file","format":1,"id":"S/1",.*}', header)
    assert b'"tenant":"","owner":"","created_at":' in header
    assert re.fullmatch(rb'\d+ [0-9a-f]{8}\+{"seq":1,.*"\\u00e9".*"\\u2028\\ud83d\\ude00\\n".*}', first)
    assert re.fullmatch(rb'\d+ [0-9a-f]{8} {"seq":2,.*}', second)
    assert rest == b""
    assert int(first.split()[0]) == len(first.partition(b"+")[2])


async def test_a_plain_append_is_immediate_and_a_barrier_is_not(files):
    lease = await files.acquire("s")
    assert files.append_now(lease, [], sync=True)
    assert files.append_now(lease, entries(1), sync=False)
    assert not files.append_now(lease, entries(2), sync=True)
    assert await files.read("s") == entries(1)


@pytest.fixture
def held_sync(monkeypatch):
    """A disk that is slow: (a barrier has come, it may go on)."""
    come, go = threading.Event(), threading.Event()

    def sync(descriptor):
        come.set()
        assert go.wait(30)

    monkeypatch.setattr(file_log, "sync_data", sync)
    yield come, go
    go.set()


async def test_while_a_barrier_is_under_way_others_wait_and_see_nothing_of_it(files, held_sync):
    come, go = held_sync
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=False)
    barrier = asyncio.ensure_future(files.append(lease, entries(2), sync=True))
    await asyncio.to_thread(come.wait, 10)
    assert not files.append_now(lease, entries(3), sync=False)
    later = asyncio.ensure_future(files.append(lease, entries(3), sync=False))
    other = await files.acquire("other")
    assert files.append_now(other, entries(1), sync=False)
    assert await files.read("s") == entries(1)
    go.set()
    await barrier
    await later
    assert await files.read("s") == entries(1, 3)


async def test_a_barrier_that_is_cancelled_and_repeated_is_done_once(files, held_sync):
    come, go = held_sync
    lease = await files.acquire("s")
    barrier = asyncio.ensure_future(files.append(lease, entries(1), sync=True))
    await asyncio.to_thread(come.wait, 10)
    barrier.cancel()
    again = asyncio.ensure_future(files.append(lease, entries(1), sync=True))
    go.set()
    await again
    await files.append(lease, entries(2), sync=False)
    assert await files.read("s") == entries(1, 2)


async def test_an_append_that_waits_when_the_lease_is_given_back_is_refused(files, held_sync):
    come, go = held_sync
    lease = await files.acquire("s")
    barrier = asyncio.ensure_future(files.append(lease, entries(1), sync=True))
    await asyncio.to_thread(come.wait, 10)
    log = files._logs["s"]
    release = asyncio.ensure_future(files.release(lease))
    go.set()
    await barrier
    await release
    with pytest.raises(Fenced):
        log.append(entries(2), sync=False)
    assert not log.append_now(entries(2))
    assert log.close() is None
    assert await files.read("s") == entries(1)


async def test_an_append_that_is_there_already_is_synced_all_the_same(files, monkeypatch):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=False)
    synced: list[int] = []
    monkeypatch.setattr(file_log, "sync_data", synced.append)
    await files.append(lease, entries(1), sync=True)
    assert len(synced) == 1
    with pytest.raises(Conflict, match="ends at entry 1, and entries from 1 on"):
        await files.append(lease, [Entry(1, 1.0, Custom("data"), "another")], sync=True)


async def test_an_entry_that_is_too_large_is_refused(files, monkeypatch):
    lease = await files.acquire("s")
    monkeypatch.setattr(file_record, "MAX_BODY_BYTES", 1000)
    with pytest.raises(StoreError, match=r"entry 1 has 10\d\d bytes.*1000 at most"):
        await files.append(lease, [Entry(1, 1.0, Custom("x" * 1000), "e-1")], sync=True)
    await files.append(lease, entries(1), sync=True)
    assert await files.read("s") == entries(1)


def test_one_store_serves_several_threads_and_event_loops(folder):
    store = FileStore(folder)
    errors = []

    async def grow(session_id):
        lease = await store.acquire(session_id)
        for seq in range(1, 31):
            if not store.append_now(lease, entries(seq), sync=seq % 10 == 0):
                await store.append(lease, entries(seq), sync=seq % 10 == 0)
        await store.release(lease)

    def run(session_id):
        try:
            asyncio.run(grow(session_id))
        except BaseException as error:  # noqa: BLE001 - told to the test below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f"s{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert [info.entries for info in asyncio.run(store.list())] == [30] * 6
    asyncio.run(store.aclose())


# -- what reading meets ------------------------------------------------------------------------------------------------


async def test_what_another_process_adds_is_read(folder, files, files_at):
    await files.append(await files.acquire("s"), entries(1, 2), sync=False)
    other = files_at(folder)
    assert await other.read("s", after=1) == entries(2)
    await files.append(files._logs["s"].lease, entries(3), sync=False)
    assert await other.read("s") == entries(1, 3)


async def test_a_session_that_others_have_extended_meanwhile_goes_on_from_its_end(folder, files, files_at):
    for number, store in enumerate((files, other := files_at(folder), files, files, other), 1):
        lease = await store.acquire("s")
        assert await store.read("s") == entries(1, number - 1)
        await store.append(lease, entries(number), sync=False)
        await store.release(lease)


async def test_kinds_of_a_newer_version_are_kept_unless_they_are_critical(folder, files):
    place = get_session_paths(str(folder), "s")
    await files.release(await files.acquire("s"))
    event = b'{"kind":"dreamt","run_id":"r","of":["sheep"]}'
    with (folder / "s.session").open("ab") as file:
        file.write(file_record.encode_line(b'{"seq":1,"at":1.0,"event":%b,"id":"e-1"}' % event, place.seed))
    (entry,) = await files.read("s")
    assert entry.event == Unknown("dreamt", {"kind": "dreamt", "run_id": "r", "of": ["sheep"]}, run_id="r")
    with (folder / "s.session").open("ab") as file:
        file.write(file_record.encode_line(b'{"seq":2,"at":1.0,"event":%b,"critical":true}' % event, place.seed))
    with pytest.raises(EntryTooNew, match="upgrade"):
        await files.read("s")


async def test_what_was_stored_like_this_and_makes_no_sense_is_named(folder, files):
    await files.release(await files.acquire("s"))
    with (folder / "s.session").open("ab") as file:
        file.write(file_record.encode_line(b'{"seq":1,"event":', get_session_paths(str(folder), "s").seed))
    with pytest.raises(StoreError, match=r"entry 1 of session 's' cannot be understood.*backup"):
        await files.read("s")


# -- what is listed ----------------------------------------------------------------------------------------------------


def said(*texts: str, at: float = 1.0) -> list[Entry]:
    return [Entry(seq, at, MessageAdded(user(text)), f"e-{seq}") for seq, text in enumerate(texts, 1)]


async def keep(store, session_id, batch) -> None:
    lease = await store.acquire(session_id)
    await store.append(lease, batch, sync=False)
    await store.release(lease)


async def test_a_list_is_right_again_after_each_change(folder, files, files_at):
    lease = await files.acquire("s")
    await files.append(lease, said("one"), sync=False)
    lister = files_at(folder)
    for number in range(2, 5):
        assert [(info.session_id, info.entries, info.title) for info in await lister.list()] == [
            ("s", number - 1, "one")
        ]
        await files.append(lease, entries(number), sync=False)
    await files.release(lease)
    await files.delete("s")
    assert await lister.list() == []


async def test_a_list_looks_behind_large_entries_for_the_last_one(files):
    large = [Entry(1, 1.0, MessageAdded(user("the title")), "e-1"), Entry(2, 2.0, Custom("x" * 3_000_000), "e-2")]
    await keep(files, "s", large)
    (info,) = await files.list()
    assert (info.entries, info.updated_at, info.title) == (2, 2.0, "the title")


async def test_a_title_is_the_beginning_of_the_first_message_near_the_beginning(files):
    await keep(
        files, "late", [Entry(1, 1.0, Custom("x" * 300_000), "e-1"), Entry(2, 1.0, MessageAdded(user("a")), "e-2")]
    )
    await keep(files, "large", said("", "\0 Fix the\n\tbuild" + "." * 400_000, "and then the tests"))
    await keep(files, "reply", [Entry(1, 1.0, MessageAdded(assistant("no")), "e-1")])
    titles = {info.session_id: info.title for info in await files.list()}
    assert titles.pop("large").startswith("Fix the build....")
    assert titles == {"late": "", "reply": ""}


async def test_a_session_with_a_damaged_header_is_listed_by_its_name(folder, files):
    await keep(files, "short", said("hello", at=7.0))
    await keep(files, "long" * 100, said("hello"))
    for path in folder.glob("*.session"):
        path.write_bytes(b"x" + path.read_bytes()[1:])
    (info,) = await files.list()  # the name of the other one is a hash
    assert (info.session_id, info.created_at, info.title) == ("short", 7.0, "hello")


async def test_a_list_leaves_out_what_is_no_session(folder, files, caplog):
    await keep(files, "s", said("hello"))
    (folder / "folder.session").mkdir()
    (folder / "link.session").symlink_to(folder / "s.session")
    (folder / "empty.session").touch()
    (folder / "notes.txt").touch()
    assert [info.session_id for info in await files.list()] == ["s"]
    assert caplog.messages == []


async def test_a_list_says_once_which_files_it_cannot_name(folder, files, caplog):
    await keep(files, "s", said("hello"))
    (folder / "%zz.session").write_bytes(b"not ours")
    (folder / ("x" * 32 + "=" + "0" * 64 + ".session")).write_bytes((folder / "s.session").read_bytes())
    for _ in range(2):
        assert [info.session_id for info in await files.list()] == ["s"]
        assert caplog.text.count("is not listed: it does not say of which session it is") == 2
    place = get_session_paths(str(folder), "odd")
    (folder / "odd.session").write_bytes(file_record.encode_line(b'{"seq":1,"at":"noon"}', place.seed))
    assert [info.session_id for info in await files.list()] == ["s"]
    assert "odd.session' is not listed" in caplog.text


@pytest.fixture
def unreadable(monkeypatch):
    """Until it is called, the disk gives no file that a list is made from."""

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("perdure._stores.file.catalogue.open_file", fail)
    return monkeypatch.undo


async def test_a_session_that_could_not_be_read_is_not_taken_for_none(files, unreadable):
    await keep(files, "s", said("hello"))
    for refused in (files.info("s"), files.fork("s", "t")):
        with pytest.raises(StoreError, match="the disk reported an error"):
            await refused
    unreadable()
    assert (await files.info("s")).entries == 1
    await files.fork("s", "t")


async def test_a_list_says_once_which_files_the_disk_does_not_give(files, unreadable, caplog):
    await keep(files, "s", said("hello"))
    assert await files.list() == await files.list() == []
    assert caplog.text.count("s.session' is not listed: [Errno 5] Input/output error") == 1
    unreadable()
    assert [info.session_id for info in await files.list()] == ["s"]


# -- what is deleted ---------------------------------------------------------------------------------------------------


async def test_a_deleted_session_leaves_no_file(folder, files):
    await keep(files, "s", said("hello"))
    await keep(files, "s2", said("hello"))
    for left in ("s.quarantine", "s.session.0123456789abcdef.tmp"):
        (folder / left).touch()
    await files.delete("s")
    assert sorted(path.name for path in folder.iterdir()) == ["s2.lock", "s2.session"]
    (folder / "s.lock").touch()
    await files.delete("s")
    assert sorted(path.name for path in folder.iterdir()) == ["s2.lock", "s2.session"]


async def test_whoever_only_looks_makes_nothing(folder, files):
    assert await files.read("s") == []
    assert await files.list() == []
    await files.delete("s")
    assert not folder.exists()


async def test_a_lock_file_that_is_deleted_while_another_process_waits_for_it_is_no_lock(folder, files, monkeypatch):
    """Between the opening of the lock file and the lock, its session is deleted."""
    await files.release(await files.acquire("s"))
    real = fcntl.flock
    first = iter([True])

    def delete_first(descriptor, operation):
        if next(first, False):
            (folder / "s.lock").unlink()
        return real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", delete_first)
    await files.acquire("s")
    assert (folder / "s.lock").exists()
    with (folder / "s.lock").open() as other, pytest.raises(BlockingIOError):
        real(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# -- who cannot be replaced --------------------------------------------------------------------------------------------


async def test_a_session_cannot_be_taken_from_a_process_that_lives(folder, files, files_at):
    lease = await files.acquire("s")
    expected = rf"'s' is being driven by process {os.getpid()} on .*'sqlite:' or 'postgresql:'"
    for store in (files, files_at(folder)):
        with pytest.raises(UnsupportedByStore, match=expected):
            await store.acquire("s", take_over=True)
    await files.append(lease, entries(1), sync=True)


async def test_a_session_that_nobody_drives_can_be_taken_over(files):
    await files.release(await files.acquire("s"))
    assert (await files.acquire("s", take_over=True)).fence == 2


async def test_a_session_whose_driver_was_killed_can_be_taken_over(folder, files):
    with child("leave_child", folder) as process:
        assert await asyncio.to_thread(process.stdout.readline) == "forked\n", process.stderr.read()
        process.kill()
        process.wait(30)
        assert (await files.acquire("s", take_over=True)).fence == 2
        process.stdin.close()
