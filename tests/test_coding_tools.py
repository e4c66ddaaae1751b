"""The extension coding: a folder, its tools, its instructions, and what is always asked about."""

import pytest

from perdure import Agent, Permissions, allow, allow_all, tool
from perdure.core.error import ConfigError
from perdure.extensions import coding
from perdure.testing import ScriptedModel, call


def names(extension) -> list[str]:
    return [each.name for each in extension.tools]


def test_the_tools_have_names_that_models_know(tmp_path):
    assert names(coding(tmp_path)) == [
        "read", "list", "glob", "grep", "write", "edit", "git_status", "git_diff", "git_log", "git_show", "git_commit",
        "ask_user", "plan",
    ]  # fmt: skip


def test_parts_can_be_left_out_and_tools_of_a_shell_added(tmp_path, monkeypatch):
    @tool
    async def bash(line: str) -> str:
        """Run a command."""
        return line

    assert names(coding(tmp_path, git=False, people=False, shell=[bash])) == [
        "read", "list", "glob", "grep", "write", "edit", "bash",
    ]  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
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
