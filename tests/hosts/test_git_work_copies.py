"""Git in the sandbox of commands: what a command can change of a repository, and what is taken over when it ends."""

# ruff: noqa: ISC004 - a case is a line of a shell
import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from perdure import Agent, ConfigError
from perdure.hosts import LocalFiles, LocalShell, ShellCommand
from perdure.permissions import allow_all
from perdure.testing import ScriptedModel
from perdure.tools import LocalGit, git_read_tools

pytestmark = pytest.mark.needs("bubblewrap")
IDENTITY = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
ENV = {"PATH": os.environ["PATH"], "HOME": "/tmp", "GIT_CONFIG_NOSYSTEM": "1", **IDENTITY}


def git(folder: Path, *words: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**ENV, "HOME": "/nonexistent"}, capture_output=True, text=True, check=check
    )
    return done.stdout


async def run(root: Path, line: str):
    async with LocalShell(root, sandbox="require", env=ENV) as shell:
        return await asyncio.wait_for(shell.run(ShellCommand(line=line, timeout_seconds=20)), 30)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A repository to be copied: to make it takes git ten times as long."""
    root = tmp_path_factory.mktemp("template") / "root"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "a").write_text("a\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    git(root, "tag", "v1")
    return root


@pytest.fixture
def repository(template, tmp_path):
    return shutil.copytree(template, tmp_path / "root", symlinks=True)


def list_data(root: Path) -> dict[str, bytes]:
    """Return the content of every file in `.git`."""
    return {str(each.relative_to(root)): each.read_bytes() for each in (root / ".git").rglob("*") if each.is_file()}


async def test_what_a_command_commits_is_in_the_repository_when_it_has_ended(repository):
    result = await run(
        repository,
        "echo b > b && git add b && git commit -qm second && git branch side && git tag -m note v2 && git tag -d v1"
        " && git pack-refs --all && git checkout -q side && echo c > c && git add c && git commit -qm third"
        " && git checkout -q main && git merge -q side && echo d >> a && git stash -q && git stash pop -q",
    )
    assert (result.exit_code, str(result.stderr)) == (0, "")
    assert result.note.startswith("git: deleted refs/tags/v1 (was ")
    assert git(repository, "log", "--format=%s").split() == ["third", "second", "first"]
    assert git(repository, "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/main",
        "refs/heads/side",
        "refs/tags/v2",
    ]
    assert git(repository, "status", "--short") == " M a\n"
    assert "merge side: Fast-forward" in git(repository, "reflog", "--format=%gs")
    git(repository, "fsck", "--strict")
    assert git(repository, "stash", "list") == ""
    assert not [name for name in list_data(repository) if name.endswith(".lock")]


async def test_a_commit_can_be_amended_undone_and_stashed(repository):
    first = git(repository, "rev-parse", "HEAD")
    line = "echo b > b; git add b; git commit -qm 2; git commit -q --amend -m 3; echo x > a; git stash -q; git gc -q"
    assert (await run(repository, line)).note == ""
    assert git(repository, "log", "--format=%s").split() == ["3", "first"]
    assert len(git(repository, "stash", "list").splitlines()) == 1
    assert (await run(repository, "git reset -q --hard HEAD~1")).note == ""
    assert git(repository, "rev-parse", "HEAD") == first
    assert git(repository, "status", "--short") == ""
    assert "refs/stash (was" in (await run(repository, "git stash drop -q")).note
    assert git(repository, "stash", "list") == ""
    git(repository, "fsck", "--strict")


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf .git; : git",
        "rm -rf .git/*; : git",
        "rm -rf .git/refs; : git",
        "rm -rf .git/objects; : git",
        "rm .git/HEAD; : git",
        "echo nonsense > .git/HEAD; : git",
        "rm .git/HEAD; ln -s /etc/hostname .git/HEAD; : git",
        "rm -rf .git/refs; ln -s /etc .git/refs; : git",
        "rm .git/HEAD; mkfifo .git/HEAD; : git",
        "echo nonsense > .git/index; : git",
        "ln -s /etc/hostname .git/refs/heads/x; : git",
        "echo nonsense > .git/refs/heads/x; : git",
        "echo 'ref: ../../x' > .git/refs/heads/x; : git",
        "cp .git/refs/heads/main .git/refs/heads/..x; : git",
        "cp .git/refs/heads/main '.git/refs/heads/a b'; : git",
        "mkdir .git/objects/aa; echo x > .git/objects/aa/$(printf b%.0s $(seq 38)); : git",
        "mkdir .git/objects/aa; ln -s /etc/hostname .git/objects/aa/$(printf b%.0s $(seq 38)); : git",
        "git init -q sub; git -C sub commit -q --allow-empty -m x; git add sub; git commit -qm sub",
        "echo b > b; git add b; git commit -qm b; GIT_SEQUENCE_EDITOR=true git rebase -q --exec false HEAD~1",
        "git bisect start",
        "rm -rf .git; git init -q",
        "rm -rf .git; git init -q -b main; git add .; git commit -qm new",
        "find .git -delete; git init -q -b other; git commit -q --allow-empty -m new",
    ],
)
async def test_what_is_no_repository_any_more_is_not_taken_over(repository, line):
    before = list_data(repository)
    result = await run(repository, line)
    after = list_data(repository)
    assert result.note.startswith("git: "), result
    assert {name: after[name] for name in before} == before
    assert all(name.startswith(".git/objects/") for name in after.keys() - before.keys())
    assert git(repository, "fsck") == ""


async def test_nothing_that_names_a_program_is_taken_over(repository):
    before = list_data(repository)
    line = """
    git config core.fsmonitor /tmp/x; git config extensions.worktreeConfig true; echo x > .git/config.worktree
    printf '#!/bin/sh\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout; rm -f .git/hooks/*
    echo '* filter=x' > .git/info/attributes; echo / > .git/commondir; echo x > .git/gitdir
    mkdir -p .git/modules/x .git/worktrees/x .git/sequencer .git/branches .git/remotes
    echo x > .git/modules/x/config; echo x > .git/worktrees/x/config.worktree
    echo /x > .git/objects/info/alternates; echo x > .git/objects/pack/evil; echo x > .git/anything
    echo b > b; rm .git/commondir; git add b; git commit -qm second
    """
    await run(repository, line)
    after = list_data(repository)
    changed = {name for name in {**before, **after} if before.get(name) != after.get(name)}
    assert {name for name in changed if not name.startswith((".git/objects/", ".git/logs/"))} <= {
        ".git/index",
        ".git/refs/heads/main",
        ".git/COMMIT_EDITMSG",
    }
    assert all(len(name) == len(".git/objects/aa/") + 38 for name in changed if name.startswith(".git/objects/"))


@pytest.mark.parametrize("form", ["folder", "file", "absent"])
async def test_a_command_that_does_not_run_git_cannot_change_it_whatever_its_form(repository, tmp_path, form):
    root = repository
    if form == "file":
        root = tmp_path / "tree"
        git(repository, "worktree", "add", "-q", str(root), "-b", "side")
    elif form == "absent":
        root = tmp_path / "empty"
        root.mkdir()
    before = list_data(repository)
    line = """
    mkdir -p .g''it .g''it/hooks; echo x > .g''it/config; echo x > .g''it/commondir; echo x > .g''it/hooks/pre-commit
    rm -rf .g''it; mv .g''it elsewhere; ln -sfn /tmp .g''it; echo gitdir: x > .g''it; chmod -R 777 .g''it
    exit 0
    """
    await run(root, line)
    assert list_data(repository) == before
    assert (root / ".git").exists() == (form != "absent")
    assert not (root / "elsewhere").exists()


async def test_repositories_below_and_missing_ones_of_submodules_cannot_be_changed(repository, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "deep/sub")
    git(repository, "submodule", "deinit", "-q", "-f", "deep/sub")
    (repository / "deep" / "sub").rmdir()
    (repository / "deep").rmdir()
    git(repository, "init", "-q", "other/below")
    before = list_data(repository / "other" / "below")
    line = """
    mkdir -p deep/sub/.g''it; echo x > deep/sub/.g''it/config; rm -rf deep; mv deep x; echo x > deep/sub/.g''it
    echo x >> other/below/.g''it/config; rm -rf other/below/.g''it; mv other/below/.g''it y; exit 0
    """
    await run(repository, line)
    assert not (repository / "deep").exists()
    assert list_data(repository / "other" / "below") == before


async def test_a_command_can_create_a_repository_and_it_has_no_programs(tmp_path):
    root = tmp_path / "new"
    root.mkdir()
    line = """git init -q -b trunk && git config core.fsmonitor /tmp/x && echo a > a && git add a && git commit -qm one
    printf '#!/bin/sh\\n' > .git/hooks/pre-commit"""
    result = await run(root, line)
    assert (result.exit_code, result.note) == (0, "")
    assert git(root, "log", "--format=%s", "trunk") == "one\n"
    assert git(root, "status", "--short") == ""
    assert git(root, "config", "--list", "--local").splitlines() == [
        "core.bare=false", "core.logallrefupdates=true", "core.repositoryformatversion=0", "core.filemode=true",
    ]  # fmt: skip
    assert not (root / ".git" / "hooks").exists()
    assert (await run(root, "git commit -q --allow-empty -m second")).note == ""
    assert git(root, "rev-list", "--count", "HEAD") == "2\n"


async def test_a_command_that_creates_no_repository_leaves_no_trace(tmp_path):
    assert (await run(tmp_path, "echo git; mkdir .git/hooks; touch .git/config")).note == ""
    assert list(tmp_path.iterdir()) == []


async def meanwhile(root: Path, line: str, act):
    """Run a command line that waits for a file `go`, and do something before it goes on."""
    async with LocalShell(root, sandbox="require", env=ENV) as shell:
        job = await shell.start(ShellCommand(line=f"until [ -e go ]; do sleep 0.01; done; {line}", timeout_seconds=20))
        act()
        (root / "go").touch()
        return await shell.poll(job, wait_seconds=20)


async def test_what_the_user_has_committed_meanwhile_is_not_lost_but_a_conflict(repository):
    def commit() -> None:
        git(repository, "commit", "-q", "--allow-empty", "-m", "of the user")

    output = await meanwhile(repository, "git commit -q --allow-empty -m ours", commit)
    assert "another program has changed the repository meanwhile (refs/heads/main)" in output.note
    assert git(repository, "log", "--format=%s").splitlines() == ["of the user", "first"]


async def test_what_the_user_has_staged_meanwhile_is_not_lost_but_a_conflict(repository):
    def stage() -> None:
        (repository / "mine").write_text("mine")
        git(repository, "add", "mine")

    output = await meanwhile(repository, "echo b > b; git add b", stage)
    assert "another program has changed the repository meanwhile (index)" in output.note
    assert git(repository, "ls-files").split() == ["a", "mine"]


async def test_an_index_that_was_only_refreshed_meanwhile_is_no_conflict(repository):
    def refresh() -> None:
        os.utime(repository / "a", (1, 1))
        git(repository, "update-index", "--refresh")

    output = await meanwhile(repository, "echo b > b; git add b; git commit -qm second", refresh)
    assert output.note == ""
    assert git(repository, "status", "--short") == "?? go\n"


async def test_a_repository_that_another_program_has_locked_is_a_conflict(repository):
    def lock() -> None:
        (repository / ".git" / "index.lock").touch()

    output = await meanwhile(repository, "echo b > b; git add b", lock)
    assert "(index is locked)" in output.note
    assert git(repository, "ls-files").split() == ["a"]


async def test_a_linked_work_tree_can_be_committed_to(repository, tmp_path):
    root = tmp_path / "tree"
    git(repository, "worktree", "add", "-q", str(root), "-b", "side")
    result = await run(root, "echo b > b; git add b; git commit -qm second; git status --short; git branch")
    assert (result.note, str(result.stderr)) == ("", "")
    assert git(root, "log", "--format=%s").split() == ["second", "first"]
    assert (git(root, "status", "--short"), git(repository, "status", "--short")) == ("", "")
    assert git(repository, "log", "--format=%s").split() == ["first"]


async def test_a_link_in_the_place_of_git_is_refused(repository, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").symlink_to(repository / ".git")
    for line in ("true", "git status"):
        with pytest.raises(ConfigError, match="is a link, and cannot be protected"):
            await run(other, line)


async def test_the_repository_above_the_working_folder_cannot_be_changed(repository):
    below = repository / "below"
    below.mkdir()
    before = list_data(repository)
    await run(below, "git commit -q --allow-empty -m x; git init -q; echo x > ../.git/config; echo x > .git/config")
    assert list_data(repository) == before
    assert list(below.iterdir()) == []


async def test_copies_are_removed_with_their_command(repository, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary" / f"perdure-locks-{os.getuid()}" / "git" / "copy-left").mkdir(parents=True, mode=0o700)
    (tmp_path / "temporary" / f"perdure-locks-{os.getuid()}").chmod(0o700)
    await run(repository, "git status")
    assert list((tmp_path / "temporary").glob("*/git/*")) == []


def add_submodule(repository: Path, tmp_path: Path, path: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), path)
    git(repository, "commit", "-qm", "with a submodule")


def plant(path: str, mark: Path) -> str:
    """Return a line that makes a repository with a program at a path, without the word that would show it a copy."""
    return (
        f"d={path}/.g''it; mkdir -p $d/objects $d/refs; echo ref: refs/heads/main > $d/HEAD;"
        f" printf '[core]\\n\\tfsmonitor = %s\\n' {mark} > $d/config"
    )


@pytest.mark.parametrize("path", ["sub", "deep/sub"])
async def test_a_submodule_that_is_the_working_folder_can_be_read_and_committed_to(repository, tmp_path, path):
    add_submodule(repository, tmp_path, path)
    root = repository / path
    (root / "b").write_text("b")
    files = LocalFiles(root)
    tools = git_read_tools(files, LocalGit(files))
    session = Agent(ScriptedModel(), tools=tools, permission=allow_all).session()
    assert "?? b" in (await session.call("git_status", {})).text
    result = await run(root, "git add b; git commit -qm second; git status --short")
    assert (result.note, str(result.stderr)) == ("", "")
    assert git(root, "log", "--format=%s").split() == ["second", "inner"]
    assert git(root, "status", "--short") == ""
    assert git(repository, "status", "--short").split() == ["M", path]


async def test_a_file_that_leads_to_the_data_of_a_submodule_elsewhere_is_not_used(repository, tmp_path):
    add_submodule(repository, tmp_path, "sub")
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {repository}/.git/modules/sub\n")
    files = LocalFiles(other)
    tools = git_read_tools(files, LocalGit(files))
    session = Agent(ScriptedModel(), tools=tools, permission=allow_all).session()
    assert (await session.call("git_status", {})).text == "the file .git leads to another repository, and is not used"


@pytest.fixture
def mark(tmp_path):
    """A program that notes that it ran."""
    path = tmp_path / "mark"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("path", ["sub", "deep/sub", "p/b/c/d/e/f/g/h/sub"])
@pytest.mark.parametrize("change", ["mv {top} gone", "rm -rf {path}/.g''it", "mv {path} gone", "mv {path}/.g''it x"])
async def test_no_other_repository_takes_the_place_of_a_submodule(repository, tmp_path, mark, path, change):
    add_submodule(repository, tmp_path, path)
    await run(repository, f"{change.format(path=path, top=path.split('/')[0])}; {plant(path, mark)}")
    git(repository, "status")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"core.hooksPath": ".husky"}, "mkdir .husky; cp ../mark .husky/post-index-change"),
        ({"core.hooksPath": "tools/hooks"}, "mkdir -p tools/hooks; cp ../mark tools/hooks/post-index-change"),
        ({"include.path": "../.gitconfig"}, "printf '[core]\\n\\tfsmonitor = %s\\n' $MARK > .gitconfig"),
        ({"include.path": "../old"}, "printf '[core]\\n\\tfsmonitor = %s\\n' $MARK > new; mv new old"),
        ({"core.fsmonitor": "sh tools/watch"}, "mv tools x; mkdir tools; cp ../mark tools/watch"),
        ({"core.fsmonitor": "./watch"}, "cp ../mark watch"),
        (
            {"filter.x.clean": "sh tools/watch"},
            "cp ../mark tools/watch; echo 'a filter=x' > .gitattributes; echo b > a",
        ),
    ],
)
async def test_what_the_configuration_names_in_the_folder_cannot_be_changed(repository, tmp_path, mark, settings, line):
    for key, value in settings.items():
        git(repository, "config", key, value)
    (repository / "tools").mkdir()
    (repository / "tools" / "watch").write_text("cat\n")
    (repository / "old").touch()
    await run(repository, f"MARK={mark}; cp $MARK ../mark 2>/dev/null; {line}")
    assert not [each for each in (".husky", ".gitconfig", "watch") if (repository / each).exists()]
    git(repository, "add", "a")
    git(repository, "status")
    assert not (tmp_path / "ran").exists()


async def test_hooks_that_are_links_into_the_folder_cannot_be_changed(repository, tmp_path, mark):
    (repository / "tools").mkdir()
    (repository / "tools" / "hook").write_text("#!/bin/sh\n")
    (repository / "tools" / "hook").chmod(0o755)
    (repository / ".git" / "hooks" / "post-commit").symlink_to("../../tools/hook")
    await run(repository, f"cp {mark} tools/hook; mv tools x; mkdir tools; cp {mark} tools/hook")
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "line",
    [
        "git init -q new; cd new; git commit -q --allow-empty -m x; git config core.fsmonitor {mark}",
        "git init -q new; cd new; git commit -q --allow-empty -m x; rm -rf .git/hooks; mkdir .git/hooks;"
        " cp {mark} .git/hooks/post-index-change",
        "git init -q new; cd new; git commit -q --allow-empty -m x; git config extensions.worktreeConfig true;"
        " printf '[core]\\n\\tfsmonitor = %s\\n' {mark} > .git/config.worktree",
        "git init -q --bare data; cd data; git config core.bare false; git config core.fsmonitor {mark}; cd ..;"
        " mkdir new; echo gitdir: ../data > new/.git; cd new; git commit -q --allow-empty -m x",
        "git init -q x; cd x; git commit -q --allow-empty -m x; mv .git ../c; cd ..; mkdir -p new/.git; cd new;"
        " mv ../c/HEAD .git; echo ../../c > .git/commondir; git -C . config core.fsmonitor {mark}",
        "git init -q new; cd new; git commit -q --allow-empty -m x; printf '[]\\n[core]\\n\\tfsmonitor = %s\\n' {mark}"
        " >> .git/config; chmod 0 .git; cd ..; chmod 0 new",
    ],
)
async def test_a_repository_that_a_command_makes_below_has_no_programs(repository, tmp_path, mark, line):
    await run(repository, line.format(mark=mark))
    for words in (["add", "-A"], ["commit", "-qm", "x"], ["status"]):
        git(repository, *words, check=False)
    new = repository / "new"
    for words in (["status"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        git(new, *words, check=False)
    assert not (tmp_path / "ran").exists()


async def test_git_data_in_a_spelling_that_some_file_systems_take_for_it_have_no_programs(tmp_path):
    data = "printf '[core]\\n\\tfsmonitor = x\\n' > $d/config; mkdir $d/hooks; touch $d/hooks/post-commit"
    line = "for d in .w/.GIT .w/bare; do mkdir -p $d/OBJECTS $d/Refs; echo 'ref: refs/heads/m' > $d/HEAD; {}; done"
    await run(tmp_path, line.format(data))
    for place in (".w/.GIT", ".w/bare"):
        assert "fsmonitor" not in (tmp_path / place / "config").read_text()
        assert not (tmp_path / place / "hooks").exists()


HIDDEN = "mkdir -p d/refs d/objects/x/a/b/c/d; {new}; mv new d/objects/x/a/b/c/d/new"
LATER = {
    "moved later": (HIDDEN, "mv d/objects/x/a/b/c/d moved; mv moved/new new"),
    "folder moved later": (HIDDEN, "mv d/objects/x/a/b/c/d new"),
    "linked": (f"{HIDDEN}; ln -s d/objects/x/a/b/c/d/new new", "true"),
}


@pytest.mark.parametrize("way", LATER)
async def test_a_repository_that_an_earlier_command_has_hidden_has_no_programs(repository, tmp_path, mark, way):
    first, second = LATER[way]
    new = f"git init -q new; git -C new commit -q --allow-empty -m x; git -C new config core.fsmonitor {mark}"
    await run(repository, first.replace("{new}", new))
    await asyncio.sleep(2.5)  # as long as file systems may be behind
    await run(repository, second)
    for place in (repository / "new", repository / "new/new"):
        if place.exists():
            git(place, "status", check=False)
    assert not (tmp_path / "ran").exists()


async def test_a_folder_with_too_many_entries_to_look_at_is_told(repository, monkeypatch):
    monkeypatch.setattr("perdure._tools.git.planted._MOST_ENTRIES", 10)
    assert (await run(repository, "true")).note == ""
    result = await run(repository, "mkdir -p x/y; cd x; touch 1 2 3 4 5 6 7 8 9 10 11 12")
    assert "not all of it was looked at" in result.note


async def test_what_was_set_aside_is_named_and_kept_and_the_rest_of_the_settings_holds(repository):
    line = "git init -q new; cd new; git config core.pager less; git remote add origin https://example.org/x"
    result = await run(repository, line)
    assert "set aside new/.git/config" in result.note
    assert "pager" not in git(repository / "new", "config", "--list", "--local")
    assert git(repository / "new", "remote", "-v").count("https://example.org/x") == 2
    assert len(list((repository / "new" / ".git").glob("config.unused-*"))) == 1
    assert (await run(repository, "git init -q --bare other; git -C other symbolic-ref HEAD refs/heads/x")).note == ""
    assert git(repository / "other", "rev-parse", "--is-bare-repository") == "true\n"


async def test_what_was_in_a_repository_below_before_is_not_touched(repository):
    git(repository, "init", "-q", "below")
    git(repository / "below", "config", "core.pager", "less")
    before = list_data(repository / "below")
    assert (await run(repository, "touch below/x; mv below/x y; git -C below status")).note == ""
    assert list_data(repository / "below") == before


async def test_a_folder_that_is_kept_in_place_still_hides_its_secrets(repository, tmp_path):
    add_submodule(repository, tmp_path, "deep/sub")
    (repository / "deep" / ".env").write_text("KEY=secret")
    git(repository, "config", "include.path", "../.env")
    (repository / ".env").write_text("# secret")
    result = await run(repository, "cat .env deep/.env; echo over")
    assert "secret" not in str(result.stdout)


ADD_TO_INDEX = """
import hashlib, subprocess, sys
digest = subprocess.run(["git", "hash-object", "-w", "--stdin"], input=b"echo evil", capture_output=True).stdout
path = sys.argv[1].encode()
entry = bytes(24) + (0o100755).to_bytes(4, "big") + bytes(12) + bytes.fromhex(digest.decode())
entry += len(path).to_bytes(2, "big") + path
header = b"DIRC" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big")
data = header + entry + bytes(8 - len(entry) % 8)
open(sys.argv[2], "wb").write(data + hashlib.sha1(data).digest())
"""


@pytest.mark.parametrize("file", ["index", f"sharedindex.{'a' * 40}"])
@pytest.mark.parametrize(
    "path",
    [".git/hooks/post-checkout", "sub/.GIT/config", "../evil", "/evil", "a/../../evil", "a//b", "git~1/config",
     ".git\\config", ".g\u200cit/config", ".git::$INDEX_ALLOCATION/config"],
)  # fmt: skip
async def test_an_index_that_leads_into_git_data_or_elsewhere_is_not_taken_over(repository, path, file):
    (repository / "forge").write_text(ADD_TO_INDEX)
    before = (repository / ".git/index").read_bytes()
    result = await run(repository, f"python3 forge '{path}' .git/{file}; git add forge")
    assert "which is no file of the work tree" in result.note
    assert (repository / ".git/index").read_bytes() == before
    git(repository, "restore", ".")
    assert not (repository / ".git/hooks/post-checkout").exists()
    assert not (repository.parent / "evil").exists()


async def test_names_that_only_look_like_git_data_can_be_added(repository):
    names = [".github", ".gitignore", "git", "...", ":x", "a\\b", "\\", "x.git", "é.git~"]
    for name in names:
        (repository / name).write_text("x")
    assert (await run(repository, "git add . && git commit -qm more")).note == ""
    assert len(git(repository, "ls-files", "-z").split("\0")) == len(names) + 2


async def test_a_small_index_cannot_fill_the_memory(repository):
    script = """
