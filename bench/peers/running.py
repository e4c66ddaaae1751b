"""Start the scripted server, and measure contestants against it, each in a process and an environment of its own."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from bench.peers.catalogue import ROOT, Peer

SECONDS = 600
"""A contestant that takes longer has failed."""


class TrialError(Exception):
    """A contestant did not get to the end; the message has the end of what it printed."""


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Run the server as another process, and yield its port."""
    command = [sys.executable, "-m", "bench.http.server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()


def run_python(peer: Peer, *arguments: str) -> str:
    """Run the Python of a contestant, and return what it prints. Raise `TrialError` if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            [str(peer.python), *arguments], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, timeout=SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TrialError(str(error)) from error
    if done.returncode:
        raise TrialError(done.stderr.strip()[-2000:])
    return done.stdout


def run_trial(
    peer: Peer, part: str, port: str, sizes: Mapping[str, int], *, prepare: str = "prepare"
) -> dict[str, Any]:
    """Return what `bench.peers.trial` measures of one part."""
    printed = run_python(peer, "-m", "bench.peers.trial", peer.module, prepare, part, port, json.dumps(sizes))
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found
