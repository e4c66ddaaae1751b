"""The record of folders whose text and configuration the user trusts."""

import stat
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure._config import trusted
from perdure._config.trusted import TrustedFolders, find_folder_to_trust
from perdure._io.files.linux_calls import read_birth_time_ns


@pytest.fixture
def record(tmp_path, monkeypatch):
    """A record in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    (tmp_path / "person").mkdir()
    return TrustedFolders(str(tmp_path / "kept" / "trusted-folders.json"))


@pytest.fixture
def project(tmp_path):
    """A folder with a repository of others."""
    (tmp_path / "person" / "work" / "project" / ".git").mkdir(parents=True)
    (tmp_path / "person" / "work" / "project" / ".git" / "config").write_text("[core]\n")
    return tmp_path / "person" / "work" / "project"


def test_nothing_is_trusted_before_somebody_says_so(record, project):
    assert record.check(project) == "unknown"
    assert record.list_trusted() == []


def test_trust_is_for_a_folder_and_those_below_it_alone(record, project):
    record.trust(project)
    (project / "source" / "deep").mkdir(parents=True)
    assert record.check(project) == "trusted"
    assert record.check(project / "source" / "deep") == "trusted"
    assert record.check(project.parent) == "unknown"
    assert record.check(project.with_name("project2")) == "unknown"
    assert record.list_trusted() == [str(project)]


def test_trust_is_for_the_real_path(record, project, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(project)
    record.trust(link)
    assert record.check(project) == "trusted"
    link.unlink()
    (tmp_path / "other").mkdir()
    link.symlink_to(tmp_path / "other")
    assert record.check(link) == "unknown"


def test_a_link_below_a_trusted_folder_does_not_make_what_it_leads_to_trusted(record, project, tmp_path):
    record.trust(project)
    (tmp_path / "outside").mkdir()
    (project / "way").symlink_to(tmp_path / "outside")
    assert record.check(project / "way") == "unknown"


def test_a_folder_in_the_place_of_a_trusted_one_is_not_trusted(record, project):
    record.trust(project)
    project.rename(project.with_name("moved"))
    project.mkdir()
    assert record.check(project) == "replaced"
    assert record.check(project.with_name("moved")) == "unknown"
    record.trust(project)
    assert record.check(project) == "trusted"


def test_a_folder_with_the_number_of_the_trusted_one_that_was_removed_is_not_trusted(record, project, monkeypatch):
    """As `rm -rf project; git clone … project` makes it on many file systems."""
    if read_birth_time_ns(str(project)) is None:
        pytest.skip("this file system does not tell when a folder was made")
    monkeypatch.setattr(trusted, "_read_number", lambda _path: 7)
    record.trust(project)
    (project / "file").touch()
    assert record.check(project) == "trusted"
    project.rename(project.with_name("moved"))
    born = read_birth_time_ns(str(project.with_name("moved")))
    project.mkdir()
    for _ in range(100_000):
        if read_birth_time_ns(str(project)) != born:  # the clock of the file system goes in steps
            break
        project.rmdir()
        project.mkdir()
    assert record.check(project) == "replaced"


def test_a_declined_folder_is_not_trusted_and_is_remembered(record, project):
    record.decline(project)
    assert record.check(project) == "declined"
    assert record.list_trusted() == []
    record.trust(project)
    assert record.check(project) == "trusted"


def test_revoking_ends_the_trust(record, project):
    record.trust(project)
    assert record.revoke(project)
    assert not record.revoke(project)
    assert record.check(project) == "unknown"


def test_the_nearest_answer_counts(record, project):
    record.trust(project.parent)
    record.decline(project)
    assert record.check(project) == "declined"


@pytest.mark.parametrize("path", ["~", "/"])
def test_the_home_and_the_root_are_never_trusted(record, path):
    with pytest.raises(ConfigError, match="never trusted as a whole"):
        record.trust(Path(path).expanduser())
    assert not record.can_trust(Path(path).expanduser())


def test_a_record_that_already_has_the_home_does_not_count(record, project, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    record.trust(tmp_path / "person")
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    assert record.check(project) == "unknown"


def test_a_missing_folder_cannot_be_trusted(record, tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        record.trust(tmp_path / "gone")


def test_a_record_in_a_folder_that_others_can_write_to_is_not_used(record, project, tmp_path):
    record.trust(project)
    (tmp_path / "kept").chmod(0o777)
    with pytest.raises(ConfigError, match="chmod 700"):
        record.check(project)
    (tmp_path / "kept").chmod(0o700)
    (tmp_path / "kept" / "trusted-folders.json").chmod(0o666)
    with pytest.raises(ConfigError, match="chmod 600"):
        record.check(project)


def test_a_record_is_for_its_owner_alone(record, project, tmp_path):
    record.trust(project)
    assert stat.S_IMODE((tmp_path / "kept" / "trusted-folders.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["perdure.toml", ".mcp.json", "AGENTS.md", "CLAUDE.md", ".git"])
def test_a_file_of_configuration_asks_for_trust(record, tmp_path, name):
    (tmp_path / "plain").mkdir()
    assert find_folder_to_trust(tmp_path / "plain") is None
    (tmp_path / "plain" / name).write_text("x")
    assert find_folder_to_trust(tmp_path / "plain") == str(tmp_path / "plain")


def test_the_folder_to_trust_is_the_root_of_the_repository(record, project):
    (project / "source").mkdir()
    assert find_folder_to_trust(project / "source") == str(project)


def test_a_repository_in_the_home_does_not_make_all_folders_in_it_one_project(record, tmp_path):
    person = tmp_path / "person"
    (person / ".git").mkdir()
    (person / ".git" / "HEAD").write_text("x")
    (person / "notes").mkdir()
    assert find_folder_to_trust(person / "notes") is None
    assert find_folder_to_trust(person) == str(person)


def test_instructions_above_a_folder_without_a_repository_are_asked_about_too(record, tmp_path):
    unpacked = tmp_path / "person" / "downloads" / "unpacked"
    (unpacked / "source" / "deep").mkdir(parents=True)
    assert find_folder_to_trust(unpacked / "source" / "deep") is None
    (unpacked / "source" / "CLAUDE.md").write_text("Theirs.", encoding="utf-8")
    assert find_folder_to_trust(unpacked / "source" / "deep") == str(unpacked / "source")
    (unpacked / "AGENTS.md").write_text("Theirs.", encoding="utf-8")
    for folder in (unpacked / "source" / "deep", unpacked / "source", unpacked):
        assert find_folder_to_trust(folder) == str(unpacked)
    record.trust(unpacked)
    assert record.check(unpacked / "source" / "deep") == "trusted"


def test_a_bare_repository_asks_for_trust_too(record, tmp_path):
    bare = tmp_path / "bare"
    for name in ("objects", "refs"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    assert find_folder_to_trust(bare) == str(bare)


def test_empty_folders_that_the_sandbox_leaves_ask_for_nothing(record, tmp_path):
    (tmp_path / "plain" / ".perdure").mkdir(parents=True)
    (tmp_path / "plain" / "perdure.toml").mkdir()
    assert find_folder_to_trust(tmp_path / "plain") is None
