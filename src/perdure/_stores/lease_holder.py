"""The holder of a session's lease: which process it is, and whether it still runs.

A lease is the exclusive right to append to the log of a session.

A pid alone does not identify a process, because pids are reused. It counts together with the start time of the process,
and only on the machine (and in the container) where it was assigned.
"""

# ruff: noqa: PTH110, PTH115, PTH123 - os.path costs nothing to import, pathlib costs every start milliseconds
import functools
import os
import socket
import subprocess
import time

import msgspec


class LeaseHolderProcess(msgspec.Struct, frozen=True):
    """The process that has the lease of a session, as recorded in the store: pid, start time and machine."""

    pid: int
    host: str
    """The machine's name, for messages."""
    machine: str
    """Where `pid` is valid: this boot of this machine, and this container on it."""
    started: str
    """When the process started, in the system's format; empty if unknown."""
    since: float
    """When the lease was acquired, in seconds since 1970."""

    @property
    def is_this_process(self) -> bool:
        """True if the lease belongs to the current process."""
        return (self.pid, self.machine, self.started) == (os.getpid(), *_process_identity(os.getpid()))

    @property
    def is_alive(self) -> bool:
        """True if the process is certainly running. A process on another machine cannot be checked, and counts as not
        alive.
        """
        return self.machine == _machine_id() and bool(self.started) and get_process_start_time(self.pid) == self.started

    @property
    def has_ended(self) -> bool:
        """True if the process has certainly ended. Another machine's process is never certain, even if the host name
        is the same.
        """
        if not (self.machine == _machine_id() != self.host and self.started):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        return get_process_start_time(self.pid) not in {"", self.started}  # another process has got its number

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        return f"process {self.pid} on {self.host!r} since {since}"


# Made here, and not when it is first used: that may be on two threads at once, which msgspec does not support.
_holders = msgspec.json.Decoder(LeaseHolderProcess)


def describe_this_process(since: float) -> LeaseHolderProcess:
    """Return the current process as a `LeaseHolderProcess`; `since` is when it acquired the lease."""
    pid = os.getpid()
    machine, started = _process_identity(pid)
    return LeaseHolderProcess(pid, socket.gethostname(), machine, started, since)


def parse_holder(text: str | None) -> LeaseHolderProcess | None:
    """Parse the lease holder recorded in a store; `None` if none is recorded or it cannot be parsed."""
    if not text:
        return None
    try:
        return _holders.decode(text)
    except msgspec.DecodeError:
        return None


def get_process_start_time(pid: int) -> str:
    """Return the start time of a process as the system writes it; empty if it has ended or the time is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except FileNotFoundError:
        return "" if os.path.exists("/proc/self/stat") else _process_start_time_by_ps(pid)
    except OSError:
        return ""
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name in parentheses may itself contain spaces and parentheses
    return "" if fields[0] in {b"Z", b"X"} else fields[19].decode()


def _process_start_time_by_ps(pid: int) -> str:
    """Return the start time of a process on systems without /proc, such as macOS."""
    command = ["/bin/ps", "-o", "state=,lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program and a number
            command, env={"LC_ALL": "C", "TZ": "UTC"}, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    state, _, started = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()


@functools.cache
def _process_identity(pid: int) -> tuple[str, str]:
    """Return machine and start time of this process; cached by pid, since a fork has another one."""
    return _machine_id(), get_process_start_time(pid)


@functools.cache
def _machine_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
