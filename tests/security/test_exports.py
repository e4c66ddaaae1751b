"""Files that the command line writes: not through a link, not into a file that another made, for their owner only."""

import os
import stat
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure._cli.sessions import transfer
from perdure._cli.sessions.transfer import write_file_atomically
from perdure._stores.sqlite.file_system import rename_when_done


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in which others may write too, and a umask that keeps nothing from them."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    yield tmp_path
    os.umask(before)


def plant_everywhere(folder, make) -> list[str]:
    """Take every name that could be told beforehand; returns them."""
    names = [f"out.json{end}" for end in ("", f".{os.getpid()}.unfinished", ".unfinished", ".tmp", "~", ".part")]
    for name in names[1:]:
        make(folder / name)
    return names


@pytest.mark.parametrize("force", [False, True])
def test_a_planted_link_beside_the_file_is_not_written_through(folder, force):
    victim = folder / "victim"
    victim.write_text("mine", encoding="utf-8")
    plant_everywhere(folder, lambda place: place.symlink_to(victim))
    write_file_atomically("out.json", b"secret", replace=force)
    assert victim.read_text(encoding="utf-8") == "mine"
    assert (folder / "out.json").read_bytes() == b"secret"


@pytest.mark.parametrize("force", [False, True])
def test_a_planted_file_beside_it_does_not_lend_its_mode(folder, force):
    def plant(place) -> None:
        place.write_text("planted", encoding="utf-8")
        place.chmod(0o666)

    names = plant_everywhere(folder, plant)
    write_file_atomically("out.json", b"secret", replace=force)
    assert stat.S_IMODE((folder / "out.json").stat().st_mode) == 0o600
    assert {(folder / name).read_text(encoding="utf-8") for name in names[1:]} == {"planted"}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["link to a file", "link to nothing", "folder", "pipe"])
def test_what_is_no_regular_file_is_not_replaced(folder, kind, force):
    place = folder / "out.json"
    (folder / "victim").write_text("mine", encoding="utf-8")
    match kind:
        case "link to a file":
            place.symlink_to(folder / "victim")
        case "link to nothing":
            place.symlink_to(folder / "nowhere")
        case "folder":
            place.mkdir()
        case _:
            os.mkfifo(place)
    before = place.lstat()
    with pytest.raises(ConfigError, match=r"name another file"):
        write_file_atomically("out.json", b"secret", replace=force)
    assert place.lstat().st_ino == before.st_ino
    assert (folder / "victim").read_text(encoding="utf-8") == "mine"
    assert not (folder / "nowhere").exists()
    assert not [each for each in folder.iterdir() if "unfinished" in each.name]


def test_a_file_that_appears_meanwhile_is_left(folder, monkeypatch):
    def appear(path, *, replace) -> None:
        (folder / path).write_text("mine", encoding="utf-8")

    monkeypatch.setattr(transfer, "_check_free", appear)
    with pytest.raises(ConfigError, match="was created meanwhile"):
        write_file_atomically("out.json", b"secret", replace=False)
    assert (folder / "out.json").read_text(encoding="utf-8") == "mine"


def test_an_export_replaces_an_open_file_by_a_private_one(folder):
    (folder / "out.json").write_text("old", encoding="utf-8")
    (folder / "out.json").chmod(0o666)
    write_file_atomically("out.json", b"secret", replace=True)
    assert stat.S_IMODE((folder / "out.json").stat().st_mode) == 0o600


def test_a_backup_is_not_written_through_a_planted_link(folder):
    victim = folder / "victim"
    victim.write_text("mine", encoding="utf-8")
    plant_everywhere(folder, lambda place: place.symlink_to(victim))
    with rename_when_done("out.json") as place:
        Path(place).write_bytes(b"secret")
        assert stat.S_IMODE(Path(place).stat().st_mode) == 0o600
    assert victim.read_text(encoding="utf-8") == "mine"
    with pytest.raises(ConfigError, match="exists already"), rename_when_done("out.json"):
        pass
