"""Files for their owner alone, whatever was there before."""

import os
import stat
from pathlib import Path

import pytest

from perdure.files.private_file import open_private_file


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
    before = Path(os.devnull).stat().st_mode
    os.close(open_private_file(os.devnull, os.O_WRONLY))
    assert Path(os.devnull).stat().st_mode == before
