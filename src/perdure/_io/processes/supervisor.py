"""Run one command, and end everything that it started when the command ends or the host program dies.

Started as a program of its own: `python -I -S supervisor.py CONTROL VARIABLES COMMAND…`. CONTROL is the read
end of a pipe whose write end only the host has: when it writes a byte, the whole tree gets SIGTERM, two seconds, and
SIGKILL; when it closes the pipe without one, which its death does, it is one second. VARIABLES is a file with the
environment of the command, for Python adds to its own. It imports nothing of Perdure, so that it starts quickly.
"""

# ruff: noqa: PTH123, PTH208 - pathlib would double the time that it takes to start
import contextlib
import os
import select
import signal
import sys
import time

GRACE_SECONDS = 2.0
ORPHANED_GRACE_SECONDS = 1.0
"""Seconds between SIGTERM and SIGKILL when the host is gone: all is to be over within two."""
_SUBREAPER = 36
_DEATH_SIGNAL = 1
_LAST_SECONDS = 2.0
"""Seconds after SIGKILL in which processes that nobody here can reap have to be gone."""
_FOLLOW_SECONDS = 1.0
"""How often the descendants are noted, where orphans cannot be adopted."""
# Those that a shell ignores for what it starts in the background, and that Python ignores, among them. Windows, where
# this is only imported, has few of them.
_NAMES = ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXFSZ")
_DEFAULT_SIGNALS = tuple([getattr(signal, name) for name in _NAMES if hasattr(signal, name)])

Followed = dict[int, str]
"""Descendants that may be orphans by now, by pid, and when each was started."""


def main(argv: list[str]) -> int:
    """Run the command in `argv`, end all processes that it started, and return its exit code."""
    control, variables, command = int(argv[0]), read_variables(int(argv[1])), argv[2:]
    followed: Followed | None = None if adopt_orphans() else {}
    wake, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, ignore_signal)  # so that it wakes the loop below
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        exec_command(command, variables, (control, wake, write))
    code = wait_for_end(child, control, wake, followed)
    end_descendants(child, 0.0 if code is not None else choose_grace_seconds(control), followed)
    return 128 + signal.SIGKILL if code is None else code


def read_variables(fd: int) -> dict[bytes, bytes]:
    """Read environment variables from an open file of `NAME=value` pairs, each followed by a NUL."""
    with open(fd, "rb") as file:
        pairs = [each.partition(b"=") for each in file.read().split(b"\0") if each]
    return {name: value for name, _, value in pairs}


def exec_command(command: list[str], variables: dict[bytes, bytes], fds: tuple[int, ...]) -> None:
    """Replace this process by the command, with `exec`, in a new process group."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in _DEFAULT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    call_prctl(_DEATH_SIGNAL, signal.SIGKILL)
    for each in fds:
        os.close(each)
    try:
        os.execvpe(command[0], command, variables)  # noqa: S606 - its purpose
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def wait_for_end(child: int, control: int, wake: int, followed: Followed | None = None) -> int | None:
    """Wait until the command ends and return its exit code; `None` if the host program asks to end it, or has died."""
    while True:
        ready, _, _ = select.select([control, wake], [], [], None if followed is None else _FOLLOW_SECONDS)
        if followed is not None:
            note_descendants(list_processes(), followed)
        if wake in ready:
            os.read(wake, 4096)
        while (ended := reap_one()) is not None:
            if ended[0] == child:
                return ended[1]
        if control in ready:
            return None


def choose_grace_seconds(control: int) -> float:
    """Return the seconds from SIGTERM to SIGKILL; fewer if the host closed the control pipe without asking to end."""
    return GRACE_SECONDS if os.read(control, 1) else ORPHANED_GRACE_SECONDS


def ignore_signal(number: int, frame: object) -> None:
    """Do nothing: a handler for SIGCHLD, installed so that the signal wakes the supervisor."""
    del number, frame


def reap_one() -> tuple[int, int] | None:
    """Reap one child process that has ended; return its pid and exit code, or `None` if there is none."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    if pid == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    return pid, code if code >= 0 else 128 - code


def end_descendants(group: int, grace_seconds: float, followed: Followed | None = None) -> None:
    """End all descendants of this process: SIGTERM, then SIGKILL after the grace period until none is left.

    Without a grace period, SIGKILL is sent at once. Where orphans cannot be adopted, the group of the command and the
    followed processes are ended too, though they are nobody's children any more.
    """
    deadline = time.monotonic() + grace_seconds
    signal_descendants(group, signal.SIGTERM if grace_seconds else signal.SIGKILL, followed)
    while has_children() or (followed is not None and has_strays(group, followed, deadline)):
        if time.monotonic() >= deadline:
            signal_descendants(group, signal.SIGKILL, followed)
        time.sleep(0.01 if followed is None else 0.05)


def has_strays(group: int, followed: Followed, deadline: float) -> bool:
    """Return True if a process of the group or a followed one is left; not for long after the deadline, since who has
    adopted it may never reap it.
    """
    if time.monotonic() >= deadline + _LAST_SECONDS:
        return False
    try:
        os.killpg(group, 0)
    except PermissionError:
        return True
    except OSError:
        processes = list_processes()
        return any(processes.get(pid, (0, ""))[1] == started for pid, started in followed.items())
    return True


def has_children() -> bool:
    """Return True if this process still has a child process, after those that have ended are reaped."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def signal_descendants(group: int, number: int, followed: Followed | None = None) -> None:
    """Send a signal to the command's process group and to every descendant, adopted orphans and followed ones too."""
    with contextlib.suppress(OSError):
        os.killpg(group, number)
    processes = list_processes(may_ask=followed is not None)
    noted: Followed = {} if followed is None else followed
    note_descendants(processes, noted)
    for pid, started in noted.items():
        if processes.get(pid, (0, ""))[1] == started:  # else another process has got its number
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def note_descendants(processes: dict[int, tuple[int, str]], noted: Followed) -> None:
    """Note the descendants of this process, and of those that are noted already."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    level = [os.getpid(), *[pid for pid, started in noted.items() if processes.get(pid, (0, ""))[1] == started]]
    while level:
        level = [each for parent in level for each in children.get(parent, ()) if each not in noted]
        noted.update([(pid, processes[pid][1]) for pid in level])


def list_processes(*, may_ask: bool = True) -> dict[int, tuple[int, str]]:
    """Return parent and start time of each process, by its pid; from `ps` where the system has no `/proc`."""
    found: dict[int, tuple[int, str]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                    stat = file.read()
                    fields = stat[stat.rindex(b")") + 2 :].split()
                    found[int(name)] = int(fields[1]), fields[19].decode()
    return found if found or not may_ask else ask_for_processes()


def ask_for_processes() -> dict[int, tuple[int, str]]:
    """Return parent and start time of each process, as `ps` tells them; empty if it cannot be started."""
    import subprocess  # only where it is needed

    try:
        done = subprocess.run(
            ["/bin/ps", "-axo", "pid=,ppid=,lstart="], env={"LC_ALL": "C"}, capture_output=True, text=True, check=False
        )
    except OSError:
        return {}
    found: dict[int, tuple[int, str]] = {}
    for line in done.stdout.splitlines():
        pid, parent, *started = line.split()
        found[int(pid)] = int(parent), " ".join(started)
    return found


def adopt_orphans() -> bool:
    """Let this process become the parent of its orphaned descendants; return False unless the system (Linux) can."""
    return call_prctl(_SUBREAPER, 1)


def call_prctl(option: int, value: int) -> bool:
    """Call Linux's prctl and return True if it succeeds; elsewhere do nothing."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
