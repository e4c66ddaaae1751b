"""What a command in the sandbox sees of homes and of folders for temporary files."""

# ruff: noqa: ASYNC221, ASYNC240 - preparations, while nothing else runs
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perdure._tools.sandbox import bubblewrap, shown_folders
from perdure._tools.sandbox.shown_folders import find_repository_folders, list_hidden_folders, list_shown_folders
from perdure.hosts import LocalShell, ShellCommand

NAMES = """
.ssh/id_ed25519 .ssh/config .ssh/known_hosts .gnupg/private-keys-v1.d/key .aws/credentials .aws/config
.aws/sso/cache/token .azure/accessTokens.json .azure/msal_token_cache.json .config/gcloud/credentials.db
.config/gcloud/application_default_credentials.json .kube/config .docker/config.json .config/containers/auth.json
.netrc .pgpass .my.cnf .mylogin.cnf .pypirc .npmrc .yarnrc.yml .cargo/credentials .cargo/credentials.toml
.m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties .gem/credentials .composer/auth.json
.nuget/NuGet/NuGet.Config .terraform.d/credentials.tfrc.json .terraformrc .vault-token .git-credentials
.config/git/credentials .config/gh/hosts.yml .config/hub .config/glab-cli/config.yml .password-store/mail.gpg
.local/share/keyrings/login.keyring .local/share/kwalletd/kdewallet.kwl .config/op/config .config/rclone/rclone.conf
.codex/auth.json .claude/.credentials.json .claude.json .gemini/oauth_creds.json .config/github-copilot/hosts.json
.mozilla/firefox/p/logins.json .mozilla/firefox/p/cookies.sqlite .config/google-chrome/Default/Cookies
.config/chromium/Default/Login .thunderbird/p/key4.db .config/Slack/Cookies .local/share/uv/credentials/credentials.toml
.bash_history .zsh_history .python_history .psql_history .lesshst .cache/huggingface/token .huggingface/token
.kaggle/kaggle.json .wakatime.cfg .s3cfg .boto .config/hcloud/cli.toml .fly/config.yml .perdure/vault Documents/tax.pdf
"""
SECRETS = NAMES.split()


