"""A command in the background that exchanges folders while the sandbox of another one is set up.

What is mounted is found by its path. A link that takes the place of a folder in between would lead the mount elsewhere.
"""

import ctypes
import os
import sys
import time
from ast import literal_eval
from pathlib import Path

import pytest

from perdure._tools.sandbox import bubblewrap
from perdure.hosts import LocalShell, ShellCommand

pytestmark = pytest.mark.needs("bubblewrap")
SECRET = "the user's own"
EXCHANGE = """
import ctypes, os, time
libc = ctypes.CDLL(None)
os.makedirs("a/.git")
open("a/.git/HEAD", "w").write("ref: refs/heads/main\\n")
os.symlink("../home", "b")
open("ready", "w").close()
while True:
    libc.renameat2(-100, b"a", -100, b"b", 2)
    time.sleep(0.003)
"""
ATTACK = "cd ../home; cat secret AGENTS.md; echo evil > secret; echo evil > new; true"


def exchange(first: Path, second: Path) -> None:
    """Give two files or folders each other's names."""
    assert ctypes.CDLL(None).renameat2(-100, bytes(first), -100, bytes(second), 2) == 0


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A working folder; beside it lies the home of the user, of which commands see nothing."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.git").mkdir(parents=True)
    for name in ("secret", "AGENTS.md", ".git/HEAD"):
        (tmp_path / "home" / name).write_text(SECRET)
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def assert_untouched(root: Path) -> None:
    home = root.parent / "home"
    assert (home / "secret").read_text() == SECRET
    assert sorted(each.name for each in home.iterdir()) == [".git", "AGENTS.md", "secret"]


async def test_a_command_that_exchanges_folders_opens_nothing_to_the_next_ones(root):
    async with LocalShell(root, sandbox="require") as shell:
        job = await shell.start(ShellCommand(line="python3 -", stdin=EXCHANGE, timeout_seconds=120))
        while not (root / "ready").exists():
            await shell.poll(job, wait_seconds=0.05)
        end, refused = time.monotonic() + 3, 0
        while time.monotonic() < end:
            result = await shell.run(ShellCommand(line=ATTACK, timeout_seconds=20))
            assert SECRET not in str(result.stdout)
            refused += "exchanged" in str(result.stderr)
        assert refused
    assert_untouched(root)


