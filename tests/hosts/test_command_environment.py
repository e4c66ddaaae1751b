"""The environment of commands: whose programs they find, what their home is, and who commits."""

# ruff: noqa: ASYNC221 - preparations, while nothing else runs
import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure._tools.shell import environment as command_environment
from perdure._tools.shell.environment import build_confined_environment, build_unconfined_environment
from perdure.hosts import LocalShell, ShellCommand


@pytest.fixture(autouse=True)
def _plain_variables(monkeypatch):
    for name in ("VIRTUAL_ENV", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(name, raising=False)
    command_environment._read_git_identity.cache_clear()
    yield
    command_environment._read_git_identity.cache_clear()


async def run(root, line, **options):
    async with LocalShell(root, **options) as shell:
        return await asyncio.wait_for(shell.run(ShellCommand(line=line)), 30)


def make_environment(folder):
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    program = folder / "bin" / "mine"
    program.write_text("#!/bin/sh\necho mine of $VIRTUAL_ENV\n")
    program.chmod(0o755)
    return folder


def make_home(folder, name="A. Person", email="person@example.com"):
    folder.mkdir()
    (folder / ".gitconfig").write_text(f"[user]\n\tname = {name}\n\temail = {email}\n")
    return folder


def test_the_usual_environment_has_no_path_into_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:.:/usr/bin:relative:{tmp_path}")
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    for env in (
        build_confined_environment(str(tmp_path)),
        build_unconfined_environment(str(tmp_path), str(tmp_path / "x")),
    ):
        assert (env["PATH"], env["LANG"], env["TERM"]) == ("/usr/bin", "C.UTF-8", "dumb")
        assert "VIRTUAL_ENV" not in env


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("is_active", [True, False])
async def test_the_environment_of_the_project_works_in_the_sandbox(tmp_path, monkeypatch, is_active):
    environment = make_environment(tmp_path / ("active" if is_active else ".venv"))
    if is_active:
        make_environment(tmp_path / ".venv")
        monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    assert str((await run(tmp_path, "mine")).stdout) == f"mine of {environment}\n"


@pytest.mark.needs("bubblewrap")
async def test_an_active_environment_outside_of_the_folder_works_in_the_sandbox(tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    environment = make_environment(tmp_path / "elsewhere ä")
    monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    assert str((await run(work, "mine; echo x > $VIRTUAL_ENV/y")).stdout) == f"mine of {environment}\n"
    assert not (environment / "y").exists()


async def test_without_a_sandbox_no_program_of_the_folder_is_found_by_its_name(tmp_path, monkeypatch):
    make_environment(tmp_path / ".venv")
    for active in ("", str(tmp_path / ".venv")):
        monkeypatch.setenv("VIRTUAL_ENV", active)
        monkeypatch.setenv("PATH", f"{tmp_path}/.venv/bin:/usr/bin:/bin")
        assert (await run(tmp_path, "mine", sandbox="off")).exit_code == 127


@pytest.mark.needs("bubblewrap")
async def test_a_command_that_only_reads_does_not_run_programs_of_the_folder(tmp_path, monkeypatch):
    environment = make_environment(tmp_path / ".venv")
    (environment / "bin" / "ls").write_text("#!/bin/sh\necho planted\n")
    (environment / "bin" / "ls").chmod(0o755)
    monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    async with LocalShell(tmp_path, sandbox="require") as shell:
        silent = await shell.run(ShellCommand(argv=("ls",), read_only=True))
        asked = await shell.run(ShellCommand(argv=("ls",)))
    assert (str(silent.stdout), str(asked.stdout)) == ("", "planted\n")


@pytest.mark.parametrize("sandbox", [pytest.param("require", marks=pytest.mark.needs("bubblewrap")), "off"])
async def test_commits_have_the_name_of_the_user_s_own_settings(tmp_path, monkeypatch, sandbox):
    work = tmp_path / "work"
    monkeypatch.setenv("HOME", str(make_home(tmp_path / "home")))
    work.mkdir()
    line = "git init -q && touch a && git add a && git commit -qm first && git log --format='%an <%ae> %cn <%ce>'"
    result = await run(work, line, sandbox=sandbox)
    assert str(result.stdout) == "A. Person <person@example.com> A. Person <person@example.com>\n", result.stderr


async def test_who_commits_is_not_read_from_the_repository_and_nothing_in_it_runs(tmp_path, monkeypatch):
    work = tmp_path / "work"
    monkeypatch.setenv("HOME", str(make_home(tmp_path / "home")))
    subprocess.run(["git", "init", "-q", work], check=True)
    for key, value in (
        ("user.name", "Mallory"),
        ("core.fsmonitor", "touch ran"),
        ("include.path", str(tmp_path / "x")),
    ):
        subprocess.run(["git", "-C", work, "config", key, value], check=True)
    monkeypatch.chdir(work)
    assert build_confined_environment(str(work))["GIT_AUTHOR_NAME"] == "A. Person"
    assert [each.name for each in work.iterdir()] == [".git"]


def test_a_name_in_the_environment_wins_and_without_any_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    assert not [name for name in build_confined_environment(str(tmp_path)) if name.startswith("GIT_")]
    command_environment._read_git_identity.cache_clear()
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    found = build_confined_environment(str(tmp_path))
    assert {name: value for name, value in found.items() if name.startswith("GIT_")} == {"GIT_AUTHOR_NAME": "Somebody"}


def test_who_commits_is_known_without_running_git(tmp_path, monkeypatch):
    home = make_home(tmp_path / "home")
    (home / "more").write_text("[user]\n\tname = B. Person\n")
    with (home / ".gitconfig").open("a") as file:
        file.write("[include]\n\tpath = more\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("subprocess.run", None)
    found = build_confined_environment(str(tmp_path))
    assert (found["GIT_AUTHOR_NAME"], found["GIT_AUTHOR_EMAIL"]) == ("B. Person", "person@example.com")
    command_environment._read_git_identity.cache_clear()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    assert "GIT_AUTHOR_NAME" not in build_confined_environment(str(tmp_path))


async def test_without_a_sandbox_the_home_is_private_and_nobody_can_plant_a_file_there(tmp_path, monkeypatch):
    home = make_home(tmp_path / "home")
    monkeypatch.setenv("HOME", str(home))
    work = tmp_path / "work"
    work.mkdir()
    async with LocalShell(work, sandbox="off") as shell:
        first = str((await shell.run(ShellCommand(line="echo $HOME; echo $TMPDIR; echo x > ~/kept"))).stdout).split()
        second = str((await shell.run(ShellCommand(line="echo $HOME; cat ~/kept"))).stdout).split()
        private = Path(first[0])
        assert second == [str(private), "x"]
        for folder in (*[Path(each) for each in first], private.parent):
            found = folder.stat()
            assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.getuid())
    assert not private.parent.exists()
    async with LocalShell(work, sandbox="off") as other:
        assert str((await other.run(ShellCommand(line="echo $HOME"))).stdout).strip() != str(private)


async def test_a_settings_file_of_git_in_the_shared_temporary_folder_has_no_effect(tmp_path, monkeypatch):
    shared, work = tmp_path / "shared", tmp_path / "work"
    for folder in (shared, work):
        folder.mkdir()
    (shared / ".gitconfig").write_text("[alias]\n\tstatus2 = !touch ran\n[core]\n\tpager = touch ran\n")
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    result = await run(work, "git status2; git config --global --list; true", sandbox="off")
    assert "alias" not in str(result.stdout)
    assert list(work.iterdir()) == []


def test_a_folder_above_a_home_is_no_working_folder(tmp_path, monkeypatch):
    (tmp_path / "home" / "me").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
    for folder in (tmp_path, tmp_path / "home", tmp_path / "home" / "me"):
        with pytest.raises(ConfigError, match="folder of a project"):
            LocalShell(folder)
