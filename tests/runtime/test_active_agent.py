"""Who speaks in a session, in which role, and by which model."""

from typing import Any

import pytest

from perdure import Agent, ConfigError, Limits, tool
from perdure._runtime.agent.active import choose_compaction, encode_compaction
from perdure.context import Compaction, Role, keep_recent
from perdure.events import SessionConfigured
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call
from tests.doubles import log_of, of

POLITE, TERSE = Role("polite", "Be polite."), Role("terse", "Be terse.")


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "there is a lot to see"


def told(request: Any) -> str:
    """A model that says what it was told, and with what."""
    return f"{request.instructions}|{','.join([each.name for each in request.tools])}"


def desk(*replies: Any, **options: Any) -> Agent[Any]:
    """A desk that can hand over to billing, which has a role of its own."""
    billing = Agent(ScriptedModel(told, repeat_last=True), name="billing", instructions="Billing.", roles=[TERSE])
    given = {"instructions": "Desk.", "tools": [look], "roles": [POLITE], "handoffs": [billing], **options}
    return Agent(ScriptedModel(*(replies or [told]), repeat_last=True), name="desk", **given)


# -- roles -------------------------------------------------------------------------------------------------------------


async def test_a_role_that_only_the_first_agent_has_is_left_out_when_another_takes_over():
    session = desk(call("hand_over_to_billing")).session("s")
    assert (await session.run("x", role="polite")).text == "Billing.|hand_over_to_desk"
    assert (await session.run("y", role="polite")).text == "Billing.|hand_over_to_desk"


async def test_a_role_of_the_agent_that_speaks_can_be_asked_for_though_the_first_does_not_have_it():
    session = desk(call("hand_over_to_billing")).session("s", role="terse")
    assert (await session.run("x")).text == "Billing.\n\n## Role: terse\n\nBe terse.|hand_over_to_desk"


async def test_a_role_that_nobody_has_is_refused():
    with pytest.raises(ConfigError, match="there is no role 'loud'"):
        await desk().session("s").run("x", role="loud")
    with pytest.raises(ConfigError, match="there is no role 'loud'"):
        desk().session("s", role="loud")


async def test_no_role_at_all_can_be_asked_for_in_a_run():
    session = desk(role="polite").session("s", role="polite")
    assert (await session.run("x")).text.startswith("Desk.\n\n## Role: polite")
    assert (await session.run("x", role="")).text == "Desk.|look,hand_over_to_billing"
    assert (await session.run("x")).text.startswith("Desk.\n\n## Role: polite")


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_the_run", "of_the_session", "of_the_agent", "answers"),
    [
        ({"model": "demo", "role": "b"}, {"model": "demo:words"}, "b", "demo"),
        ({"role": "b"}, {"model": "demo:words"}, "", "b"),
        ({"role": "plain"}, {"model": "demo:words"}, "b", "session"),
        ({}, {"model": "demo:words", "role": "b"}, "", "session"),
        ({}, {"role": "b"}, "a", "b"),
        ({}, {"model": "demo:words"}, "b", "session"),
        ({}, {}, "b", "b"),
        ({"role": ""}, {}, "b", "own"),
        ({}, {}, "", "own"),
    ],
)
async def test_the_run_comes_before_the_session_and_that_before_the_agent(
    monkeypatch, of_the_run, of_the_session, of_the_agent, answers
):
    words = {"demo": "demo", "demo:words": "session", "demo:a": "a", "demo:b": "b"}
    monkeypatch.setattr("perdure._runtime.agent.active.open_model", lambda name: ScriptedModel(words[name]))
    monkeypatch.setattr("perdure._runtime.session.additions.open_model", lambda name: words[name])
    roles = [Role("a", "A.", model="demo:a"), Role("b", "B.", model="demo:b"), Role("plain", "Plain.")]
    session = Agent(ScriptedModel("own"), roles=roles, role=of_the_agent).session("s")
    await session.configure(**of_the_session)
    assert (await session.run("x", **of_the_run)).text == answers


# -- what a session is told --------------------------------------------------------------------------------------------


async def test_what_a_session_was_told_is_for_whoever_spoke_then():
    session = desk(call("hand_over_to_billing"), told).session("s")
    await session.configure(instructions="Desk of this session.", role="polite")
    assert (await session.run("x")).text == "Billing.|hand_over_to_desk"
    await session.configure(instructions="Billing of this session.", role="terse")
    assert (await session.run("x")).text.startswith("Billing of this session.\n\n## Role: terse")
    await session.configure(agent="")
    assert (await session.run("x")).text.startswith("Desk of this session.\n\n## Role: polite")
    await session.configure(agent="billing", instructions="")
    assert (await session.run("x")).text.startswith("Billing.\n\n## Role: terse")


async def test_what_earlier_logs_say_is_for_the_first_agent():
    session = desk(call("hand_over_to_billing"), told).session("s")
    await session._append_events(SessionConfigured({"instructions": "As it was told once."}), begin=True)
    assert (await session.run("x")).text == "Billing.|hand_over_to_desk"
    await session.configure(agent="")
    assert (await session.run("x")).text.startswith("As it was told once.")


# -- whoever is to speak -----------------------------------------------------------------------------------------------


