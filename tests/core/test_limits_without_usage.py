"""Limits of runs whose model reports no tokens: many local servers, gateways, and models that a program has written."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from perdure import Agent, Limits, Message, Outcome, Permissions, Text, ToolCall, Usage, allow, ask, tool
from perdure.engines import Run, planner, react, reflect, until
from perdure.evals import Grade
from perdure.events import ReplyFinished, RunEnded, TextDelta
from perdure.models import Price, Request
from perdure.permissions import later
from perdure.stores import open_store
from perdure.testing import Reply, ScriptedModel, call
from tests.doubles import until as until_true

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


@tool
def send() -> str:
    """Send."""
    return "sent"


async def answer_and_resume(first: Agent[Any], second: Agent[Any]) -> Any:
    """Run until the question before `send`, which a person answers later, and resume with another agent."""
    waiting = await first.session("s").run("Go.")
    assert waiting.status == "waiting"
    await second.session("s").answer(waiting.questions[0].ask_id, True)
    return await second.session("s").resume()


def boss(model: ScriptedModel, scout: Agent[Any], store: Any, **limits: Any) -> Agent[Any]:
    gate = Permissions(ask("send"), allow("*"), handler=later)
    tools: list[Any] = [look, send, scout.as_tool()]
    return Agent(model, tools=tools, store=store, permission=gate, guardrails=(), limits=Limits(**limits))


@pytest.mark.parametrize(("limit", "reason"), [("token_budget", "token_budget"), ("max_cost_usd", "max_cost")])
async def test_a_run_that_is_resumed_has_not_forgotten_what_ended_subagents_used(limit, reason):
    store, limits = open_store("memory:"), {limit: 1000 if limit == "token_budget" else 1.0}
    scout = Agent(silent(*looking(5), "Five ships.", price=PRICE), name="scout", tools=[look], guardrails=())
    before = silent(call("scout", task=PROMPT), call("send"), price=PRICE)
    outcome = await answer_and_resume(
        boss(before, scout, store), boss(silent("All is well.", price=PRICE), scout, store, **limits)
    )
    assert (outcome.status, outcome.reason) == ("limit", reason)
    assert outcome.usage == Usage()


async def test_a_run_that_is_resumed_has_not_forgotten_what_an_engine_asked_at_the_same_time():
    asked = asyncio.Event()

    async def ask_twice_first(run: Run) -> Outcome[Any]:
        if not run.state.turns:
            request = run.build_request(run.state.view)
            both = asyncio.gather(run.ask_model(request), run.ask_model(request))
            await until_true(lambda: len(run.state.aside_requests) == 2)
            asked.set()
            await both
        return await react(run)

    reply: list[Any] = [asked, TextDelta("word " * 400), ReplyFinished()]
    models = ScriptedModel(reply, reply, Reply("", calls=[call("send")], usage=None)), silent("All is well.")
    gate = Permissions(ask("send"), allow("*"), handler=later)
    options: dict[str, Any] = {"tools": [send], "store": open_store("memory:"), "engine": ask_twice_first}
    first, second = [Agent(each, permission=gate, **options) for each in models]
    outcome = await answer_and_resume(first, second.replace(limits=Limits(token_budget=1000)))
    assert (outcome.status, outcome.reason) == ("limit", "token_budget")


async def test_a_subagent_that_is_resumed_has_not_forgotten_what_it_used():
    store, scouts = open_store("memory:"), []
    for model in (silent(*looking(5), call("send")), silent("All is well.")):
        limits = Limits(token_budget=1500)
        scouts.append(Agent(model, name="scout", tools=[look, send], guardrails=(), limits=limits))
    before = boss(silent(call("scout", task=PROMPT)), scouts[0], store)
    await answer_and_resume(before, boss(silent("Done."), scouts[1], store))
    events = [each.event for each in await store.read("s")]
    (ended,) = [each for each in events if isinstance(each, RunEnded) and each.path]
    assert (ended.status, ended.reason) == ("limit", "token_budget")


@pytest.mark.parametrize("rounds_before", [2, 1])
async def test_a_run_that_is_resumed_has_not_forgotten_the_graders_of_its_subagents(rounds_before):
    store, used = open_store("memory:"), Usage(900, 100)
    engine = until(lambda _: Grade(passed=False, usage=used, feedback="More."), max_rounds=2)
    rounds = ["One.", "Two."] if rounds_before == 2 else ["One.", call("send"), "Two."]
    scout = Agent(ScriptedModel(*rounds), name="scout", tools=[send], engine=engine)
    before, after = ScriptedModel(call("scout", task="Count."), call("send")), ScriptedModel("Done.")
    if rounds_before == 1:
        before = ScriptedModel(call("scout", task="Count."))
    outcome = await answer_and_resume(boss(before, scout, store), boss(after, scout, store))
    assert outcome.status == "done"
    assert outcome.usage.total_tokens == 2 * used.total_tokens + 15 * (len(rounds) + (3 if rounds_before == 2 else 2))
    assert outcome.session_usage == outcome.usage
