"""Programs that the runtime starts for itself are none of a project, which a command could have written."""

import pytest

from perdure import ConfigError
from perdure._io.processes.program import find_program_outside
from perdure._tools.browser.chromium import find_chromium
from perdure._tools.sandbox import bubblewrap
from perdure.hosts import LocalFiles, LocalSearch
from perdure.tools import LocalGit


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a virtual environment that is active, and programs in it."""
    project = tmp_path / "project"
    for folder in (".git", "docs", ".venv/bin"):
        (project / folder).mkdir(parents=True)
    _make_programs(project / ".venv" / "bin")
    monkeypatch.setenv("PATH", str(project / ".venv" / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return project


def _make_programs(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("rg", "git", "chromium"):
        (folder / name).write_text("#!/bin/sh\necho stolen\n")
        (folder / name).chmod(0o755)


def test_no_program_of_the_project_around_the_working_folder_is_run(project, monkeypatch):
    monkeypatch.setattr(bubblewrap, "SYSTEM_PATH", "/nowhere")
    monkeypatch.chdir(project / "docs")
    assert not LocalSearch(LocalFiles(project / "docs")).uses_ripgrep
    with pytest.raises(ConfigError, match="install git"):
        LocalGit(LocalFiles(project / "docs"))
    with pytest.raises(ConfigError, match="install it"):
        find_chromium()
    assert find_chromium(project / ".venv" / "bin" / "chromium")  # which a person has named


@pytest.mark.parametrize("how", ["file", "folder"])
def test_links_that_lead_into_the_project_bring_none_either(project, tmp_path, monkeypatch, how):
    inside, place = project / ".venv" / "bin", tmp_path / "links"
    if how == "folder":
        place.symlink_to(inside)
    else:
        place.mkdir()
        (place / "rg").symlink_to(inside / "rg")
    monkeypatch.setenv("PATH", str(place))
    assert find_program_outside("rg", str(project / "docs")) == ""


def test_the_first_program_outside_the_project_is_found(project, tmp_path, monkeypatch):
    outside = tmp_path / "own" / "bin"
    _make_programs(outside)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PATH", f"{project}/.venv/bin:.venv/bin::{outside}")
    assert find_program_outside("rg", str(project / "docs")) == str(outside / "rg")
    assert find_chromium() == str(outside / "chromium")


def test_programs_of_a_home_that_is_a_repository_as_a_whole_are_found(tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / ".git").mkdir(parents=True)
    (home / "work").mkdir()
    _make_programs(home / ".local" / "bin")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(home / ".local" / "bin"))
    assert find_program_outside("rg", str(home / "work")) == str(home / ".local" / "bin" / "rg")
