"""Which process drives a session, and whether it lives."""

import io
import os
import shutil
import socket
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from perdure._stores import lease_holder as holder
from perdure._stores.lease_holder import get_process_start_time
from perdure.stores import describe_this_process, parse_holder


def test_this_process_is_alive_and_is_this_process():
    me = describe_this_process(0.0)
    assert me.is_this_process
    assert me.is_alive
    assert (me.pid, me.since) == (os.getpid(), 0.0)


def test_a_holder_reads_as_process_host_and_time():
    me = msgspec.structs.replace(describe_this_process(86400.0), pid=12, host="box")
    assert str(me) == "process 12 on 'box' since 1970-01-02 00:00:00 UTC"


def test_a_holder_survives_being_written():
    me = describe_this_process(1.5)
    assert parse_holder(msgspec.json.encode(me).decode()) == me


@pytest.mark.parametrize("text", [None, "", "scribble", "{}", '{"pid": "x"}', "[]"])
def test_what_names_nobody_is_nobody(text):
    assert parse_holder(text) is None


def test_a_process_is_dead_when_it_has_ended_though_nobody_has_noticed():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = get_process_start_time(process.pid)
        other = msgspec.structs.replace(describe_this_process(0.0), pid=process.pid, started=started)
        assert started
        assert process.stdin
        assert other.is_alive
        assert not other.is_this_process
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and still in the table of processes
        assert not other.is_alive
    assert not other.is_alive


def test_a_process_of_another_machine_cannot_be_seen():
    assert not msgspec.structs.replace(describe_this_process(0.0), machine="elsewhere").is_alive


@pytest.mark.skipif(not shutil.which("/bin/ps"), reason="no /bin/ps here, which is asked where there is no /proc")
def test_without_a_proc_folder_ps_tells_when_a_process_started():
    mine = holder._process_start_time_by_ps(os.getpid())
    assert mine
    assert holder._process_start_time_by_ps(os.getpid()) == mine
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert holder._process_start_time_by_ps(process.pid) == ""
    assert holder._process_start_time_by_ps(process.pid) == ""


@pytest.mark.parametrize(
    ("change", "has_ended"),
    [
        ({}, False),
        ({"started": "long ago"}, True),  # another process has its number now
        ({"started": ""}, False),
        ({"machine": "elsewhere", "started": "long ago"}, False),
        ({"pid": 2**22 + 5}, True),
        ({"pid": 2**22 + 5, "started": ""}, False),
        ({"pid": 2**22 + 5, "machine": "elsewhere"}, False),
        ({"pid": 2**80}, False),
    ],
)
def test_a_process_has_ended_only_if_that_is_certain(change: dict[str, Any], has_ended: bool) -> None:
    assert msgspec.structs.replace(describe_this_process(0.0), **change).has_ended is has_ended


def test_where_a_machine_is_known_by_its_name_alone_no_process_has_ended_for_certain() -> None:
    me = describe_this_process(0.0)
    gone = msgspec.structs.replace(me, host=me.machine, started="long ago")
    assert not gone.has_ended


@pytest.mark.parametrize("change", [{"pid": 1}, {"machine": "elsewhere"}, {"started": "long ago"}])
def test_another_process_is_not_this_one(change: dict[str, Any]) -> None:
    me = describe_this_process(0.0)
    assert not msgspec.structs.replace(me, **change).is_this_process
    assert msgspec.structs.replace(me, host="renamed", since=5.0).is_this_process


def test_a_process_whose_start_is_unknown_is_not_known_to_be_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = msgspec.structs.replace(describe_this_process(0.0), started="")
    monkeypatch.setattr(holder, "get_process_start_time", lambda _: "")
    assert not unknown.is_alive


def fake_proc(monkeypatch: pytest.MonkeyPatch, stat: bytes | OSError) -> None:
    def open_stat(path: str, mode: str = "r", **_: Any) -> io.BytesIO:
        assert path == "/proc/12/stat"
        assert mode == "rb"
        if isinstance(stat, OSError):
            raise stat
        return io.BytesIO(stat)

    monkeypatch.setattr(holder, "open", open_stat, raising=False)


@pytest.mark.parametrize(("state", "started"), [("S", "4711"), ("R", "4711"), ("Z", ""), ("X", "")])
def test_the_start_of_a_process_is_told_unless_it_is_dead(
    monkeypatch: pytest.MonkeyPatch, state: str, started: str
) -> None:
    fields = " ".join(str(number) for number in range(4, 22))
    fake_proc(monkeypatch, f"12 (odd) (name) {state} {fields} 4711 23 24\n".encode())
    assert get_process_start_time(12) == started


def test_a_process_that_may_not_be_looked_at_has_no_known_start(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_proc(monkeypatch, PermissionError(13, "denied"))
    assert get_process_start_time(12) == ""


@pytest.mark.parametrize(("has_proc", "started"), [(True, ""), (False, "by ps")])
def test_ps_is_asked_where_there_is_no_proc_folder(
    monkeypatch: pytest.MonkeyPatch, has_proc: bool, started: str
) -> None:
    fake_proc(monkeypatch, FileNotFoundError(2, "none"))
    monkeypatch.setattr(os.path, "exists", lambda path: has_proc and path == "/proc/self/stat")
    monkeypatch.setattr(holder, "_process_start_time_by_ps", lambda pid: "by ps" if pid == 12 else "")
    assert get_process_start_time(12) == started


@pytest.mark.parametrize(
    ("printed", "started"),
    [
        ("Ss   Wed Nov 18 13:04:01 2026\n", "Wed Nov 18 13:04:01 2026"),
        ("Z    Wed Nov 18 13:04:01 2026\n", ""),
        ("", ""),
        (OSError(2, "no ps"), ""),
        (subprocess.TimeoutExpired("ps", 10), ""),
    ],
)
def test_what_ps_prints_is_read(monkeypatch: pytest.MonkeyPatch, printed: str | Exception, started: str) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert command == ["/bin/ps", "-o", "state=,lstart=", "-p", "12"]
        expected = {"env": {"LC_ALL": "C", "TZ": "UTC"}, "capture_output": True, "text": True, "timeout": 10}
        assert options == expected | {"check": False}
        if isinstance(printed, Exception):
            raise printed
        return subprocess.CompletedProcess(command, 1, printed)

    monkeypatch.setattr(subprocess, "run", run)
    assert holder._process_start_time_by_ps(12) == started


def test_a_machine_without_a_boot_id_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise FileNotFoundError(2, "none")

    monkeypatch.setattr(holder, "open", fail, raising=False)
    assert holder._machine_id.__wrapped__() == socket.gethostname()
