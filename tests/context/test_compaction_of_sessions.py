"""Compaction in sessions: before requests, before calls, when the model refuses, by hand, and by the model itself."""

from typing import Any

import pytest

from perdure import Agent, Budget, ContextOverflow, Extension, ProviderDown, ToolOutput, Usage, UsageError, tool
from perdure._context.history.tokens import estimate_messages_tokens, estimate_text_tokens
from perdure.context import Compaction, history_tools, large_results, summarize_old_results
from perdure.events import Compacted, CompactionStarted, ModelRequested, ReplyDiscarded, ViewChanged
from perdure.models import Request
from perdure.stores import MemoryStore
from perdure.testing import Reply, ScriptedModel, call
from tests.context.conversation import SNAPSHOT, is_for_summary, model_of
from tests.doubles import log_of, of
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed

WINDOW = 6_000


@tool(effect="read")
def read_file(path: str) -> str:
    """Reads a file."""
    return f"{path}: a line of a file.\n" * 40


class Reader:
    """A model that reads file after file, sums up when asked, and refuses what is too long."""

    def __init__(self, files: int, refuses_over: int = WINDOW) -> None:
        self.files = files
        self.refuses_over = refuses_over
        self.read = 0

    def __call__(self, request: Request) -> Any:
        size = estimate_text_tokens(request.instructions) + estimate_messages_tokens(request.messages)
        if size > self.refuses_over:
            return ContextOverflow("the prompt is too long")
        if is_for_summary(request):
            return Reply(SNAPSHOT, usage=Usage(size, 20))
        if self.read == self.files:
            return Reply("All read.", usage=Usage(size, 3))
        self.read += 1
        return Reply(calls=(call("read_file", path=f"/boat/{self.read}.txt"),), usage=Usage(size, 20))


def reading(reader: Reader, window: int | None = WINDOW) -> ScriptedModel:
    return model_of(reader, window=window, repeat_last=True)


def talked(model: ScriptedModel) -> list[Request]:
    return [request for request in model.requests if not is_for_summary(request)]


async def test_a_run_that_is_longer_than_the_window_gets_to_its_end():
    model = reading(Reader(30))
    store = MemoryStore()
    session = Agent(model, tools=[read_file], store=store, compaction=Compaction()).session("s")
    outcome = await session.run("Read all.")
    assert (outcome.status, outcome.text) == ("done", "All read.")
    assert len(outcome.messages) == 62
    for request in talked(model):
        assert_valid(request.messages)
        assert estimate_messages_tokens(request.messages) < WINDOW * 0.8
    log = await log_of(store, "s")
    assert len(of(log, Compacted)) >= 2
    assert {event.cause for event in of(log, ViewChanged)} == {"compaction"}
    spent = sum([event.usage.input_tokens for event in of(log, Compacted) if event.usage])
    assert spent
    assert outcome.usage.input_tokens == spent + sum(
        [each.usage.input_tokens for each in outcome.messages if each.usage]
    )


async def test_each_request_begins_with_the_one_before_it_except_where_the_log_says_so():
    model = reading(Reader(30))
    store = MemoryStore()
    await Agent(model, tools=[read_file], store=store, compaction=Compaction()).session("s").run("Read all.")
    changed = [type(event) for event in await log_of(store, "s") if isinstance(event, (ViewChanged, ModelRequested))]
    requests = talked(model)
    assert len(requests) == changed.count(ModelRequested)
    number = -1
    for place, event in enumerate(changed):
        number += event is ModelRequested
        if event is ModelRequested and number:
            before, now = requests[number - 1].messages, requests[number].messages
            continues = list(now[: len(before)]) == list(before)
            assert continues == (changed[place - 1] is not ViewChanged)


async def test_a_refusal_teaches_the_window_and_the_run_goes_on():
    model = reading(Reader(30), window=None)
    store = MemoryStore()
    outcome = await Agent(model, tools=[read_file], store=store, compaction=Compaction()).session("s").run("Read all.")
    assert outcome.status == "done"
    causes = [event.cause for event in of(await log_of(store, "s"), CompactionStarted)]
    assert causes[0] == "overflow"
    assert causes.count("overflow") == 1
    assert len(causes) > 1


async def test_without_a_compaction_a_refusal_ends_the_run():
    outcome = await Agent(reading(Reader(30), window=None), tools=[read_file]).run("Read all.")
    assert isinstance(outcome.error, ContextOverflow)


@pytest.mark.in_memory("how often it failed is not kept in the log")
async def test_a_run_goes_on_when_nobody_can_sum_up():
    reader = Reader(30)

    def answer(request: Request) -> Any:
        return ProviderDown("gone") if is_for_summary(request) else reader(request)

    model = model_of(answer, window=WINDOW, repeat_last=True)
    store = MemoryStore()
    outcome = await Agent(model, tools=[read_file], store=store, compaction=Compaction()).session("s").run("Read all.")
    assert outcome.status == "done"
    log = await log_of(store, "s")
    assert "could not be summed up" in of(log, Compacted)[0].summary.text
    assert len(model.requests) - len(talked(model)) < 20


