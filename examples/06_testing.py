"""Testing an agent: a model that says what the test tells it to, a clock that the test moves, a tree to compare.

With pytest, the functions below are all there is to it. Here they are called by hand.
"""

# ruff: noqa: S101, PLR2004 - these are tests
import asyncio

from perdure import Agent, Limits, RateLimited, tool
from perdure.models import retried
from perdure.testing import FakeClock, Recorder, ScriptedModel, call


@tool(effect="read")
async def lookup(word: str) -> str:
    """Look a word up."""
    return {"pawl": "a lever that lets a wheel turn one way only"}.get(word, "not found")


async def test_the_agent_looks_a_word_up_before_it_answers() -> None:
    model = ScriptedModel(call("lookup", word="pawl"), "A lever.")
    recorder = Recorder()
    outcome = await Agent(model, tools=[lookup], watchers=[recorder]).run("What is a pawl?")
    assert outcome.text == "A lever."
    assert model.requests[-1].messages[-1].tool_results[0].text.startswith("a lever")
    expected = """\
session_opened: entries=0
run agent: done
  user: "What is a pawl?"
  turn 1
    call lookup: {"word":"pawl"}
    tool lookup: ok "a lever that lets a wheel turn one way only"
  turn 2
    text: "A lever.\""""
    assert str(recorder) == expected


async def test_the_agent_waits_when_the_provider_says_so() -> None:
    clock = FakeClock(auto=True)
    model = ScriptedModel(RateLimited("slow down", retry_after_seconds=17), "Here I am.")
    outcome = await Agent(retried(model, clock=clock)).run("Are you there?")
    assert outcome.text == "Here I am."
    assert clock.slept == [17]


async def test_a_limit_keeps_the_work() -> None:
    model = ScriptedModel(call("lookup", word="pawl"), repeat_last=True)
    outcome = await Agent(model, tools=[lookup], limits=Limits(max_turns=2)).run("Look it up.")
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "max_turns", 2)
    assert len(outcome.new_messages) == 5


for test in (
    test_the_agent_looks_a_word_up_before_it_answers,
    test_the_agent_waits_when_the_provider_says_so,
    test_a_limit_keeps_the_work,
):
    asyncio.run(test())
    print("passed:", test.__name__)
