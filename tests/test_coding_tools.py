"""The extension coding: a folder, its tools and commands, its instructions, and what is always asked about."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ConfigError, Permissions, allow, tool
from perdure._io.processes.tree import list_descendants
from perdure.permissions import allow_all, later
from perdure.testing import ScriptedModel, ScriptedShell, call
from perdure.tools import coding


def names(extension) -> list[str]:
    return [each.name for each in extension.tools]


def test_the_tools_have_names_that_models_know(tmp_path):
    assert names(coding(tmp_path)) == [
        "read", "list", "glob", "grep", "write", "edit", "git_status", "git_diff", "git_log", "git_show", "git_commit",
        "ask_user", "plan", "bash", "bash_output", "kill_shell",
    ]  # fmt: skip
    assert not [each for each in names(coding(tmp_path, shell=False)) if "bash" in each]


def test_parts_can_be_left_out_and_tools_of_a_shell_added(tmp_path, monkeypatch):
    @tool
    async def bash(line: str) -> str:
        """Run a command."""
        return line

    assert names(coding(tmp_path, git=False, people=False, shell=[bash])) == [
        "read", "list", "glob", "grep", "write", "edit", "bash",
    ]  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("perdure._tools.git.sandbox.find_system_program", lambda _name: None)
    assert not [each for each in names(coding(tmp_path)) if each.startswith("git_")]


async def test_an_agent_finds_reads_and_changes_code(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "boat.py").write_text("def sail():\n    return 1\n")
    model = ScriptedModel(
        call("glob", pattern="*.py"), call("grep", pattern="def \\w+"), call("read", path="src/boat.py"),
        call("edit", path="src/boat.py", old_string="return 1", new_string="return 2"), "Done.",
    )  # fmt: skip
    agent = Agent(model, extensions=[coding(tmp_path)], permission=allow_all)
    session = agent.session()
    assert (await session.run("Change it.")).status == "done"
    assert (tmp_path / "src" / "boat.py").read_text() == "def sail():\n    return 2\n"
    assert f"You work on the files in {tmp_path}" in model.requests[0].instructions


@pytest.mark.parametrize(
    "path",
    [
        "AGENTS.md", "sub/AGENTS.md", "agents.md", "CLAUDE.md", ".github/workflows/ci.yml", ".GitHub/Workflows/ci.yml",
        ".vscode/tasks.json", ".husky/pre-commit", ".pre-commit-config.yaml", ".bashrc", ".gitattributes",
        ".claude/settings.json", ".agents/skills/a/SKILL.md", ".devcontainer/devcontainer.json", ".gitlab-ci.yml",
    ],
)  # fmt: skip
async def test_files_that_other_programs_run_are_asked_about_whatever_is_allowed(tmp_path, path):
    agent = Agent(ScriptedModel(), extensions=[coding(tmp_path)], permission=Permissions(allow()))
    session = agent.session()
    assert (await session.explain("write", {"path": path, "content": "x"})).verdict != "allow"
    assert (await session.explain("edit", {"path": path, "old_string": "x", "new_string": "y"})).verdict != "allow"
    assert (await session.explain("write", {"path": "src/x.py", "content": "x"})).verdict == "allow"
    assert (await session.explain("read", {"path": path})).verdict == "allow"


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be the folder of the tools"):
        coding(tmp_path / "missing")


# -- commands ----------------------------------------------------------------------------------------------------------


def has_commands(extension) -> bool:
    return "bash" in names(extension) and "with bash" in extension.instructions


def test_there_are_commands_where_they_can_be_parsed_and_confined_to_what_is_promised(tmp_path, monkeypatch):
    assert has_commands(coding(tmp_path))
    own_names: list[dict[str, Any]] = [{"blocked": ["private/"]}, {"protected": ["generated/"]}]
    for options in own_names:  # commands could reach these
        assert not has_commands(coding(tmp_path, **options))
        with pytest.raises(ConfigError, match=r"coding\(shell=True\): commands can reach the names"):
            coding(tmp_path, shell=True, **options)
        assert has_commands(coding(tmp_path, shell=ScriptedShell(), **options))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert not has_commands(coding(home))
    with pytest.raises(ConfigError, match="not the home folder"):
        coding(home, shell=True)
    monkeypatch.setattr("perdure._tools.coding.has_parser", lambda: False)
    assert not has_commands(coding(tmp_path))
    with pytest.raises(ConfigError, match=r"pip install 'perdure\[shell\]'"):
        coding(tmp_path, shell=True)
    odd_shells: list[Any] = ["bash", 5]
    for odd in odd_shells:
        with pytest.raises(ConfigError, match="give True, False, a ShellBackend, or a list of tools"):
            coding(tmp_path, shell=odd)


@pytest.mark.needs("bubblewrap")
async def test_commands_that_read_run_silently_in_the_sandbox_and_others_ask(tmp_path):
    (tmp_path / "boat.py").write_text("one\n")
    agent = Agent(ScriptedModel(), extensions=[coding(tmp_path)], permission=Permissions())
    session = agent.session()
    assert (await session.call("bash", {"command": "cat boat.py"})).text == "one"
    assert (await session.explain("bash", {"command": "touch new"})).verdict == "deny"  # there is nobody to ask
    assert (await session.call("bash", {"command": "touch new"})).status == "denied"


async def test_without_a_sandbox_every_command_asks_and_the_question_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure._tools.shell.local.find_bubblewrap", lambda: ((), "there is no bubblewrap"))
    model = ScriptedModel(call("bash", command="cat boat.py"), "Done.")
    agent = Agent(model, extensions=[coding(tmp_path)], permission=Permissions(handler=later))
    (question,) = (await agent.session().run("Look.")).questions
    assert "There is no sandbox: there is no bubblewrap" in str(question.calls[0])
    assert "every command asks the user" in {each.name: each.description for each in agent.extensions[0].tools}["bash"]


def processes_with(marker) -> list[int]:
    """The processes that this one has started with a word in their command lines."""
    found = []
    for pid in list_descendants(os.getpid()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        found += [pid] if marker.encode() in words else []
    return found


def background(marker):
    return call("bash", command=f"sleep {marker}", background=True)


async def test_background_commands_live_as_long_as_the_agent(tmp_path):
    marker = f"61{os.getpid()}"
    model = ScriptedModel(background(marker), "Started.", "Still here.")
    async with Agent(model, extensions=[coding(tmp_path)], permission=allow_all) as agent:
        session = agent.session()
        await session.run("Start it.")
        await session.run("And?")
        assert processes_with(marker)
    assert not processes_with(marker)


async def test_without_an_open_agent_they_end_with_the_last_run_that_uses_the_shell(tmp_path):
    marker, other = f"62{os.getpid()}", f"63{os.getpid()}"
    waits, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        waits.set()
        await asyncio.wait_for(go_on.wait(), 30)
        return "waited"

    model = ScriptedModel(background(marker), call("wait"), "Done.")
    agent = Agent(model, tools=[wait], extensions=[coding(tmp_path)], permission=allow_all)
    second = agent.replace(model=ScriptedModel(background(other), "Done."))
    first_run = asyncio.ensure_future(agent.run("Start and wait."))
    try:
        await asyncio.wait_for(waits.wait(), 30)
        await asyncio.wait_for(second.run("Start too."), 30)
        assert processes_with(marker)
        assert processes_with(other)
        go_on.set()
        assert (await asyncio.wait_for(first_run, 30)).status == "done"
    finally:
        first_run.cancel()
    assert not processes_with(marker)
    assert not processes_with(other)
    again = agent.replace(model=ScriptedModel(call("bash", command="seq 1 50000"), "Done."))
    outcome = await again.run("Long output, with a file.")  # a shell that was closed opens again
    assert "lines omitted; all of it is in" in outcome.new_messages[2].tool_results[0].text


async def test_a_shell_of_the_caller_is_used_and_not_closed(tmp_path):
    shell = ScriptedShell({"make": "made"})
    extension = coding(tmp_path, shell=shell)
    model = ScriptedModel(call("bash", command="make"), "Done.")
    await Agent(model, extensions=[extension], permission=allow_all).run("Make it.")
    assert [each.argv for each in shell.commands] == [("make",)]
    assert extension.lifespan is None