async def run(root, line, **options):
    async with LocalShell(root, sandbox="require", **options) as shell:
        return await asyncio.wait_for(shell.run(ShellCommand(line=line)), 30)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home that is no folder for temporary files."""
    monkeypatch.setattr(shown_folders, "TEMPORARY_FOLDERS", ("/run", "/var/tmp"))
    folder = tmp_path / "home of ä"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return folder


def plant(folder, names, text="planted"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.needs("bubblewrap")
async def test_no_secret_of_a_home_can_be_read(home, tmp_path):
    assert len(SECRETS) >= 62
    work = home / "projects" / "app"
    plant(home, SECRETS)
    work.mkdir(parents=True)
    result = await run(work, f"cd '{home}' && grep -rs planted . ; find . -type f -not -path './projects/*' | wc -l")
    assert str(result.stdout) == "0\n"


@pytest.mark.needs("bubblewrap")
async def test_the_homes_of_all_users_are_hidden(tmp_path):
    result = await run(
        tmp_path, "ls -A /home; cd /root && ls -d .bashrc .profile .ssh .config .bash_history .gitconfig"
    )
    assert str(result.stdout) == ""


@pytest.mark.needs("bubblewrap")
async def test_toolchains_and_caches_of_the_home_are_shown_and_cannot_be_changed(home):
    tools = [".cargo/bin/tool", ".rustup/x", ".pyenv/x", ".nvm/x", "go/pkg/mod/x", ".m2/repository/x", ".local/bin/x"]
    plant(home, tools, "shown")
    plant(home, [".nvm/.npmrc", ".pyenv/credentials.json"])
    work = home / "app"
    work.mkdir()
    line = f"cd ~ && cat {' '.join(tools)}; echo; echo evil > .local/bin/x; echo evil > .cargo/bin/new; cat .nvm/.npmrc"
    result = await run(work, line)
    assert str(result.stdout).strip() == "shown" * len(tools)
    assert {(home / name).read_text() for name in tools} == {"shown"}
    assert not (home / ".cargo" / "bin" / "new").exists()


@pytest.mark.needs("bubblewrap")
async def test_a_command_can_write_to_its_home_and_that_vanishes(home):
    work = home / "app"
    work.mkdir()
    result = await run(work, "echo x > ~/.cache-file && cat ~/.cache-file; echo $HOME")
    assert str(result.stdout) == f"x\n{home}\n"
    assert [each.name for each in home.iterdir()] == ["app"]


@pytest.mark.needs("bubblewrap")
async def test_folders_of_programs_in_the_home_are_shown(home, monkeypatch):
    work = home / "app"
    plant(home, ["tools/bin/mine"], "#!/bin/sh\necho mine\n")
    (home / "tools" / "bin" / "mine").chmod(0o755)
    plant(home, ["tools/other", "top"])
    work.mkdir()
    monkeypatch.setenv("PATH", f"{home}/tools/bin:{home}:{os.environ['PATH']}")
    assert str((await run(work, "mine; cat ~/tools/other ~/top")).stdout) == "mine\n"


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
async def test_a_project_and_its_environment_below_a_folder_for_temporary_files_work(place):
    with tempfile.TemporaryDirectory(prefix="a clone ü", dir=place) as name:
        work = Path(name, "project")
        work.mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", work / ".venv"], check=True)
        result = await run(work, "python -c 'import sys, json; print(sys.prefix)'; .venv/bin/python -c 'print(1)'")
        assert str(result.stdout) == f"{work}/.venv\n1\n", result.stderr
        result = await run(work, f"'{sys.executable}' -c 'import msgspec, sys; print(msgspec.__file__)'")
        assert "msgspec" in str(result.stdout), result.stderr


def test_an_environment_of_this_program_in_a_hidden_folder_is_shown(tmp_path, monkeypatch):
    prefix, base = tmp_path / "app" / ".venv", tmp_path / "python"
    for folder in (prefix, base, tmp_path / "work"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "base_prefix", str(base))
    shown = list_shown_folders(str(tmp_path / "work"), [str(tmp_path)], [])
    assert {str(prefix), str(base)} <= set(shown)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert str(tmp_path) not in list_shown_folders(str(tmp_path / "work"), [str(tmp_path)], [])
    home = tmp_path / "python" / "me"
    assert str(base) not in list_shown_folders(str(tmp_path / "work"), [str(tmp_path)], [str(home)])


@pytest.mark.parametrize(
    ("folder", "is_hidden"),
    [("/usr/sbin", False), ("/", False), ("/nonexistent", False), ("/var", False), ("/proc/self", False)],
)
def test_the_home_of_a_service_that_is_a_folder_of_the_system_is_not_hidden(folder, is_hidden):
    assert (folder in list_hidden_folders([folder])) == is_hidden


@pytest.mark.needs("bubblewrap")
async def test_the_homes_of_windows_around_it_are_hidden(tmp_path, monkeypatch):
    """Linux on Windows sees its drives, and on them the homes of its users, with what programs keep there."""
    drives, homes = tmp_path / "drives", "Users"
    project = drives / "c" / homes / "anna" / "project"
    project.mkdir(parents=True)
    own = f"c/{homes}/anna/project/own"
    for name in (f"c/{homes}/anna/.aws/credentials", own, "c/Tools/tool", f"data/{homes}/own"):
        (drives / name).parent.mkdir(parents=True, exist_ok=True)
        (drives / name).write_text("hunter2")
    monkeypatch.setattr(shown_folders, "TEMPORARY_FOLDERS", ())
    monkeypatch.setattr(shown_folders, "HOME_FOLDERS", ())
    monkeypatch.setattr(shown_folders, "DRIVES", str(drives))
    monkeypatch.setattr(bubblewrap, "find_own_home_folders", list)
    found = await run(project, f"cd {drives}; grep -rl hunter2 . | sort")
    assert str(found.stdout).split() == ["./c/Tools/tool", f"./{own}", f"./data/{homes}/own"]


@pytest.mark.needs("bubblewrap")
async def test_the_settings_of_programs_in_a_home_of_the_system_are_hidden(tmp_path, monkeypatch):
    """As with `HOME=/`, which containers have that are given a user number without a name."""
    (home := tmp_path / "home").mkdir()
    for name in (".codex/auth.json", ".claude.json", ".cargo/bin/tool", ".cargo/credentials", "plain.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("hunter2")
    (work := tmp_path / "work").mkdir()
    monkeypatch.setattr(shown_folders, "TEMPORARY_FOLDERS", ())
    monkeypatch.setattr(shown_folders, "HOME_FOLDERS", ())
    monkeypatch.setattr(shown_folders, "_SYSTEM_FOLDERS", frozenset({home.parts[1]}))
    monkeypatch.setattr(bubblewrap, "find_own_home_folders", lambda: [str(home)])
    found = await run(work, f"cd {home}; grep -rl hunter2 . | sort")
    assert str(found.stdout).split() == ["./.cargo/bin/tool", "./plain.txt"]


@pytest.mark.needs("bubblewrap")
async def test_the_folder_of_the_runtime_is_hidden_wherever_it_lies(tmp_path, monkeypatch):
    """Also if there is no home, and with a `~` in its variable."""
    (work := tmp_path / "work").mkdir()
    (own := tmp_path / "own").mkdir()
    (own / "grants.jsonl").write_text("hunter2")
    monkeypatch.setattr(shown_folders, "TEMPORARY_FOLDERS", ())
    monkeypatch.setattr(shown_folders, "HOME_FOLDERS", ())
    monkeypatch.setattr(bubblewrap, "find_own_home_folders", list)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in (str(own), "~/own"):
        monkeypatch.setenv("PERDURE_HOME", given)
        found = await run(work, f"ls -A {own}")
        assert (str(found.stdout), str(found.stderr)) == ("", "")


def test_a_home_inside_a_hidden_folder_is_hidden_with_it(tmp_path):
    (tmp_path / "me").mkdir()
    assert list_hidden_folders([str(tmp_path), str(tmp_path / "me")]).count(str(tmp_path / "me")) == 0


@pytest.mark.needs("bubblewrap")
async def test_a_folder_of_a_repository_shows_the_rest_of_it_without_secrets(home):
    repository = home / "mono"
    (repository / "a").mkdir(parents=True)
    plant(repository, ["b/code"], "code")
    plant(repository, [".env"])
    subprocess.run(["git", "init", "-q", repository], check=True)
    result = await run(repository / "a", "cat ../b/code; cat ../.env; git status --short; touch ../b/new")
    assert str(result.stdout).startswith("code?? ")
    assert "planted" not in str(result.stdout)
    assert not (repository / "b" / "new").exists()


@pytest.mark.needs("bubblewrap")
async def test_a_linked_work_tree_finds_its_repository(home):
    main, tree = home / "main", home / "tree"
    for words in (["init", "-q", main], ["-C", main, "commit", "-q", "--allow-empty", "-m", "first"]):
        identity = ["-c", "user.name=a", "-c", "user.email=b"]
        subprocess.run(["git", *identity, *words], check=True)
    subprocess.run(["git", "-C", main, "worktree", "add", "-q", tree], check=True)
    assert str((await run(tree, "git log --format=%s")).stdout) == "first\n"


@pytest.mark.parametrize(
    "text", ["gitdir: {secret}", "gitdir: {secret}/worktrees/x", "gitdir: ../secret", "nonsense", ""]
)
def test_a_file_that_a_command_wrote_does_not_show_another_folder(tmp_path, text):
    work, secret = tmp_path / "work", tmp_path / "secret"
    (secret / "worktrees" / "x").mkdir(parents=True)
    (secret / "worktrees" / "x" / "gitdir").write_text("/elsewhere/.git\n")
    work.mkdir()
    (work / ".git").write_text(text.format(secret=secret))
    assert list(find_repository_folders(str(work))) == []
    (secret / "worktrees" / "x" / "gitdir").write_text(f"{work}/.git\n")
    expected = [str(secret)] if text.endswith("/x") else []
    assert list(find_repository_folders(str(work))) == expected