async def test_the_conversation_can_be_given_to_any_agent_by_its_name_and_back():
    session = desk().session("s")
    await session.configure(agent="billing")
    assert (await session.run("x")).text == "Billing.|hand_over_to_desk"
    await session.configure(agent="billing")
    assert (await session.run("x")).text == "Billing.|hand_over_to_desk"
    await session.configure(agent="desk")
    assert (await session.run("x")).text == "Desk.|look,hand_over_to_billing"


async def test_a_call_that_was_done_does_not_hand_over_again_when_somebody_has_handed_back():
    session = desk(call("hand_over_to_billing"), told).session("s")
    assert (await session.run("x")).text.startswith("Billing.")
    await session.configure(agent="")
    assert (await session.run("x")).text.startswith("Desk.")
    assert (await session.run("x")).text.startswith("Desk.")


@pytest.mark.parametrize("changes", [{"agent": "nobody"}, {"agent": 5}, {"agent": "billing", "role": "polite"}])
async def test_what_cannot_be_is_refused_and_nothing_is_stored(changes):
    session = desk().session("s")
    with pytest.raises(ConfigError, match=r"'desk', 'billing'|give text|'terse'"):
        await session.configure(**changes)
    assert await session.info() is None


async def test_a_session_whose_agent_is_gone_can_be_taken_back():
    store = MemoryStore()
    await desk(call("hand_over_to_billing"), store=store).session("s").run("x")
    session = desk(store=store, handoffs=[]).session("s")
    with pytest.raises(ConfigError, match=r'no longer exists.* session\.configure\(agent=""\) hands it back'):
        await session.run("x")
    await session.configure(agent="")
    assert (await session.run("x")).text == "Desk.|look"
    changes = [dict(each.changes) for each in of(await log_of(store, "s"), SessionConfigured)]
    assert [each["agent"] for each in changes] == ["billing", ""]


def test_agents_of_the_same_name_cannot_speak_in_one_conversation():
    one, other = [Agent("demo", name="billing") for _ in range(2)]
    with pytest.raises(ConfigError, match="two of the agents in this conversation are called 'billing'"):
        Agent("demo", name="desk", handoffs=[one, Agent("demo", name="repairs", handoffs=[other])])
    with pytest.raises(ConfigError, match="two of the agents in this conversation are called 'billing'"):
        Agent("demo", name="billing", handoffs=[one])


# -- what a run may use ------------------------------------------------------------------------------------------------


async def test_tools_that_are_allowed_to_a_run_are_those_of_whoever_speaks():
    session = desk(call("hand_over_to_billing"), told).session("s")
    allowed = Limits(allowed_tools=("look", "hand_over_to_billing"))
    assert (await session.run("x", limits=allowed)).text == "Billing.|"
    back = Limits(allowed_tools=("look", "hand_over_to_desk"))
    assert (await session.run("x", limits=back)).text == "Billing.|hand_over_to_desk"
    with pytest.raises(ConfigError, match="there is no tool 'lok'"):
        await session.run("x", limits=Limits(allowed_tools=("lok",)))


async def test_it_is_stored_who_had_the_conversation_before_it_was_given_to_another():
    repairs, billing = Agent("demo", name="repairs"), Agent("demo", name="billing")
    session = Agent("demo", name="desk", handoffs=[repairs, billing]).session("s")
    for name in ("billing", "billing", "repairs", "desk", "repairs", ""):
        await session.configure(agent=name)
    changes = [dict(each.changes) for each in of(await log_of(session.store, "s"), SessionConfigured)]
    assert changes == [
        {"agent": "billing", "handed_by": "", "handed_in": ""},
        {"agent": "billing", "handed_by": "", "handed_in": ""},
        {"agent": "repairs", "handed_by": "billing", "handed_in": ""},
        {"agent": "", "handed_by": "repairs", "handed_in": ""},
        {"agent": "repairs", "handed_by": "", "handed_in": ""},
        {"agent": "", "handed_by": "repairs", "handed_in": ""},
    ]


def test_the_compaction_of_a_session_changes_that_of_its_agent_where_this_version_knows_the_setting():
    agent = Agent("demo", compaction=Compaction(at_tokens=5_000, instructions="Keep names."))
    found = choose_compaction(agent, {"compaction": {"at_tokens": 9_000, "of_a_later_version": 1}})
    assert found is not None
    assert (found.at_tokens, found.instructions, found.at_turns) == (9_000, "Keep names.", None)
    assert choose_compaction(agent, {"compaction": {}}) is agent.compaction
    alone = choose_compaction(Agent("demo"), {"compaction": {"at_turns": 3}})
    assert alone is not None
    assert (alone.at_tokens, alone.at_turns) == (None, 3)


def test_the_compaction_of_a_session_is_stored_without_what_is_code():
    assert encode_compaction(Compaction(at_tokens=5_000, instructions="Keep names.")) == {
        "at_fraction": 0.8,
        "before_tools_fraction": Compaction().before_tools_fraction,
        "at_tokens": 5_000,
        "at_messages": None,
        "at_turns": None,
        "keep_recent_tokens": None,
        "keep_recent_messages": None,
        "reserve_tokens": None,
        "instructions": "Keep names.",
    }
    for code in ({"model": ScriptedModel("x")}, {"strategy": keep_recent}):
        with pytest.raises(ConfigError, match=r"a model and a strategy cannot be stored: .*Agent\(compaction=…\)"):
            encode_compaction(Compaction(**code))
    with pytest.raises(ConfigError, match="give a Compaction"):
        encode_compaction({"at_tokens": 5_000})
