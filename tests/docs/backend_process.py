"""The backend of docs/how-to/web-backend.md as a process that is forked from a warm one.

What a server imports costs half a second of CPU, and the tests start many of them. Above: `test_web_backend.py`.
"""

import multiprocessing
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(
    [
        "fastapi",
        "uvicorn.lifespan.on",
        "uvicorn.loops.auto",
        "uvicorn.protocols.http.auto",
        "uvicorn.protocols.websockets.auto",
        "perdure._runtime.agent.agent",
        "perdure._runtime.shutdown",
        "perdure._stores.sqlite.store",
        "perdure.testing",
        __name__,
    ]
)


def serve(folder: Path, errors: Path, listening: socket.socket, options: Sequence[str]) -> None:
    """Be the server of the backend in this folder, until a signal ends it."""
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    with errors.open("wb") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    uvicorn.main(["backend:app", "--fd", str(listening.fileno()), "--log-level", "warning", *options])
