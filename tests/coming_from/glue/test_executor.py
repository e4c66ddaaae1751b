"""Glue's Executor and the packages of its tools, with our names."""

import os
import subprocess

import pytest

from perdure import Agent, ConfigError, ToolError
from perdure.hosts import (
    CapturedStream,
    Confinement,
    JobOutput,
    LocalFiles,
    LocalSearch,
    LocalShell,
    ShellCommand,
    ShellResult,
)
from perdure.permissions import allow_all
from perdure.testing import ScriptedModel
from perdure.tools import (
    CommandLimits,
    LocalGit,
    coding,
    edit_tool,
    exec_tool,
    git_read_tools,
    glob_tool,
    grep_tool,
    list_tool,
    read_tool,
    shell_tools,
    write_tool,
)
from tests.coming_from.shows import shows


class RemoteExecutor:
    """An executor of one's own: another machine, say."""

    root = "/remote"
    confinement = Confinement(sandbox="another machine", network=False)

    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []

    async def run(self, command: ShellCommand) -> ShellResult:
        self.commands.append(command)
        return ShellResult(exit_code=0, stdout=CapturedStream("from afar\n"))

    async def start(self, command: ShellCommand) -> str:
        self.commands.append(command)
        return "job_1"

    async def poll(self, job_id: str, *, wait_seconds: float = 0.0) -> JobOutput:
        del job_id, wait_seconds
        return JobOutput(exit_code=0)

    async def stop(self, job_id: str) -> JobOutput:
        return await self.poll(job_id)


def session_with(*tools):
    return Agent(ScriptedModel(), tools=list(tools), permission=allow_all).session()


@shows("glue", "Executor", "Executor.Run", "LocalExecutor.Run")
async def test_another_executor_takes_the_place_of_the_local_one_without_a_change_of_the_tools(tmp_path):
    remote = RemoteExecutor()
    async with LocalShell(tmp_path) as local:
        for executor, text in ((local, "here"), (remote, "from afar")):
            session = session_with(exec_tool(executor, ["echo"]), *shell_tools(executor))
            assert (await session.call("shell_exec", {"argv": ["echo", "here"]})).text == text
            assert (await session.call("bash", {"command": "echo here"})).text == text
        assert str((await local.run(ShellCommand(argv=("echo", "direct")))).stdout) == "direct\n"
    assert [each.argv for each in remote.commands] == [("echo", "here")] * 2


@shows("glue", "LocalExecutor")
@pytest.mark.needs("bubblewrap")
async def test_commands_run_on_this_machine_in_a_sandbox(tmp_path):
    async with LocalShell(tmp_path) as shell:
        assert shell.confinement.sandbox == "bubblewrap"
        result = await shell.run(ShellCommand(line="touch inside; touch /usr/outside"))
    assert (result.exit_code, (tmp_path / "inside").exists()) == (1, True)


@shows("glue", "ExecCommand", "ExecCommand.Argv")
async def test_words_are_never_interpreted_by_a_shell_and_there_is_at_least_one(tmp_path):
    async with LocalShell(tmp_path) as shell:
        result = await shell.run(ShellCommand(argv=("echo", "$HOME; $(id) *")))
        assert str(result.stdout) == "$HOME; $(id) *\n"
    with pytest.raises(ConfigError, match="give argv"):
        ShellCommand(argv=())


@shows("glue", "ExecCommand.Dir", "ExecCommand.Stdin")
async def test_a_command_has_a_folder_and_standard_input(tmp_path):
    (tmp_path / "sub").mkdir()
    async with LocalShell(tmp_path) as shell:
        assert str((await shell.run(ShellCommand(argv=("pwd",), folder="sub"))).stdout) == f"{tmp_path}/sub\n"
        assert str((await shell.run(ShellCommand(argv=("cat",), stdin="given"))).stdout) == "given"
        with pytest.raises(ToolError, match="not below the working folder"):
            await shell.run(ShellCommand(argv=("pwd",), folder=".."))


