"""Text files below one folder, and nothing else."""

import contextlib
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ToolError
from perdure._tools.basic import MOST_BYTES, ConfinedTextFolder


@pytest.fixture
def place(tmp_path):
    """A folder with a secret beside it."""
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep" / "note.txt").write_text("héllo\n", encoding="utf-8")
    return inside


def refusal(work, *arguments) -> str:
    with pytest.raises(ToolError) as raised:
        work(*arguments)
    return str(raised.value)


def test_a_text_file_is_read(place):
    assert ConfinedTextFolder(place).read_text("deep/note.txt") == "héllo\n"
    assert ConfinedTextFolder(place).read_text(str(place / "deep" / ".." / "deep" / "note.txt")) == "héllo\n"


def test_a_link_that_stays_inside_is_followed(place):
    (place / "link").symlink_to("deep")
    assert ConfinedTextFolder(place).read_text("link/note.txt") == "héllo\n"


@pytest.mark.parametrize("path", ["../secret.txt", "deep/../../secret.txt", "/etc/passwd", "link", "up/secret.txt"])
def test_no_path_leads_out(place, path):
    (place / "link").symlink_to("../secret.txt")
    (place / "up").symlink_to("..")
    assert re.search("outside the folder|leads out", refusal(ConfinedTextFolder(place).read_text, path))
    assert re.search("outside the folder|leads out", refusal(ConfinedTextFolder(place).write_text, path, "mine"))
    assert (place.parent / "secret.txt").read_text(encoding="utf-8") == "secret"


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(place, monkeypatch):
    (place / "swapped").symlink_to("..")
    folder = ConfinedTextFolder(place)
    monkeypatch.setattr(
        folder, "_resolve_steps", lambda path, *_: tuple(path.split("/"))
    )  # as it was when the links were resolved
    assert "cannot be read" in refusal(folder.read_text, "swapped/secret.txt")
    assert "cannot be written" in refusal(folder.write_text, "swapped/new.txt", "mine")
    assert not (place.parent / "new.txt").exists()


@pytest.mark.parametrize("path", [".env", ".git/config", ".", "", " ", "a\0b", "\ud800"])
def test_hidden_files_and_what_is_no_path_are_refused(place, path):
    (place / ".env").write_text("KEY=1", encoding="utf-8")
    refusal(ConfinedTextFolder(place).read_text, path)
    refusal(ConfinedTextFolder(place).write_text, path, "mine")


@pytest.mark.parametrize(
    "name", ["id_rsa", "server.pem", "credentials.json", "secrets.yaml", "deep/prod.env", "ID_RSA"]
)
def test_a_file_whose_name_means_secrets_is_not_read_whatever_a_link_calls_it(place, name):
    (place / name).write_text("key", encoding="utf-8")
    (place / "harmless.txt").symlink_to(name)
    assert "may contain secrets" in refusal(ConfinedTextFolder(place).read_text, name)
    assert "may contain secrets" in refusal(ConfinedTextFolder(place).read_text, "harmless.txt")


def test_only_regular_files_are_read(place):
    os.mkfifo(place / "pipe")
    assert "no regular file" in refusal(ConfinedTextFolder(place).read_text, "pipe")
    assert "a directory" in refusal(ConfinedTextFolder(place).read_text, "deep")
    assert "cannot be read: there is no such file" in refusal(ConfinedTextFolder(place).read_text, "missing.txt")


def test_a_file_that_is_not_text_is_refused(place):
    (place / "image").write_bytes(b"\x89PNG\0\1")
    assert "not a text file" in refusal(ConfinedTextFolder(place).read_text, "image")


def test_of_a_large_file_the_beginning_is_read(place):
    (place / "large.txt").write_bytes(b"x" * (MOST_BYTES + 5))
    text = ConfinedTextFolder(place).read_text("large.txt")
    assert text.startswith("xxx")
    assert text.endswith("[cut off: the first 100,000 of 100,005 bytes]")


def test_a_new_file_is_written_and_an_old_one_is_kept(place):
    folder = ConfinedTextFolder(place)
    assert folder.write_text("deep/new.txt", "hé") == "wrote 3 bytes to 'deep/new.txt'"
    assert folder.read_text("deep/new.txt") == "hé"
    assert "is not replaced" in refusal(folder.write_text, "deep/new.txt", "other")
    assert folder.read_text("deep/new.txt") == "hé"
    assert "cannot be written" in refusal(folder.write_text, "nowhere/new.txt", "text")
    assert "100,000 are the most" in refusal(folder.write_text, "big.txt", "x" * (MOST_BYTES + 1))


@given(st.text(max_size=20))
def test_whatever_the_path_nothing_but_a_refusal_or_a_text_comes_back(tmp_path_factory, path):
    folder = ConfinedTextFolder(tmp_path_factory.getbasetemp())
    with contextlib.suppress(ToolError):
        assert isinstance(folder.read_text(path), str)


def test_hidden_files_and_the_folder_itself_are_neither_read_nor_written(place):
    (place / ".hidden").write_text("x")
    folder = ConfinedTextFolder(place)
    reason = "it is hidden, or no file at all: use one whose name has no dot in front"
    for path in (".hidden", "deep/../.hidden", ".", ".new/x"):
        assert refusal(folder.read_text, path) == f"{path!r} cannot be read: {reason}"
        assert refusal(folder.write_text, path, "x") == f"{path!r} cannot be written: {reason}"


def test_only_the_path_that_was_permitted_is_read_and_written(place):
    folder = ConfinedTextFolder(place)
    reason = "a link on the way has changed since permission was given: try it again"
    assert folder.read_text("deep/note.txt", f"{folder.root}/deep/note.txt") == "héllo\n"
    assert refusal(folder.read_text, "deep/note.txt", f"{folder.root}/note.txt").endswith(f"cannot be read: {reason}")
    assert folder.write_text("new.txt", "x", f"{folder.root}/new.txt") == "wrote 1 bytes to 'new.txt'"
    assert refusal(folder.write_text, "b.txt", "x", f"{folder.root}/c.txt").endswith(f"cannot be written: {reason}")
    assert not (place / "b.txt").exists()
