"""`perdure run` changes files of a project, and `perdure files` shows the changes and takes them back."""

import asyncio
import json

import pytest

from perdure import Agent, allow_all, models
from perdure.extensions import coding
from perdure.hosts import SnapshotFolder
from perdure.testing import ScriptedModel, call


@pytest.fixture
def project(perdure, tmp_path, monkeypatch):
    """Runs the command in a repository, with a scripted model."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "boat.py").write_text("one\n")

    def run(*arguments, script=()):
        model = ScriptedModel(*script, "Done.", repeat_last=True)
        monkeypatch.setitem(models._factories, "scripted", lambda _: model)
        monkeypatch.setenv("PERDURE_MODEL", "scripted:one")
        result = perdure(*arguments)
        result.model = model
        return result

    return run


def edit(old, new):
    return call("edit", path="boat.py", old_string=old, new_string=new)


@pytest.fixture
def changed(project):
    for script in ([call("read", path="boat.py"), edit("one", "two")], [edit("two", "\x1b[31mthree")]):
        assert project("run", "-q", "-s", "s", "--yes", "Go.", script=script).exit_code == 0
    return project


def names(result) -> set[str]:
    return {each.name for each in result.model.requests[0].tools}


def test_in_a_repository_the_agent_has_tools_for_files(project, tmp_path):
    found = names(project("run", "-q", "Hello"))
    assert found >= {
        "read",
        "list",
        "glob",
        "grep",
        "write",
        "edit",
        "git_status",
        "ask_user",
        "plan",
        "now",
        "calculate",
    }
    assert not found & {"read_text", "write_text"}
    assert {"read_text", "write_text"} <= names(project("run", "-q", "--no-coding", "Hello"))
    (tmp_path / ".git").rmdir()
    assert "edit" not in names(project("run", "-q", "Hello"))
    assert "edit" in names(project("run", "-q", "--coding", "Hello"))


def test_a_resumed_run_has_the_tools_again(project):
    result = project("run", "-s", "s", "--no-coding", "Hello")
    assert "--no-coding" in result.stderr
    lines = project("sessions", "show", "s", "--json").stdout.splitlines()
    assert any('"coding":false' in each for each in lines)


def test_changes_are_listed_with_their_diffs(changed):
    listed = changed("files", "changes", "s").stdout.splitlines()
    assert [each.split()[-2:] for each in listed if each.startswith("  ")] == [["changed", "boat.py"]] * 2
    assert len([each for each in listed if each.startswith("run ")]) == 2
    shown = changed("files", "changes", "s", "--diff").stdout
    assert "-one\n+two\n" in shown
    assert "\x1b" not in shown
    assert [json.loads(each)["path"] for each in changed("files", "changes", "s", "--json").stdout.splitlines()] == [
        "boat.py", "boat.py",
    ]  # fmt: skip


def test_runs_are_undone_and_redone(changed, tmp_path):
    assert changed("files", "undo", "s", "--dry-run").stdout == "would be restored  boat.py\n"
    assert changed("files", "undo", "s").stdout == "restored  boat.py\n"
    assert (tmp_path / "boat.py").read_text() == "two\n"
    assert changed("files", "undo", "--last").exit_code == 0
    assert (tmp_path / "boat.py").read_text() == "one\n"
    assert "(undone)" in changed("files", "changes", "s").stdout
    assert "there is nothing to undo" in changed("files", "undo", "s").stderr
    assert json.loads(changed("files", "redo", "s", "--json").stdout)["status"] == "restored"
    assert (tmp_path / "boat.py").read_text() == "two\n"


def test_contents_in_a_folder_of_ones_own_are_found_there(perdure, tmp_path):
    (tmp_path / "boat.py").write_text("one\n")
    snapshots = SnapshotFolder(tmp_path / "mine")

    async def change():
        agent = Agent(
            ScriptedModel(call("read", path="boat.py"), edit("one", "two"), "Done."),
            extensions=[coding(tmp_path, snapshots=snapshots)],
            permission=allow_all,
            store=f"sqlite:{tmp_path}/log.db",
        )
        async with agent:
            await agent.session("s").run("Go.")

    asyncio.run(change())
    named = ["s", "--store", f"sqlite:{tmp_path}/log.db"]
    there = ["--snapshots", f"{tmp_path}/mine"]
    elsewhere = perdure("files", "changes", *named, "--diff")
    assert "changed  boat.py\n    no diff: the content " in elsewhere.stdout
    assert "name that one: SnapshotFolder(…), or --snapshots on the command line" in elsewhere.stdout
    refused = perdure("files", "undo", *named)
    assert (refused.exit_code, refused.stdout.split(":")[0]) == (3, "refused  boat.py")
    assert "--snapshots" in refused.stdout
    assert "-one\n+two\n" in perdure("files", "changes", *named, "--diff", *there).stdout
    assert perdure("files", "undo", *named, *there).stdout == "restored  boat.py\n"
    assert perdure("files", "redo", *named, *there).stdout == "restored  boat.py\n"


def test_work_of_others_is_not_lost(changed, tmp_path):
    (tmp_path / "boat.py").write_text("mine\n")
    result = changed("files", "undo", "s")
    assert (result.exit_code, result.stdout) == (3, "conflict  boat.py: it has been changed since by others\n")
    assert (tmp_path / "boat.py").read_text() == "mine\n"
    assert changed("files", "undo", "s", "--overwrite").exit_code == 0
    assert (tmp_path / "boat.py").read_text() == "two\n"


def test_a_session_without_changes_says_so(project):
    project("run", "-q", "-s", "s", "Hello")
    assert "changed no files" in project("files", "changes", "s").stderr
    assert "there is no session" in project("files", "changes", "missing").stderr