import hashlib
data = b"DIRC" + (4).to_bytes(4, "big") + (20_000).to_bytes(4, "big")
data += (bytes(24) + (0o100644).to_bytes(4, "big") + bytes(34) + b"\\0" + b"a" * 100 + b"\\0") * 20_000
open(".git/index", "wb").write(data + hashlib.sha1(data).digest())
"""
    (repository / "forge").write_text(script)
    assert (await run(repository, "python3 forge; : git")).note == "git: the index of the repository is damaged"


FORGED_PACK = """
import hashlib, os, subprocess, zlib
name = bytes.fromhex(subprocess.run(["git", "rev-parse", "HEAD:a"], capture_output=True, text=True).stdout.strip())
entry = bytes([0b0011_0101]) + zlib.compress(b"evil\\n")
pack = b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + entry
pack += hashlib.sha1(pack).digest()
index = b"\\xfftOc" + (2).to_bytes(4, "big")
index += b"".join([int(first >= name[0]).to_bytes(4, "big") for first in range(256)])
index += name + zlib.crc32(entry).to_bytes(4, "big") + (12).to_bytes(4, "big") + pack[-20:]
path = f".git/objects/pack/pack-{pack[-20:].hex()}"
open(path + ".pack", "wb").write(pack)
open(path + ".idx", "wb").write(index + hashlib.sha1(index).digest())
"""


async def test_a_pack_that_gives_a_known_name_to_other_content_changes_no_commit(repository, tmp_path):
    (repository / "forge").write_text(FORGED_PACK)
    result = await run(repository, "python3 forge; git cat-file -p HEAD:a")
    assert (str(result.stdout), result.note) == ("evil\n", "")
    git(repository, "clone", "-q", "--no-local", ".", str(tmp_path / "clone"))
    assert (tmp_path / "clone/a").read_text() == git(repository, "cat-file", "-p", "HEAD:a") == "a\n"
    git(repository, "fsck", "--strict")


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
async def test_a_repository_that_a_command_has_packed_is_taken_over(tmp_path, algorithm):
    line = f"git init -q --object-format={algorithm}; echo a > a; git add a; git commit -qm 1; git repack -adq"
    assert (await run(tmp_path, line)).note == ""
    assert len(list((tmp_path / ".git/objects/pack").iterdir())) == 2
    git(tmp_path, "fsck", "--strict")
    assert git(tmp_path, "status", "--short") == ""


async def test_a_pack_that_is_damaged_is_not_taken_over(repository):
    before = list_data(repository)
    line = "git repack -adq; git gc -q; echo b > b; git add b; git commit -qm b; git repack -dq"
    result = await run(repository, f"{line}; chmod +w .git/objects/pack/*; truncate -s -30 .git/objects/pack/*.pack")
    assert "a pack that is damaged" in result.note
    assert {name: list_data(repository)[name] for name in before} == before


async def test_objects_with_too_much_content_are_not_taken_over(repository, monkeypatch):
    monkeypatch.setattr("perdure._tools.git.takeover._MOST_CONTENT_BYTES", 3_000_000)
    (repository / "forge").write_text("for i in range(2): open(f'big{i}', 'w').write(f'{i}' * 2_000_000)")
    assert (await run(repository, "python3 forge; git add big0")).note == ""
    (repository / "forge").write_text("for i in range(2, 4): open(f'big{i}', 'w').write(f'{i}' * 2_000_000)")
    assert "too much content" in (await run(repository, "python3 forge; git add .")).note


@pytest.mark.parametrize("names", ["config", "../.git/config ../.git/./config", "a b c d e f g h"])
async def test_configuration_that_includes_itself_holds_nobody_up(repository, names):
    included = "[include]\n" + "".join([f"path = {each}\n" for each in names.split() * 20])
    with (repository / ".git/config").open("a") as file:
        file.write(included)
    for each in names.split():
        if len(each) == 1:
            (repository / ".git" / each).write_text(included)
    result = await run(repository, "echo done")
    assert str(result.stdout) == "done\n"


async def test_configuration_that_is_too_large_to_be_read_is_refused(repository):
    with (repository / ".git/config").open("a") as file:
        file.write("[a]\n" + "b = c\n" * 200_000 + "[core]\nhooksPath = hooks\n")
    with pytest.raises(ConfigError, match="too large"):
        await run(repository, "echo done")


@pytest.mark.parametrize("packed", ["true", "git pack-refs --all"])
@pytest.mark.parametrize("replaced", ["HEAD", "HEAD^{tree}", "HEAD:a"])
async def test_a_known_object_is_not_replaced_by_another_one(repository, replaced, packed):
    before = list_data(repository)
    make = {
        "HEAD": "git commit -q --allow-empty -m 2; new=$(git rev-parse HEAD); git reset -q --soft HEAD~1",
        "HEAD^{tree}": "new=$(git write-tree)",
        "HEAD:a": "new=$(git hash-object -w a)",
    }
    line = f"echo evil > a; git add a; {make[replaced]}; git update-ref refs/replace/$(git rev-parse {replaced}) $new"
    result = await run(repository, f"{line}; {packed}; git show HEAD:a")
    assert "has replaced an object (refs/replace/" in result.note
    assert git(repository, "show", "HEAD:a") == "a\n"
    assert {name for name in list_data(repository) if "refs" in name} == {name for name in before if "refs" in name}


@pytest.mark.parametrize("name", ["x$(touch pwned)", "`id`", "x|y", "x;y", "-x", "a/--output=x", 'a"b', "a&b", "a<b"])
@pytest.mark.parametrize("how", ["git update-ref refs/heads/'{}' HEAD", "git symbolic-ref HEAD refs/heads/'{}'"])
async def test_a_branch_is_not_called_what_a_shell_or_a_program_would_obey(repository, name, how):
    result = await run(repository, how.format(name.replace(" ", "${IFS}")))
    assert "nothing" in result.note
    assert git(repository, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main", "refs/tags/v1"]
    assert git(repository, "branch", "--show-current") == "main\n"


async def test_a_branch_that_was_called_so_before_can_be_worked_on(repository):
    git(repository, "checkout", "-q", "-b", "fix(a)!#it's-50%")
    assert (await run(repository, "echo b > b; git add b; git commit -qm 2; git branch 'feat(b)!#1'")).note == ""
    git(repository, "checkout", "-q", "-b", "a&b")
    assert (await run(repository, "echo c > c; git add c; git commit -qm 3")).note == ""
    assert git(repository, "log", "-1", "--format=%s") == "3\n"


FORGE = """
import hashlib, os, struct
index = bytearray(open(".git/index", "rb").read())
found = os.stat("a")
times = [part for each in (found.st_ctime_ns, found.st_mtime_ns) for part in divmod(each, 10**9)]
index[12:36] = struct.pack(">6I", *times, found.st_dev & 0xFFFFFFFF, found.st_ino & 0xFFFFFFFF)
index[48:52] = struct.pack(">I", found.st_size)
size = 32 if len(os.popen("git rev-parse HEAD").read()) > 50 else 20
make = hashlib.sha256 if size == 32 else hashlib.sha1
index[-size:] = make(index[:-size]).digest()
open(".git/index", "wb").write(index)
"""
HIDING = {
    "times": f"echo evil > a; sleep 1.1; python3 -c '{FORGE}'; git --version",
    "unchanged": "git update-index --assume-unchanged a; echo evil > a",
    "left out": "git update-index --skip-worktree a; echo evil > a",
}


@pytest.mark.parametrize("form", ["--index-version=2", "--index-version=4", "sha256"])
@pytest.mark.parametrize("how", HIDING)
async def test_no_index_hides_from_the_user_that_a_file_was_changed(tmp_path, how, form):
    git(tmp_path, "init", "-q", "-b", "main", *(["--object-format=sha256"] if form == "sha256" else []))
    for name in ("a", "b"):
        (tmp_path / name).write_text("good\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "1")
    if form != "sha256":
        git(tmp_path, "update-index", form.replace("=", " ").split()[0], form[-1])
    result = await run(tmp_path, f"{HIDING[how]}; echo more >> b")
    assert str(result.stderr) == ""
    assert git(tmp_path, "status", "--short").split() == ["M", "a", "M", "b"]
    assert "+evil" in git(tmp_path, "diff")


async def test_what_is_committed_is_what_the_index_has_and_new_files_are_shown(repository):
    forge = """
