"""Replays of logs that have one hash for instructions and tools together, as earlier versions wrote them."""

import hashlib
from typing import Any

import msgspec
import pytest

from perdure import Agent, Settings, tool
from perdure.core.event import Entry, ModelRequested
from perdure.core.message import user
from perdure.core.model import Request
from perdure.replaying.prompt_hash_comparison import describe_prefix_difference, has_recorded_prompt_prefix
from perdure.replaying.replay import replay
from perdure.session_transfer import export_session
from perdure.testing import ScriptedModel, call
from tests.replaying.replays import agreeing, diverging, with_session

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def depth(harbour: str) -> int:
    """The depth of a harbour in metres."""
    return 12


async def written_before(agent: Agent) -> Agent:
    """The agent, whose session `s` looks as an earlier version would have written it."""
    await agent.session("s").run("How deep is Bergen?")
    content = msgspec.json.encode((agent.instructions, agent.toolbox.specs))
    joint = hashlib.sha256(content).hexdigest()[:16]
    return await with_session(agent, [_with_prefix(entry, joint) for entry in await agent.store.read("s")])


def _with_prefix(entry: Entry, prefix: str) -> Entry:
    if not isinstance(entry.event, ModelRequested):
        return entry
    return msgspec.structs.replace(entry, event=msgspec.structs.replace(entry.event, prefix=prefix))


def pilot(**options: Any) -> Agent:
    return Agent(ScriptedModel(call("depth", harbour="Bergen"), "12 metres."), tools=[depth], **options)


async def test_an_older_log_agrees():
    agent = await written_before(pilot(instructions="You are a pilot."))
    replayed = await agreeing(agent)
    assert replayed.turns == 2
    assert [len(known) for known in replayed.prefixes] == [16]


@pytest.mark.parametrize("changes", [{"instructions": "Be brief."}, {"tools": []}])
async def test_other_instructions_or_tools_are_seen_in_an_older_log_too(changes):
    agent = await written_before(pilot(instructions="You are a pilot."))
    divergence = await diverging(agent.replace(**changes))
    assert divergence.what == "the request of turn 1 is another one: the instructions or tools"


async def test_what_has_not_changed_is_not_told_of_an_older_log():
    agent = await written_before(pilot(instructions="You are a pilot."))
    divergence = await diverging(agent.replace(settings=Settings(temperature=0.5)))
    assert divergence.what == "the request of turn 1 is another one: its settings"
    assert "instructions" not in divergence.diff


async def test_a_document_of_an_older_log_shows_what_has_changed():
    agent = await written_before(pilot(instructions="Be brief.\nBe kind."))
    document = await export_session(agent.store, "s", prefixes=(await replay(agent, "s")).prefixes)
    diff = (await diverging(agent.replace(instructions="Be brief.\nBe bold."), document)).diff.splitlines()
    assert ("-  Be kind." in diff, "+  Be bold." in diff) == (True, True)


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ("a-b", "a-c", "the tools"),
        ("a-b", "c-b", "the instructions"),
        ("a-b", "c-d", "the instructions, the tools"),
        ("a", "c-d", "the instructions or tools"),
    ],
)
def test_what_differs_is_told_as_far_as_it_is_known(then, now, told):
    assert describe_prefix_difference(ModelRequested(1, prefix=then), ModelRequested(1, prefix=now)) == told


def test_hashes_of_one_kind_are_compared_as_they_are():
    request = Request(messages=[user("Hello.")])
    one, other = ModelRequested(1, prefix="a-b"), ModelRequested(1, prefix="a-c")
    assert has_recorded_prompt_prefix(one, one, request)
    assert not has_recorded_prompt_prefix(one, other, request)
