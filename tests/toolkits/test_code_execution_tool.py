"""The tool code_execution: a snippet for an interpreter, in the sandbox of a shell backend."""

from typing import Any

import pytest

from perdure import Agent, ConfigError, Permissions, allow
from perdure.hosts import Confinement, LocalShell, SnapshotFolder
from perdure.permissions import allow_all, command
from perdure.testing import ScriptedModel, ScriptedShell
from perdure.tools import FileHistory, code_execution_tool


def session_for(shell, permission=allow_all, **options):
    return Agent(ScriptedModel(), tools=[code_execution_tool(shell, **options)], permission=permission).session()


async def test_code_is_read_by_the_interpreter_of_its_language(tmp_path):
    async with LocalShell(tmp_path) as shell:
        session = session_for(shell)
        result = await session.call("code_execution", {"language": "bash", "code": "for n in 1 2; do echo $n; done"})
        assert (result.status, result.text) == ("ok", "1\n2")
        failed = await session.call("code_execution", {"language": "bash", "code": "echo out; echo err >&2; exit 3"})
        assert (failed.status, failed.text) == ("error", "out\n[stderr]\nerr\n[exit code: 3]")
        history = FileHistory(session, SnapshotFolder(tmp_path / "snapshots"))
        assert [each.line.split()[:2] for each in await history.commands()] == [["bash", "-s"]] * 2


async def test_the_code_is_standard_input_and_never_a_word():
    shell = ScriptedShell({"python3 -": "42"})
    result = await session_for(shell).call("code_execution", {"language": "python", "code": "print('$(id)')"})
    assert result.text == "42"
    assert [(each.argv, each.stdin, each.line) for each in shell.commands] == [(("python3", "-"), "print('$(id)')", "")]


async def test_code_is_always_asked_about_and_a_rule_is_about_the_interpreter():
    shell = ScriptedShell({"python3 -": ""})
    given = {"language": "python", "code": "1"}
    assert (await session_for(shell, Permissions()).call("code_execution", given)).status == "denied"
    rules = Permissions(allow("code_execution", target=command("python3 -")))
    session = session_for(shell, rules)
    assert (await session.explain("code_execution", given)).verdict == "allow"
    assert (await session.explain("code_execution", {**given, "language": "bash"})).verdict != "allow"
    open_shell = ScriptedShell(confinement=Confinement(reason="there is none"))
    described = code_execution_tool(open_shell)
    assert "There is no sandbox" in described.description
    assert described.sends


async def test_other_languages_and_times_are_refused_and_languages_can_be_given():
    shell = ScriptedShell({"lua -": "hi"})
    session = session_for(shell, languages={"lua": ["lua", "-"]}, most_seconds=5)
    assert (await session.call("code_execution", {"language": "lua", "code": "x"})).text == "hi"
    refused = await session.call("code_execution", {"language": "perl", "code": "x"})
    assert "'perl' is not one of the languages: lua" in refused.text
    late = await session.call("code_execution", {"language": "lua", "code": "x", "timeout_seconds": 6})
    assert "at most 5" in late.text
    odd_languages: list[Any] = [{"lua": "lua -"}, {"lua": []}, {5: ["x"]}]
    for odd in odd_languages:
        with pytest.raises(ConfigError, match="give the words of an interpreter"):
            code_execution_tool(shell, odd)


@pytest.mark.parametrize("network", [True, False])
def test_code_gets_no_secrets_and_runs_alone(network: bool) -> None:
    made = code_execution_tool(ScriptedShell(confinement=Confinement(sandbox="x", network=network)))
    assert (made.parallel, made.credentials, made.sends, made.permission) == (False, False, network, True)