import hashlib, subprocess
data = open(".git/index", "rb").read()
at = data.index(b"TREE")
tree = bytes.fromhex(subprocess.check_output(["git", "rev-parse", "HEAD^{tree}"], text=True).strip())
made = b"\\0" + b"1 0\\n" + tree
data = data[:at] + b"TREE" + len(made).to_bytes(4, "big") + made
open(".git/index", "wb").write(data + hashlib.sha1(data).digest())
"""
    lines = f"echo evil > a; git add a; git write-tree; python3 - <<'END'\n{forge}\nEND\n"
    assert "Error" not in str((await run(repository, lines)).stderr)
    assert git(repository, "status", "--short") == "M  a\n"
    git(repository, "commit", "-qm", "2")
    assert git(repository, "show", "HEAD:a") == "evil\n"
    assert b"UNTR" not in (repository / ".git/index").read_bytes()
    await run(repository, "echo n > new; git update-index --force-untracked-cache; git status --short")
    assert b"UNTR" not in (repository / ".git/index").read_bytes()
    assert git(repository, "status", "--short") == "?? new\n"


async def test_an_index_that_a_command_has_split_is_not_taken_over_and_one_of_the_user_is(repository):
    assert "has split the index" in (await run(repository, "echo b > b; git update-index --add --split-index b")).note
    git(repository, "update-index", "--split-index")
    assert (await run(repository, "git add b")).note == ""
    assert git(repository, "status", "--short") == "A  b\n"


async def test_marks_that_the_user_has_set_and_files_that_are_not_checked_out_stay_so(repository):
    for name in ("b", "c"):
        (repository / name).mkdir()
        (repository / name / "x").write_text("x")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "2")
    git(repository, "update-index", "--assume-unchanged", "a")
    git(repository, "sparse-checkout", "set", "--no-cone", "/a", "/b")
    before = git(repository, "ls-files", "-v")
    assert (await run(repository, "git status; echo y > b/y; git add b/y; git commit -qm 3")).note == ""
    assert git(repository, "ls-files", "-v").replace("H b/y\n", "") == before == "h a\nH b/x\nS c/x\n"
    assert git(repository, "status", "--short") == ""


async def test_an_index_that_a_command_has_only_refreshed_is_as_before(repository):
    before = (repository / ".git/index").read_bytes()
    await run(repository, "touch a; git status; git update-index --refresh; echo b > b; git add b; git reset -q")
    assert (repository / ".git/index").read_bytes() == before
