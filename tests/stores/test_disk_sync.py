"""Syncs on macOS, where the call that empties the drive's own memory is not known to every file system."""

import errno
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from perdure._stores import files
from perdure._stores.files import sync_data

FULL_SYNC = 51


@pytest.fixture
def calls(monkeypatch):
    """The calls on macOS; the error number put in first is that of the full sync."""
    calls: list[Any] = []

    def control(descriptor, command):
        errors = [each for each in calls if isinstance(each, int)]
        calls.append(("fcntl", descriptor, command))
        if errors:
            raise OSError(errors[0], os.strerror(errors[0]))

    monkeypatch.setitem(sys.modules, "fcntl", SimpleNamespace(F_FULLFSYNC=FULL_SYNC, fcntl=control))
    monkeypatch.setattr(files, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(files, "os", SimpleNamespace(fsync=lambda descriptor: calls.append(("fsync", descriptor))))
    return calls


def test_a_sync_empties_the_memory_of_the_drive(calls):
    sync_data(7)
    assert calls == [("fcntl", 7, FULL_SYNC)]


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_where_a_full_sync_is_not_known_the_file_is_synced_as_sqlite_does_it(calls, number):
    calls.append(number)
    sync_data(7)
    assert calls[1:] == [("fcntl", 7, FULL_SYNC), ("fsync", 7)]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_full_sync_that_failed_is_not_tried_in_another_way(calls, number):
    calls.append(number)
    with pytest.raises(OSError, match=os.strerror(number)):
        sync_data(7)
    assert calls[1:] == [("fcntl", 7, FULL_SYNC)]
