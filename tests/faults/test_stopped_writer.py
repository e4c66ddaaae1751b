"""A process that writes is stopped at random moments: how often it keeps all others from writing, and what they say."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

from perdure import StoreError
from perdure._stores.sqlite import connections, database
from perdure.events import Custom, Entry
from perdure.stores import SqliteStore
from tests.architecture.source import ROOT
from tests.seeds import chance
from tests.stores.material import another_connection

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


@pytest.fixture
def writer(tmp_path):
    """A process that writes all the time."""
    command = [sys.executable, "-m", "tests.stores.stopped_children", str(tmp_path / "sessions.db")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        yield process
        process.kill()


def stop(pid: int) -> None:
    """Stop a process, and wait until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "T":
        time.sleep(0.0005)


def is_locked(path) -> bool:
    with another_connection(path) as connection:
        connection.set_busy_timeout(0)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return True
        connection.execute("ROLLBACK")
        return False


@pytest.mark.faults
def test_a_writer_that_is_stopped_seldom_keeps_others_from_writing(writer, tmp_path, long, report):
    dice, stops = chance("stops"), 1_000 if long else 60
    locked = 0
    for _ in range(stops):
        time.sleep(dice.uniform(0.005, 0.03))
        stop(writer.pid)
        locked += is_locked(tmp_path / "sessions.db")
        os.kill(writer.pid, signal.SIGCONT)
    report.append(f"stopped writers: {stops}, {locked} of them with the file locked")
    assert locked <= stops / 5
    assert writer.poll() is None


async def test_who_waits_for_a_stopped_process_is_told_which_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 1)
    monkeypatch.setattr(connections, "BUSY_SECONDS", 1)
    store = SqliteStore(path := tmp_path / "sessions.db")
    lease = await store.acquire("s")
    program = (
        "import apsw, sys; from perdure._stores.sqlite.format.pages import find_checksum_vfs; "
        "connection = apsw.Connection(sys.argv[1], vfs=find_checksum_vfs()); connection.execute('BEGIN IMMEDIATE'); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:  # noqa: ASYNC220 - nothing else waits
        assert process.stdout is not None
        process.stdout.readline()
        stop(process.pid)
        with pytest.raises(StoreError, match=f"process {process.pid}, which is stopped, kept it locked"):
            await store.append(lease, [Entry(1, 1.0, Custom("x"), "e-1")], sync=True)
        assert await store.read("s") == []  # reading goes on
        process.kill()
    await store.append(lease, [Entry(1, 1.0, Custom("x"), "e-1")], sync=True)
    await store.aclose()
