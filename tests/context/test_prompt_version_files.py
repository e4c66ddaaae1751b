"""Prompts in versions."""

import os
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure._context.prompt_files import MOST_BYTES
from perdure._io.files.confined_folder import ConfinedFolder
from perdure.context import Prompts


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "v2.md").write_text("Two.\n\n\n", encoding="utf-8")
    (tmp_path / "v1.md").write_text("One.", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no prompt", encoding="utf-8")
    return tmp_path


def test_a_version_is_the_name_of_a_file(folder):
    prompts = Prompts(folder, "v1")
    assert prompts.versions == ("v1", "v2")
    assert prompts.default == "v1"
    assert prompts.get("v2") == "Two.\n"


def test_no_version_means_the_default(folder):
    prompts = Prompts(folder, "v2")
    assert prompts.get() == prompts.get("") == "Two.\n"


def test_an_unknown_version_is_an_error_that_lists_all(folder):
    with pytest.raises(ConfigError) as caught:
        Prompts(folder, "v1").get("v3")
    assert str(caught.value) == f"there is no version 'v3' of the prompts in {str(folder)!r}; there are 'v1', 'v2'"


@pytest.mark.parametrize(
    ("default", "complaint"),
    [
        ("v3", "there are 'v1', 'v2'"),
        ("", "give non-empty text"),
        (None, "give non-empty text"),
        ("../v1", "there is no version"),
    ],
)
def test_the_default_has_to_be_there(folder, default, complaint):
    with pytest.raises(ConfigError) as caught:
        Prompts(folder, default)
    assert complaint in str(caught.value)


def test_line_ends_of_windows_are_ours(tmp_path):
    (tmp_path / "v1.md").write_bytes(b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\n")
    assert Prompts(tmp_path, "v1").get() == "One.\nTwo.\n"


def test_a_file_that_cannot_be_a_prompt_is_refused_at_once(folder):
    for make in (
        lambda path: path.touch(),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_bytes(b"x" * (MOST_BYTES + 1)),
        os.mkfifo,
    ):
        make(folder / "v3.md")
        with pytest.raises(ConfigError, match=r"v3\.md"):
            Prompts(folder, "v1")
        (folder / "v3.md").unlink()


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Prompts(tmp_path / "prompts", "v1")
    with pytest.raises(ConfigError, match=r"Prompts\(directory=7\)"):
        Prompts(7, "v1")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"there are none, as there is no \*\.md file"):
        Prompts(tmp_path, "v1")


def test_prompts_show_what_they_are(folder):
    assert repr(Prompts(folder, "v1")) == f"Prompts({str(folder)!r}, default='v1', versions=('v1', 'v2'))"


def test_the_folder_is_shown_as_it_was_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert Prompts(folder.name, "v1").directory == folder.name
    assert Prompts(folder, "v1").directory == str(folder)
    confined = ConfinedFolder(folder.name)
    assert Prompts(confined, "v2").directory == confined.root
    assert Prompts(confined, "v2").get() == "Two.\n"
    with pytest.raises(ConfigError) as caught:
        Prompts(folder.name, "v9")
    assert str(caught.value) == f"there is no version 'v9' of the prompts in {folder.name!r}; there are 'v1', 'v2'"
