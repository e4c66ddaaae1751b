"""Files whose names mean secrets, in a repository: what commands see of them, and that git commits nothing false."""

import asyncio
import os
import subprocess

import pytest

from perdure._tools.sandbox.covers import GitIndex
from perdure.hosts import LocalShell, ShellCommand

pytestmark = pytest.mark.needs("bubblewrap")
IDENTITY = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
ENV = {"PATH": os.environ["PATH"], "HOME": "/tmp", **IDENTITY}


async def run(root, line, **options):
    async with LocalShell(root, sandbox="require", env=ENV, **options) as shell:
        result = await asyncio.wait_for(shell.run(ShellCommand(line=line, timeout_seconds=20)), 30)
    return result.exit_code, str(result.stdout), str(result.stderr)


def git(folder, *words):
    env = {**ENV, "GIT_CONFIG_GLOBAL": "/dev/null"}
    return subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


def write(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.fixture
def root(tmp_path):
    """A repository with a committed file."""
    git(tmp_path, "init", "-q", "-b", "main")
    write(tmp_path, plain="plain\n")
    git(tmp_path, "add", "plain")
    git(tmp_path, "commit", "-qm", "First")
    return tmp_path


async def test_what_git_ignores_is_an_empty_file_that_everyday_commands_pass_over(root):
    write(root, DOTenv="KEY=secret", app__DOTenv="KEY=secret", DOTgitignore=".env\n")
    line = (
        "cat .env app/.env; grep -r secret .; echo $?; cp -r . /tmp/x && git add -A && git commit -qm x && git ls-files"
    )
    assert await run(root, line) == (0, "1\n.gitignore\nplain\n", "")
    assert (root / ".env").read_text() == "KEY=secret"


async def test_a_folder_without_a_repository_has_empty_files(tmp_path):
    write(tmp_path, DOTenv="KEY=secret")
    assert await run(tmp_path, "grep -r secret . ; cp -r . /tmp/x && cat .env") == (0, "", "")


async def test_what_is_committed_as_it_is_is_shown(root):
    write(root, DOTenvDOTexample="KEY=", DOTnpmrc="save-exact=true\n", certs__testDOTpem="not secret")
    git(root, "add", "-A")
    line = "cat .env.example .npmrc certs/test.pem; git status --short; echo x > new; git add -A && git status --short"
    shown = "KEY=save-exact=true\nnot secret"
    status = "".join(f"A  {each}\n" for each in (".env.example", ".npmrc", "certs/test.pem"))
    assert await run(root, line) == (0, f"{shown}{status}{status}A  new\n", "")


async def test_what_was_changed_since_is_not_shown_and_not_committed(root):
    write(root, DOTenv="KEY=\n", secrets__file="one")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Second")
    write(root, DOTenv="KEY=secret\n", plain="changed\n")
    _, shown, errors = await run(
        root, "cat .env; ls secrets; git add -A || git commit -qam x; git diff --cached --stat"
    )
    assert "secret\n" not in shown
    assert ".env" in errors
    assert "Permission denied" in errors
    assert git(root, "show", "HEAD:.env") == "KEY=\n"
    assert git(root, "show", "HEAD:secrets/file") == "one"
    assert git(root, "ls-files") == ".env\nplain\nsecrets/file\n"


async def test_what_git_would_add_cannot_be_read_and_is_not_added(root):
    write(root, DOTenv="KEY=secret")
    _, shown, errors = await run(root, "cat .env; git add -A; git ls-files")
    assert (shown, "Permission denied" in errors) == ("plain\n", True)
    assert await run(root, "echo .env > .gitignore") == (0, "", "")
    assert await run(root, "git add -A && git ls-files") == (0, ".gitignore\nplain\n", "")


async def test_a_repository_below_and_a_work_tree_are_covered_too(root):
    write(root, app__DOTenv="KEY=secret", DOTgitignore=".env\n")
    git(root / "app", "init", "-q")
    git(root, "worktree", "add", "-q", root.parent / "tree")
    write(root.parent / "tree", DOTenv="KEY=secret", DOTgitignore=".env\n", DOTnpmrc="secret")
    _, shown, errors = await run(root, "cat app/.env; git -C app add -A -v")
    assert (shown, "app/.env: Permission denied" in errors) == ("", True)
    _, shown, errors = await run(root.parent / "tree", "cat .env; cat .npmrc")
    assert (shown, errors.count("Permission denied")) == ("", 1)


async def test_a_command_cannot_have_a_secret_shown_by_changing_the_index(root):
    write(root, DOTenv="KEY=secret")
    await run(root, "echo guess > /tmp/g; git update-index --add --cacheinfo 100644,$(git hash-object -w /tmp/g),.env")
    _, shown, errors = await run(root, "cat .env")
    assert (shown, "Permission denied" in errors) == ("", True)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_index_of_git_is_read(root, version):
    write(root, a__DOTenv="long", DOTenv="short", z="")
    git(root, "add", "-f", ".")
    git(root, "update-index", "--index-version", str(version))
    if version == 3:
        git(root, "update-index", "--skip-worktree", "z")
    index = GitIndex((root / ".git" / "index").read_bytes())
    is_known = version < 4
    assert index.has_content(b".env", b"short") is is_known
    assert index.has_content(b"a/.env", b"long") is is_known
    assert not index.has_content(b".env", b"long")
    assert not index.has_content(b"env", b"short")
    assert not index.has_content(b"z", b"") or version == 2
    assert index.may_have(b".env")
    assert index.may_have(b"a")
    assert index.may_have(b"other") is not is_known
    assert GitIndex(b"").may_have(b".env")
