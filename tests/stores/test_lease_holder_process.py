"""Which process drives a session, and whether it lives."""

import os
import shutil
import subprocess
import sys

import msgspec
import pytest

from perdure.stores import lease_holder_process as holder
from perdure.stores.lease_holder_process import describe_this_process, get_process_start_time, parse_holder


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
