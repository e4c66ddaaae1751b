"""Commands that run unasked because they only read: their sandbox lets them do no more than that."""

import asyncio
import os
import subprocess

import pytest

from perdure import Agent, Permissions, allow
from perdure._tools.sandbox.bubblewrap import find_hidden_secrets
from perdure._tools.shell.local import reading_environment
from perdure.hosts import LocalShell, ShellCommand
from perdure.permissions import later
from perdure.testing import ScriptedModel, call
from perdure.tools import exec_tool, shell_tools

needs_sandbox = pytest.mark.needs("bubblewrap")


async def run(root, line, **options):
    async with LocalShell(root, sandbox="require", **options) as shell:
        command = ShellCommand(line=line, timeout_seconds=20, read_only=True)
        return await asyncio.wait_for(shell.run(command), 30)


@needs_sandbox
async def test_it_writes_nothing_in_the_working_folder_nor_in_the_other_writable_ones(tmp_path):
    work, cache = tmp_path / "work", tmp_path / "cache"
    for each in (work, cache):
        each.mkdir()
        (each / "old").write_text("old")
    line = f"echo x >old; echo x >new; rm old; mkdir d; mv old b; chmod 777 old; echo x >{cache}/new; rm {cache}/old"
    result = await run(work, line, writable=[cache])
    assert str(result.stderr).count("Read-only file system") == 8
    assert [os.listdir(each) for each in (work, cache)] == [["old"], ["old"]]  # noqa: PTH208 - with the placeholders
    assert (work / "old").read_text() == "old"


@needs_sandbox
async def test_it_leaves_no_placeholder_and_needs_none(tmp_path):
    async with LocalShell(tmp_path, sandbox="require") as shell:
        job = await shell.start(ShellCommand(line="ls -A; echo end; sleep 60", read_only=True))
        seen = await shell.poll(job, wait_seconds=2)
        names = os.listdir(tmp_path)  # noqa: PTH208 - with the placeholders
        await shell.stop(job)
    assert (seen.stdout, names) == ("end\n", [])


@needs_sandbox
async def test_it_has_no_network_where_other_commands_have(tmp_path):
    line = "readlink /proc/self/ns/net"
    async with LocalShell(tmp_path, sandbox="require", network=True) as shell:
        alone = await shell.run(ShellCommand(line=line, read_only=True))
        other = await shell.run(ShellCommand(line=line))
    own = os.readlink("/proc/self/ns/net")  # noqa: PTH115 - of this process
    assert [str(each.stdout).strip() == own for each in (alone, other)] == [False, True]


@needs_sandbox
async def test_secrets_are_hidden_from_it_at_any_depth(tmp_path):
    deep = tmp_path / "a" / "b" / "c" / "d"
    (deep / ".ssh").mkdir(parents=True)
    for name in ("x.pem", ".env", ".ssh/known", "plain"):
        (deep / name).write_text(f"text of {name}\n")
    result = await run(tmp_path, "cat a/b/c/d/x.pem a/b/c/d/.env a/b/c/d/.ssh/known a/b/c/d/plain; grep -rs text a")
    assert str(result.stdout) == "text of plain\na/b/c/d/plain:text of plain\n"
    hidden = (deep / ".env", deep / ".ssh", deep / "x.pem")
    assert sorted(find_hidden_secrets(str(tmp_path))) == sorted(map(str, hidden))


def test_its_environment_has_no_variable_that_names_a_program_or_options(tmp_path):
    own, other = tmp_path / "work", tmp_path / "cache"
    (own / "bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to(own / "bin")
    bad = ("PAGER", "LESSOPEN", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "RIPGREP_CONFIG_PATH", "LD_PRELOAD", "BASH_ENV")
    given = dict.fromkeys((*bad, "GREP_OPTIONS", "EDITOR", "TAR_OPTIONS", "MAGIC", "PYTHONPATH", "ENV"), "./x")
    path = ["/usr/bin", str(own / "bin"), "relative", "", str(tmp_path / "link"), str(other), "/bin"]
    kept = {"LANG": "C.UTF-8", "LC_ALL": "C", "TERM": "dumb", "TZ": "UTC"}
    found = reading_environment({**given, **kept, "PATH": os.pathsep.join(path)}, (str(own), str(other)))
    assert {name: found[name] for name in (*kept, "PATH")} == {**kept, "PATH": "/usr/bin:/bin"}
    assert not {*given} & {*found}
    assert {name for name in found if name not in {*kept, "PATH", "HOME"}} == {
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_NO_LAZY_FETCH", "GIT_OPTIONAL_LOCKS", "GIT_PAGER"),
        "GIT_TERMINAL_PROMPT",
    }


@needs_sandbox
async def test_a_program_of_the_project_on_path_does_not_take_the_place_of_one_that_reads(tmp_path):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "ls"
    fake.write_text("#!/bin/sh\necho planted\n")
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    assert str((await run(tmp_path, "ls", env=env)).stdout) == "bin\n"


@needs_sandbox
@pytest.mark.parametrize("name", ["bash", "shell_exec"])
async def test_what_runs_unasked_is_read_only_and_what_was_allowed_is_not(tmp_path, name):
    ran = []

    class Noting(LocalShell):
        async def run(self, command):
            ran.append((command.line or " ".join(command.argv), command.read_only))
            return await super().run(command)

    lines = ("ls", "touch x") if name == "shell_exec" else ("ls", "ls && cat x", "touch x", "ls; touch x")
    made = [call(name, command=each) if name == "bash" else call(name, argv=each.split()) for each in lines]
    async with Noting(tmp_path, sandbox="require") as shell:
        tools = [*shell_tools(shell), exec_tool(shell, ["ls", "touch"])]
        await Agent(ScriptedModel(*made, "Done."), tools=tools, permission=Permissions(allow("*"))).run("Go.")
    assert ran == [(each, "touch" not in each) for each in lines]
    assert (tmp_path / "x").exists()


@pytest.mark.parametrize("line", ["ls", "cat x", "git status", "ls | head"])
async def test_without_a_sandbox_nothing_runs_unasked(tmp_path, line):
    async with LocalShell(tmp_path, sandbox="off") as shell:
        agent = Agent(ScriptedModel(), tools=shell_tools(shell), permission=Permissions(handler=later))
        assert (await agent.session().explain("bash", {"command": line})).verdict == "ask"


@needs_sandbox
def test_git_reads_a_repository_that_it_cannot_write(tmp_path):
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    (tmp_path / "new").write_text("x")
    result = asyncio.run(run(tmp_path, "git status --short && git branch --list && git diff"))
    assert (result.exit_code, str(result.stdout)) == (0, "?? new\n")
