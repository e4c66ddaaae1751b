"""The sandbox of commands: what they cannot reach, change, see or use up."""

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from perdure import ConfigError
from perdure._io.processes.tree import list_descendants
from perdure._tools.sandbox import bubblewrap, shown_folders
from perdure._tools.sandbox.shown_folders import is_below
from perdure._tools.shell import placeholders
from perdure._tools.shell.placeholders import guard_placeholders
from perdure.hosts import LocalShell, ShellCommand
from perdure.tools import CommandLimits

pytestmark = pytest.mark.needs("bubblewrap")
IDENTITY = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


async def run(root, line, **options):
    async with LocalShell(root, sandbox="require", **options) as shell:
        return await asyncio.wait_for(shell.run(ShellCommand(line=line, timeout_seconds=20)), 30)


def await_end_of_commands(root):
    """Wait until no sandbox has the lock of a working folder: SIGKILL ends one a little after its host."""
    lock = placeholders._open_lock(str(root))
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(lock)


def make_repository(folder):
    subprocess.run(["git", "init", "-q", folder], check=True)


async def test_only_the_working_folder_and_tmp_can_be_written(tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    result = await run(
        tmp_path,
        f"echo a > in; cd /tmp; echo b > {tmp_path.name} && cat {tmp_path.name}; echo c > {outside}/y; echo d > /usr/z",
    )
    assert (tmp_path / "in").read_text() == "a\n"
    assert str(result.stdout) == "b\n"
    assert list(outside.iterdir()) == []
    assert tmp_path.name not in os.listdir("/tmp")  # noqa: PTH208 - it was another folder, which is gone


async def test_further_folders_can_be_made_readable_or_writable(tmp_path):
    work, cache, data = tmp_path / "work", tmp_path / "cache", tmp_path / "data"
    for folder in (work, cache, data):
        folder.mkdir()
    (data / "x").write_text("seen")
    result = await run(work, f"echo a > {cache}/y; cat {data}/x; echo b > {data}/z", writable=[cache], readable=[data])
    assert str(result.stdout) == "seen"
    assert (cache / "y").read_text() == "a\n"
    assert not (data / "z").exists()


async def test_there_is_no_network_unless_it_is_given(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo connected || echo refused"
        assert str((await run(tmp_path, line)).stdout) == "refused\n"
        assert str((await run(tmp_path, line, network=True)).stdout) == "connected\n"


async def test_sockets_of_other_programs_cannot_be_found(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        path = tmp_path.parent / f"{tmp_path.name}.sock"
        server.bind(str(path))
        assert str((await run(tmp_path, f"test -e {path} && echo there; ls -A /run")).stdout) == ""


async def test_a_command_has_no_capabilities_and_cannot_gain_any(tmp_path):
    line = """
    grep -E 'Cap(Eff|Prm|Bnd)' /proc/self/status
    unshare -U true 2>/dev/null && echo nested; mount -t tmpfs x /mnt 2>/dev/null && echo mounted
    """
    result = await run(tmp_path, line)
    assert {line.split()[1] for line in str(result.stdout).splitlines()} == {"0000000000000000"}


async def test_other_processes_cannot_be_seen_or_ended(tmp_path):
    me = f"/proc/{os.getpid()}/cmdline"
    line = f"test -e {me} && tr '\\0' ' ' < {me}; kill -9 {os.getpid()}; ls -d /proc/[0-9]* | wc -l"
    result = await run(tmp_path, line)
    assert "pytest" not in str(result.stdout)
    assert int(str(result.stdout).split()[-1]) < 10


async def test_a_command_has_a_session_of_its_own(tmp_path):
    result = await run(tmp_path, "cat /proc/self/stat | cut -d' ' -f6,7")
    session, terminal = str(result.stdout).split()
    assert session != "0"
    assert terminal == "0"


async def test_names_that_mean_secrets_are_empty_in_the_working_folder(tmp_path):
    (tmp_path / ".env").write_text("TOKEN=1")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "id_rsa").write_text("key")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("key")
    (tmp_path / "plain").write_text("plain\n")
    result = await run(
        tmp_path, "cat .env app/id_rsa .aws/credentials plain; echo gone > .env; rm -rf .aws/credentials"
    )
    assert str(result.stdout) == "plain\n"
    assert (tmp_path / ".env").read_text() == "TOKEN=1"
    assert (tmp_path / ".aws" / "credentials").read_text() == "key"


async def test_secrets_of_the_home_folder_are_hidden(tmp_path, monkeypatch):
    home, work = tmp_path / "home", tmp_path / "home" / "work"
    for name in (".ssh", ".config/gh", ".perdure", "work"):
        (home / name).mkdir(parents=True)
        (home / name / "file").write_text("secret")
    (home / ".netrc").write_text("secret")
    monkeypatch.setattr(bubblewrap, "find_own_home_folders", lambda: [str(home)])
    monkeypatch.delenv("PERDURE_HOME", raising=False)
    shell = LocalShell(work, sandbox="require", readable=[str(home)])
    (work / "link").symlink_to("../.netrc")
    secrets = bubblewrap.find_home_secrets()
    assert {Path(each).name for each in secrets} == {".ssh", "gh", ".perdure", ".netrc"}
    result = await shell.run(ShellCommand(line=f"cat {home}/.ssh/file {home}/.netrc {home}/.config/gh/file link"))
    await shell.close()
    assert "secret" not in str(result.stdout)


async def test_the_configuration_cannot_be_written_or_moved_away(tmp_path):
    make_repository(tmp_path)
    (tmp_path / "perdure.toml").write_text("# ours\n")
    before = (tmp_path / ".git" / "config").read_bytes()
    line = """
    echo x > perdure.toml; rm -f perdure.toml; mv perdure.toml y; ln -sf y perdure.toml
    mkdir -p .perdure/x; echo x > .perdure/y; rmdir .perdure; mv .perdure z
    mv .git elsewhere; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit
    echo x >> .git/config; git config core.fsmonitor ./x
    mv .git/hooks .git/h; rm -rf .git/hooks
    """
    await run(tmp_path, line)
    assert (tmp_path / "perdure.toml").read_text() == "# ours\n"
    assert not (tmp_path / ".perdure").exists()
    assert (tmp_path / ".git" / "config").read_bytes() == before
    assert not (tmp_path / ".git" / "hooks" / "pre-commit").exists()
    assert not (tmp_path / "elsewhere").exists()


async def test_the_environment_of_this_program_cannot_be_changed(tmp_path, monkeypatch):
    (tmp_path / ".venv" / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    await run(tmp_path, "echo evil > .venv/lib/sitecustomize.py; mv .venv x; mkdir .venv; touch written")
    assert sorted(each.name for each in tmp_path.rglob("*")) == [".venv", "lib", "written"]


@pytest.mark.parametrize("name", ["prefix", "base_prefix"])
async def test_the_folders_above_the_environment_of_this_program_stay_in_their_place(tmp_path, monkeypatch, name):
    own = tmp_path / "backend" / "tools" / "python"
    (own / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, name, str(own))
    plant = "mkdir -p backend/tools/python/lib; echo evil > backend/tools/python/lib/sitecustomize.py"
    await run(tmp_path, f"mv backend x; {plant}; mv backend/tools y; {plant}; echo ours > backend/tools/file")
    assert list((own / "lib").iterdir()) == []
    assert (tmp_path / "backend/tools/file").read_text() == "ours\n"


async def test_programs_of_the_sandbox_are_those_of_the_system(tmp_path, monkeypatch):
    for name in ("bwrap", "prlimit", "bash"):
        (tmp_path / name).write_text("#!/bin/sh\necho planted\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert bubblewrap.find_bubblewrap.__wrapped__()[0][0] != str(tmp_path / "bwrap")
    assert str((await run(tmp_path, "echo mine")).stdout) == "mine\n"


async def test_git_works_in_the_sandbox(tmp_path):
    make_repository(tmp_path)
    line = "echo a > f; git add f; git -c user.name=a -c user.email=b commit -qm first; git log --oneline | wc -l"
    assert str((await run(tmp_path, line)).stdout).strip() == "1"


async def test_a_configuration_that_is_a_link_cannot_be_protected(tmp_path):
    (tmp_path / "perdure.toml").symlink_to("other.toml")
    with pytest.raises(ConfigError, match="is a link"):
        await run(tmp_path, "true")
    (tmp_path / "perdure.toml").unlink()
    assert (await run(tmp_path, "true")).exit_code == 0
    assert list(tmp_path.iterdir()) == []


async def test_everyday_commands_do_not_notice_the_names_that_are_reserved(tmp_path):
    make_repository(tmp_path)
    line = """
    echo a > a; git add a; git commit -qm first; echo b > b; echo c >> a
    git status --short --untracked-files=all
    git stash -qu && git stash pop -q && git clean -nd && git clean -qfd -- nothing
    git add . && git add -A && git commit -qm second; echo commit $?
    git status --short; git ls-files
    mkdir sub; cp -r . /tmp/x && tar cf /tmp/x.tar . && echo copied; cd sub; cp -r .. /tmp/y && echo copied
    grep -r zzz ..; echo grep $?
    """
    env = {"PATH": os.environ["PATH"], "HOME": "/tmp", **IDENTITY}
    result = await run(tmp_path, line, env=env)
    expected = " M a\n?? b\nWould remove b\ncommit 0\na\nb\ncopied\ncopied\ngrep 1\n"
    assert (str(result.stdout), str(result.stderr)) == (expected, "")
    assert sorted(each.name for each in tmp_path.iterdir()) == [".git", "a", "b", "sub"]


async def test_a_repository_that_a_command_makes_has_no_reserved_names(tmp_path):
    line = "git init -q && touch a && git add --all && git commit -qm first && git ls-files && git status --short"
    result = await run(tmp_path, line, env={"PATH": os.environ["PATH"], "HOME": "/tmp", **IDENTITY})
    assert (str(result.stdout), result.exit_code) == ("a\n", 0)


@pytest.mark.parametrize("name", ["perdure.toml", ".mcp.json", ".perdure"])
async def test_a_configuration_that_does_not_exist_cannot_be_put_in_place_in_any_way(tmp_path, name):
    make_repository(tmp_path)
    line = f"""
    printf '[x]' > evil; mkdir -p folder; cp evil folder
    echo x > {name}; cp evil {name}; cp -r folder/. {name}; mv -T folder {name}; mv -T evil {name}; ln -sfn evil {name}
    ln -f evil {name}; rm -rf {name}; rmdir {name}; mv {name} away; mkdir {name}/x; rm -f {name}/.gitignore
    echo x >> {name}/.gitignore; chmod -R 777 {name}; git clean -fdxq {name}; git mv -f evil {name}
    python3 -c 'import os; os.rename("folder", "{name}")'; python3 -c 'import os; os.rename("{name}", "evil2")'
    exit 0
    """
    assert (await run(tmp_path, line)).exit_code == 0
    assert not (tmp_path / name).exists()
    assert not (tmp_path / "away").exists()


async def test_what_was_mounted_over_is_removed_when_the_last_command_ends(tmp_path):
    async with LocalShell(tmp_path, sandbox="require") as shell:
        job = await shell.start(
            ShellCommand(line="until [ -e go ]; do sleep 0.02; done; echo x > perdure.toml/x; exit 0")
        )
        await shell.run(ShellCommand(line="touch go.not"))
        assert list((tmp_path / "perdure.toml").iterdir()) == []  # it still protects the other command
        (tmp_path / "go").touch()
        assert "Read-only file system" in (await shell.poll(job, wait_seconds=10)).stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["go", "go.not"]


def test_what_a_killed_host_leaves_is_nothing_to_git_and_removed_at_the_next_start(tmp_path):
    make_repository(tmp_path)
    script = f"""
import asyncio
from perdure.hosts import LocalShell
from perdure.hosts import ShellCommand
async def main():
    async with LocalShell({str(tmp_path)!r}, sandbox="require") as shell:
        job = await shell.start(ShellCommand(line="echo begun; sleep 60"))
        while not (await shell.poll(job, wait_seconds=0.05)).stdout:
            pass
        print("begun", flush=True)
        await shell.poll(job, wait_seconds=60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"begun\n"
        host.kill()
    names = {each.name for each in tmp_path.iterdir()}
    assert names == {".git", "perdure.toml", ".mcp.json", ".perdure"}
    for words in (["status", "--short", "--untracked-files=all"], ["add", "--all", "--verbose", "."]):
        assert subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, check=True).stdout == b""
    await_end_of_commands(tmp_path)
    LocalShell(tmp_path, sandbox="require")
    assert [each.name for each in tmp_path.iterdir()] == [".git"]


async def test_the_sandbox_has_the_lock_that_protects_the_names_and_its_command_does_not(tmp_path):
    async with LocalShell(tmp_path, sandbox="require") as shell:
        job = await shell.start(ShellCommand(line="ls -l /proc/self/fd | grep -c locks; cat /dev/zero > /dev/null"))
        async with asyncio.timeout(20):
            while not (found := (await shell.poll(job, wait_seconds=0.02)).stdout):
                pass
        holders = [each for each in list_descendants(os.getpid()) if has_lock_file(each)]
        assert (found, len(holders) >= 1) == ("0\n", True)


def has_lock_file(pid):
    try:
        return any("perdure-locks" in str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


async def test_a_person_s_own_files_are_no_leftovers(tmp_path):
    (tmp_path / "perdure.toml").touch(0o444)
    (tmp_path / ".mcp.json").touch(0o644)
    (tmp_path / ".perdure" / "skills").mkdir(parents=True)
    assert (await run(tmp_path, "true")).exit_code == 0
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")) == [
        ".mcp.json", ".perdure", ".perdure/skills", "perdure.toml",
    ]  # fmt: skip


def test_a_folder_that_another_process_uses_keeps_its_protection(tmp_path):
    guard = guard_placeholders(str(tmp_path))
    (tmp_path / "perdure.toml").mkdir()
    script = f"""
from perdure._tools.shell.placeholders import guard_placeholders
guard_placeholders({str(tmp_path)!r}).release()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert (tmp_path / "perdure.toml").exists()
    guard.release()
    guard.release()
    assert not (tmp_path / "perdure.toml").exists()


async def test_memory_files_and_processes_are_limited(tmp_path):
    limits = CommandLimits(memory_bytes=200_000_000, file_bytes=1_000_000, open_files=20, processes=40)
    hungry = 'python3 -c "bytearray(400_000_000)" 2>&1 | tail -1'
    assert "MemoryError" in str((await run(tmp_path, hungry, limits=limits)).stdout)
    await run(tmp_path, "head -c 5000000 /dev/zero > big", limits=limits)
    assert (tmp_path / "big").stat().st_size == 1_000_000
    assert str((await run(tmp_path, "ulimit -n; ulimit -u; ulimit -c", limits=limits)).stdout).split() == [
        "20",
        "40",
        "0",
    ]


async def test_a_command_that_starts_too_many_processes_is_ended(tmp_path):
    limits = CommandLimits(processes=30)
    async with LocalShell(tmp_path, sandbox="require", limits=limits) as shell:
        line = "for i in $(seq 60); do sleep 60 & done; wait"
        result = await asyncio.wait_for(shell.run(ShellCommand(line=line, timeout_seconds=40)), 50)
    assert result.exit_code != 0
    assert result.seconds < 40


async def test_cpu_time_is_limited(tmp_path):
    result = await run(tmp_path, "while :; do :; done", limits=CommandLimits(cpu_seconds=1))
    assert result.exit_code in {137, 152}  # SIGKILL or SIGXCPU


def test_without_the_program_the_reason_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    words, reason = bubblewrap.find_bubblewrap.__wrapped__()
    assert words == ()
    assert "apt-get install bubblewrap" in reason


def test_a_program_that_does_not_work_here_is_no_sandbox(monkeypatch, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda *_, **__: str(broken))
    assert bubblewrap.find_bubblewrap.__wrapped__() == ((), "bubblewrap does not work here: no namespaces")
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", bubblewrap.find_bubblewrap.__wrapped__)
    with pytest.raises(ConfigError, match="no namespaces"):
        bubblewrap.build_sandbox(str(tmp_path), network=False)


@pytest.fixture
def plain_system(tmp_path, monkeypatch):
    """A system whose bubblewrap is a word, with a home folder and a folder for temporary files of its own."""
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: (("bwrap", "--start"), ""))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".config" / "gh").mkdir(parents=True)
    (home / ".perdure").mkdir()
    (home / ".netrc").write_text("x")
    monkeypatch.delenv("PERDURE_HOME", raising=False)
    monkeypatch.setattr(bubblewrap, "find_own_home_folders", lambda: [str(home)])
    for name in ("run", "tmp", "resolve"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("tmp")
    hidden = tuple([str(tmp_path / name) for name in ("run", "tmp", "link", "none")])
    monkeypatch.setattr(shown_folders, "TEMPORARY_FOLDERS", hidden)
    monkeypatch.setattr(shown_folders, "HOME_FOLDERS", ())
    return tmp_path


@pytest.mark.parametrize("network", [True, False])
def test_a_sandbox_is_built_of_these_words(plain_system, monkeypatch, network):
    root, data, cache = plain_system / "root", plain_system / "data", plain_system / "cache"
    for folder in (root, data, cache):
        folder.mkdir()
    (root / "perdure.toml").write_text("x")
    is_folder = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: path == "/run/systemd/resolve" or is_folder(path))
    words = bubblewrap.build_sandbox(str(root), network=network, readable=[str(data)], writable=[str(cache)])
    covers = bubblewrap.make_covers()
    home, resolve = plain_system / "home", "/run/systemd/resolve"
    pairs = [tuple(words[at : at + 2]) for at in range(len(words))]
    assert ("--tmpfs", str(home)) in pairs
    assert not any(is_below(word, str(home)) for word in words)
    assert words[:2] == ["bwrap", "--start"]
    assert ("--share-net" in words) == network
    assert (["--ro-bind", resolve, resolve] in [words[at : at + 3] for at in range(len(words))]) == network
    triples = [tuple(words[at : at + 3]) for at in range(len(words))]
    for name in ("run", "tmp"):
        assert ("--size", str(512 * 1024 * 1024), "--tmpfs") == words_before(words, str(plain_system / name))
    assert str(plain_system / "link") not in words
    assert str(plain_system / "none") not in words
    order = [
        ("--ro-bind", "/", "/"),
        ("--ro-bind", str(data), str(data)),
        ("--bind", str(root), str(root)),
        ("--bind", str(cache), str(cache)),
        ("--ro-bind", str(root / "perdure.toml"), str(root / "perdure.toml")),
        ("--ro-bind", covers.folder, str(root / ".mcp.json")),
        ("--ro-bind", covers.folder, str(root / ".perdure")),
    ]
    places = [triples.index(each) for each in order]
    assert places == sorted(places)
    assert words[-1] == "--"


def words_before(words, path):
    at = words.index(path)
    return tuple(words[at - 3 : at])


def test_the_folder_for_shared_files_is_private_and_belongs_to_its_user(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = bubblewrap.make_user_temp_folder()
    assert folder == str(tmp_path / f"perdure-locks-{os.getuid()}")
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    assert bubblewrap.make_user_temp_folder() == folder
    uid = os.getuid()
    (tmp_path / f"perdure-locks-{uid + 1}").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        bubblewrap.make_user_temp_folder()


def test_covers_are_made_once_with_modes_that_nobody_can_write(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    covers = bubblewrap.make_covers()
    ignored = Path(covers.folder, ".gitignore")
    assert ignored.read_text().endswith("\n*\n")
    modes = [each.stat().st_mode & 0o777 for each in (ignored, Path(covers.file), Path(covers.closed))]
    assert modes == [0o444, 0o444, 0]
    before = ignored.stat().st_ino
    assert bubblewrap.make_covers() == covers
    assert ignored.stat().st_ino == before
    assert sorted(each.name for each in Path(covers.file).parent.iterdir()) == ["closed", "file", "folder"]
    assert [each.name for each in Path(covers.file).parent.parent.iterdir()] == ["covers"]


def test_a_start_is_announced_by_a_shell_that_drops_no_variables(monkeypatch):
    monkeypatch.setattr(os.path, "realpath", lambda path: "/usr/bin/dash" if path == "/bin/sh" else path)
    announced = ["/bin/sh", "-c", bubblewrap._ANNOUNCEMENT, "/dev/null"]
    assert bubblewrap.build_start_announcement({"PATH": "x"}) == announced
    bash = [bubblewrap.find_system_program("bash"), "--noprofile", "--norc", "-p", "-c"]
    for name in ("a-b", "ä"):
        assert bubblewrap.build_start_announcement({"PATH": "x", name: "y"})[:5] == bash
    monkeypatch.setattr(os.path, "realpath", lambda path: "/usr/bin/bash" if path == "/bin/sh" else path)
    env = bubblewrap.find_system_program("env")
    cleaned = [*announced, env, "-u", "SHLVL", "-u", "OLDPWD", "-u", "_"]
    assert bubblewrap.build_start_announcement({"PATH": "x"}) == cleaned
    assert bubblewrap.build_start_announcement({"SHLVL": "1", "OLDPWD": "/", "_": "x"}) == announced
    assert bubblewrap.build_start_announcement({"_": "x"}) == [*announced, env, "-u", "SHLVL", "-u", "OLDPWD"]
    replaced = bubblewrap.replace_stdin(["bwrap", *announced, "ls"], 7)
    assert replaced == ["bwrap", *announced[:3], "/proc/self/fd/7", "ls"]
    monkeypatch.setattr(os, "access", lambda *_: False)
    for name in ("PATH", "a-b"):
        with pytest.raises(ConfigError, match="not installed"):
            bubblewrap.build_start_announcement({name: "x"})


def test_secrets_are_found_in_the_top_levels_up_to_so_many_entries(tmp_path, monkeypatch):
    for path in ("a/.env", "a/b/.env", ".git/.env", ".ssh/key", "c.txt", "z.pem"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "link.pem").symlink_to("c.txt")

    def find(**options):
        return [os.path.relpath(each, tmp_path) for each in bubblewrap.find_secrets(str(tmp_path), **options)]

    assert find() == [".ssh", "z.pem", "a/.env"]
    assert find(depth=1) == [".ssh", "z.pem"]
    assert find(depth=3) == [".ssh", "z.pem", "a/.env", "a/b/.env"]
    monkeypatch.setattr(bubblewrap, "_MOST_ENTRIES", 7)  # 6 at the top: .git, .ssh, a, c.txt, link.pem, z.pem
    assert find(depth=3) == [".ssh", "z.pem", "a/.env"]
    for most in (5, 1):  # a folder that was begun is looked at as a whole: nobody puts names in front of others there
        monkeypatch.setattr(bubblewrap, "_MOST_ENTRIES", most)
        assert find() == [".ssh", "z.pem"]


@pytest.mark.parametrize(
    ("name", "make", "is_placeholder"),
    [
        ("perdure.toml", "folder", True),
        ("other", "folder", False),
        ("perdure.toml", "full folder", False),
        ("perdure.toml", "content", False),
        ("perdure.toml", 0o444, False),
    ],
)
def test_a_placeholder_is_known_by_its_name_its_mode_and_that_it_is_empty(tmp_path, name, make, is_placeholder):
    path = tmp_path / name
    if isinstance(make, str) and "folder" in make:
        path.mkdir()
        if make == "full folder":
            (path / "x").touch()
    else:
        path.write_text("x" if make == "content" else "")
        path.chmod(0o444 if make == "content" else make)
    assert bubblewrap.is_sandbox_placeholder(str(path)) is is_placeholder


def test_only_what_is_empty_is_removed(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "sub" / "below").mkdir(parents=True)
    (tmp_path / "other").touch()
    names = ["missing", "empty", "full", "sub", "sub/below", "other"]
    bubblewrap.remove_placeholders([str(tmp_path / name) for name in names])
    assert [name for name in names if (tmp_path / name).exists()] == ["full", "other"]


def test_the_homes_of_a_user_are_that_of_the_environment_and_that_of_the_system(monkeypatch, tmp_path):
    import pwd

    listed = pwd.getpwuid(os.getuid())
    fields: list[Any] = [*listed]
    fields[5] = str(tmp_path / "system")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(fields))
    (tmp_path / "link").symlink_to(tmp_path / "own")
    for home, found in (
        (tmp_path / "link", [tmp_path / "own", tmp_path / "system"]),
        (tmp_path / "system", [tmp_path / "system"]),
        ("/", [Path("/"), tmp_path / "system"]),
    ):
        monkeypatch.setenv("HOME", str(home))
        assert bubblewrap.find_own_home_folders() == [str(each) for each in found]


def test_secrets_of_a_home_are_hidden_at_its_top_and_in_its_settings(monkeypatch, tmp_path):
    monkeypatch.setattr(bubblewrap, "find_own_home_folders", lambda: [str(tmp_path)])
    monkeypatch.delenv("PERDURE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (".ssh", ".perdure", "work/.ssh", ".config/gh", ".config/deep/gh"):
        (tmp_path / name).mkdir(parents=True)
    expected = [str(tmp_path / name) for name in (".ssh", ".config/gh", ".perdure")]
    assert sorted(bubblewrap.find_home_secrets()) == sorted(expected)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "work"))
    assert str(tmp_path / "work") in bubblewrap.find_home_secrets()


async def test_what_bubblewrap_keeps_open_outside_cannot_be_reached(tmp_path):
    guard = guard_placeholders(str(tmp_path))
    lines = """
    ls -A /proc/1
    for each in /proc/[0-9]*/fd/* /proc/[0-9]*/task/*/fd/*; do
        [ -f "$each" ] && readlink "$each" && echo written > "$each"
    done
    true
    """
    async with LocalShell(tmp_path, sandbox="require") as shell:
        result = await shell.run(ShellCommand(line=lines, stdin="given"))
    assert {*str(result.stdout).split("\n")} == {"/memfd:stdin (deleted)", ""}
    assert os.fstat(guard.descriptor).st_size == 0
    guard.release()
