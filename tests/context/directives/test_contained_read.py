"""One regular file below a folder, read without leaving it."""

import errno
import os
from pathlib import Path

import pytest

from perdure.context.directives import contained_read as inside
from perdure.context.directives.contained_read import ReadRefused, read_contained_file, split_path


@pytest.fixture(params=["step by step", "whole"])
def place(tmp_path, request, monkeypatch):
    """A folder with a secret beside it, read in either way."""
    monkeypatch.setattr(inside, "_STEP_BY_STEP", request.param == "step by step")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    root = tmp_path.resolve() / "root"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "note.txt").write_text("hello", encoding="utf-8")
    return root


def refusal(root, path, most_bytes=100) -> str:
    with pytest.raises(ReadRefused) as raised:
        read_contained_file(str(root), split_path(path, str(root)), most_bytes)
    return str(raised.value)


@pytest.mark.parametrize("path", ["deep/note.txt", "./deep/note.txt", "deep/../deep//note.txt", "x/../deep/note.txt"])
def test_a_file_is_read(place, path):
    assert read_contained_file(str(place), split_path(path, str(place)), 5) == b"hello"
    assert read_contained_file(str(place), split_path(str(place / path), str(place)), 5) == b"hello"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.txt", "outside the working directory"),
        ("deep/../../secret.txt", "outside the working directory"),
        ("/etc/passwd", "outside the working directory"),
        ("..", "outside the working directory"),
        (".", "a directory"),
        ("deep", "a directory"),
        ("missing", "no such file"),
        ("deep/note.txt/x", "no such file"),
        ("a\0b", "not a valid path"),
        ("\ud800", "not a valid path"),
        ("x" * 5000, "cannot be read"),
        ("pipe", "no regular file"),
    ],
)
def test_what_is_no_file_inside_is_refused(place, path, reason):
    os.mkfifo(place / "pipe")
    assert reason in refusal(place, path)


@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("a", "../secret.txt", "a"),
        ("a", "deep/note.txt", "a"),
        ("a", "..", "a/secret.txt"),
        ("a", "deep", "a/note.txt"),
        ("deep/a", "../../secret.txt", "deep/a"),
        ("a", "a", "a"),
        ("a", "/proc/self/environ", "a"),
    ],
)
def test_no_link_is_followed_wherever_it_leads(place, link, target, path):
    (place / link).symlink_to(target)
    assert "link" in refusal(place, path)


def test_a_file_that_is_too_large_is_refused_before_and_while_it_is_read(place, monkeypatch):
    assert "5 bytes, and no more than 4" in refusal(place, "deep/note.txt", 4)
    fstat = os.fstat
    smaller = lambda descriptor: os.stat_result([*fstat(descriptor)[:6], 0, *fstat(descriptor)[7:]])  # noqa: E731
    monkeypatch.setattr(os, "fstat", smaller)
    if inside._STEP_BY_STEP:
        assert "more than 4 bytes" in refusal(place, "deep/note.txt", 4)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.EACCES, "it cannot be read (Permission denied)"),
        (errno.ENXIO, "it is no regular file"),  # as of a socket
        (errno.EMLINK, "it is a link, or behind one"),  # as some systems say it
    ],
)
def test_why_a_file_cannot_be_opened_is_told(place, monkeypatch, code, reason):
    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", fail)
    assert refusal(place, "deep/note.txt") == reason


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_a_read_that_fails_is_told_and_nothing_stays_open(place, monkeypatch):
    before = open_files()

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    assert "Input/output error" in refusal(place, "deep/note.txt")
    assert open_files() == before


class Swapping:
    """Swaps something for something else just before a file is opened for the n-th time."""

    def __init__(self, nth, swap) -> None:
        self.open = os.open
        self.left = nth
        self.swap = swap

    def __call__(self, path, flags, *args, **kwargs) -> int:
        self.left -= 1
        if self.left == 0:
            self.swap()
        return self.open(path, flags, *args, **kwargs)


def to_link(path, target):
    def swap() -> None:
        path.rename(path.with_name(path.name + "-before"))
        path.symlink_to(target)

    return swap


def to_pipe(path):
    def swap() -> None:
        path.unlink()
        os.mkfifo(path)

    return swap


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(
    "swap",
    [
        lambda root: to_link(root / "deep", root.parent / "outside"),
        lambda root: to_link(root / "deep", "../outside"),
        lambda root: to_link(root / "deep" / "note.txt", root.parent / "secret.txt"),
        lambda root: to_pipe(root / "deep" / "note.txt"),
    ],
)
def test_whatever_is_swapped_meanwhile_nothing_outside_is_read(place, monkeypatch, nth, swap):
    outside = place.parent / "outside"
    outside.mkdir()
    (outside / "note.txt").write_text("secret", encoding="utf-8")
    monkeypatch.setattr(os, "open", Swapping(nth, swap(place)))
    try:
        data = read_contained_file(str(place), ("deep", "note.txt"), 100)
    except ReadRefused:
        data = b"hello"
    assert data == b"hello"


def test_a_file_that_was_exchanged_while_it_was_opened_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(inside, "_STEP_BY_STEP", False)
    root = tmp_path.resolve()
    (root / "a").write_text("first", encoding="utf-8")
    open_file = os.open

    def exchange(path, flags, *args, **kwargs):
        descriptor = open_file(path, flags, *args, **kwargs)
        (root / "b").write_text("second", encoding="utf-8")
        (root / "b").rename(root / "a")
        return descriptor

    monkeypatch.setattr(os, "open", exchange)
    assert "link" in refusal(root, "a")
