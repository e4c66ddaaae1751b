"""The processes that a command has started: they are found by their parents, and get signals."""

import os
import signal
import subprocess
import sys

import pytest

from perdure._io.processes.tree import list_descendants, signal_processes


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_descendants_are_found_with_the_nearest_first_and_get_a_signal():
    script = "sh -c 'sleep 60 & echo far $!; wait' & echo near $!; wait"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = dict(process.stdout.readline().split() for _ in range(2))
        child, grandchild = int(pids["near"]), int(pids["far"])
        assert list_descendants(process.pid) == [child, grandchild]
        assert list_descendants(grandchild) == []
        assert list_descendants(os.getpid())[:1] != []
        signal_processes([process.pid, child, grandchild], signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL


def test_processes_that_are_gone_or_belong_to_others_get_no_signal(monkeypatch):
    sent: list[tuple[int, int]] = []

    def send(pid: int, number: int) -> None:
        sent.append((pid, number))
        if pid < 3:
            raise (ProcessLookupError if pid == 1 else PermissionError)

    monkeypatch.setattr(os, "kill", send)
    signal_processes([1, 2, 3], signal.SIGTERM)
    assert sent == [(1, signal.SIGTERM), (2, signal.SIGTERM), (3, signal.SIGTERM)]


def test_where_processes_cannot_be_listed_there_are_none(monkeypatch):
    def fail(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", fail)
    assert list_descendants(1) == []


def test_what_is_no_process_or_has_just_ended_is_passed_over(monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda _: ["self", "uptime", "0", str(2**30)])
    assert list_descendants(1) == []
