"""A warm process that becomes the command: for each request it forks a child, which has everything imported already.

    python -m tests.cli.warm_server FILENO      a socket; one message for each command, with its streams

Starting the command costs a quarter of a second of CPU, nearly all of it for imports, and the tests start it hundreds
of times. A forked child is a process as any other: it has its own terminal, signals, folder, environment and exit. What
belongs to the start of Python itself (its options, encodings and import path) is tested with processes that are started
in the ordinary way. Above: `warm_process.py`. Below: the command line.
"""

import fcntl
import gc
import importlib
import io
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import tempfile
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click.testing

from perdure._cli.main import root_command

STREAMS = 3
REHEARSED = (
    ("run", "-s", "s", "Calculate 6 * 7"),
    ("run", "-s", "s", "--json", "Calculate 6 * 7"),
    ("sessions", "list"),
    ("sessions", "show", "s"),
    ("search", "Calculate"),
)
"""Commands whose imports the server makes once for all."""


def import_everything() -> None:
    """Import what a child would import at first use: one of them tries some commands, and tells."""
    here = frozenset(sys.modules)
    reader, writer = os.pipe()
    if os.fork() == 0:
        with tempfile.TemporaryDirectory() as home:
            os.environ |= {"PERDURE_HOME": home, "HOME": home, "PERDURE_MODEL": "demo"}
            for arguments in REHEARSED:
                click.testing.CliRunner().invoke(root_command, arguments)
        os.write(writer, "\n".join(sys.modules.keys() - here).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as told:  # noqa: PTH123 - a file descriptor
        names = told.read().split()
    os.wait()
    for name in names:
        importlib.import_module(name)


def serve(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork a child for each request; return only in a child, with the request and its streams."""
    bell, ring = os.pipe()
    os.set_blocking(bell, False)
    os.set_blocking(ring, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    results: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests.fileno(), bell], [], [])
        if bell in ready:
            os.read(bell, 4096)
            report_ended(results)
        if requests.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, STREAMS + 1)
        if not message:  # the tests are over
            os._exit(0)
        *streams, result = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (bell, ring, result, *results.values()):
                os.close(descriptor)
            requests.close()
            return json.loads(message), streams
        os.write(result, f"{pid}\n".encode())
        results[pid] = result
        for stream in streams:
            os.close(stream)


def report_ended(results: dict[int, int]) -> None:
    """Tell the tests how the children that have ended did."""
    for pid in list(results):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            result = results.pop(pid)
            os.write(result, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(result)


def become(request: Mapping[str, Any], streams: list[int]) -> None:
    """Run a command in this process, as if it had just been started."""
    if request["terminal"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ |= request["environment"]
    sys.stdin = sys.__stdin__ = _open_stream(0, "rb")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _open_stream(1, "wb")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _open_stream(2, "wb")  # type: ignore[misc]
    random.seed()
    script = request["script"]
    sys.argv[:] = [script or "perdure", *request["arguments"]]
    sys.path[0] = str(Path(script).parent) if script else request["folder"]
    if script:
        runpy.run_path(script, run_name="__main__")
    else:
        runpy.run_module("perdure", run_name="__main__", alter_sys=True)


def _open_stream(descriptor: int, mode: str) -> io.TextIOWrapper:
    """Open a standard stream as Python does when it starts."""
    data: Any = open(descriptor, mode, closefd=False)  # noqa: SIM115 - stays open
    is_error = descriptor == 2
    errors = "backslashreplace" if is_error else "strict"
    return io.TextIOWrapper(data, "utf-8", errors, line_buffering=is_error or os.isatty(descriptor))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        import_everything()
        gc.collect()
        gc.freeze()
        order = serve(connection)
    become(*order)