PLACES = {
    "repository": "a/.git/HEAD",
    "instructions": "a/AGENTS.md",
    "folder": ".github/x",
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("place", PLACES)
async def test_a_folder_that_is_exchanged_for_a_link_is_not_mounted(root, monkeypatch, place, read_only):
    (root / PLACES[place]).parent.mkdir(parents=True)
    (root / PLACES[place]).write_text("x")
    (root / "link").symlink_to("../home")
    build = bubblewrap.build_sandbox

    def build_and_exchange(*given, **options):
        words = build(*given, **options)
        exchange(root / PLACES[place].partition("/")[0], root / "link")
        return words

    monkeypatch.setattr("perdure._tools.shell.local.build_sandbox", build_and_exchange)
    async with LocalShell(root, sandbox="require") as shell:
        result = await shell.run(ShellCommand(line=ATTACK, timeout_seconds=20, read_only=read_only))
    assert SECRET not in str(result.stdout)
    assert_untouched(root)


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_working_folder_that_the_shell_around_it_exchanges_opens_nothing(root, monkeypatch, read_only):
    inner = root / "sub"
    inner.mkdir()
    (root / "link").symlink_to("../home")
    build = bubblewrap.build_sandbox

    def build_and_exchange(*given, **options):
        words = build(*given, **options)
        exchange(inner, root / "link")
        return words

    monkeypatch.setattr("perdure._tools.shell.local.build_sandbox", build_and_exchange)
    line = f"cat {inner}/secret; echo evil > {inner}/secret"
    async with LocalShell(inner, sandbox="require") as shell:
        result = await shell.run(ShellCommand(line=line, timeout_seconds=20, read_only=read_only))
    assert SECRET not in str(result.stdout)
    assert "exchanged" in str(result.stderr)
    assert (root.parent / "home/secret").read_text() == SECRET


async def test_mounts_are_compared_whatever_the_names_of_the_variables(root, monkeypatch):
    (root / "a/.git").mkdir(parents=True)
    (root / "a/.git/HEAD").write_text("x")
    (root / "link").symlink_to("../home")
    (root / "startup").write_text("echo started")
    build = bubblewrap.build_sandbox
    env = {"PATH": os.environ["PATH"], "BASH_ENV": str(root / "startup"), "a.b": "c d", "BASH_FUNC_f%%": "() { ls; }"}

    def build_and_exchange(*given, **options):
        words = build(*given, **options)
        exchange(root / "a", root / "link")
        return words

    async with LocalShell(root, sandbox="require", env=env) as shell:
        shown = await shell.run(ShellCommand(argv=(sys.executable, "-c", "import os; print(dict(os.environ))")))
        assert literal_eval(str(shown.stdout)) == {**env, "PWD": str(root), "LC_CTYPE": "C.UTF-8"}
        assert str(shown.stderr) == ""
        monkeypatch.setattr("perdure._tools.shell.local.build_sandbox", build_and_exchange)
        result = await shell.run(ShellCommand(line=ATTACK, timeout_seconds=20))
    assert SECRET not in str(result.stdout)
    assert "exchanged" in str(result.stderr)
    assert_untouched(root)


async def test_a_secret_that_is_exchanged_is_not_shown_under_its_other_name(root, monkeypatch):
    (root / ".env").write_text(SECRET)
    (root / "plain").write_text("plain")
    (root / "link").symlink_to("plain")
    build = bubblewrap.build_sandbox

    def build_and_exchange(*given, **options):
        words = build(*given, **options)
        exchange(root / ".env", root / "link")
        return words

    monkeypatch.setattr("perdure._tools.shell.local.build_sandbox", build_and_exchange)
    async with LocalShell(root, sandbox="require") as shell:
        for read_only in (True, False):
            result = await shell.run(ShellCommand(line="cat link", timeout_seconds=20, read_only=read_only))
            assert SECRET not in str(result.stdout)
            exchange(root / ".env", root / "link")


async def test_commands_run_in_folders_of_any_name(tmp_path):
    root = tmp_path / "with space" / "Größe\\ ünd\ttab\n" / "[x] #"
    for path in ("sub dir/.git/HEAD", "a\\b/AGENTS.md", ".github/ü", "secrets/x", "c\rd/.git/HEAD", ".env"):
        (root / path).parent.mkdir(parents=True) if not (root / path).parent.exists() else None
        (root / path).write_text("x")
    (root / "CLAUDE.md").symlink_to("missing.md")
    (root / "GEMINI.md").symlink_to("a\\b/AGENTS.md")
    async with LocalShell(root, sandbox="require") as shell:
        for read_only in (True, False):
            result = await shell.run(ShellCommand(line="cat .github/ü", timeout_seconds=20, read_only=read_only))
            assert (str(result.stdout), str(result.stderr), result.exit_code) == ("x", "", 0)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", ["misplaced", "failed"])
async def test_a_start_that_is_given_up_leaves_nothing_where_a_link_led(root, monkeypatch, kind, read_only):
    for path in ("a/secrets/x", "a/.env"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    (root / "other").mkdir()
    (root / "other/plain").write_text("x")
    (root / "link").symlink_to("other")
    build = bubblewrap.build_sandbox

    def build_and_exchange(*given, **options):
        words = build(*given, **options)
        if kind == "failed":
            words[-1:-1] = ["--tmpfs", str(root / "other/plain/no folder")]
        exchange(root / "a", root / "link")
        return words

    monkeypatch.setattr("perdure._tools.shell.local.build_sandbox", build_and_exchange)
    async with LocalShell(root, sandbox="require") as shell:
        result = await shell.run(ShellCommand(line="echo begun", timeout_seconds=20, read_only=read_only))
    assert result.exit_code
    assert "begun" not in str(result.stdout)
    exchange(root / "a", root / "link")
    found = {str(each.relative_to(root)) for each in root.rglob("*")}
    assert found == {"a", "a/.env", "a/secrets", "a/secrets/x", "link", "other", "other/plain"}


async def test_what_is_missing_in_further_folders_is_not_left_there(root, tmp_path):
    cache = tmp_path / "cache"
    for name in ("HEAD", "config"):
        (cache / "nested/.git").mkdir(parents=True, exist_ok=True)
        (cache / "nested/.git" / name).write_text("[core]\n\thooksPath = hooks\n[include]\n\tpath = ../plain\n")
    before = {*cache.rglob("*")}
    async with LocalShell(root, sandbox="require", writable=[cache]) as shell:
        for line in ("true", "true git"):
            assert (await shell.run(ShellCommand(line=line))).exit_code == 0
            assert {*cache.rglob("*")} == before
