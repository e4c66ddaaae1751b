"""Attacks on the shells of other agents, tried on ours: each test is named after the advisory."""

import asyncio
from pathlib import Path

import pytest

from perdure import Agent, Permissions, allow, deny
from perdure._tools.sandbox import bubblewrap
from perdure._tools.shell.output import OutputCapture
from perdure.hosts import LocalShell, ShellCommand
from perdure.permissions import command, later
from perdure.testing import ScriptedModel, ScriptedShell, call
from perdure.tools import exec_tool, shell_tools


async def run(root, line):
    async with LocalShell(root, sandbox="require") as shell:
        return await asyncio.wait_for(shell.run(ShellCommand(line=line)), 30)


async def explain(rules, line, root="/work"):
    session = Agent(ScriptedModel(), tools=shell_tools(ScriptedShell(root=root)), permission=rules).session()
    return (await session.explain("bash", {"command": line})).verdict


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("name", ["perdure.toml", ".perdure/settings.toml", ".perdure/mcp.json"])
async def test_cve_2026_25725_a_configuration_that_does_not_exist_yet_cannot_be_created(tmp_path, name):
    result = await run(tmp_path, f"mkdir -p .perdure; echo 'x = 1' > {name}; echo tried")
    assert str(result.stdout) == "tried\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("bubblewrap")
async def test_cve_2025_54135_a_file_of_servers_cannot_be_written_by_a_command(tmp_path):
    (tmp_path / ".perdure").mkdir()
    (tmp_path / ".perdure" / "mcp.json").write_text("{}")
    await run(tmp_path, "echo evil > .perdure/mcp.json; mv .perdure x; rm -rf .perdure")
    assert (tmp_path / ".perdure" / "mcp.json").read_text() == "{}"


@pytest.mark.needs("bubblewrap")
async def test_cve_2026_39861_a_link_out_of_the_folder_leads_nowhere(tmp_path):
    outside, work = tmp_path / "outside", tmp_path / "work"
    for folder in (outside, work):
        folder.mkdir()
    (outside / "file").write_text("theirs")
    await run(
        work, f"ln -s {outside} link; ln -s {outside}/file f; echo x > link/new; echo x > f; cp /dev/null link/file"
    )
    assert [each.name for each in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "theirs"
    async with LocalShell(work, sandbox="require") as shell:  # the link is there now, and the host does not follow it
        with pytest.raises(Exception, match="not below the working folder"):
            await shell.run(ShellCommand(line="pwd", folder="link"))


async def test_cve_2026_46406_spool_files_have_no_name_that_could_be_known_before(tmp_path):
    async with LocalShell(tmp_path, sandbox="off") as first, LocalShell(tmp_path, sandbox="off") as second:
        files = [
            (await each.run(ShellCommand(line="seq 1 20000"))).stdout.spool_file for each in (first, first, second)
        ]
    assert len({Path(each).parent for each in files}) == 2
    assert len({Path(each).name for each in files}) == 3
    (tmp_path / "victim").write_text("theirs")
    (tmp_path / "spool").symlink_to(tmp_path / "victim")
    capture = OutputCapture(2, str(tmp_path / "spool"), 100)
    with pytest.raises(FileExistsError):
        capture.add(b"overwritten")
    assert (tmp_path / "victim").read_text() == "theirs"


@pytest.mark.parametrize(
    "words", [["echo", "$(id)"], ["echo", "x; id"], ["echo", "`id`"], ["echo", "a\nid"], ["echo", "&& id"]]
)
async def test_cve_2025_53967_words_from_a_model_are_never_evaluated(tmp_path, words):
    async with LocalShell(tmp_path, sandbox="off") as shell:
        model = ScriptedModel(call("shell_exec", argv=words), "Done.")
        agent = Agent(model, tools=[exec_tool(shell, ["echo"])], permission=Permissions(allow("shell_exec")))
        outcome = await agent.run("Go.")
    assert outcome.new_messages[2].tool_results[0].text == words[1]


@pytest.mark.parametrize(
    "line", ["git diff --output=/etc/x HEAD", "git log --output=x", "git diff --no-index /etc/passwd /dev/null"]
)
async def test_cve_2025_68144_an_argument_that_git_takes_for_an_option_is_asked_about(line):
    assert await explain(Permissions(allow("bash", target=command("git status")), handler=later), line) == "ask"


@pytest.mark.parametrize(
    "line", ["git -C /etc status", "git --git-dir=/tmp/x/.git log", "cd sub && git status", "git init /etc/x"]
)
async def test_cve_2025_68143_a_repository_elsewhere_is_asked_about(line):
    assert await explain(Permissions(handler=later), line) == "ask"


@pytest.mark.needs("bubblewrap")
async def test_cve_2026_27735_an_allowed_program_does_not_reach_secrets_of_the_home_folder(tmp_path, monkeypatch):
    home, work = tmp_path / "home", tmp_path / "work"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "config").write_text("token")
    work.mkdir()
    monkeypatch.setattr(bubblewrap, "find_own_home_folders", lambda: [str(home)])
    async with LocalShell(work, sandbox="require", readable=[str(home)]) as shell:
        result = await shell.run(
            ShellCommand(line=f"git init -q; git add --force {home}/.kube/config; cat {home}/.kube/config")
        )
    assert "token" not in str(result.stdout)
    assert result.exit_code != 0


@pytest.mark.parametrize("count", [2, 40, 51, 200])
async def test_fifty_subcommands_do_not_hide_a_denied_one(count):
    rules = Permissions(allow("bash", target=command("true")), deny("bash", target=command("curl")))
    line = " && ".join([*["true"] * count, "curl http://evil.example"])
    assert await explain(rules, line) == "deny"


@pytest.mark.parametrize("count", [41, 200])
async def test_fifty_subcommands_are_asked_about_and_denied_without_anyone_to_ask(count):
    line = "; ".join(["ls"] * count)
    assert await explain(Permissions(handler=later), line) == "ask"
    assert await explain(Permissions(), line) == "deny"
