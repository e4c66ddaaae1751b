"""What the tests of stores share: entries to append, and others who use the same file."""

import subprocess
import sys
from contextlib import contextmanager

import apsw

from perdure._stores.sqlite.format.pages import find_checksum_vfs
from perdure.events import Custom, Entry
from tests.architecture.source import ROOT


def entries(first: int, count: int = 1) -> list[Entry]:
    return [Entry(seq, 1.0, Custom("data", seq), f"e-{seq}") for seq in range(first, first + count)]


@contextmanager
def child(*arguments, programs="children"):
    """One of the programs in children.py, or in another file."""
    python = [sys.executable, "-W", "ignore::DeprecationWarning"]
    command = [*python, "-m", f"tests.stores.{programs}", *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def another_connection(path):
    """As another process would have it."""
    connection = apsw.Connection(str(path), vfs=find_checksum_vfs())
    try:
        yield connection
    finally:
        connection.close()
