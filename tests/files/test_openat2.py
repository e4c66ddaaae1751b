"""Opening a path in one step: what the kernel is asked, how often, and what is not opened."""

import ctypes
import errno
import gc
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from perdure._io.files import linux_calls
from perdure._io.files.linux_calls import is_available, open_in_one_step

needs_call = pytest.mark.skipif(not is_available(), reason="this kernel has no openat2")


class FakeKernel:
    """A kernel that answers with errors in turn, and then with a descriptor."""

    def __init__(self, *codes: int, descriptor: int = 99) -> None:
        self._codes = [*codes]
        self._descriptor = descriptor
        self.asked: list[Any] = []

    def syscall(self, number: int, folder: int, name: bytes, how: Any, size: int) -> int:
        given = how._obj
        self.asked.append((number, folder, name, given.flags, given.mode, given.resolve, size))
        if not self._codes:
            return self._descriptor
        ctypes.set_errno(self._codes.pop(0))
        return -1


def test_the_kernel_is_asked_for_a_path_without_links(monkeypatch):
    kernel = FakeKernel(descriptor=0)
    monkeypatch.setattr(linux_calls, "_libc", kernel)
    assert open_in_one_step(7, "a/b", os.O_RDONLY, 0o644) == 0
    assert open_in_one_step(7, "a/b", os.O_WRONLY | os.O_CREAT, 0o644) == 0
    read, write = os.O_RDONLY | os.O_CLOEXEC, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    assert kernel.asked == [(437, 7, b"a/b", read, 0, 0x0E, 24), (437, 7, b"a/b", write, 0o644, 0x0E, 24)]


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EINTR])
def test_the_kernel_is_asked_again_when_something_was_renamed_meanwhile(monkeypatch, code):
    monkeypatch.setattr(linux_calls, "_libc", FakeKernel(*[code] * 63))
    assert open_in_one_step(7, "a", os.O_RDONLY) == 99
    monkeypatch.setattr(linux_calls, "_libc", FakeKernel(*[code] * 64))
    with pytest.raises(OSError, match="the folders on the way keep changing: 'a'") as raised:
        open_in_one_step(7, "a", os.O_RDONLY)
    assert raised.value.errno == errno.EAGAIN


def test_another_error_of_the_kernel_is_raised_at_once(monkeypatch):
    kernel = FakeKernel(errno.EACCES)
    monkeypatch.setattr(linux_calls, "_libc", kernel)
    with pytest.raises(PermissionError) as raised:
        open_in_one_step(7, "a", os.O_RDONLY)
    assert (raised.value.filename, len(kernel.asked)) == ("a", 1)


def test_a_system_or_a_sandbox_without_the_call_does_not_have_it(monkeypatch):
    monkeypatch.setattr(linux_calls, "_libc", FakeKernel(errno.EPERM))
    assert is_available() is False
    monkeypatch.setattr(linux_calls, "_libc", None)
    assert is_available() is False
    with pytest.raises(OSError) as raised:
        open_in_one_step(7, "a", os.O_RDONLY)
    assert raised.value.errno == errno.ENOSYS


@needs_call
def test_looking_for_the_call_leaves_nothing_open():
    gc.collect()
    before = {*Path("/proc/self/fd").iterdir()}
    assert is_available() is True
    assert {*Path("/proc/self/fd").iterdir()} <= before


@needs_call
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("link/file", errno.ELOOP),
        ("last", errno.ELOOP),
        ("../beside", errno.EXDEV),
        ("/etc/hosts", errno.EXDEV),
        ("none", errno.ENOENT),
    ],
)
def test_links_and_ways_out_are_refused(tmp_path, path, code):
    (tmp_path / "beside").write_text("x")
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "file").write_text("x")
    (root / "link").symlink_to("deep")
    (root / "last").symlink_to("deep/file")
    folder = os.open(root, os.O_RDONLY)
    with pytest.raises(OSError) as raised:
        open_in_one_step(folder, path, os.O_RDONLY)
    assert raised.value.errno == code
    created = open_in_one_step(folder, "deep/new", os.O_WRONLY | os.O_CREAT, 0o600)
    assert stat.S_IMODE(os.fstat(created).st_mode) == 0o600
    assert not os.get_inheritable(created)
    os.close(created)
    os.close(folder)
