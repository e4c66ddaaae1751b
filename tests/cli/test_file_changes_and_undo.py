"""`perdure run` changes files of a project, and `perdure files` shows the changes and takes them back."""

import asyncio
import json
import os
import shutil

import pytest

from perdure import Agent
from perdure._models import registry
from perdure.hosts import SnapshotFolder
from perdure.permissions import allow_all
from perdure.testing import ScriptedModel, call
from perdure.tools import coding


@pytest.fixture
def project(perdure, tmp_path, monkeypatch):
    """Runs the command in a repository, with a scripted model."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "boat.py").write_text("one\n")

    def run(*arguments, script=()):
        model = ScriptedModel(*script, "Done.", repeat_last=True)
        monkeypatch.setitem(registry._factories, "scripted", lambda _: model)
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
    shutil.rmtree(tmp_path / ".git")
    assert "edit" not in names(project("run", "-q", "Hello"))
    assert "edit" in names(project("run", "-q", "--coding", "Hello"))


def test_in_a_repository_the_agent_has_commands_with_their_lines_in_the_prompt(project):
    request = project("run", "-q", "Hello").model.requests[0]
    assert {"bash", "bash_output", "kill_shell"} <= {each.name for each in request.tools}
    assert "Run tests and other programs with bash." in request.instructions
    assert "Give bash one purpose per call" in request.instructions
    assert "bash" not in names(project("run", "-q", "--no-coding", "Hello"))


@pytest.mark.needs("bubblewrap")
def test_a_command_that_reads_is_run_and_another_is_not_without_a_person(project, tmp_path):
    script = [call("bash", command="cat boat.py"), call("bash", command="touch new")]
    model = project("run", "-q", "Go.", script=script).model
    assert model.requests[1].messages[-1].tool_results[0].text == "one"
    assert model.requests[2].messages[-1].tool_results[0].status == "denied"
    assert not (tmp_path / "new").exists()


def test_without_a_sandbox_the_question_and_the_warning_of_yes_say_so(project, monkeypatch):
    for place in ("shell.local", "sandbox.bubblewrap"):
        monkeypatch.setattr(f"perdure._tools.{place}.find_bubblewrap", lambda: ((), "bubblewrap is not installed"))
    script = [call("bash", command="cat boat.py")]
    assert project("run", "-q", "-s", "s", "--later", "Go.", script=script).exit_code == 3
    assert "There is no sandbox: bubblewrap is not installed." in project("questions", "s").stdout
    warned = project("run", "-q", "--yes", "Go.", script=script).stderr
    assert "without asking, commands too, and they run without a sandbox: bubblewrap is not installed" in warned


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


@pytest.mark.needs("bubblewrap")
def test_what_commands_have_changed_is_undone_and_what_cannot_be_is_named(project, tmp_path):
    script = [call("bash", command="cat boat.py"), call("bash", command="echo early > early"),
              call("read", path="boat.py"), edit("one", "two")]  # fmt: skip
    assert project("run", "-q", "-s", "s", "--yes", "Go.", script=script).exit_code == 0
    late = call("bash", command="touch made\x1b[31m", background=True)
    project("run", "-q", "-s", "s", "--yes", "Go on.", script=[late])
    listed = project("files", "changes", "s")
    lines = [each.split(maxsplit=1)[1] for each in listed.stdout.splitlines() if each.startswith("  ")]
    background = "touch made␛[31m  (not recorded: it ran in the background)"
    assert lines == ["created  early  by echo early > early", "changed  boat.py", f"command  {background}"]
    assert "commands have changed, or may have changed, files in a way that cannot be undone" in listed.stderr
    found = [json.loads(each) for each in project("files", "changes", "s", "--json").stdout.splitlines()]
    assert [each.get("line") for each in found] == [None, None, "touch made\x1b[31m"]
    undone = project("files", "undo", "s")
    assert undone.stdout == "restored  early\nrestored  boat.py\n"
    assert undone.stderr.splitlines()[-2:] == [
        "commands have changed, or may have changed, files in a way that cannot be undone:",
        f"  {background}",
    ]
    assert not (tmp_path / "early").exists()
    assert "cannot be undone" not in project("files", "redo", "s").stderr
    assert (tmp_path / "early").exists()


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
    assert "no changes of files are recorded" in project("files", "changes", "s").stderr
    assert "there is no session" in project("files", "changes", "missing").stderr


def age(folder) -> None:
    for each in folder.rglob("*"):
        if each.is_file():
            os.utime(each, (0, 0))


def count_in(folder) -> int:
    return len([each for each in folder.rglob("*") if each.is_file()])


def test_contents_go_with_the_last_session_that_needs_them(changed, tmp_path):
    snapshots = tmp_path / "home" / "snapshots"
    (tmp_path / "other.py").write_text("one\n")
    script = [call("read", path="other.py"), call("edit", path="other.py", old_string="one", new_string="six")]
    assert changed("run", "-q", "-s", "t", "--yes", "Go.", script=script).exit_code == 0
    assert count_in(snapshots) == 4  # one, two, three; one, six
    assert "contents" not in changed("sessions", "rm", "s", "--yes").stderr  # they were stored in the last hour
    age(snapshots)
    pruned = changed("sessions", "prune", "--keep", "5", "--yes").stderr
    assert "removed 2 contents of files that no session needs" in pruned
    assert changed("files", "undo", "t").stdout == "restored  other.py\n"
    age(snapshots)
    assert "removed 2 contents of files" in changed("sessions", "rm", "t", "--yes").stderr
    assert count_in(snapshots) == 0
    assert json.loads(changed("sessions", "rm", "t", "--yes", "--json").stdout) == {"session_id": "t", "removed": False}


def test_each_store_has_its_own_contents(changed, tmp_path):
    script = [call("read", path="boat.py"), edit("three", "four")]
    other = ["--store", "sqlite:other.db"]
    assert changed("run", "-q", "-s", "s", "--yes", *other, "Go.", script=script).exit_code == 0
    home = tmp_path / "home"
    (folder,) = [each for each in home.iterdir() if each.name.startswith("snapshots-")]
    assert (count_in(home / "snapshots"), count_in(folder)) == (3, 2)
    age(home)
    assert "contents" not in changed("sessions", "prune", "--keep", "5", "--yes").stderr
    assert "removed 2 contents" in changed("sessions", "prune", "--keep", "0", "--yes", *other).stderr
    assert count_in(home / "snapshots") == 3
    in_memory = changed(
        "run", "-q", "--yes", "--store", "memory:", "Go.", script=[call("write", path="n", content="n")]
    )
    assert in_memory.exit_code == 0
    assert sum(map(count_in, home.glob("snapshots*"))) == 3  # nothing could ever be undone there
