"""`perdure trust`, and the question about a folder that is asked once."""

import json

import pytest

from perdure._cli.run.assembly import collect_agent_parts
from perdure._cli.run.options import AgentOptions
from perdure._io.files.origin import is_recorded, record_path

QUESTION = "Do you trust the files in this folder?"


def make_repository(folder):
    """A folder with a repository that nobody here has made."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n\trepositoryformatversion = 0\n")
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


def test_a_person_is_asked_about_a_folder_of_others_once(shell):
    make_repository(shell.folder)
    for is_first in (True, False):
        with shell.terminal("run", "--coding", "hello") as terminal:
            if is_first:
                terminal.await_text(f"{QUESTION} [y/N]")
                assert "wrote what is in this folder" in terminal.seen
                terminal.type("y\n")
            assert terminal.end() == 0
            assert (QUESTION in terminal.seen) is is_first
            assert "is not trusted" not in terminal.seen
    assert shell.run("trust", "--list").stdout == f"{shell.folder}\n"


def test_a_person_who_says_no_goes_on_without_trust_and_is_not_asked_again(shell):
    make_repository(shell.folder)
    for is_first in (True, False):
        with shell.terminal("run", "--coding", "hello") as terminal:
            if is_first:
                terminal.await_text(f"{QUESTION} [y/N]")
                terminal.type("n\n")
            assert terminal.end() == 0
            assert (QUESTION in terminal.seen) is is_first
            assert "is not trusted" in terminal.seen
    assert shell.run("trust", "--list").stdout == ""


def test_a_folder_and_its_configuration_are_one_question(shell):
    make_repository(shell.folder)
    (shell.folder / "perdure.toml").write_text('model = "demo"\n', encoding="utf-8")
    with shell.terminal("run", "--coding", "hello") as terminal:
        terminal.await_text('Do you trust the files in this folder, and trust "perdure.toml" as it is now')
        terminal.type("y\n")
        assert terminal.end() == 0
    with shell.terminal("run", "--coding", "hello") as terminal:
        assert terminal.end() == 0
        assert "trust" not in terminal.seen.lower().replace("perdure.toml is used", "")


@pytest.mark.parametrize("arguments", [("--coding",), ()], ids=["coding", "demo"])
def test_a_plain_folder_asks_nothing(shell, arguments):
    (shell.folder / "notes.txt").write_text("Buy bread.")
    with shell.terminal("run", *arguments, "hello") as terminal:
        assert terminal.end() == 0
        assert "trust" not in terminal.seen


def test_nobody_is_asked_for_an_agent_that_reads_nothing_of_the_project(shell):
    make_repository(shell.folder)
    with shell.terminal("run", "hello") as terminal:  # the demonstration, without tools for files
        assert terminal.end() == 0
        assert "trust" not in terminal.seen


def test_a_folder_that_init_has_made_is_trusted(shell):
    assert shell.run("init").returncode == 0
    assert shell.run("trust", "--list").stdout == f"{shell.folder}\n"
    with shell.terminal("run", "--coding", "hello") as terminal:
        assert terminal.end() == 0
        assert QUESTION not in terminal.seen


def test_init_in_the_repository_of_others_trusts_nothing(shell):
    make_repository(shell.folder)
    assert shell.run("init").returncode == 0
    assert shell.run("trust", "--list").stdout == ""


def test_a_script_works_without_trust_and_is_told_how_to_trust(shell):
    make_repository(shell.folder)
    (shell.folder / "source").mkdir()
    ended = shell.run("run", "--coding", "hello")
    assert ended.returncode == 0
    assert "is not trusted (you have not said so)" in ended.stderr
    assert ended.stderr.count("if you trust the people who wrote it: perdure trust\n") == 1
    assert shell.run("trust").stderr == f"{shell.folder} is trusted, with the folders in it\n"
    assert "is not trusted" not in shell.run("run", "--coding", "hello").stderr


def test_the_tools_know_whether_their_folder_is_trusted(perdure, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("perdure._tools.extensions.coding", lambda *_, trusted, **__: seen.append(trusted))
    make_repository(tmp_path)
    collect_agent_parts(AgentOptions(coding=True))
    perdure("trust")
    collect_agent_parts(AgentOptions(coding=True))
    assert seen == [False, True]


def test_a_record_that_others_can_write_to_trusts_nothing_and_is_named(perdure, tmp_path):
    make_repository(tmp_path)
    perdure("trust")
    (tmp_path / "home" / "trusted-folders.json").chmod(0o666)
    found = collect_agent_parts(AgentOptions(coding=True))
    assert any("the record of trusted folders is not used" in each for each in found.notes)


def test_trust_is_revoked_and_listed(perdure, tmp_path):
    make_repository(tmp_path)
    assert json.loads(perdure("trust", "--json").stdout) == {"path": str(tmp_path), "trusted": True}
    (tmp_path / "below").mkdir()
    assert "still trusted, by a folder above it" in perdure("trust", "--revoke", "below").stderr
    assert json.loads(perdure("trust", "--list", "--json").stdout) == {"path": str(tmp_path), "trusted": True}
    assert "no longer trusted" in perdure("trust", "--revoke").stderr
    assert "not trusted anyway" in perdure("trust", "--revoke").stderr
    assert perdure("trust", "--list").stdout == ""


def test_trust_in_a_folder_covers_what_runs_wrote_there_after_text_of_others(perdure, tmp_path):
    make_repository(tmp_path)
    perdure("trust")
    record_path(f"{tmp_path}/page.txt", str(tmp_path))
    assert "with what runs wrote there after text of others: 1 path" in perdure("trust").stderr
    assert not is_recorded(str(tmp_path))


@pytest.mark.parametrize("trusted", [True, False])
def test_what_an_agent_reads_in_a_folder_is_labelled_by_the_trust_in_it(perdure, tmp_path, trusted):
    make_repository(tmp_path)
    (tmp_path / "AGENTS.md").write_text("Sail.", encoding="utf-8")
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "mate.md").write_text("Pull.", encoding="utf-8")
    if trusted:
        perdure("trust")
    options = collect_agent_parts(AgentOptions(coding=True, context=True, model="demo"), str(tmp_path)).options
    labels = () if trusted else ("untrusted",)
    assert options["project"].labels == labels
    assert tuple(options["roles"][0].labels) == labels
    assert options["mentions"].trusted is trusted
    (found,) = [each for extension in options["extensions"] for each in extension.tools if each.name == "read"]
    assert tuple(found.labels) == ("private", *labels)


def test_a_listed_folder_that_is_gone_is_told(perdure, tmp_path):
    (tmp_path / "old").mkdir()
    perdure("trust", "old")
    (tmp_path / "old").rmdir()
    assert "gone, or replaced" in perdure("trust", "--list").stdout


def test_the_home_folder_is_not_trusted(perdure, person):
    person.mkdir()
    result = perdure("trust", str(person))
    assert result.exit_code != 0
    assert "never trusted as a whole" in str(result.output) + str(result.exception)
