"""Files that the runtime trusts, in the working folder: no command and no tool reads, changes or replaces them.

A store, its logs and locks, grants, trust, memories, snapshots and the folder PERDURE_HOME: present or absent, at the
top, below, or behind a link. The command has the whole working folder otherwise, and all of Python.
"""

import asyncio
import contextlib
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ConfigError, Permissions, allow, load_config
from perdure._tools.sandbox import bubblewrap
from perdure.context import MentionSettings, TrustedFiles
from perdure.hosts import LocalShell, ShellCommand
from perdure.models import register
from perdure.permissions import GrantFile
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from perdure.tools import coding

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.packages("tree_sitter_bash")]

ATTACK = r"""
import mmap, os, shutil, socket, sqlite3, sys, fcntl
path = sys.argv[1]
names = [path + each for each in ("", "-wal", "-shm", "-journal", "-search", "-search-wal", "-search-shm")]
folder = os.path.dirname(path)
names += [os.path.join(folder, each) for each in os.listdir(folder) if "-process-" in each]
outside = os.path.join(os.getcwd(), "outside")
def attempt(work, *arguments):
    try:
        work(*arguments)
    except (OSError, ValueError, sqlite3.Error, shutil.Error):
        return
    print("done:", work.__name__, *arguments)
def read(name):
    if open(name, "rb").read(1):
        raise SystemExit("READ " + name)
    raise OSError
def write(name): open(name, "wb").write(b"FORGED" * 100)
def append(name): open(name, "ab").write(b"FORGED")
def create(name): os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL))
def truncate(name): os.truncate(name, 0)
def mapped(name):
    with open(name, "r+b") as file, mmap.mmap(file.fileno(), 6) as memory: memory[:] = b"FORGED"
def locked(name): fcntl.lockf(open(name, "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)
def replace(name):
    open(outside, "wb").write(b"FORGED" * 100)
    os.replace(outside, name)
def move(name): os.rename(name, outside)
def link(name): os.link(name, outside + "-link")
def link_over(name): os.symlink("/etc/hostname", name)
def remove(name): os.unlink(name)
def mode(name): os.chmod(name, 0o777)
def times(name): os.utime(name, (0, 0))
def exchange(name):
    import ctypes
    open(outside, "wb").write(b"FORGED")
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, outside.encode(), -100, name.encode(), 2): raise OSError
def database(name):
    with sqlite3.connect(name) as found: found.execute("CREATE TABLE forged(x)")
for name in names:
    for work in (read, mapped, locked, write, append, truncate, link, replace, exchange, mode, times, database, move,
                 create, remove, link_over):
        attempt(work, name)
above = folder
while above != os.getcwd() and above.startswith(os.getcwd()):
    def rename(name): os.rename(name, name + "-moved")
    attempt(rename, above)
    above = os.path.dirname(above)
attempt(shutil.rmtree, folder)
def rebuild(name):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    open(name, "wb").write(b"FORGED")
for name in names:
    attempt(rebuild, name)
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The working folder, in a place of its own."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    return folder


@pytest.fixture
def repository(work):
    """A function that runs git in the working folder, which is a repository."""

    def run(*words):
        done = subprocess.run(["git", "-C", work, *words], capture_output=True, text=True, check=True)
        return done.stdout

    run("init", "-q")
    run("config", "user.name", "a")
    run("config", "user.email", "a@example.org")
    run("add", "a.txt")
    run("commit", "-q", "-m", "first")
    return run


def list_forged(folder):
    """Files below a folder with what the attack writes, but for those that the attack has beside."""
    files = [each for each in Path(folder).rglob("*") if each.is_file() and not each.name.startswith("outside")]
    return [
        str(each) for each in files if each.read_bytes().startswith(b"FORGED") or each.read_bytes().endswith(b"FORGED")
    ]


def attack_line(path):
    return shlex.join([sys.executable, "-I", "-c", ATTACK, str(path)])


async def run_lines(work, store, *lines, **options):
    """Run lines as the tool of an agent does, whose sessions are in a store; return what the model was told."""
    calls = [call("bash", command=line) for line in lines]
    agent = Agent(
        ScriptedModel(*calls, "Done."),
        extensions=[coding(work)],
        permission=Permissions(allow("*")),
        store=store,
        **options,
    )
    async with agent:
        outcome = await agent.session("s").run("Go.")
        return [result.text for message in outcome.new_messages for result in message.tool_results]


STORES = ("sessions.db", "data/deep/sessions.db", "file:sessions", "file:data/sessions")


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "used"])
async def test_a_command_neither_reads_nor_changes_the_store_that_its_session_is_in(work, name, is_new):
    kind, _, place = name.rpartition(":")
    path = work / place
    path.parent.mkdir(parents=True, exist_ok=True)
    store = f"{kind or 'sqlite'}:{path}"
    if not is_new:
        await run_lines(work, store, "true")
    first, *_ = told = await run_lines(work, store, attack_line(path if not kind else path / "s.jsonl"), "ls")
    assert (work / "outside").exists(), told
    assert "READ" not in first, told
    assert [line for line in first.splitlines() if line.startswith("done:") and "rebuild" not in line] == [], told
    assert list_forged(work) == []
    texts = [
        message.text for message in (await Agent(store=store, model=ScriptedModel()).session("s").read_state()).messages
    ]
    assert "Done." in texts


async def test_the_attack_does_all_of_it_to_a_file_that_is_no_store(work):
    (work / "plain.db").write_bytes(b"plain text")
    (told,) = await run_lines(work, "memory:", attack_line(work / "plain.db"))
    assert "READ" in told
    script = attack_line(work / "plain.db").replace("SystemExit(", "OSError(")
    (told,) = await run_lines(work, "memory:", script)
    done = {line.split()[1] for line in told.splitlines() if line.startswith("done:")}
    assert {"write", "append", "create", "truncate", "mapped", "locked", "replace", "move", "link", "remove"} <= done
    assert {"mode", "times", "exchange", "link_over", "rebuild"} <= done


async def test_an_open_store_that_is_not_that_of_the_session_is_hidden_too(work):
    other = open_store(f"sqlite:{work}/other.db")
    (told,) = await run_lines(work, "memory:", attack_line(work / "other.db"))
    assert "done:" not in told.replace("done: rebuild", "")
    assert list_forged(work) == []
    await Agent(ScriptedModel("Hello."), store=other).session("x").run("Hi.")


async def test_a_link_from_elsewhere_hides_what_it_leads_to_and_one_in_the_folder_is_refused(work, tmp_path):
    (work / "real").mkdir()
    (tmp_path / "from-outside").symlink_to(work / "real")
    (told,) = await run_lines(work, f"sqlite:{tmp_path}/from-outside/x.db", attack_line(work / "real" / "x.db"))
    assert "done:" not in told.replace("done: rebuild", "")
    (work / "inside").symlink_to("real")
    (told,) = await run_lines(work, f"sqlite:{work}/inside/x.db", "touch made; echo ran")
    assert not (work / "made").exists()
    assert "which a command could exchange" in told


@pytest.mark.parametrize("is_new", [True, False], ids=["absent", "present"])
async def test_the_home_of_the_runtime_is_hidden_where_it_lies_in_the_folder(work, monkeypatch, is_new):
    home = work / "state" / "home"
    monkeypatch.setenv("PERDURE_HOME", str(home))
    if not is_new:
        home.mkdir(parents=True)
        (home / "trusted-folders.json").write_text("secret")
    line = (
        f"cat {home}/*; mkdir -p {home}; echo forged > {home}/trusted-files.json; rm -rf {work}/state; mv state other"
    )
    (told,) = await run_lines(work, "memory:", f"{line}; mkdir -p {home}; echo forged > {home}/grants.jsonl")
    assert "secret" not in told
    assert [each.name for each in home.iterdir()] == ([] if is_new else ["trusted-folders.json"])


async def test_files_of_grants_trust_pins_and_secrets_are_hidden_and_a_missing_one_is_not_left(work):
    grants, trusted = GrantFile(work / "grants.jsonl"), TrustedFiles(str(work / "trusted.json"))
    for path in (work / "grants.jsonl", work / "trusted.json"):
        line = f"echo forged > {path}; echo forged > b; mv b {path}; rm -f {path}; ln -s /etc/hostname {path}"
        await run_lines(work, "memory:", line)
        assert not path.exists()
    trusted.trust(str(work / "a.txt"), "digest")
    (told,) = await run_lines(work, "memory:", f"cat {work}/trusted.json; sed -i s/digest/forged/ {work}/trusted.json")
    assert "digest" not in told
    assert trusted("digest")
    assert list(grants) == []


async def test_a_command_that_runs_unasked_and_one_in_the_background_see_nothing_either(work):
    path = work / "sessions.db"
    await run_lines(work, f"sqlite:{path}", "true")
    store = open_store(f"sqlite:{path}")
    async with LocalShell(work, sandbox="require") as shell:
        silent = await shell.run(ShellCommand(argv=("cat", "sessions.db", "a.txt"), read_only=True))
        assert str(silent.stdout) == "a\n"
        script = (
            "while [ ! -e go ]; do sleep 0.01; done; "
            "cat sessions.db; for name in sessions.db sessions.db-wal sessions.db-journal; do echo FORGED > $name; done"
        )
        job = await shell.start(ShellCommand(line=script))
        await Agent(ScriptedModel("Later."), store=store).session("s").run("More.")
        (work / "go").touch()
        done = await shell.poll(job, wait_seconds=10)
    assert done.exit_code is not None
    assert done.stdout == ""
    assert list_forged(work) == []
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_store_that_is_closed_while_a_command_runs_stays_hidden(work):
    path = work / "sessions.db"
    store = open_store(f"sqlite:{path}")
    await Agent(ScriptedModel("Done."), store=store).session("s").run("Go.")
    script = (
        "touch began; while [ ! -e go ]; do sleep 0.01; done; "
        "for end in '' -wal -shm -journal; do rm -f sessions.db$end; echo FORGED > sessions.db$end && echo forged; done"
    )
    async with LocalShell(work, sandbox="require") as shell:
        job = await shell.start(ShellCommand(line=script))
        async with asyncio.timeout(20):
            while not (work / "began").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
        await store.aclose()
        (work / "go").touch()
        done = await shell.poll(job, wait_seconds=10)
    assert done.exit_code is not None
    assert "forged" not in done.stdout
    assert list_forged(work) == []
    assert not (work / "sessions.db-journal").exists()
    await Agent(ScriptedModel("Later."), store=f"sqlite:{path}").session("s").run("More.")


async def test_git_in_a_command_takes_no_notice_of_a_store(work, repository):
    store = f"sqlite:{work}/sessions [1] .db"
    lines = (
        "echo b > b.txt; git status --short; git add -A && git commit -qm second",
        "git clean -fdq; git stash -uq",
    )
    told = await run_lines(work, store, *lines)
    assert "sessions" not in "".join(told)
    assert repository("ls-files").split() == ["a.txt", "b.txt"]
    assert repository("log", "--oneline").count("\n") == 2
    assert "sessions" in repository("status", "--short", "--ignored")
    await run_lines(work, store, "true")


async def test_no_tool_for_files_reads_writes_finds_or_commits_them_whatever_the_rules_say(work, repository):
    store = open_store(f"sqlite:{work}/sessions.db")
    await Agent(ScriptedModel("needle"), store=store).session("s").run("needle")
    os.link(work / "sessions.db", work / "alias")
    agent = Agent(ScriptedModel(), extensions=[coding(work)], permission=Permissions(allow("*")), store=store)
    async with agent:
        session = agent.session("s")
        refused: list[tuple[str, dict[str, Any]]] = [
            *(("read", {"path": each}) for each in ("sessions.db", "sessions.db-wal", "SESSIONS.DB", "alias")),
            *(("write", {"path": each, "content": "x"}) for each in ("sessions.db", "sessions.db-journal")),
            ("edit", {"path": "sessions.db", "old_string": "SQLite", "new_string": "forged"}),
            ("git_commit", {"message": "x", "paths": ["sessions.db"]}),
        ]
        for name, arguments in refused:
            result = await session.call(name, arguments)
            assert "belongs to the runtime" in result.text, (name, arguments, result)
        for name, arguments in (
            *(("glob", {"pattern": "**"}), ("list", {"path": "."}), ("git_status", {})),
            ("grep", {"pattern": "needle|SQLite"}),
        ):
            found = await session.call(name, arguments)
            assert found.status == "ok", found
            assert "sessions.db" not in found.text
        (work / "alias").unlink()
        (work / "a.txt").write_text("b")
        assert (await session.call("git_commit", {"message": "x", "paths": ["."]})).status == "ok"
        assert repository("ls-files").split() == ["a.txt"]


async def test_a_mention_attaches_no_store(work):
    agent = Agent(ScriptedModel("Hi."), store=f"sqlite:{work}/sessions.db", mentions=MentionSettings(workdir=str(work)))
    outcome = await agent.session("s").run("See @sessions.db and @a.txt")
    assert "SQLite format" not in str(outcome.messages)


async def test_undo_does_not_take_the_store_back(work):
    store = f"sqlite:{work}/sessions.db"
    told = await run_lines(work, store, "echo b > b.txt", "echo c > c.txt")
    assert not [each for each in told if "sessions.db" in each]


def test_the_folder_of_a_store_is_no_working_folder(work):
    store = open_store(f"file:{work}")
    with pytest.raises(ConfigError, match="use another folder for one of them"):
        asyncio.run(LocalShell(work, sandbox="require").run(ShellCommand(line="true")))
    del store


async def test_a_store_with_a_second_name_in_the_folder_is_refused(work):
    store = f"sqlite:{work}/sessions.db"
    await run_lines(work, store, "true")
    os.link(work / "sessions.db", work / "alias")
    (told,) = await run_lines(work, store, f"touch {work}/made")
    assert "has another name" in told
    assert not (work / "made").exists()


async def test_the_example_of_the_configuration_page_as_it_is_written_has_its_store_hidden(work, monkeypatch, request):
    page = request.config.rootpath / "docs" / "how-to" / "configuration.md"
    (line,) = {each for each in page.read_text("utf-8").splitlines() if each.startswith("store = ")}
    (work / "perdure.toml").write_text(f'name = "clerk"\nmodel = "demo"\n{line}\nworkdir = "."\n')
    monkeypatch.chdir(work)
    config = load_config("perdure.toml", trusted=True)
    model = ScriptedModel(call("bash", command=attack_line(work / "sessions.db")), "Done.")
    agent = config.agent(model=model, extensions=[coding(work)], permission=Permissions(allow("*")))
    async with agent:
        outcome = await agent.session("s").run("Go.")
    (result,) = [each for message in outcome.new_messages for each in message.tool_results]
    assert (work / "sessions.db").stat().st_size
    assert (work / "outside").exists(), result
    assert "READ" not in result.text
    assert "done:" not in result.text.replace("done: rebuild", "")
    assert list_forged(work) == []


def test_a_command_of_the_command_line_has_its_store_hidden(work, perdure, monkeypatch):
    monkeypatch.chdir(work)
    monkeypatch.setattr("perdure._models.registry._factories", {})
    register("attacking", lambda _: ScriptedModel(call("bash", command=attack_line(work / "sessions.db")), "Done."))
    store = f"sqlite:{work}/sessions.db"
    words = ("run", "--model", "attacking:x", "--coding", "--yolo", "--store", store, "-s", "s", "Go.")
    ran = perdure(*words)
    assert ran.exit_code == 0, ran.output
    shown = perdure("sessions", "show", "s", "--store", store).output
    assert "READ" not in shown.replace('"READ ', "")
    assert (work / "outside").exists(), shown
    assert "done: write" not in shown
    assert list_forged(work) == []


async def test_of_a_home_around_the_working_folder_a_command_sees_nothing_but_that(work, tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    (tmp_path / "grant-key").write_text("secret")
    (told,) = await run_lines(work, "memory:", f"cat {tmp_path}/grant-key; ls {tmp_path}; touch {work}/made")
    assert "secret" not in told
    assert "grant-key" not in told.replace(f"{tmp_path}/grant-key", "")
    assert (work / "made").exists()
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(bubblewrap, "list_hidden_folders", lambda _: [])
    (told,) = await run_lines(work, "memory:", f"cat {tmp_path}/grant-key; touch {work}/made")
    assert "secret" in told
    store = open_store(f"file:{tmp_path}")
    (told,) = await run_lines(work, "memory:", f"cat {tmp_path}/grant-key; ls {tmp_path}; touch {work}/more")
    assert "secret" not in told
    assert "grant-key" not in told.replace(f"{tmp_path}/grant-key", "")
    assert (work / "more").exists()
    del store


async def test_the_settings_of_the_user_are_hidden_where_they_lie_in_the_folder(work, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(work / "settings"))
    line = f"mkdir -p {work}/settings/perdure; echo forged > {work}/settings/perdure/AGENTS.md; echo b > {work}/b"
    await run_lines(work, "memory:", line)
    assert (work / "b").exists()
    assert not list((work / "settings" / "perdure").iterdir())
