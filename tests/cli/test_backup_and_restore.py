"""`perdure backup` and `perdure restore`: the drill."""

import contextlib
import json
import subprocess
import sys

import pytest

WRITER = """
import asyncio, sys
from perdure.stores import open_store
from perdure.events import Custom, Entry

async def main():
    store = open_store(sys.argv[1])
    lease = await store.acquire("busy")
    for seq in range(1, 1_000_000):
        entry = Entry(seq, float(seq), Custom("note", "x" * 200), f"entry-{seq}")
        await store.append(lease, [entry], sync=True)
        print(seq, flush=True)

asyncio.run(main())
"""
"""Writes an entry after the other, and tells the number of each that is stored."""


@contextlib.contextmanager
def writing(shell, store):
    """Another process, which does not stop writing; what it tells."""
    command = [sys.executable, "-c", WRITER, store]
    with subprocess.Popen(command, env=shell.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield process.stdout
        finally:
            process.kill()


def numbers(shell, store) -> list[int]:
    shown = shell.run("sessions", "show", "busy", "--json", "--store", store).stdout
    return [json.loads(line)["seq"] for line in shown.splitlines()]


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_backup_taken_while_another_process_writes_has_all_that_was_acknowledged_before(shell, tmp_path, kind):
    store, restored, backup = f"{kind}:{tmp_path}/sessions", f"{kind}:{tmp_path}/elsewhere/again", tmp_path / "backup"
    (tmp_path / "elsewhere").mkdir()  # a folder that is not there is told, as a mistyped path is
    shell.run("run", "-q", "-s", "quiet", "--store", store, "Calculate 6 * 7")
    with writing(shell, store) as told:
        acknowledged = [int(told.readline()) for _ in range(50)][-1]
        result = shell.run("backup", str(backup), "--store", store)
        assert (result.returncode, result.stdout) == (0, "")
        assert int(told.readline()) > acknowledged
    assert result.stderr == f"{store} is backed up to {backup}\n"
    assert shell.run("restore", str(backup), "--store", restored).returncode == 0
    found = numbers(shell, restored)
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= acknowledged
    assert len(found) <= len(numbers(shell, store))
    quiet = [shell.run("sessions", "show", "quiet", "--json", "--store", each).stdout for each in (store, restored)]
    assert quiet[0] == quiet[1] != ""
    for session in ("busy", "quiet"):  # and it is a store like any other
        assert shell.run("run", "-q", "-s", session, "--store", restored, "Calculate 6 * 7").returncode == 0


@pytest.mark.usefixtures("kept")
def test_nothing_that_is_there_is_replaced(perdure, tmp_path):
    assert perdure("backup", "b.db").exit_code == 0
    before = (tmp_path / "b.db").read_bytes()
    again = perdure("backup", "b.db")
    assert (again.exit_code, again.stdout) == (2, "")
    assert "exists already, and has been left as it is" in again.stderr
    assert (tmp_path / "b.db").read_bytes() == before
    refused = perdure("restore", "b.db")
    assert refused.exit_code == 2
    assert "sessions.db' exists already, and has been left as it is" in refused.stderr


@pytest.mark.usefixtures("kept")
def test_programs_are_told_what_was_done(perdure, tmp_path):
    home = f"sqlite:{tmp_path}/home/sessions.db"
    assert json.loads(perdure("backup", "b.db", "--json").stdout) == {"store": home, "backup": "b.db"}
    there = f"sqlite:{tmp_path}/there.db"
    result = perdure("restore", "b.db", "--store", there, "--json")
    assert json.loads(result.stdout) == {"store": there, "backup": "b.db"}
    assert len(perdure("sessions", "list", "--store", there).stdout.splitlines()) == 3


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _: b"no store" * 900, lambda _: b""])
@pytest.mark.usefixtures("kept")
def test_a_backup_that_is_not_in_order_is_refused_and_nothing_is_left(perdure, tmp_path, damage):
    perdure("backup", "b.db")
    (tmp_path / "b.db").write_bytes(damage((tmp_path / "b.db").read_bytes()))
    result = perdure("restore", "b.db", "--store", f"sqlite:{tmp_path}/there.db")
    assert result.exit_code in {2, 74}
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("there")] == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["backup", "b", "--store", "memory:"], 69, "a MemoryStore has no size and no backup"),
        (["restore", "b", "--store", "memory:"], 69, "a store 'memory:' cannot be restored from a backup here"),
        (["restore", "missing.db"], 74, "'missing.db'"),
    ],
)
def test_what_cannot_be_done_says_why(perdure, arguments, code, message):
    result = perdure(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message.strip("'") in result.stderr
