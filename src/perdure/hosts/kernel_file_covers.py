"""Hide what the kernel shows that no command needs, and from commands of root what root alone can read."""

# ruff: noqa: PTH112, PTH118 - before every command, where pathlib would cost milliseconds
import os
import stat
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from .shown_folders import is_below

_PROC_FILES: Final = ("keys", "key-users")
_PROC_FILES_OF_ROOT: Final = (
    "sysrq-trigger", "kcore", "kmsg", "timer_list", "timer_stats", "sched_debug", "latency_stats", "kpagecount",
    "kpageflags", "kpagecgroup", "vmallocinfo", "slabinfo", "pagetypeinfo", "mtrr",
)  # fmt: skip
_PROC_FOLDERS: Final = ("acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "scsi", "tty")
_SYS_FOLDERS: Final = ("devices/system", "fs/cgroup")
"""What programs ask there: processors, memory, and the limits of the container."""
_FIRST_PROCESS: Final = "/proc/1"
"""That of bubblewrap, which keeps files of the host open: by their names here they could be opened for writing."""
_SEARCHED: Final = (("/etc", 3), ("/var", 3), ("/", 1), ("/srv", 1), ("/opt", 1), ("/usr", 1))
"""Folders where programs keep what only root may read, and how many levels of them are looked at."""
_READ, _ENTER = stat.S_IROTH, stat.S_IROTH | stat.S_IXOTH


def bound_kernel_files(empty_file: str, *, is_root: bool) -> Iterator[str]:
    """Yield bubblewrap options that make `/proc/sys` read-only, and hide bubblewrap and what is not about processes.

    To root's user number the files there belong, so that it needs no capability to read or write some of them.
    """
    yield from ("--ro-bind", "/proc/sys", "/proc/sys", "--perms", "0555", "--tmpfs", _FIRST_PROCESS)
    for path in _list_existing("/proc", _PROC_FILES + (_PROC_FILES_OF_ROOT if is_root else ())):
        yield from ("--ro-bind", empty_file, path)
    for path in _list_existing("/proc", _PROC_FOLDERS):
        yield from ("--perms", "0555", "--tmpfs", path)
    if os.path.isdir("/sys"):
        yield from ("--perms", "0555", "--tmpfs", "/sys")
        for path in _list_existing("/sys", _SYS_FOLDERS):
            yield from ("--ro-bind", path, path)


def hide_files_of_root(closed_file: str, kept: Sequence[str], hidden: Sequence[str]) -> Iterator[str]:
    """Yield bubblewrap options that hide what only root can read, as `/etc/shadow`, if it is not hidden already.

    A command of root has another user number in its sandbox; but for the kernel, what it opens is opened by root.
    Folders with something in them that is kept are not hidden.
    """
    for path, is_folder in list_files_of_root():
        is_hidden = any(path == each or is_below(path, each) for each in hidden)
        if not is_hidden and not any(path == each or is_below(each, path) for each in kept):
            yield from ("--tmpfs", path) if is_folder else ("--ro-bind", closed_file, path)


@cache
def list_files_of_root() -> tuple[tuple[str, bool], ...]:
    """Return the files and folders of the system that only root, or a group, can read; with True for folders."""
    return tuple([found for folder, depth in _SEARCHED for found in _find_closed(folder, depth)])


def _find_closed(folder: str, depth: int) -> Iterator[tuple[str, bool]]:
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda each: each.name)
    except OSError:
        return
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        mode = found.st_mode
        if stat.S_ISDIR(mode) and mode & _ENTER != _ENTER:
            yield entry.path, True
        elif stat.S_ISDIR(mode) and depth > 1:
            yield from _find_closed(entry.path, depth - 1)
        elif stat.S_ISREG(mode) and found.st_size and not mode & _READ:
            yield entry.path, False


@cache
def _list_existing(folder: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([path for name in names if os.path.lexists(path := os.path.join(folder, name))])
