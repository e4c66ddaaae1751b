"""A session is named by its id, the beginning of it or its title, or is the last one of the project."""

import asyncio
import json
from pathlib import Path

import click
import pytest

from perdure import Agent, user
from perdure._cli.run.options import AgentOptions
from perdure._cli.sessions.choice import find_last_session, find_session, get_project_path, shorten_id
from perdure.stores import open_store
from perdure.testing import ScriptedModel


def listed(perdure, *options):
    return [
        json.loads(line)["session_id"] for line in perdure("sessions", "list", "--json", *options).stdout.splitlines()
    ]


@pytest.fixture
def projects(perdure, monkeypatch, tmp_path):
    """Two projects with a session each, `ship` and `shore`; the working folder is that of the ship."""
    for name in ("shore", "ship"):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / "deck").mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert perdure("run", "-q", "-s", f"{name}-1", "Calculate 6 * 7").exit_code == 0
    return perdure


def test_the_beginning_of_a_generated_id_is_shown_and_is_enough(perdure):
    result = perdure("run", "Calculate 6 * 7")
    short = result.stderr.splitlines()[-1].split()[1].rstrip(";")
    (whole,) = listed(perdure)
    assert whole.startswith(short)
    assert len(short) == 12
    assert perdure("sessions", "list").stdout.startswith(f"{short}  ")
    assert f'perdure run --session {short} "…"' in result.stderr
    assert perdure("run", "-q", "-s", short, "Calculate 2 ** 10").exit_code == 0
    assert listed(perdure) == [whole]
    assert "says: 1024" in perdure("sessions", "show", short).stdout
    assert json.loads(perdure("sessions", "rename", short, "sums", "--json").stdout)["session_id"] == whole
    assert perdure("replay", "sums").exit_code == 0  # by its title
    assert perdure("questions", short).exit_code == 0
    assert perdure("search", "--session", short, "1024").stdout.startswith(whole)
    assert perdure("sessions", "export", short, "-o", "out.json").exit_code == 0
    assert perdure("permissions", "list", "-s", short).exit_code == 0
    assert perdure("permissions", "explain", "-s", short, "now", "{}").exit_code == 0
    assert perdure("sessions", "tree", short).exit_code == 0
    assert perdure("sessions", "rm", "--yes", short).exit_code == 0
    assert listed(perdure) == []


def test_a_beginning_that_fits_several_is_refused_with_all_of_them(kept, perdure):
    assert perdure("run", "-q", "-s", "album-2", "Hello").exit_code == 0
    assert perdure("sessions", "show", "album").exit_code == 0  # exactly this one
    result = perdure("sessions", "show", "albu")
    assert result.exit_code == 2
    assert "'albu' fits several sessions: album-2, album; write more of the id" in result.stderr
    assert "there is no session 'al'" in perdure("sessions", "show", "al").stderr
    assert "there is no session 'none'" in perdure("sessions", "show", "none").stderr


def test_a_name_for_a_new_session_is_never_taken_for_the_beginning_of_another(perdure):
    for name in ("plan-2", "plan", "beef1", "beef"):
        assert perdure("run", "-q", "-s", name, "Hello").exit_code == 0
    assert sorted(listed(perdure)) == ["beef", "beef1", "plan", "plan-2"]


def test_the_last_session_of_the_project_is_continued(projects):
    assert projects("run", "-q", "-s", "ship-2", "Calculate 1 + 1").exit_code == 0
    result = projects("run", "--continue", "Calculate 2 ** 10")
    assert "session ship-2; go on with" in result.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir("../shore/deck")
        for option in ("-c", "--last"):
            assert "session shore-1; go on with" in projects("run", option, "Calculate 2 + 2").stderr
        assert "says: 4" in projects("sessions", "show", "--last").stdout
    shown = projects("sessions", "show", "--last").stdout
    assert shown.index("says: 2") < shown.index("says: 1024")
    assert projects("replay", "--last").exit_code == 0


