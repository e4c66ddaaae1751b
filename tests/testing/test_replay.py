"""Recordings as regression tests."""

import json
import os
from pathlib import Path

import pytest

from perdure import Agent, ConfigError, tool
from perdure._testing import replay
from perdure.testing import Diverged, ScriptedModel, call, check_replay, record

pytest_plugins = ["pytester"]
replayed_beside_here = replay.replayed


@tool(effect="read")
async def depth(harbour: str) -> int:
    """The depth of a harbour in metres."""
    return 12


def harbour_master(**changes) -> Agent:
    script = ScriptedModel(call("depth", harbour="Bergen"), "12 metres.")
    return Agent(script, instructions="Be brief.", tools=[depth]).replace(**changes)


async def recorded(path) -> Agent:
    agent = harbour_master()
    await agent.session("s").run("How deep is Bergen?")
    await record(agent, "s", path)
    return agent


async def test_a_recording_is_checked_from_its_file(tmp_path):
    path = tmp_path / "recordings" / "depth.json"
    await recorded(path)
    replayed = await check_replay(harbour_master(), path)
    assert (replayed.session_id, replayed.turns) == ("s", 2)
    assert (await check_replay(harbour_master(), str(path))).agrees
    assert (await check_replay(harbour_master(), json.loads(path.read_text()))).agrees


async def test_a_change_fails_and_the_message_shows_it(tmp_path):
    path = tmp_path / "depth.json"
    await recorded(path)
    with pytest.raises(Diverged) as told:
        await check_replay(harbour_master(instructions="Be verbose."), path)
    assert "session 's' does something else than recorded at entry 3" in str(told.value)
    assert "-  Be brief.\n+  Be verbose." in str(told.value)
    assert told.value.divergence.about == "request"


async def test_a_session_that_the_agent_does_not_repeat_is_not_recorded(tmp_path):
    agent = await recorded(tmp_path / "first.json")
    with pytest.raises(Diverged):
        await record(agent.replace(instructions="Shout."), "s", tmp_path / "second.json")
    assert not (tmp_path / "second.json").exists()


async def test_a_recording_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"the recording '.*nothing\.json' cannot be read"):
        await check_replay(harbour_master(), tmp_path / "nothing.json")


async def test_the_fixture_finds_recordings_beside_the_test(tmp_path, pytester):
    await recorded(pytester.path / "recordings" / "depth.json")
    pytester.makeconftest('pytest_plugins = ["perdure.testing"]')
    pytester.makepyfile(
        """
        import asyncio
        from perdure import Agent, tool

        @tool(effect="read")
        async def depth(harbour: str) -> int:
            \"\"\"The depth of a harbour in metres.\"\"\"
            raise AssertionError("nothing is really called")

        def test_depth(replayed):
            agent = Agent("demo", instructions="Be brief.", tools=[depth])
            assert asyncio.run(replayed(agent, "recordings/depth.json")).runs == 1

        def test_change(replayed):
            asyncio.run(replayed(Agent("demo", tools=[depth]), "recordings/depth.json"))
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Diverged: session 's' does something else than recorded*"])


async def test_a_recording_is_reported_and_has_one_value_in_a_line(tmp_path):
    agent = harbour_master()
    await agent.session("s").run("How deep is Bergen?")
    path = tmp_path / "new" / "folder" / "depth.json"
    report = await record(agent, "s", path)
    assert (report.session_id, report.turns, report.agrees) == ("s", 2, True)
    text = path.read_text()
    assert text.splitlines()[:2] == ["{", ' "format": "perdure-session",']
    assert text.endswith("}\n")


def find_way_from_here(path: Path) -> str:
    return os.path.relpath(path, Path(__file__).parent)


async def test_the_fixture_takes_paths_from_the_folder_of_the_test_and_documents_as_they_are(
    tmp_path, replayed_beside_here
):
    path = tmp_path / "depth.json"
    await recorded(path)
    beside = find_way_from_here(path)
    for each in (beside, Path(beside), json.loads(path.read_text())):
        assert (await replayed_beside_here(harbour_master(), each)).turns == 2
    with pytest.raises(Diverged):
        await replayed_beside_here(harbour_master(instructions="Be verbose."), beside)
