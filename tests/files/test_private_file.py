"""Files for their owner alone, whatever was there before."""

import os
import stat
from pathlib import Path

import pytest

from perdure._io.home.paths import open_private_file


@pytest.mark.parametrize("before", [None, 0o644, 0o600, 0o777])
def test_only_the_owner_can_read_it(tmp_path, before):
    path = tmp_path / "file"
    if before is not None:
        path.touch()
        path.chmod(before)
    with open(path, "w", encoding="utf-8", opener=open_private_file) as file:
        file.write("secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_device_keeps_its_permissions():
    ours, theirs = os.openpty()
    path = Path(os.ttyname(theirs))
    try:
        path.chmod(0o622)
        os.close(open_private_file(str(path), os.O_WRONLY | os.O_NOCTTY))
        assert stat.S_IMODE(path.stat().st_mode) == 0o622
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_pipe_keeps_its_permissions(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    path.chmod(0o622)
    os.close(open_private_file(str(path), os.O_RDWR))
    assert stat.S_IMODE(path.stat().st_mode) == 0o622
