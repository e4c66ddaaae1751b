"""Who drives a session: a process, and whether it still lives. Above: stores that are shared. Below: the system.

A number alone does not name a process, because numbers are used again. It counts together with the time at which the
process started, and only on the machine (and in the container) where that number was given.
"""

# ruff: noqa: PTH110, PTH115, PTH123 - os.path costs nothing to import, pathlib costs every start milliseconds
import functools
import os
import socket
import subprocess
import time

import msgspec


class Holder(msgspec.Struct, frozen=True):
    """A process that took a lease, as it is written into the store."""

    pid: int
    host: str
    """The machine's name, for people."""
    machine: str
    """Where `pid` means something: this boot of this machine, and this container on it."""
    started: str
    """When the process started, in whatever form the system tells it; empty if it does not."""
    since: float
    """When the lease was taken, in seconds since 1970."""

    @property
    def is_this_process(self) -> bool:
        """Whether it is we ourselves."""
        return (self.pid, self.machine, self.started) == (os.getpid(), *_identity(os.getpid()))

    @property
    def is_alive(self) -> bool:
        """Whether it certainly still runs. A process elsewhere cannot be seen from here: then only the fence helps."""
        return self.machine == _machine() and bool(self.started) and start_of(self.pid) == self.started

    @property
    def has_ended(self) -> bool:
        """Whether it certainly runs no more. A name of a host is not enough to be certain that it is this machine."""
        if not (self.machine == _machine() != self.host and self.started):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        return start_of(self.pid) not in {"", self.started}  # another process has got its number

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        return f"process {self.pid} on {self.host!r} since {since}"


# Made here, and not when it is first used: that may be on two threads at once, which msgspec does not stand.
_holders = msgspec.json.Decoder(Holder)


def this_process(since: float) -> Holder:
    """We ourselves, as holder of a lease that is taken now."""
    pid = os.getpid()
    machine, started = _identity(pid)
    return Holder(pid, socket.gethostname(), machine, started, since)


def parse_holder(text: str | None) -> Holder | None:
    """The holder that was written; nobody when nothing was, or nothing that can be understood."""
    if not text:
        return None
    try:
        return _holders.decode(text)
    except msgspec.DecodeError:
        return None


def start_of(pid: int) -> str:
    """When a process started; empty when it has ended or the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except FileNotFoundError:
        return "" if os.path.exists("/proc/self/stat") else _start_by_ps(pid)
    except OSError:
        return ""
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name in parentheses may itself hold spaces and parentheses
    return "" if fields[0] in {b"Z", b"X"} else fields[19].decode()


def _start_by_ps(pid: int) -> str:
    """For systems without /proc, such as macOS."""
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
def _identity(pid: int) -> tuple[str, str]:
    """Where and when this process started; by its number, since a fork makes another process of it."""
    return _machine(), start_of(pid)


@functools.cache
def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
