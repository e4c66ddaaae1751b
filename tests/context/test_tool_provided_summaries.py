"""Older results, sent as their summaries."""

import pytest

from perdure import ConfigError, Text, ToolResult, Usage, user
from perdure._context.history.long_results import estimate_savings
from perdure.context import count_context_tokens, summarize_old_results
from perdure.events import MessageAdded, RunEnded, RunStarted, ViewChanged
from tests.context.conversation import Conversation
from tests.doubles import of


async def worked(talk: Conversation, *results: ToolResult, usage: Usage | None = None) -> None:
    """A run that has called tools and is over, and another one that begins."""
    for result in results:
        await talk.calls((result.name, "{}", ""), usage=usage, settle=False)
        await talk.finishes(result)
    await talk.run.emit(
        RunEnded("done", run_id="r1"), RunStarted(run_id="r2"), MessageAdded(user("Go on"), run_id="r2")
    )


def long(call_id: str, summary: str = "seen", preview: str = "") -> ToolResult:
    return ToolResult(call_id, "look", (Text("seen this and that " * 500),), summary=summary, preview=preview)


async def changes(talk: Conversation) -> list[tuple[str, int]]:
    return [(event.cause, event.upto) for event in of(await talk.log(), ViewChanged)]


async def test_results_of_earlier_runs_are_sent_as_their_summaries_and_the_log_keeps_them():
    talk = Conversation()
    run = await talk.begin()
    await worked(talk, long("c0"), long("c1"))
    before = count_context_tokens(run)
    upkeep = summarize_old_results()
    await upkeep(run)
    assert await changes(talk) == [("summaries", 5)]
    assert [each.text for message in run.state.view for each in message.tool_results] == ["seen", "seen"]
    assert [len(each.text) for message in run.state.messages for each in message.tool_results] == [9500, 9500]
    assert count_context_tokens(run) < before / 5
    assert (await talk.refolded()).view == run.state.view


async def test_results_of_the_run_that_goes_on_are_sent_whole():
    talk = Conversation()
    run = await talk.begin()
    await worked(talk, long("c0"), long("c1"))
    upkeep = summarize_old_results()
    await upkeep(run)
    await talk.calls(("look", "{}", ""), settle=False)
    await upkeep(run)
    await talk.finishes(long("c2"))
    await upkeep(run)
    assert await changes(talk) == [("summaries", 5)]
    assert [len(each.text) for message in run.state.view for each in message.tool_results] == [4, 4, 9500]


@pytest.mark.parametrize(
    ("result", "options"),
    [
        (long("c0", summary=""), {}),
        (long("c0"), {"min_tokens": 5_000}),
        (long("c0", preview="seen this"), {}),
        (
            ToolResult("c0", "look", (Text("x"),), summary="longer than the result"),
            {"min_tokens": 0, "min_fraction": 0},
        ),
    ],
)
async def test_what_does_not_pay_is_left_alone(result, options):
    talk = Conversation()
    run = await talk.begin()
    await worked(talk, result)
    await summarize_old_results(**options)(run)
    assert await changes(talk) == []


async def test_a_saving_that_is_a_small_part_of_the_context_does_not_pay():
    talk = Conversation()
    run = await talk.begin("moor the boat " * 5_000)
    await worked(talk, long("c0"))
    await summarize_old_results(min_fraction=0.5)(run)
    assert await changes(talk) == []


async def test_small_savings_add_up_over_the_runs():
    talk = Conversation()
    run = await talk.begin()
    upkeep = summarize_old_results(min_tokens=3 * 2_000)
    for number in range(4):
        await worked(talk, long(f"c{number}"))
        await upkeep(run)
    assert await changes(talk) == [("summaries", 9)]


async def test_what_was_counted_before_does_not_count_any_more():
    talk = Conversation()
    run = await talk.begin()
    await worked(talk, long("c0"), usage=Usage(4_000, 10))
    assert count_context_tokens(run) > 4_000
    await summarize_old_results()(run)
    assert count_context_tokens(run) < 100
    await talk.answers("Aye.", usage=Usage(90, 10))
    assert count_context_tokens(run) == 100


@pytest.mark.parametrize("given", [{"min_tokens": -1}, {"min_fraction": 2}, {"min_fraction": "x"}])
def test_what_cannot_work_is_refused(given):
    with pytest.raises(ConfigError, match=r"summarize_old_results\(min_"):
        summarize_old_results(**given)


@pytest.mark.parametrize(("more", "pays"), [(0, True), (1, False)])
async def test_a_saving_of_exactly_so_many_tokens_pays(more: int, pays: bool) -> None:
    talk = Conversation()
    run = await talk.begin()
    await worked(talk, long("c0"))
    saved = sum(estimate_savings(run.state.messages))
    await summarize_old_results(min_tokens=saved + more, min_fraction=0)(run)
    assert bool(await changes(talk)) is pays