async def test_a_conversation_is_summed_up_by_hand_between_runs():
    model = reading(Reader(8))
    store = MemoryStore()
    session = Agent(model, tools=[read_file], store=store, compaction=Compaction(keep_recent_messages=2)).session("s")
    await session.run("Read all.")
    assert await session.compact()
    assert await session.compact() is False
    assert len(await session.messages()) == 18
    await session.run("And now?")
    assert [each.origin for each in model.requests[-1].messages] == ["compaction", *[""] * 4]  # a call, its result, …
    again = Agent(model, tools=[read_file], store=store).session("s")
    await again.run("And now, without a compaction?")
    assert model.requests[-1].messages[0].origin == "compaction"


async def test_an_agent_without_a_compaction_says_so():
    with pytest.raises(UsageError, match="no compaction"):
        await Agent(ScriptedModel("x")).session().compact()


async def test_the_model_itself_can_have_the_conversation_summed_up():
    compaction = Compaction()
    steps = [call("read_file", path=f"/{number}") for number in range(6)]
    model = model_of(*steps, call("compact_conversation", focus="The mast."), SNAPSHOT, "Done.", window=60_000)
    store = MemoryStore()
    agent = Agent(model, tools=[read_file, compaction.build_compact_tool()], store=store, compaction=compaction)
    outcome = await agent.session("s").run("Go")
    assert outcome.status == "done"
    assert "The mast." in model.requests[-2].instructions
    assert [event.cause for event in of(await log_of(store, "s"), CompactionStarted)] == ["agent"]
    last = model.requests[-1].messages
    assert_valid(last)
    assert (last[0].origin, last[-1].tool_results[0].text[:5]) == ("compaction", "Done:")


async def test_the_model_is_told_when_a_summary_would_not_help():
    compaction = Compaction()
    model = model_of(call("compact_conversation"), SNAPSHOT, "Done.")
    outcome = await Agent(model, tools=[compaction.build_compact_tool()], compaction=compaction).run("Go")
    assert outcome.messages[2].tool_results[0].text.startswith("Nothing was changed")


async def test_what_it_takes_to_sum_up_counts_against_a_budget():
    ledger = Budget(token_budget=1_000_000)
    model = reading(Reader(30))
    outcome = await Agent(model, tools=[read_file], compaction=Compaction(), budget=ledger).run("Read all.")
    assert ledger.spent_tokens == outcome.usage.total_tokens


async def test_a_session_that_was_cut_off_after_a_summary_goes_on_with_it():
    reader = Reader(30)
    store = MemoryStore()
    broken = model_of(lambda request: _until_summed_up(reader, request), window=WINDOW, repeat_last=True)
    compaction = Compaction()
    session = Agent(broken, tools=[read_file], store=store, compaction=compaction).session("s")
    assert (await session.run("Read all.")).status == "failed"
    before = len(of(await log_of(store, "s"), Compacted))
    model = reading(reader)
    outcome = await Agent(model, tools=[read_file], store=store, compaction=compaction).session("s").run("Go on.")
    assert outcome.status == "done"
    assert before == 1
    assert model.requests[0].messages[0].origin == "compaction"


def _until_summed_up(reader: Reader, request: Request) -> Any:
    summed_up = bool(request.messages) and request.messages[0].origin == "compaction"
    return ProviderDown("gone") if summed_up else reader(request)


async def test_summaries_large_results_and_history_come_together_in_an_extension():
    @tool(effect="read", summary=lambda _: "a long log about a whale")
    def log() -> ToolOutput:
        """Shows the log."""
        return ToolOutput(
            "\n".join(f"day {number}: {'a whale' if number == 777 else 'nothing'}" for number in range(2000))
        )

    pieces = large_results(1_000)
    extension = Extension(
        name="context",
        tools=[*pieces.tools, *history_tools()],
        wrap_tool=pieces.wrap_tool,
        between_turns=[summarize_old_results(min_tokens=100, min_fraction=0.0)],
    )
    model = model_of(
        call("log"),
        call("grep_result", call_id="call_1", pattern="whale"),
        "On day 777.",
        call("search_history", query="whale"),
        "It was a whale.",
    )
    session = Agent(model, tools=[log], extensions=[extension]).session()
    await session.run("What is in the log?")
    shown = model.requests[1].messages[-1].tool_results[0]
    assert len(shown.text) < 1_500
    assert model.requests[2].messages[-1].tool_results[0].text.startswith("line 778 (offset ")
    await session.run("What was it?")
    assert model.requests[3].messages[2].tool_results[0].text == "a long log about a whale"
    assert "day 777: a whale" in (await session.messages())[2].tool_results[0].text
    assert "[3] tool:" in model.requests[4].messages[-1].tool_results[0].text


async def test_what_was_summed_up_in_vain_is_paid_for_all_the_same():
    compaction = Compaction(at_messages=4)
    model = model_of(call("read_file", path="x"), "Done.")

    @tool(name="read_file", effect="read")
    def short(path: str) -> str:
        """Reads."""
        return "x"

    store = MemoryStore()
    session = Agent(model, tools=[short], store=store, compaction=compaction).session("s")
    await session.run("Go")
    model = model_of(Reply("long " * 900, usage=Usage(500, 900)), "Done.")
    outcome = await Agent(model, tools=[short], store=store, compaction=compaction).session("s").run("Go")
    log = await log_of(store, "s")
    assert of(log, Compacted) == []
    assert [event.reason for event in of(log, ReplyDiscarded)] == ["compaction"]
    assert outcome.usage.input_tokens == 510
