"""The sandbox that git runs in for the git tools: the work tree, read-only, a private copy of its data, and git itself.

Everything else does not exist there: no home, no other repository, no network, no processes.
"""

# ruff: noqa: PTH110, PTH114, PTH115, PTH120 - before every command, where pathlib would cost time
import os
from collections.abc import Iterator
from functools import cache
from typing import Final

from perdure._core.values.error import ConfigError
from perdure._io.processes.program import find_program_outside
from perdure._tools.sandbox.bubblewrap import find_bubblewrap, find_system_program

_SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_SYSTEM_FILES: Final = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/passwd"),
    *("/etc/nsswitch.conf", "/run/current-system"),
)


def find_git(folder: str) -> str:
    """Return the path of git. Raises `ConfigError` if there is none outside a folder, and the project around it."""
    found = find_system_program("git") or find_program_outside("git", folder)
    if not found:
        raise ConfigError("LocalGit: there is no program git on PATH (outside the project): install git")
    return os.path.realpath(found)


def explain_missing_sandbox() -> str:
    """Return why git cannot run in a sandbox here; empty if it can."""
    return find_bubblewrap()[1]


def build_git_sandbox(
    program: str, cwd: str, *, readable: tuple[str, ...] = (), writable: tuple[str, ...] = ()
) -> list[str]:
    """Return the command line prefix that runs git in its sandbox."""
    start, problem = find_bubblewrap()
    if not start:
        raise ConfigError(problem)
    words = [*start, *_mount_system(), "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - a tmpfs
    if not program.startswith(_SYSTEM_FOLDERS):
        place = os.path.dirname(os.path.dirname(program))
        words += ["--ro-bind", place, place]
    for folder in readable:
        words += ["--ro-bind", folder, folder]
    for folder in writable:
        words += ["--bind", folder, folder]
    return [*words, "--chdir", cwd, "--"]


@cache
def _mount_system() -> tuple[str, ...]:
    return tuple(_list_system_mounts())


def _list_system_mounts() -> Iterator[str]:
    for path in (*_SYSTEM_FOLDERS, *_SYSTEM_FILES):
        if os.path.islink(path) and path.count("/") == 1:
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.exists(path):
            yield from ("--ro-bind", path, path)