def test_where_there_is_no_last_session_that_is_said(projects, tmp_path, monkeypatch):
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    for command in (["run", "-c", "Hello"], ["sessions", "show", "--last"]):
        result = projects(*command)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: there is no session of this project yet; perdure sessions list --all")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["sessions", "show"], "name one session, or use --last"),
        (["sessions", "show", "a", "--last"], "name one session, or use --last"),
        (["run", "-c", "-s", "a", "Hello"], "--continue and --session exclude each other"),
        (["run", "--resume"], "--resume needs a session; name it with --session, or use --continue"),
    ],
)
def test_a_session_is_named_once(perdure, arguments, problem):
    result = perdure(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_list_has_the_sessions_of_the_project_and_says_how_many_others_there_are(projects, tmp_path):
    assert listed(projects) == ["ship-1"]
    assert listed(projects, "--all") == ["ship-1", "shore-1"]
    result = projects("sessions", "list")
    assert (len(result.stdout.splitlines()), result.stderr) == (1, "not shown: 1 of other projects: --all\n")
    result = projects("sessions", "list", "--prefix", "shore")
    assert result.stderr.endswith("1 of other projects: --all\n")

    async def run_elsewhere() -> None:
        async with Agent(ScriptedModel("Aye."), store=f"sqlite:{tmp_path}/home/sessions.db") as agent:
            await agent.session("library").run("Hello")

    asyncio.run(run_elsewhere())
    assert listed(projects) == ["library", "ship-1"]
    for number in range(3):
        projects("run", "-q", "-s", f"ship-{number + 2}", "Hello")
    assert listed(projects, "--limit", "2", "--offset", "1") == ["ship-3", "ship-2"]
    assert "there are more; --offset 2 " in projects("sessions", "list", "--limit", "2").stderr


def test_a_session_belongs_to_the_project_where_it_was_used_last(projects, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "shore")
    assert projects("run", "-q", "-s", "ship-1", "Hello").exit_code == 0
    assert listed(projects) == ["ship-1", "shore-1"]
    monkeypatch.chdir(tmp_path / "ship")
    assert listed(projects) == []


def test_the_store_of_the_configuration_is_searched(perdure):
    Path("perdure.toml").write_text('store = "sqlite:ours.db"\n')
    assert perdure("trust", "--yes", "perdure.toml").exit_code == 0
    assert perdure("run", "-q", "Calculate 6 * 7").exit_code == 0
    assert perdure("run", "-q", "--continue", "Calculate 2 ** 10").exit_code == 0
    assert perdure("replay", "--last").exit_code == 0
    assert len(listed(perdure, "--store", "sqlite:ours.db")) == 1


async def test_many_that_fit_are_not_all_named():
    async with Agent(ScriptedModel(*["Aye."] * 7), store=open_store("memory:")) as agent:
        for number in range(7):
            await agent.session(f"plan-{number}").run("Hello")
        with pytest.raises(Exception, match=r"'plan' fits several sessions: .* and more; write more of the id"):
            await find_session(agent.store, "plan")
        with pytest.raises(Exception, match="'Hello' fits several sessions"):  # titles are not unique
            await find_session(agent.store, "Hello")


@pytest.mark.parametrize("command", ["sessions show", "sessions export", "resume", "replay", "questions"])
def test_a_session_that_is_not_there_is_told_with_the_store_that_was_searched(perdure, tmp_path, command):
    there = "lists those that are there, and --store sqlite:PATH names another store\n"
    assert perdure(*command.split(), "nobody").stderr == (
        f"error: there is no session 'nobody' in sqlite:{tmp_path}/home/sessions.db; "
        f"`perdure sessions list --all` {there}"
    )
    assert perdure(*command.split(), "nobody", "--store", "sqlite:my shop.db").stderr == (
        "error: there is no session 'nobody' in sqlite:my shop.db; "
        f"`perdure sessions list --all --store 'sqlite:my shop.db'` {there}"
    )


async def test_the_last_session_is_looked_for_among_so_many(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    prompt = user("Hello", metadata=AgentOptions().build_prompt_metadata(get_project_path()))
    async with Agent(ScriptedModel(*["Aye."] * 3), store=open_store("memory:")) as agent:
        await agent.session("ours").run(prompt)
        await agent.session("theirs").run("Hello")
        await agent.session("theirs-too").run("Hello")
        monkeypatch.setattr("perdure._cli.sessions.choice.MOST_SEARCHED", 3)
        assert await find_last_session(agent.store) == "ours"
        monkeypatch.setattr("perdure._cli.sessions.choice.MOST_SEARCHED", 2)
        with pytest.raises(click.UsageError, match="there is no session of this project yet"):
            await find_last_session(agent.store)


def test_a_folder_that_is_gone_is_no_project(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert get_project_path() == ""


@pytest.mark.parametrize(
    ("session_id", "shown"),
    [
        ("0123456789abcdef0123456789abcdef", "0123456789ab"),
        ("0123456789abcdef0123456789abcdef0", "0123456789abcdef0123456789abcdef0"),
        ("0123456789ABCDEF0123456789ABCDEF", "0123456789ABCDEF0123456789ABCDEF"),
        ("a-name-that-somebody-has-given-it", "a-name-that-somebody-has-given-it"),
    ],
)
def test_only_a_generated_id_is_shortened(session_id, shown):
    assert shorten_id(session_id) == shown
