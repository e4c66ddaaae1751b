"""scripts/system_parts.py: what is installed, and what is said where nothing may be."""

import pytest

from scripts import system_parts
from scripts.system_parts import Part


@pytest.fixture
def absent(monkeypatch):
    """A table with one part that is there and one that is not."""
    monkeypatch.setattr(
        system_parts,
        "PARTS",
        {"hammer": Part("hammer-tools", lambda: True), "anvil": Part("anvil-server", lambda: False)},
    )


def test_a_command_is_found_on_the_path():
    assert system_parts.on_path("sh")()
    assert not system_parts.on_path("no-such-command-anywhere")()


def test_the_programs_of_a_server_are_found_where_debian_keeps_them_or_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setattr(system_parts, "DEBIAN_POSTGRES", tmp_path / "versions")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert system_parts.postgres_folder() is None
    assert not system_parts.PARTS["postgres"].present()
    for folder in ("path", "versions/9.6/bin", "versions/15/bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "initdb").touch(mode=0o755)
        assert system_parts.postgres_folder() == tmp_path / folder
    assert system_parts.PARTS["postgres"].present()


@pytest.mark.usefixtures("absent")
def test_where_we_may_not_install_the_way_to_get_a_part_is_told(monkeypatch, capsys):
    monkeypatch.setattr(system_parts, "may_install", lambda: False)
    system_parts.main()
    assert capsys.readouterr().out == (
        'parts: anvil is missing, so tests marked needs("anvil") are left out. '
        "Debian and Ubuntu: apt-get install anvil-server\n"
    )


@pytest.mark.usefixtures("absent")
def test_where_we_may_only_what_is_missing_is_installed(monkeypatch):
    installed: list[str] = []
    monkeypatch.setattr(system_parts, "may_install", lambda: True)
    monkeypatch.setattr(system_parts, "install", installed.extend)
    system_parts.main()
    assert installed == ["anvil"]


def test_with_nothing_missing_nothing_is_said(monkeypatch, capsys):
    monkeypatch.setattr(system_parts, "PARTS", {"hammer": Part("hammer-tools", lambda: True)})
    system_parts.main()
    assert capsys.readouterr().out == ""
