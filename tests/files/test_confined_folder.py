"""One regular file below a folder, read without leaving it."""

import errno
import os

import pytest

from perdure._core.permission.targets import path as open_without_links
from perdure._io.files.confined_folder import ConfinedFolder
from perdure._io.files.sensitive import SENSITIVE_NAMES
from perdure.hosts import FileRefused
from tests.doubles import list_open_below


@pytest.fixture(params=["step by step", "whole"])
def place(tmp_path, request, monkeypatch):
    """A folder with a secret beside it, read in either way."""
    monkeypatch.setattr(open_without_links, "STEP_BY_STEP", request.param == "step by step")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    root = tmp_path.resolve() / "root"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "note.txt").write_text("hello", encoding="utf-8")
    return root


def refusal(root, path, most_bytes=100, *, follow_links=False, blocked=()) -> str:
    with pytest.raises(FileRefused) as raised:
        ConfinedFolder(root, follow_links=follow_links, blocked=blocked).read_whole(path, most_bytes)
    return str(raised.value)


@pytest.mark.parametrize("path", ["deep/note.txt", "./deep/note.txt", "deep/../deep//note.txt", "x/../deep/note.txt"])
def test_a_file_is_read(place, path):
    for follow_links in (True, False):
        folder = ConfinedFolder(place, follow_links=follow_links)
        assert folder.read_whole(path, 5) == folder.read_whole(str(place / path), 5) == b"hello"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.txt", "outside the folder"),
        ("deep/../../secret.txt", "outside the folder"),
        ("/etc/passwd", "outside the folder"),
        ("..", "outside the folder"),
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
    assert "5 bytes, and the limit is 4" in refusal(place, "deep/note.txt", 4)
    assert ConfinedFolder(place).read_head("deep/note.txt", 4) == (b"hell", 5)


@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("a", "../secret.txt", "a"),
        ("a", "..", "a/secret.txt"),
        ("deep/a", "../../secret.txt", "deep/a"),
        ("a", "/proc/self/environ", "a"),
        ("a", "deep", "a/../../secret.txt"),
        ("a", "../outside/far", "a/../../secret.txt"),
        ("a", "../outside/far", "a/../root/../secret.txt"),
    ],
)
def test_a_link_that_leads_out_is_refused_also_when_two_dots_follow_it(place, link, target, path):
    (place.parent / "outside" / "far").mkdir(parents=True)
    (place / link).symlink_to(target)
    assert "out" in refusal(place, path, follow_links=True)


def test_two_dots_after_a_link_lead_where_the_system_says(place):
    """`link/../x` is beside what the link leads to, not beside the link."""
    (place / "deep" / "deeper").mkdir()
    (place / "link").symlink_to("deep/deeper")
    assert ConfinedFolder(place).read_whole("link/../note.txt", 5) == b"hello"
    assert "no such file" in refusal(place, "link/../deep/note.txt", follow_links=True)


def test_a_link_that_stays_inside_is_followed_unless_it_hides_a_sensitive_name(place):
    (place / "link.txt").symlink_to("deep/note.txt")
    assert ConfinedFolder(place).read_whole("link.txt", 5) == b"hello"
    for name in ("id_rsa", ".env", "server.pem"):
        (place / name).write_text("key", encoding="utf-8")
        (place / f"{name}.md").symlink_to(name)
        assert "may contain secrets" in refusal(place, f"{name}.md", follow_links=True)
        assert "may contain secrets" in refusal(place, name, blocked=SENSITIVE_NAMES)
        assert ConfinedFolder(place).read_whole(name, 5) == b"key"  # named as it is, where the caller blocks nothing


def test_a_folder_below_is_a_confinement_of_its_own(place):
    (place / "top.txt").write_text("top", encoding="utf-8")
    (place / "deep" / "up.txt").symlink_to("../top.txt")
    (place / "link").symlink_to("deep")
    for path in ("deep", "link"):
        below = ConfinedFolder(place).enter(path)
        assert below.root == str(place / "deep")
        assert below.read_whole("note.txt", 5) == b"hello"
        assert sorted(below.list_names()) == ["note.txt", "up.txt"]
        with pytest.raises(FileRefused, match="leads out"):
            below.read_whole("up.txt", 5)
    for path in ("..", "/", "../root-too"):
        with pytest.raises(FileRefused, match="outside"):
            ConfinedFolder(place).enter(path)
    (place / ".ssh").mkdir()
    with pytest.raises(FileRefused, match="secrets"):
        ConfinedFolder(place, blocked=SENSITIVE_NAMES).enter(".ssh")


def test_a_folder_that_becomes_a_link_is_neither_listed_nor_read(place):
    below = ConfinedFolder(place).enter("deep")
    to_link(place / "deep", place.parent)()
    with pytest.raises(OSError, match=r"."):
        below.list_names()
    with pytest.raises(FileRefused):
        below.read_whole("secret.txt", 10)


def test_a_new_file_is_created_and_no_link_is_written_through(place):
    folder = ConfinedFolder(place)
    folder.create_resolved(folder.resolve("deep/new.txt"), b"mine")
    assert (place / "deep" / "new.txt").read_bytes() == b"mine"
    with pytest.raises(FileExistsError):
        folder.create_resolved(("deep", "new.txt"), b"other")
    (place / "swapped").symlink_to("..")
    with pytest.raises(OSError, match=r"."):
        folder.create_resolved(("swapped", "new.txt"), b"mine")
    assert not (place.parent / "new.txt").exists()


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


def test_a_read_that_fails_is_told_and_nothing_stays_open(place, monkeypatch):
    before = list_open_below(place)

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    assert "Input/output error" in refusal(place, "deep/note.txt")
    assert list_open_below(place) == before


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
        data = ConfinedFolder(place).read_resolved(("deep", "note.txt"), 100).data
    except FileRefused:
        data = b"hello"
    assert data == b"hello"


def test_a_file_that_was_exchanged_while_it_was_opened_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(open_without_links, "STEP_BY_STEP", False)
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
