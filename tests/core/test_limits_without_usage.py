"""Limits of runs whose model reports no tokens: many local servers, gateways, and models that a program has written."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from perdure import Agent, Limits, Message, Permissions, Text, ToolCall, Usage, allow, ask, tool
from perdure.engines import planner, reflect
from perdure.events import ReplyFinished
from perdure.models import Price, Request
from perdure.permissions import later
from perdure.stores import open_store
from perdure.testing import Reply, ScriptedModel, call

PRICE = Price(input_usd=1000, output_usd=1000)  # a dollar for a thousand tokens
PROMPT = "word " * 80  # a hundred tokens


@tool(effect="read")
def look(place: int = 0) -> str:
    """Look."""
    return f"ship {place} " * 20


def silent(*replies: Any, **options: Any) -> ScriptedModel:
    """A model that reports no tokens."""
    told = [
        Reply(each, usage=None) if isinstance(each, str) else Reply("", calls=[each], usage=None) for each in replies
    ]
    return ScriptedModel(*told, **options)


def looking(count: int) -> list[Any]:
    return [call("look", place=place) for place in range(count)]


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(token_budget=300), "token_budget"), (Limits(max_cost_usd=0.3), "max_cost")]
)
async def test_a_run_of_a_model_that_reports_no_tokens_is_stopped(limits, reason):
    agent = Agent(silent(*looking(20), price=PRICE), tools=[look], limits=limits, guardrails=())
    outcome = await agent.run(PROMPT)
    assert (outcome.status, outcome.reason) == ("limit", reason)
    assert outcome.turns in {2, 3}
    assert outcome.usage == Usage()  # nothing is made up


async def test_a_model_of_a_program_is_limited_too():
    class Bare:
        async def stream(self, request: Request) -> AsyncGenerator[Any]:
            made = ToolCall(f"c{len(request.messages)}", "look", f'{{"place": {len(request.messages)}}}')
            yield ReplyFinished(message=Message("assistant", (Text("Looking."), made)))

    outcome = await Agent(Bare(), tools=[look], limits=Limits(token_budget=300), guardrails=()).run(PROMPT)
    assert (outcome.status, outcome.reason) == ("limit", "token_budget")


async def test_long_replies_count_too():
    agent = Agent(silent("word " * 400, "more"), limits=Limits(token_budget=400), engine=reflect())
    outcome = await agent.run("Hi.")
    assert (outcome.text.strip()[:4], outcome.turns) == ("word", 1)


async def test_subagents_and_private_runs_count_for_the_run_above_them():
    scout = Agent(silent(*looking(20)), name="scout", tools=[look], guardrails=())
    agent = Agent(silent(call("scout", task=PROMPT), "Done."), tools=[scout.as_tool()], limits=Limits(token_budget=300))
    outcome = await agent.run("Go.")
    assert (outcome.status, outcome.reason) == ("limit", "token_budget")
    agent = Agent(silent(*["word " * 100] * 20), limits=Limits(token_budget=300), engine=planner())
    assert (await agent.run(PROMPT)).turns < 5


async def test_a_run_that_is_resumed_has_not_forgotten_what_it_used():
    @tool
    def send() -> str:
        """Send."""
        return "sent"

    store, limits = open_store("memory:"), Limits(token_budget=1000)
    options: dict[str, Any] = {"tools": [look, send], "store": store, "limits": limits, "guardrails": ()}
    gate = Permissions(ask("send"), allow("*"), handler=later)
    first = Agent(silent(*looking(3), call("send")), permission=gate, **options)
    waiting = await first.session("s").run(PROMPT)
    assert waiting.status == "waiting"
    second = Agent(silent(*looking(20)), permission=gate, **options)
    await second.session("s").answer(waiting.questions[0].ask_id, True)
    outcome = await second.session("s").resume()
    assert (outcome.status, outcome.reason) == ("limit", "token_budget")
    assert outcome.turns < 7