@shows("glue", "ExecCommand.Env")
async def test_the_environment_is_exact_and_nothing_of_the_process_is_inherited(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    for env, names in (({"A": "b", "PATH": os.defpath}, {"A", "PATH"}), (None, {"PATH", "HOME", "LANG", "TERM"})):
        async with LocalShell(tmp_path, env=env) as shell:
            lines = str((await shell.run(ShellCommand(argv=("env",)))).stdout).splitlines()
        found = {line.partition("=")[0] for line in lines}
        assert {name for name in found if not name.startswith("GIT_")} - {"PWD"} == names  # and who commits


@shows("glue", "ExecCommand.Timeout", "ExecResult")
async def test_a_command_that_takes_too_long_has_a_result_and_not_an_error(tmp_path):
    async with LocalShell(tmp_path) as shell:
        result = await shell.run(ShellCommand(line="echo begun; sleep 60", timeout_seconds=0.5))
        assert (result.ending, str(result.stdout)) == ("timeout", "begun\n")
        done = await shell.run(ShellCommand(line="echo out; echo err >&2; exit 3"))
        assert (done.exit_code, str(done.stdout), str(done.stderr), done.ending) == (3, "out\n", "err\n", "exit")
    with pytest.raises(ConfigError, match="above zero"):
        ShellCommand(argv=("x",), timeout_seconds=0)


@shows("glue", "ExecCommand.MaxOutputBytes", "DefaultExecMaxOutputBytes")
async def test_each_stream_is_capped_on_its_own(tmp_path):
    assert CommandLimits().output_bytes == 64 * 1024
    async with LocalShell(tmp_path, limits=CommandLimits(output_bytes=1000)) as shell:
        result = await shell.run(ShellCommand(line="seq 1 5000; seq 1 5000 >&2"))
    for stream in (result.stdout, result.stderr):
        assert len(stream.head) + len(stream.tail) == 1000
        assert (stream.head[:4], stream.tail[-5:]) == ("1\n2\n", "5000\n")
        assert stream.omitted_bytes > 0


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "boat.py").write_text("def sail():\n    return 1\n")
    for words in (
        ["init", "-qb", "main"],
        ["config", "user.name", "A"],
        ["config", "user.email", "a@b.c"],
        ["add", "."],
        ["commit", "-qm", "Begin"],
        ["checkout", "-qb", "topic"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "mast.py").write_text("mast = 2\n")
    for words in (["add", "."], ["commit", "-qm", "Second"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


@shows("glue", "package tools/fs")
async def test_files_are_read_listed_found_searched_written_and_edited(repository):
    files = LocalFiles(repository)
    search = LocalSearch(files)
    tools = [read_tool(files), list_tool(files), glob_tool(files, search), grep_tool(files, search)]
    session = session_with(*tools, write_tool(files), edit_tool(files))
    (repository / ".env").write_text("TOKEN=1")
    (repository / "out").symlink_to("/etc")
    for name, arguments, text in (
        ("read", {"path": "boat.py"}, "def sail():"),
        ("list", {}, "boat.py\t"),
        ("glob", {"pattern": "*.py"}, "boat.py\nmast.py"),
        ("grep", {"pattern": "def \\w+"}, "boat.py:1: def sail():"),
        ("write", {"path": "new/a.txt", "content": "a"}, "created new/a.txt"),
        ("edit", {"path": "boat.py", "old_string": "return 1", "new_string": "return 2"}, "edited boat.py: 1 place"),
        ("read", {"path": ".env"}, "may contain secrets"),
        ("read", {"path": "out/passwd"}, "outside"),
        ("read", {"path": "../x"}, "outside"),
    ):
        assert text in (await session.call(name, arguments)).text, name
    (repository / "boat.py").write_text("changed by others\n")
    stale = await session.call("edit", {"path": "boat.py", "old_string": "changed", "new_string": "x"})
    assert "has changed since you read it" in stale.text


@shows("glue", "package tools/git")
async def test_a_branch_is_compared_with_its_base(repository):
    files = LocalFiles(repository)
    session = session_with(*git_read_tools(files, LocalGit(files)))
    assert "+mast = 2" in (await session.call("git_diff", {"base": "main"})).text
    log = (await session.call("git_log", {"base": "main"})).text
    assert "Second" in log
    assert "Begin" not in log


@shows("glue", "package tools/shell")
async def test_only_allowed_programs_are_run_and_an_empty_list_allows_none(tmp_path):
    remote = RemoteExecutor()
    session = session_with(exec_tool(remote, ["git"]))
    assert (await session.call("shell_exec", {"argv": ["git", "status"]})).text == "from afar"
    assert "not one of the programs" in (await session.call("shell_exec", {"argv": ["curl", "x"]})).text
    none = session_with(exec_tool(remote, []))
    assert "not one of the programs" in (await none.call("shell_exec", {"argv": ["git"]})).text
    async with LocalShell(tmp_path) as shell:
        lines = session_with(*shell_tools(shell))
        assert (await lines.call("bash", {"command": "echo a | tr a b"})).text == "b"


@shows("glue", "package tools/coding")
async def test_the_bundle_has_all_of_them_for_one_folder(repository):
    extension = coding(repository, people=False)
    names = [each.name for each in extension.tools]
    assert names[:8] == ["read", "list", "glob", "grep", "write", "edit", "git_status", "git_diff"]
    assert "bash" in names
    async with Agent(ScriptedModel(), extensions=[extension], permission=allow_all) as agent:
        session = agent.session()
        assert "return 1" in (await session.call("read", {"path": "boat.py"})).text
        assert (await session.call("bash", {"command": "cat boat.py | wc -l"})).text.strip() == "2"
    assert "You work on the files in" in extension.instructions
