import pytest

from perdure import Text, ToolCall, ToolResult, Usage
from perdure.core.event import (
    ErrorRaised,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    ReplyDiscarded,
    RunResumed,
    RunWaiting,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from perdure.core.message import Message, assistant
from perdure.tracing.trace_tree import NOTICE_LIMIT, PROGRESS_LIMIT, flatten_runs
from tests.tracing.sample_traces import PRICES, Script, coding_session, long_session


def test_a_tree_has_runs_turns_calls_and_the_runs_of_subagents_below_calls():
    (run,) = coding_session().live().runs
    assert (run.agent, run.status, len(run.turns)) == ("engineer", "done", 6)
    first, second = run.turns[:2]
    assert (first.attempts, first.retries, first.calls[0].name, first.calls[0].status) == (1, 1, "bash", "error")
    assert (first.calls[0].progress_count, first.calls[0].progress[-1]) == (3, {"lines": 42})
    assert [call.name for call in second.calls] == ["read", "investigate"]
    (below,) = second.calls[1].runs
    assert (below.agent, below.path, [turn.calls[0].name for turn in below.turns[:1]]) == (
        *("historian", "historian"),
        ["git_log"],
    )
    assert [each.agent for each in flatten_runs([run])] == ["engineer", "historian"]
    assert run.prompt.startswith("The test of the parser fails")


def test_each_turn_has_its_times_tokens_cache_and_cost():
    first, second, third = coding_session().live().runs[0].turns[:3]
    assert first.first_delta_at - first.requested_at == pytest.approx(1.3)
    assert first.replied_at - first.requested_at == pytest.approx(2.9)
    assert second.usage.cache_read_tokens == 5_210
    assert second.cost_usd == pytest.approx(PRICES.cost_usd(second.usage))
    assert (third.changes, third.added_tools) == (["tools"], ["git_show"])
    assert third.calls[0].permission == "denied: outside of the project"


def test_a_stored_log_gives_the_same_tree_without_what_is_not_stored():
    live, stored = coding_session().live().runs[0], coding_session().stored().runs[0]
    assert [turn.reply for turn in stored.turns] == [turn.reply for turn in live.turns]
    assert [turn.cost_usd for turn in stored.turns] == [turn.cost_usd for turn in live.turns]
    assert (stored.turns[0].retries, stored.turns[0].first_delta_at) == (0, 0.0)
    assert stored.turns[0].calls[0].progress_count == 0


def test_what_entered_the_context_has_its_reason():
    turns = coding_session().live().runs[0].turns
    assert [[item.reason for item in turn.entered] for turn in turns[:3]] == [
        ["prompt"],
        ["reply", "result of bash"],
        ["reply", "result of read", "result of investigate"],
    ]
    assert turns[4].entered[-1].reason == "summary of 8 messages"


def test_progress_and_notices_are_bounded_and_counted():
    script = Script()
    script.begin("r", "go")
    errors = [ErrorRaised("E", str(number), run_id="r") for number in range(NOTICE_LIMIT + 50)]
    script.turn("r", 1, [ToolCall("c", "t")], Usage(1, 1), between=errors)
    reports = [ToolProgress("c", "t", number, run_id="r") for number in range(100)]
    script.result("r", "c", "t", "ok", 1.0, between=reports)
    (turn,) = script.live().runs[0].turns
    assert (len(turn.notices), turn.calls[0].progress_count) == (NOTICE_LIMIT, 100)
    assert turn.calls[0].progress == list(range(100 - PROGRESS_LIMIT, 100))


def test_a_run_that_has_no_end_is_open_and_its_tokens_are_added_up():
    script = Script()
    script.begin("r", "go")
    script.turn("r", 1, [Text("hm")], Usage(100, 10))
    (run,) = script.stored().runs
    assert (run.status, run.usage.input_tokens) == ("open", 100)
    assert run.cost_usd == pytest.approx(PRICES.cost_usd(Usage(100, 10)))


def test_a_run_that_waits_goes_on():
    script = Script()
    script.begin("r", "go")
    script.turn("r", 1, [ToolCall("c", "t")], Usage(1, 1))
    script.add(RunWaiting(("q",), reason="question", run_id="r"), 1)
    assert script.stored().runs[0].status == "waiting"
    script.add(RunResumed(run_id="r"), 100)
    script.turn("r", 2, [Text("done")], Usage(1, 1))
    script.end("r", "done", Usage(2, 2), 2)
    (run,) = script.stored().runs
    assert (run.status, len(run.turns)) == ("done", 2)


def test_a_run_that_asks_the_model_again_waits_no_more_and_one_that_has_ended_stays_ended():
    script = Script()
    script.begin("r", "go")
    script.turn("r", 1, [ToolCall("c", "t")], Usage(1, 1))
    script.add(RunWaiting(("q",), reason="question", run_id="r"), 1)
    script.turn("r", 2, [Text("hm")], Usage(1, 1))
    assert script.stored().runs[0].status == "open"
    script.end("r", "done", Usage(2, 2), 2)
    script.turn("r", 3, [Text("a title")], Usage(1, 1))
    assert script.stored().runs[0].status == "done"


def test_a_repeated_request_and_a_discarded_reply_belong_to_their_turn():
    script = Script()
    script.begin("r", "go")
    script.add(ModelRequested(1, model="m", run_id="r"))
    partial = Message("assistant", (Text("ha"),), usage=Usage(10, 2))
    script.add(ReplyDiscarded(1, "cut off", partial, run_id="r"), 1)
    script.add(ModelRequested(1, attempt=2, model="m2", run_id="r"))
    script.add(MessageAdded(assistant("hello"), run_id="r"), 1)
    (turn,) = script.stored().runs[0].turns
    assert (turn.attempts, turn.model, turn.reply) == (2, "m2", assistant("hello"))
    assert [each.kind for each in turn.notices] == ["reply_discarded"]


def test_requests_aside_are_turns_of_their_own():
    script = Script()
    script.begin("r", "go")
    script.add(ModelRequested(1, model="m", aside=True, run_id="r"))
    script.add(ModelReplied(1, assistant("aside"), run_id="r"), 1)
    script.add(ModelReplied(9, assistant("lost"), run_id="r"), 1)
    script.add(ReplyDiscarded(8, "x", None, aside=True, run_id="r"))
    (turn,) = script.stored().runs[0].turns
    assert (turn.is_aside, turn.reply) == (True, assistant("aside"))
    assert "aside · " in script.stored().format_tree()


def test_a_direct_call_joins_the_last_turn_and_unknown_parents_do_not_matter():
    script = Script()
    script.begin("r", "go")
    script.turn("r", 1, [Text("hm")], Usage(1, 1))
    script.add(ToolStarted("x", "direct", "read", "k", run_id="r"))
    script.add(ToolFinished("x", "direct", ToolResult("x", "direct", (Text("y"),)), 0.1, run_id="r"))
    script.add(ErrorRaised("E", "of a lost run", run_id="gone/c"), 1)
    script.add(ErrorRaised("E", "of a child", run_id="r/job"), 1)
    runs = script.live().runs
    assert [call.name for call in runs[0].turns[0].calls] == ["direct"]
    assert ([each.run_id for each in runs], [each.run_id for each in runs[0].background]) == (
        ["r", "gone/c"],
        ["r/job"],
    )


def test_a_long_session_is_a_long_tree():
    (run,) = long_session(300).stored().runs
    assert (len(run.turns), run.turns[-1].calls[0].status) == (300, "ok")


def test_a_request_that_is_repeated_with_another_model_costs_what_that_one_costs():
    script = Script()
    script.begin("r", "go")
    script.add(ModelRequested(1, model="dear", price_usd=(9e6, 9e6, None, None), run_id="r"))
    script.add(ModelRequested(1, attempt=2, model="cheap", price_usd=(1e6, 2e6, None, None), run_id="r"))
    script.add(MessageAdded(Message("assistant", (Text("hello"),), usage=Usage(3, 1)), run_id="r"), 1)
    (turn,) = script.stored().runs[0].turns
    assert (turn.model, turn.cost_usd) == ("cheap", 5.0)
