"""A hard link in the working folder to a secret of the home: no tool reads it, and no command sees what is in it."""

import pytest

from perdure import Agent, Permissions, allow
from perdure._io.files import sensitive
from perdure.hosts import LocalFiles, LocalShell
from perdure.testing import ScriptedModel
from perdure.tools import basic_tools, coding, shell_tools

EVERYTHING = Permissions(allow("*"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with links to three secrets of the home, one to another file, and one between its own files."""
    home, root = tmp_path / "home", tmp_path / "home" / "project"
    for path in (".ssh/id_ed25519", ".aws/sso/cache/x.json", ".config/gh/hosts.yml", "notes.txt"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(f"KEY of {path}")
    root.mkdir()
    (root / "deep").mkdir()
    for name, path in (
        ("a.txt", ".ssh/id_ed25519"),
        ("deep/b.txt", ".aws/sso/cache/x.json"),
        ("c.txt", ".config/gh/hosts.yml"),
    ):
        (root / name).hardlink_to(home / path)
    (root / "plain.txt").hardlink_to(home / "notes.txt")
    (root / "own.txt").write_text("KEY of the project")
    (root / "twin.txt").hardlink_to(root / "own.txt")
    monkeypatch.setenv("HOME", str(home))
    sensitive._known.clear()
    return root


@pytest.mark.parametrize("path", ["a.txt", "deep/b.txt", "c.txt"])
async def test_no_tool_reads_a_link_to_a_secret(folder, path):
    session = Agent(ScriptedModel(), extensions=[coding(folder, shell=False)], permission=EVERYTHING).session()
    small = Agent(ScriptedModel(), tools=basic_tools(folder), permission=EVERYTHING).session()
    for result in (await session.call("read", {"path": path}), await small.call("read_text", {"path": path})):
        assert result.is_error
        assert "another name of a file in your home" in result.text
    searched = await session.call("grep", {"pattern": "KEY"})
    assert path not in searched.text
    assert "own.txt" in searched.text
    assert "KEY" not in (await session.call("grep", {"pattern": "KEY", "path": path})).text.replace("'KEY'", "")


@pytest.mark.parametrize("path", ["own.txt", "twin.txt", "plain.txt"])
async def test_other_links_are_files_of_the_folder(folder, path):
    files = LocalFiles(folder)
    assert b"KEY of" in files.read_file(files.resolve(path)).data


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("permission", [Permissions(), EVERYTHING])
async def test_no_command_sees_what_is_in_a_link_to_a_secret(folder, permission):
    async with LocalShell(folder, sandbox="require") as shell:
        session = Agent(ScriptedModel(), tools=shell_tools(shell), permission=permission).session()
        lines = ("cat a.txt deep/b.txt c.txt", "grep -r KEY .", "cat own.txt twin.txt")
        shown = [(await session.call("bash", {"command": line})).text for line in lines]
    assert [name for name in (".ssh", ".aws", ".config") if any(f"KEY of {name}" in text for text in shown)] == []
    assert "KEY of the project" in shown[-1]
