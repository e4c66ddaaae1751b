"""What commands change in the working folder is undone and redone, in the real sandbox; the rest is named."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import Agent
from perdure.hosts import LocalShell, SnapshotFolder
from perdure.permissions import allow_all
from perdure.stores import open_store, prune_snapshots
from perdure.testing import ScriptedModel, call
from perdure.tools import FileHistory, coding, exec_tool
from tests.cli.process import Shell

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.packages("tree_sitter_bash")]


@pytest.fixture
def place(tmp_path):
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "a.py").write_text("a = 1\n")
    (root / "src" / "deep" / "b.bin").write_bytes(bytes(range(256)))
    (root / "run.sh").write_text("echo hi\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("src/a.py")
    (root / ".gitignore").write_text("build/\n*.log\n")
    (root / "build").mkdir()
    (root / "build" / "out").write_text("x")
    return root


def tree(root) -> dict[str, tuple[str, bytes, int]]:
    """Everything below a folder but what git ignores: kinds, contents and permission bits."""
    found = {}
    for each in sorted(root.rglob("*")):
        status, name = each.lstat(), str(each.relative_to(root))
        if name == ".git" or name.startswith(("build", ".git/")) or name.endswith(".log"):
            continue
        if each.is_symlink():
            found[name] = ("link", bytes(each.readlink()), 0)
        elif each.is_dir():
            found[name] = ("folder", b"", stat.S_IMODE(status.st_mode))
        else:
            found[name] = ("file", each.read_bytes(), stat.S_IMODE(status.st_mode))
    return found


def build_session(place, *commands, store="memory:", name="s", shell=None):
    snapshots = SnapshotFolder(place.parent / "snapshots")
    is_text = [not isinstance(each, str) or each == "Done." for each in commands]
    steps = [each if is_ready else call("bash", command=each) for each, is_ready in zip(commands, is_text, strict=True)]
    extension = coding(place, snapshots=snapshots, shell=shell)
    agent = Agent(ScriptedModel(*steps, "Done."), extensions=[extension], permission=allow_all, store=store)
    session = agent.session(name)
    return session, FileHistory(session, snapshots)


async def run(place, *commands):
    session, history = build_session(place, *commands)
    assert (await session.run("Go.")).status == "done"
    return history


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf src",
        "rm -rf src && mkdir src && echo new > src/other",
        "mv src lib && mv run.sh lib/",
        "chmod 600 run.sh src/a.py && chmod 700 src",
        "rm link && ln -s run.sh link && ln -s /nowhere dangling",
        "rm src/a.py && mkdir src/a.py && echo x > src/a.py/inside",
        "rm -rf src && echo file > src",
        "mkdir -p empty/folder && touch 'a b' && printf 'x\\0y' > src/deep/b.bin",
        "rm link && echo a > link",
        "find . -name '*.py' -delete; rmdir src/deep 2>/dev/null; true",
        "cp -r src copy && sed -i s/1/2/ copy/a.py src/a.py",
    ],
)
async def test_what_a_command_did_is_undone_and_redone(place, line):
    before = tree(place)
    history = await run(place, line)
    after = tree(place)
    assert before != after
    assert {each.command for each in await history.changes()} == {line}
    assert await history.commands() == []
    assert {each.status for each in await history.undo()} == {"restored"}
    assert tree(place) == before
    assert await history.undo() == []
    assert {each.status for each in await history.redo()} == {"restored"}
    assert tree(place) == after
    assert await history.redo() == []


async def test_commands_and_edits_of_a_run_are_undone_together(place):
    before = tree(place)
    history = await run(
        place,
        call("read", path="src/a.py"),
        call("edit", path="src/a.py", old_string="1", new_string="2"),
        "sed -i s/2/3/ src/a.py",
        call("write", path="new.txt", content="n\n"),
        "rm new.txt; ls",
    )
    assert (place / "src/a.py").read_text() == "a = 3\n"
    assert {each.status for each in await history.undo()} == {"restored"}
    assert tree(place) == before


async def test_what_others_have_changed_since_stays_and_keeps_the_run_from_being_passed_over(place):
    session, history = build_session(place, "echo one > one", "Done.", "echo two > two; echo 2 > src/a.py")
    first, second = [(await session.run(prompt)).run_id for prompt in ("One.", "Two.")]
    (place / "src/a.py").write_text("by hand\n")
    for _ in range(2):  # the second is about the same run
        assert {each.run_id: None for each in await history.undo()} == {second: None}
        assert (place / "src/a.py").read_text() == "by hand\n"
        assert sorted(each.name for each in place.glob("[ot]*")) == ["one"]
    assert [(each.path, each.status) for each in await history.undo(overwrite=True)] == [("src/a.py", "restored")]
    assert (place / "src/a.py").read_text() == "a = 1\n"
    assert [(each.path, each.run_id) for each in await history.undo()] == [("one", first)]
    await history.redo()
    await history.redo()
    assert (place / "src/a.py").read_text() == "by hand\n"  # what the undo has replaced, and no run has written


async def test_a_folder_that_others_use_stays(place):
    history = await run(place, "mkdir made && echo x > made/x")
    (place / "made" / "mine").write_text("by hand\n")
    found = {each.path: each for each in await history.undo()}
    assert (found["made/x"].status, found["made"].status) == ("restored", "unchanged")
    assert "others have files in it" in found["made"].reason
    assert [each.name for each in (place / "made").iterdir()] == ["mine"]
    assert await history.undo() == []


async def test_what_cannot_be_undone_is_named_at_once_and_in_the_history(place):
    (place / "big").write_bytes(b"x" * (8 * 1024**2 + 1))
    os.mkfifo(place / "pipe")
    (place / ".env").write_text("KEY=1\n")
    session, history = build_session(
        place, "rm -r build big pipe; touch noise.log", call("bash", command="sleep 0; touch late", background=True)
    )
    outcome = await session.run("Go.")
    texts = [each.text for message in await session.messages() for each in message.tool_results]
    assert "[what it changed cannot be undone: big (it is too large); build (git ignores it); pipe" in texts[0]
    (first, second) = await history.commands(outcome.run_id)
    assert first.not_recorded == (
        "big (it is too large)", "build (git ignores it)", "pipe (it is no regular file)",
    )  # fmt: skip
    assert second.not_recorded == ("it ran in the background",)
    assert "The user can undo what a command changes" in next(
        each.description for each in session.agent.toolbox if each.name == "bash"
    )


async def test_a_folder_with_too_much_is_said_to_be_so(place):
    from perdure._io.files import folder_look

    for number in range(30):
        (place / f"{number}.txt").write_text("x")
    look = folder_look.look_at_folder(str(place), limits=folder_look.LookLimits(entries=20))
    assert (look.entries, look.problem) == ({}, "the folder has more than 20 files")
    look = folder_look.look_at_folder(str(place), limits=folder_look.LookLimits(total_bytes=100))
    assert look.problem == "its files have more than 0 MB"
    look = folder_look.look_at_folder(str(place), limits=folder_look.LookLimits(seconds=-1))
    assert "takes more than" in look.problem
    assert "cannot be read" in folder_look.look_at_folder(str(place / "none")).problem


async def test_a_command_that_only_reads_is_not_looked_at(place):
    session, history = build_session(place, "ls -la && cat src/a.py")
    await session.run("Go.")
    assert (await history.changes(), await history.commands()) == ([], [])
    assert not (place.parent / "snapshots").exists()


async def test_the_store_in_the_folder_is_never_undone(place):
    store = open_store(f"sqlite:{place}/sessions.db")
    snapshots = SnapshotFolder(place / "snapshots")
    agent = Agent(
        ScriptedModel(call("bash", command="echo x > x"), "Done."),
        extensions=[coding(place, snapshots=snapshots)],
        permission=allow_all,
        store=store,
    )
    session = agent.session("s")
    await session.run("Go.")
    history = FileHistory(session, snapshots)
    assert [each.path for each in await history.changes()] == ["x"]
    await history.undo()
    assert len(await session.messages()) == 4
    await store.aclose()


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_what_is_named_like_the_store_and_is_not_part_of_it_is_undone(place, kind):
    store = open_store(f"{kind}:{place}/sessions")
    for name in ("sessions.py", "sessions_old/a.txt", "keep.txt"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("one\n")
    snapshots = SnapshotFolder(place / "keep")
    session = Agent(
        ScriptedModel(call("bash", command="rm -r sessions_old; echo two | tee sessions.py keep.txt"), "Done."),
        extensions=[coding(place, snapshots=snapshots)],
        permission=allow_all,
        store=store,
    ).session("s")
    await session.run("Go.")
    history = FileHistory(session, snapshots)
    undone = {each.path: each.status for each in await history.undo()}
    assert undone == dict.fromkeys(("keep.txt", "sessions.py", "sessions_old", "sessions_old/a.txt"), "restored")
    assert (place / "sessions_old/a.txt").read_text() == "one\n"
    await store.aclose()


async def test_a_program_without_a_shell_is_recorded_too(place):
    snapshots = SnapshotFolder(place.parent / "snapshots")
    async with LocalShell(place) as shell:
        tool = exec_tool(shell, ["rm"], snapshots=snapshots)
        agent = Agent(
            ScriptedModel(call("shell_exec", argv=["rm", "run.sh"]), "Done."), tools=[tool], permission=allow_all
        )
        session = agent.session("s")
        await session.run("Go.")
    assert not (place / "run.sh").exists()
    assert [(each.path, each.status) for each in await FileHistory(session, snapshots).undo()] == [
        ("run.sh", "restored")
    ]
    assert (place / "run.sh").stat().st_mode & 0o777 == 0o755


async def test_what_an_undo_needs_survives_the_removal_of_what_none_needs(place):
    store = open_store(f"sqlite:{place.parent}/log.db")
    session, history = build_session(place, "rm -rf src", store=store)
    await session.run("Go.")
    snapshots = SnapshotFolder(place.parent / "snapshots")
    before = sum(each.is_file() for each in snapshots_in(snapshots))
    removed = await prune_snapshots(snapshots, store, now=4e9)
    assert removed.count + sum(each.is_file() for each in snapshots_in(snapshots)) == before
    assert {each.status for each in await history.undo()} == {"restored"}
    await session.delete()
    assert (await prune_snapshots(snapshots, store, now=4e9)).count
    assert [each for each in snapshots_in(snapshots) if each.is_file()] == []
    await store.aclose()


def snapshots_in(snapshots):
    return [*Path(snapshots.folder).rglob("*")]


def test_on_the_command_line_and_in_the_chat_a_removed_folder_comes_back(tmp_path):
    shell = Shell(tmp_path)
    subprocess.run(["git", "init", "-q", "."], cwd=shell.folder, check=True)
    (shell.folder / "src" / "deep").mkdir(parents=True)
    (shell.folder / "src" / "deep" / "a.py").write_text("a = 1\n")
    (shell.folder / "run.sh").write_text("echo hi\n")
    script = tmp_path / "model.py"
    script.write_text(
        "from perdure._cli.main import main\n"
        "from perdure.models import register\n"
        "from perdure.testing import ScriptedModel, call\n"
        "register('fixed', lambda _: ScriptedModel(call('bash', command='rm -rf src run.sh'), 'Removed.'))\n"
        "main()\n"
    )
    assert shell.run("trust", "--yes").returncode == 0
    program, before = (sys.executable, str(script)), tree(shell.folder)
    options = ("-s", "s", "-m", "fixed:one", "--coding", "--yolo")
    done = shell.run("run", *options, "Go.", program=program)
    assert (done.returncode, done.stdout) == (0, "Removed.\n"), done.stderr
    assert tree(shell.folder) == {}
    listed = shell.run("files", "changes", "s", program=program)
    assert "deleted  src/deep/a.py  by rm -rf src run.sh" in listed.stdout
    assert listed.stderr == ""
    diff = shell.run("files", "changes", "s", "--diff", program=program).stdout
    assert "-a = 1" in diff
    with shell.terminal("chat", "--plain", *options, program=program) as terminal:
        terminal.await_text("> ")
        terminal.type("/undo\n")
        terminal.await_text("restored  src/deep/a.py")
        terminal.type("\x04")
        terminal.end()
    assert tree(shell.folder) == before
    assert shell.run("files", "redo", "s", program=program).returncode == 0
    assert tree(shell.folder) == {}


async def test_what_a_command_in_the_background_shows_for_a_moment_is_not_put_there_by_an_undo(place):
    loop = (
        "while true; do mkdir .vscode; echo evil > .vscode/tasks.json; echo evil > AGENTS.md; touch up; sleep 0.1; "
        "rm -rf AGENTS.md .vscode; sleep 0.1; done"
    )
    commands = [f"sleep 0.{number}; echo {number} > x" for number in range(8)]
    shell = LocalShell(place, sandbox="require")
    background = call("bash", command=loop, background=True)
    wait = "while [ ! -e up ]; do sleep 0.05; done"
    session, history = build_session(place, background, wait, *commands, shell=shell)
    assert (await session.run("Go.")).status == "done"
    await shell.close()
    changed = {each.path for each in await history.changes()}
    assert "x" in changed
    assert not changed & {"AGENTS.md", ".vscode", ".vscode/tasks.json"}
    await history.undo(overwrite=True)
    assert not (place / "AGENTS.md").exists()
    assert not (place / ".vscode").exists()
    assert not (place / "x").exists()


async def test_what_a_person_let_a_command_change_is_undone(place):
    (place / "AGENTS.md").write_text("old\n")
    history = await run(place, call("bash", command="echo new > AGENTS.md; echo x > CLAUDE.md", configure=True))
    assert (place / "CLAUDE.md").exists()
    await history.undo()
    assert (place / "AGENTS.md").read_text() == "old\n"
    assert not (place / "CLAUDE.md").exists()
