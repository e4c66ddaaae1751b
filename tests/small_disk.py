"""A disk that is soon full: a file system in memory, for whoever may mount one."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A disk of this size (`512k`, `2m`) below a folder, as long as the block lasts."""
    place = folder / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"only who may mount can try a full disk: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def remount(place: Path, option: str) -> None:
    """Change it while it is there: `size=16m` makes room, `ro` forbids writing."""
    subprocess.run(["mount", "-o", f"remount,{option}", place], check=True)
