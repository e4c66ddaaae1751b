"""A folder or a configuration that is exchanged between the question about it and its use."""

import click
import pytest

from perdure import ConfigError
from perdure._cli.run.folder_trust import ask_for_folder_trust, is_folder_trusted, load_folder_trust
from perdure._cli.services import config as cli_config
from perdure._cli.services.config import ask_for_trust, read_config_for_review


@pytest.fixture
def project(perdure, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "perdure.toml").write_text('model = "demo"\n')
    monkeypatch.chdir(folder)
    return folder


def rename(folder) -> None:
    """Another folder takes its place."""
    folder.rename(folder.with_name("honest"))
    (folder / ".git").mkdir(parents=True)
    (folder / "AGENTS.md").touch()


def link(folder) -> None:
    """A link to another folder takes its place."""
    folder.rename(folder.with_name("honest"))
    (folder.with_name("evil") / ".git").mkdir(parents=True)
    (folder.with_name("evil") / "AGENTS.md").touch()
    folder.symlink_to(folder.with_name("evil"))


def remove(folder) -> None:
    """It is gone."""
    folder.rename(folder.with_name("honest"))


def answer(monkeypatch, folder, exchange) -> None:
    """The user says yes, and something has happened meanwhile."""

    def confirm(*_arguments, **_options) -> bool:
        exchange(folder)
        return True

    monkeypatch.setattr(click, "confirm", confirm)


@pytest.mark.parametrize("exchange", [rename, link, remove])
def test_a_folder_that_is_exchanged_while_the_user_is_asked_is_not_trusted(project, monkeypatch, exchange):
    answer(monkeypatch, project, exchange)
    with pytest.raises(ConfigError, match=r"another folder has taken the place of .*nothing is trusted"):
        ask_for_folder_trust(str(project))
    assert load_folder_trust().list_trusted() == []
    if project.exists():
        assert not is_folder_trusted(str(project))


def test_a_folder_that_is_exchanged_during_a_question_about_its_configuration_is_not_trusted(project, monkeypatch):
    look = read_config_for_review("perdure.toml")
    answer(monkeypatch, project, rename)
    with pytest.raises(ConfigError, match="another folder has taken the place of"):
        ask_for_trust("perdure.toml", look, str(project))
    assert load_folder_trust().list_trusted() == []


def test_a_configuration_that_changes_while_the_user_is_asked_is_trusted_as_it_was(perdure, project, monkeypatch):
    path = project / "perdure.toml"
    look = read_config_for_review("perdure.toml")
    answer(monkeypatch, project, lambda _: path.write_text('model = "http://evil.example#x"\n'))
    assert ask_for_trust("perdure.toml", look)
    assert not cli_config.load_trust_record()(read_config_for_review("perdure.toml").digest)
    assert perdure("run", "-q", "Hello.").exit_code == 2


def test_a_folder_that_stays_is_trusted(project, monkeypatch):
    answer(monkeypatch, project, lambda folder: (folder / "more").touch())
    assert ask_for_folder_trust(str(project))
    assert is_folder_trusted(str(project))
