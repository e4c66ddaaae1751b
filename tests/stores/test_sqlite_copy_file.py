"""A file appears under its name when it is complete, or not at all."""

import os
import stat
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure._stores.sqlite.file_system import rename_when_done


def list_open_files(folder: Path) -> list[str]:
    """The files of this process that are open below a folder, and the folder itself."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [name for link in links if (name := str(link.readlink())).startswith(str(folder))]


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy.db"


def test_a_file_appears_when_it_is_complete_for_its_owner_alone_and_nothing_stays_open(copy):
    with rename_when_done(str(copy)) as place:
        Path(place).write_text("whole")
        assert not copy.exists()
    assert copy.read_text() == "whole"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]
    assert list_open_files(copy.parent) == []


def test_what_could_not_be_completed_leaves_nothing(copy):
    with pytest.raises(ZeroDivisionError), rename_when_done(str(copy)) as place:  # noqa: PT012 - both are the subject
        Path(place).write_text("half")
        raise ZeroDivisionError
    assert list(copy.parent.iterdir()) == []


def test_what_is_there_already_is_left(copy):
    copy.write_text("old")
    with pytest.raises(ConfigError, match="exists already, and has been left as it is"), rename_when_done(str(copy)):
        raise AssertionError("not reached")
    assert copy.read_text() == "old"


def test_what_came_into_being_meanwhile_is_left(copy):
    with (
        pytest.raises(ConfigError, match="has come into being, and has been left as it is"),
        rename_when_done(str(copy)),
    ):
        copy.write_text("somebody else's")
    assert copy.read_text() == "somebody else's"
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_where_a_file_can_have_but_one_name_it_is_renamed(copy, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    with rename_when_done(str(copy)) as place:
        Path(place).write_text("whole")
    assert copy.read_text() == "whole"


def test_the_content_and_then_the_name_reach_the_disk(copy, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))
    with rename_when_done(str(copy)) as place:
        Path(place).write_text("whole")
    assert synced == [Path(place), copy.parent]
