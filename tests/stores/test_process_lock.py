"""The lock by which other processes see that a driver of an SQLite store is alive."""

import asyncio
import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import SessionBusy, StoreError
from perdure._stores import lease_holder
from perdure._stores.sqlite.write import process_leases
from perdure._stores.sqlite.write.process_leases import (
    INFIX,
    ProcessLeases,
    ProcessLock,
    find_lock_state,
    parse_locking_holder,
)
from perdure.events import Entry, RunStarted
from perdure.stores import Lease, LeaseHolderProcess, SqliteStore, describe_this_process
from tests.architecture.source import ROOT
from tests.stores.material import another_connection, child

pytestmark = pytest.mark.timeout(60)


def lock_files(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.glob(f"{path.name}{INFIX}*"))


@contextmanager
def driver(path: Path, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    """A process that drives the session `s0`, perhaps below another program."""
    command = [*prefix, sys.executable, "-m", "tests.stores.children", "race", str(path), "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.stdin.write("go\n")
            process.stdin.flush()
            assert [process.stdout.readline() for _ in range(2)] == ["s0\n", "done\n"]
            yield process
        finally:
            process.kill()


async def begin_run(store: SqliteStore) -> None:
    lease = await store.acquire("s0")
    await store.append(lease, [Entry(1, 1.0, RunStarted("agent", run_id="r"), "e-1")], sync=False)
    await store.release(lease)


async def check_busy_until_killed(store: SqliteStore, process: subprocess.Popen[str]) -> None:
    """Check that nobody gets the session while its driver lives, and everybody once it was killed."""
    with pytest.raises(SessionBusy, match="is being driven by process"):
        await store.acquire("s0")
    assert await store.list_interrupted() == []
    process.kill()
    process.communicate(timeout=30)  # until all who have its output are gone, in a container too
    assert [each.session_id for each in await store.list_interrupted()] == ["s0"]
    await store.release(await store.acquire("s0"))


# -- where the id of a process says nothing ----------------------------------------------------------------------------


@pytest.mark.needs("bubblewrap")
async def test_a_driver_in_another_container_keeps_its_session(path: Path, store: SqliteStore) -> None:
    await begin_run(store)
    bubblewrap = str(shutil.which("bwrap"))
    container = ("--unshare-pid", "--unshare-uts", "--hostname", "elsewhere", "--proc", "/proc", "--die-with-parent")
    with driver(path, bubblewrap, "--bind", "/", "/", "--dev-bind", "/dev", "/dev", *container) as process:
        await check_busy_until_killed(store, process)


def rename_host(patch: pytest.MonkeyPatch) -> None:
    """As on macOS, where the name of the host is all that is known of a machine."""
    patch.setattr(lease_holder, "_machine_id", lambda: "renamed")


def hide_processes(patch: pytest.MonkeyPatch) -> None:
    """As without `/proc`, in a sandbox where `ps` cannot start."""
    patch.setattr(lease_holder, "get_process_start_time", lambda _: "")


@pytest.mark.parametrize("change", [rename_host, hide_processes])
async def test_a_driver_keeps_its_session_where_its_id_says_nothing(
    path: Path, store: SqliteStore, change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin_run(store)
    with driver(path) as process, monkeypatch.context() as patch:
        change(patch)
        await check_busy_until_killed(store, process)


async def test_two_processes_that_look_the_same_are_told_apart_by_their_locks(path: Path, store: SqliteStore) -> None:
    """As two containers can: both are process 1 of a host of the same name."""
    await begin_run(store)
    with driver(path) as process:
        with another_connection(path) as connection:
            holder = parse_locking_holder(connection.execute("SELECT holder FROM session").get)
            assert holder is not None
            me = describe_this_process(0.0)
            twin = msgspec.structs.replace(holder, pid=me.pid, machine=me.machine, started=me.started)
            assert twin.is_this_process
            connection.execute("UPDATE session SET holder = ?", (msgspec.json.encode(twin).decode(),))
        await check_busy_until_killed(store, process)


def test_on_windows_a_second_process_does_not_take_the_session_of_a_living_one(path: Path) -> None:
    @contextmanager
    def windows() -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "tests.stores.windows_child", str(path)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe) as process:
            try:
                yield process
            finally:
                process.kill()

    def said(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()

    with windows() as first:
        assert said(first) == "driving\n"
        with windows() as second:
            assert f"session 's' is being driven by process {first.pid}" in said(second)
            assert second.wait() == 0
        first.kill()
        first.wait()
    with windows() as third:
        assert said(third) == "driving\n"
        assert len(lock_files(path)) == 1
        assert third.stdin is not None
        third.stdin.close()
        assert third.wait() == 0
    assert lock_files(path) == []


# -- holders without a lock, and locks that cannot be seen -------------------------------------------------------------


async def test_a_holder_without_a_lock_is_known_by_its_process(path: Path, store: SqliteStore) -> None:
    await begin_run(store)
    waiting = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE) as process:  # noqa: ASYNC220 - no other task is there
        started = lease_holder.get_process_start_time(process.pid)
        me = describe_this_process(0.0)
        old = LeaseHolderProcess(process.pid, me.host, me.machine, started, 0.0)
        with another_connection(path) as connection:
            connection.execute("UPDATE session SET holder = ?", (msgspec.json.encode(old).decode(),))
        with pytest.raises(SessionBusy):
            await store.acquire("s0")
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        await store.release(await store.acquire("s0"))


def delete_locks(path: Path, patch: pytest.MonkeyPatch) -> None:
    del patch
    for name in lock_files(path):
        (path.parent / name).unlink()


def forbid_locks(path: Path, patch: pytest.MonkeyPatch) -> None:
    """As after `chmod 0`, for whoever is not root."""
    real = os.open

    def open_others(name: Any, *arguments: Any, **options: Any) -> int:
        if str(name).startswith(f"{path}{INFIX}"):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return real(name, *arguments, **options)

    patch.setattr("perdure._stores.sqlite.write.process_leases.os.open", open_others)


@pytest.mark.parametrize("change", [delete_locks, forbid_locks])
async def test_a_driver_whose_lock_cannot_be_seen_is_known_by_its_process(
    path: Path, store: SqliteStore, change: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin_run(store)
    with driver(path) as process, monkeypatch.context() as patch:
        change(path, patch)
        await check_busy_until_killed(store, process)


async def test_a_lock_file_that_was_deleted_is_created_again_with_the_next_lease(
    path: Path, store: SqliteStore
) -> None:
    await store.acquire("s")
    (before,) = lock_files(path)
    (path.parent / before).unlink()
    await store.acquire("t")
    assert lock_files(path) == [before]
    assert find_lock_state(str(path), before.rpartition("-")[2]) is True


@pytest.mark.parametrize("name", ["", "../sessions.db", "a/b", "a-b", "é"])
def test_a_name_that_no_lock_has_leads_to_no_file(path: Path, name: str) -> None:
    path.touch()
    assert find_lock_state(str(path), name) is None


# -- forks, many stores, full tables, stale files ----------------------------------------------------------------------


async def test_a_session_is_free_when_its_driver_is_gone_though_a_child_that_it_has_forked_lives_on(
    path: Path, store: SqliteStore
) -> None:
    with child("leave_child", path) as process:
        assert process.stdout.readline() == "forked\n"
        with pytest.raises(SessionBusy):
            await store.acquire("s")
        process.kill()
        process.wait()
        async with asyncio.timeout(20):  # the child lets the lock go as soon as it runs
            while not (lease := await try_to_acquire(store)):  # noqa: ASYNC110 - nothing tells of a kernel lock
                await asyncio.sleep(0)
        await store.release(lease)


async def try_to_acquire(store: SqliteStore) -> Lease | None:
    try:
        return await store.acquire("s")
    except SessionBusy:
        return None


async def test_stores_of_one_process_share_one_lock_for_each_file(store_at: Any, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    stores = [store_at(tmp_path / name) for name in ("a.db", "link.db", "a.db", "b.db")]
    for number, each in enumerate(stores):
        await each.acquire(f"s{number}")
    assert [len(lock_files(tmp_path / name)) for name in ("a.db", "b.db", "link.db")] == [1, 1, 0]
    for each in stores[:2]:
        await each.aclose()
    assert len(lock_files(tmp_path / "a.db")) == 1
    await stores[2].aclose()
    assert lock_files(tmp_path / "a.db") == []
    await stores[2].acquire("again")
    assert len(lock_files(tmp_path / "a.db")) == 1


async def test_locks_of_dead_processes_are_removed_and_those_of_living_ones_stay(path: Path, store_at: Any) -> None:
    with driver(path) as living, driver(path.with_name("other.db")) as other:
        (kept,) = lock_files(path)
        others = lock_files(path.with_name("other.db"))
        dead = path.with_name(f"{path.name}{INFIX}0123")
        dead.touch()
        path.with_name(f"{path.name}{INFIX}a").mkdir()  # something else with such a name
        store = store_at(path)
        await store.acquire("mine")
        assert not dead.exists()
        assert set(lock_files(path)) > {kept}
        assert lock_files(path.with_name("other.db")) == others
        living.kill()
        other.kill()


def test_a_lock_can_be_looked_at_by_all_who_can_open_the_file(path: Path) -> None:
    path.touch(0o600)
    path.chmod(0o640)
    lock = ProcessLock(str(path))
    assert lock.get_name()
    (name,) = lock_files(path)
    assert stat.S_IMODE((path.parent / name).stat().st_mode) == 0o640
    lock.close()
    lock.close()
    assert lock_files(path) == []


async def test_without_room_for_another_open_file_a_holder_is_known_by_its_process(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.read("s")
    with monkeypatch.context() as patch:
        forbid_locks(path, patch)
        lease = await store.acquire("s")
        await store.release(lease)
    assert lock_files(path) == []
    await store.acquire("s")
    assert len(lock_files(path)) == 1


def test_where_neither_a_lock_nor_the_start_of_a_process_can_be_had_no_lease_is_given(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch()
    forbid_locks(path, monkeypatch)
    monkeypatch.setattr(lease_holder, "_process_identity", lambda _: ("somewhere", ""))
    with pytest.raises(StoreError, match="no lock could be had beside the store"):
        ProcessLeases(str(path)).build_holder_json(0.0)


def test_a_process_that_is_looked_at_while_it_creates_its_lock_creates_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch()
    real, looked = process_leases._try_lock, list[str]()

    def remove_first(descriptor: int) -> bool:
        if not looked:
            looked.extend(lock_files(path))
            process_leases._remove_stale_files(str(path))
        return real(descriptor)

    monkeypatch.setattr(process_leases, "_try_lock", remove_first)
    lock = ProcessLock(str(path))
    name = lock.get_name()
    assert lock_files(path) == [f"{path.name}{INFIX}{name}"] != looked
    lock.close()


def test_an_interrupt_in_the_middle_of_creating_a_lock_leaves_the_next_attempt_another_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch()
    real = process_leases._create_locked

    def create_and_be_interrupted(*arguments: Any) -> int:
        real(*arguments)
        raise KeyboardInterrupt

    lock = ProcessLock(str(path))
    with monkeypatch.context() as patch:
        patch.setattr(process_leases, "_create_locked", create_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.get_name()
    (left,) = lock_files(path)
    name = lock.get_name()
    assert name
    assert len(lock_files(path)) == 2
    assert left != f"{path.name}{INFIX}{name}"
    lock.close()


def test_a_system_without_locks_on_files_has_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.touch()
    monkeypatch.setattr(process_leases, "fcntl", None)
    lock = ProcessLock(str(path))
    assert (lock.get_name(), lock_files(path)) == ("", [])
    assert lock.owns("") is False
    path.with_name(f"{path.name}{INFIX}0123").touch()
    assert find_lock_state(str(path), "0123") is None
