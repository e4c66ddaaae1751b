"""Find a system program that no project could have put on PATH, and run it without a shell and within limits."""

# ruff: noqa: PTH117, PTH118, PTH120 - a Path would cost every start milliseconds

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Final, NamedTuple, cast

from perdure._core.values.error import ToolError
from perdure._io.home.paths import get_user_home


class ProgramOutput(NamedTuple):
    """The output and the exit code of a program that has ended."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    is_truncated: bool = False
    """True if there was more output than the limit, and the program was stopped."""


def run_program(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    max_seconds: float,
    max_bytes: int,
    given: bytes = b"",
    descriptors: Sequence[int] = (),
) -> ProgramOutput:
    """Run a program to its end, and return its output. Raises `ToolError` if it cannot start or takes too long.

    Args:
        argv: The program, by its absolute path, and its arguments.
        cwd: The folder that it runs in.
        env: All variables of its environment.
        max_seconds: The time after which it is killed, with every process that it has started.
        max_bytes: The most bytes of standard output that are read; then it is killed.
        given: Its standard input.
        descriptors: Open files that it inherits.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - no shell, and the caller builds the arguments
            [*argv],
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**env},
            cwd=cwd,
            pass_fds=[*descriptors],
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"{argv[0]!r} cannot be started: {error}") from error
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        _kill_group(process)

    timer = threading.Timer(max_seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        output = _collect_output(process, given, max_bytes)
    finally:
        timer.cancel()
        _kill_group(process)
        process.wait()
    if expired.is_set():
        raise ToolError(f"it was stopped after {max_seconds:g} seconds: ask for less, such as one folder or file")
    return output


def _collect_output(process: "subprocess.Popen[bytes]", given: bytes, max_bytes: int) -> ProgramOutput:
    """Read both streams at the same time, each within its bound."""
    stdout, stderr = cast("IO[bytes]", process.stdout), cast("IO[bytes]", process.stderr)
    problems: list[bytes] = []

    def read_problems() -> None:
        problems.append(stderr.read(64 * 1024))
        while stderr.read(64 * 1024):
            pass  # the rest is not needed, and must not fill the pipe

    reader = threading.Thread(target=read_problems, daemon=True)
    reader.start()
    if given:
        writer = threading.Thread(target=_write_all, args=(cast("IO[bytes]", process.stdin), given), daemon=True)
        writer.start()
    data = stdout.read(max_bytes + 1)
    is_truncated = len(data) > max_bytes
    if is_truncated:
        _kill_group(process)
    exit_code = process.wait()
    reader.join()
    for stream in (stdout, stderr):
        stream.close()
    return ProgramOutput(data[:max_bytes], b"".join(problems), exit_code, is_truncated)


def _write_all(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError):  # it may end before it has read everything
        stream.write(data)
    with contextlib.suppress(OSError):
        stream.close()


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a program and what it has started, if it still runs."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()


_REPOSITORY: Final = ".git"


def find_program_outside(name: str, folder: str) -> str:
    """Return the path of a program on PATH; empty if there is none outside a folder and the repository around it.

    A PATH often leads into a project, such as to the programs of its virtual environment, which a command may have
    written. A program that is started for the runtime itself is none of these.
    """
    project = _find_project(os.path.realpath(folder))
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which(name, path=place) if os.path.isabs(place) else None
        if found and not any(_is_inside(os.path.realpath(each), project) for each in (found, os.path.dirname(found))):
            return found
    return ""


def _find_project(folder: str) -> str:
    """Return the root of the repository around a folder; without one, or if that is a whole home, the folder."""
    homes = {os.path.realpath(get_user_home()), os.path.realpath(os.sep)}
    above = folder
    while above not in homes:
        if os.path.lexists(os.path.join(above, _REPOSITORY)):
            return above
        if (next_above := os.path.dirname(above)) == above:
            break
        above = next_above
    return folder


def _is_inside(path: str, folder: str) -> bool:
    return f"{path}{os.sep}".startswith(folder.rstrip(os.sep) + os.sep)
