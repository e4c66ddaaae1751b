"""The process that supervises a command: how it starts and ends, and what becomes of what it started."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from perdure._io.processes import supervisor

STANDARD_SIGNALS = 2**31 - 1
"""The mask of the signals 1 to 31. The C library keeps the two after them for itself."""


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (0 << 8, 0),
        (1 << 8, 1),
        (255 << 8, 255),
        (int(signal.SIGHUP), 129),
        (int(signal.SIGKILL), 137),
        (int(signal.SIGTERM), 143),
    ],
)
def test_an_ended_child_has_the_exit_code_that_a_shell_would_give(monkeypatch, status, code):
    asked: list[tuple[int, int]] = []

    def wait(pid, options):
        asked.append((pid, options))
        return 7, status

    monkeypatch.setattr(os, "waitpid", wait)
    assert supervisor.reap_one() == (7, code)
    assert asked == [(-1, os.WNOHANG)]


def test_without_an_ended_child_there_is_none(monkeypatch):
    monkeypatch.setattr(os, "waitpid", lambda *_: (0, 0))
    assert supervisor.reap_one() is None


def test_without_any_child_there_is_none(monkeypatch):
    def wait(pid, options):
        raise ChildProcessError

    monkeypatch.setattr(os, "waitpid", wait)
    assert supervisor.reap_one() is None


class Supervised(NamedTuple):
    """A supervisor that was started as a program, and the end of the pipe that its host has."""

    process: subprocess.Popen[bytes]
    control: int

    def finish(self) -> tuple[int, bytes, bytes]:
        """Wait for the end; return the exit code, the output and the errors."""
        out, errors = self.process.communicate(timeout=10)
        return self.process.returncode, out, errors


@pytest.fixture
def start() -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def start_supervisor(*command: str, variables: bytes = b"PATH=/usr/bin:/bin\0") -> Supervised:
        read, write = os.pipe()
        with tempfile.TemporaryFile() as file:
            file.write(variables)
            file.seek(0)
            fds = (read, file.fileno())
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, *map(str, fds), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=fds,
                start_new_session=True,
            )
        os.close(read)
        started.append(Supervised(process, write))
        return started[-1]

    yield start_supervisor
    for each in started:
        with contextlib.suppress(OSError):
            os.close(each.control)
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


def test_a_command_has_exactly_the_given_variables_and_its_exit_code_is_passed_on(start):
    variables = b"PATH=/usr/bin:/bin\0FIRST=a=b\0SECOND=two\nlines\0EMPTY=\0"
    supervised = start("env", "-0", variables=variables)
    code, out, errors = supervised.finish()
    assert (code, sorted(out.split(b"\0")), errors) == (0, sorted(variables.split(b"\0")), b"")
    assert start("sh", "-c", "echo out; echo err >&2; exit 7").finish() == (7, b"out\n", b"err\n")


def test_a_command_that_cannot_be_started_is_named_with_the_reason(start, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    assert start("no-such-program", "x").finish() == (127, b"", b"no-such-program: No such file or directory\n")
    assert start(str(plain)).finish() == (126, b"", f"{plain}: Permission denied\n".encode())


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN])
def started_in_background(request: pytest.FixtureRequest) -> Iterator[None]:
    """A shell ignores SIGQUIT for what it starts in the background, and what is ignored is inherited."""
    before = signal.signal(signal.SIGQUIT, request.param)
    yield
    signal.signal(signal.SIGQUIT, before)


@pytest.mark.usefixtures("started_in_background")
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
def test_a_command_starts_with_default_signals_in_its_own_group_without_further_descriptors(start):
    script = """
    grep -E 'Sig(Blk|Ign)' /proc/self/status
    test "$(cut -d' ' -f5 /proc/$$/stat)" = $$ && echo leads
    ls /proc/$$/fd
    """
    code, out, errors = start("sh", "-c", script).finish()
    blocked, ignored, *others = out.decode().splitlines()
    assert (code, others, errors) == (0, ["leads", "0", "1", "2"], b"")
    assert blocked == f"SigBlk:\t{0:016x}"
    name, _, mask = ignored.partition("\t")
    assert (name, int(mask, 16) & STANDARD_SIGNALS) == ("SigIgn:", 0)


def test_signals_that_ask_the_supervisor_to_end_are_ignored(start):
    script = "kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; echo still here"
    assert start("sh", "-c", script).finish() == (0, b"still here\n", b"")


@pytest.mark.skipif(sys.platform != "linux", reason="needs adopted orphans, and the program setsid")
@pytest.mark.parametrize("orphan", ["sleep 60 & echo $!", "setsid sleep 60 & echo $!", "(setsid sleep 60 & echo $!)"])
def test_what_a_command_leaves_behind_ends_with_it(start, orphan):
    code, out, errors = start("sh", "-c", f"{orphan}; exit 3").finish()
    assert (code, errors) == (3, b"")
    with pytest.raises(ProcessLookupError):
        os.kill(int(out), 0)


@pytest.mark.parametrize("asks", [True, False])
def test_a_command_can_tidy_up_when_its_host_asks_to_end_it_or_is_gone(start, asks):
    supervised = start("sh", "-c", "trap 'echo tidied; exit 0' TERM; echo ready; sleep 60 & wait")
    assert supervised.process.stdout.readline() == b"ready\n"
    if asks:
        os.write(supervised.control, b".")
    else:
        os.close(supervised.control)
    assert supervised.finish() == (137, b"tidied\n", b"")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a signal for the death of a parent process")
def test_a_command_ends_with_a_supervisor_that_is_killed(start):
    supervised = start("sh", "-c", "echo ready; exec sleep 60")
    assert supervised.process.stdout.readline() == b"ready\n"
    supervised.process.kill()
    assert supervised.finish() == (-signal.SIGKILL, b"", b"")  # the output has ended: nobody has it open any more


def test_a_command_has_less_time_to_end_when_its_host_is_gone():
    read, write = os.pipe()
    os.write(write, b".")
    assert supervisor.choose_grace_seconds(read) == 2.0
    os.close(write)
    assert supervisor.choose_grace_seconds(read) == 1.0
    os.close(read)


@pytest.mark.parametrize(
    ("grace", "living", "done"),
    [
        (2.0, 0, [signal.SIGTERM]),
        (2.0, 3, [signal.SIGTERM, 0.01, 0.01, signal.SIGKILL, 0.01]),
        (0.0, 0, [signal.SIGKILL]),
        (0.0, 1, [signal.SIGKILL, signal.SIGKILL, 0.01]),
    ],
)
def test_descendants_are_killed_once_the_time_to_end_is_over(monkeypatch, grace, living, done):
    seen: list[object] = []
    clock = iter([100.0, 101.0, 101.9, 102.0] if grace else [100.0, 100.0])
    children = iter([True] * living + [False])

    def note_signal(group: int, number: int, _followed: object) -> None:
        assert group == 7
        seen.append(number)

    monkeypatch.setattr(supervisor, "signal_descendants", note_signal)
    monkeypatch.setattr(supervisor, "has_children", lambda: next(children))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(time, "sleep", seen.append)
    supervisor.end_descendants(7, grace)
    assert seen == done


def test_all_ended_children_are_reaped_before_it_is_asked_for_others(monkeypatch):
    ended = [(7, 0), (8, 0), (0, 0)]
    monkeypatch.setattr(os, "waitpid", lambda *_: ended.pop(0))
    assert supervisor.has_children() is True
    assert ended == []

    def has_none(*_: int) -> None:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitpid", has_none)
    assert supervisor.has_children() is False


def test_an_ended_child_that_is_not_the_command_is_reaped_and_the_wait_goes_on(monkeypatch):
    control, control_end = os.pipe()
    wake, wake_end = os.pipe()
    os.write(wake_end, b"..")
    ended = [(8, 1), (7, 3)]
    monkeypatch.setattr(supervisor, "reap_one", lambda: ended.pop(0) if ended else None)
    assert supervisor.wait_for_end(7, control, wake) == 3
    os.write(control_end, b".")
    assert supervisor.wait_for_end(7, control, wake) is None
    for each in (control, control_end, wake, wake_end):
        os.close(each)


def test_where_processes_cannot_be_listed_the_group_of_the_command_gets_the_signal(monkeypatch):
    sent: list[tuple[int, int]] = []

    def list_nothing(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", list_nothing)
    monkeypatch.setattr(os, "killpg", lambda group, number: sent.append((group, number)))
    supervisor.signal_descendants(7, signal.SIGTERM)
    assert sent == [(7, signal.SIGTERM)]
