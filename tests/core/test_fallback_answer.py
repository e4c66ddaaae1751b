"""An engine that has an answer ready returns it when its run ends without a better one."""

from typing import Any

import pytest

from perdure import Agent, Budget, Limits, Outcome, Output, Permissions, tool
from perdure._core.run.answers import ENGINE_ORIGIN, add_answer
from perdure.engines import FallbackAnswer, Run, add_fallback_answer, react
from perdure.events import MessageAdded, PermissionDecided
from perdure.permissions import MemoryVault, Verdict
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call
from tests.doubles import log_of, of

SECRET = "open-sesame-1234"
VAULT = MemoryVault({"code": SECRET})
AT_ONE_TURN = Limits(max_turns=1)


@tool
def look() -> str:
    """Look."""
    return "Fog."


def has_ready(text: str | None, *, after: bool = False) -> Any:
    """Return an engine that has a text ready, from before the first reply or from after it."""

    async def perform(run: Run) -> Outcome[Any]:
        def find(run: Run) -> FallbackAnswer | None:
            return None if text is None else FallbackAnswer(text, len(run.messages) if after else 0)

        add_fallback_answer(run, find)
        return await react(run)

    return perform


async def run_to_limit(engine: Any, *replies: Any, **options: Any) -> tuple[Outcome[Any], MemoryStore]:
    store = MemoryStore()
    agent = Agent(ScriptedModel(*replies), tools=[look], engine=engine, limits=AT_ONE_TURN, store=store, **options)
    return await agent.session("s").run("Look."), store


async def test_at_a_limit_the_answer_that_is_ready_is_returned_and_in_the_conversation():
    outcome, store = await run_to_limit(has_ready("So far: fog."), call("look"))
    assert (outcome.status, outcome.reason, outcome.text) == ("limit", "max_turns", "So far: fog.")
    assert outcome.message is outcome.messages[-1] is outcome.new_messages[-1]
    added = of(await log_of(store, "s"), MessageAdded)[-1].message
    assert (added.text, added.origin, added.model) == ("So far: fog.", ENGINE_ORIGIN, "scripted")


async def test_the_finder_that_was_added_last_comes_first():
    async def perform(run: Run) -> Outcome[Any]:
        add_fallback_answer(run, lambda _: FallbackAnswer("older", 0))
        return await has_ready("newer")(run)

    outcome, _ = await run_to_limit(perform, call("look"))
    assert outcome.text == "newer"


async def test_an_engine_that_has_nothing_ready_yet_changes_nothing():
    outcome, _ = await run_to_limit(has_ready(None), call("look"))
    assert (outcome.status, outcome.text) == ("limit", "")


async def test_an_answer_of_the_model_that_is_newer_is_the_better_one():
    async def perform(run: Run) -> Outcome[Any]:
        add_fallback_answer(run, lambda _: FallbackAnswer("older", 0))
        await react(run)
        raise ValueError("too late")

    outcome, _ = await run_to_limit(perform, "Fog, I see.")
    assert outcome.status == "failed"
    assert [each.text for each in outcome.messages] == ["Look.", "Fog, I see."]


async def test_a_value_that_the_model_has_given_by_the_answer_tool_is_the_better_one():
    async def perform(run: Run) -> Outcome[Any]:
        add_fallback_answer(run, lambda _: FallbackAnswer("older", 0))
        await react(run)
        raise ValueError("too late")

    agent = Agent(ScriptedModel(call("final_answer", value=7)), engine=perform)
    outcome: Outcome[Any] = await agent.run("Count.", output=Output(int, mode="tool"))
    assert outcome.status == "failed"
    assert "older" not in [each.text for each in outcome.messages]


async def test_an_answer_that_ends_the_conversation_already_is_not_added_twice():
    async def perform(run: Run) -> Outcome[Any]:
        add_fallback_answer(run, lambda run: FallbackAnswer("Fog.", len(run.messages)))
        await add_answer(run, "Fog.")
        await add_answer(run, "Fog.")
        raise ValueError("too late")

    outcome, _ = await run_to_limit(perform)
    assert (outcome.status, outcome.text) == ("failed", "Fog.")
    assert [each.text for each in outcome.messages] == ["Look.", "Fog."]


async def test_it_is_stored_without_secrets():
    outcome, _ = await run_to_limit(has_ready(f"It is {SECRET}"), call("look"), vault=VAULT)
    assert outcome.text == "It is {{code}}"


async def test_an_approval_that_is_remembered_is_sealed_as_it_is_stored_without_secrets():
    @tool(permission=True)
    def say(text: str) -> str:
        """Say a text."""
        return text

    store = MemoryStore()
    gate = Permissions(handler=lambda requests: [Verdict(allow=True, scope="session") for _ in requests])
    agent = Agent(
        ScriptedModel(call("say", text=SECRET), "Done."),
        tools=[say],
        permission=gate,
        store=store,
        vault=VAULT,
    )
    await agent.session("s").run("Say it.")
    (decided,) = of(await log_of(store, "s"), PermissionDecided)
    assert decided.seal
    assert SECRET not in decided.target


@pytest.mark.parametrize(
    ("budget", "reserved"),
    [
        (Budget(token_budget=1000), (200, 0.0)),
        (Budget(max_cost_usd=1.0), (0, 0.2)),
        (Budget(token_budget=1000, max_cost_usd=1.0), (200, 0.2)),
    ],
)
def test_a_part_of_a_budget_can_be_reserved_for_an_answer(budget, reserved):
    part = budget.reserve_part(0.2)
    assert part is not None
    assert (part.tokens, part.cost_usd) == reserved


def test_nothing_can_be_reserved_of_a_budget_that_is_used_up():
    budget = Budget(token_budget=10)
    assert budget.reserve(10, 0.0) is not None
    assert budget.reserve_part(0.2) is None
