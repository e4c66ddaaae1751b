import msgspec
import pytest

from perdure import Message, Text, ToolCall, ToolResult, Usage, assistant, user
from perdure._tracing.collect.entry import NonEventTraceData
from perdure._tracing.view.builder import build_trace_tree
from perdure._tracing.view.trace import build_trace_entries
from perdure._tracing.view.tree import NOTICE_LIMIT, PROGRESS_LIMIT, flatten_runs
from perdure.events import (
    AutoContinued,
    CancelRequested,
    Compacted,
    CompactionStarted,
    EntriesLost,
    ErrorRaised,
    Event,
    FailedOver,
    GuardrailTripped,
    InboxAdded,
    InboxResolved,
    Lagged,
    LimitReached,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    PermissionDecided,
    QuestionAnswered,
    QuestionAsked,
    ReplyDiscarded,
    ReplyFinished,
    RetryScheduled,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionConfigured,
    SessionImported,
    SkillLoaded,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolsChanged,
    ToolStarted,
    ViewChanged,
    WatcherDropped,
)
from perdure.tracing import ContextItem, FirstDelta, TracedRun, TracedToolCall, TracedTurn, TraceNotice
from tests.tracing.sample_traces import PRICES, START, Script, coding_session, long_session


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


def everything() -> Script:
    """A run in which each entry comes a second after the one before it."""
    script = Script("s")
    script.begin("r", "Go.")
    price = (1e6, 1e6, None, None)
    settings = {"seed": 1}
    calls = (ToolCall("c", "look", "{}"), ToolCall("d", "ask", "[]"))
    events: list[Event] = [
        SkillLoaded("maps", "model", run_id="r"),
        ModelRequested(1, model="m", settings=settings, messages=1, estimated_tokens=9, prefix="a-b", run_id="r"),
        RetryScheduled(1, 4, 0.5, "E", "slow", run_id="r"),
        ModelRequested(1, model="n", provider="q", price_usd=price, run_id="r"),
        TextDelta("…", run_id="r"),
        TextDelta("…", run_id="r"),
        ReplyFinished(run_id="r"),
        MessageAdded(Message("assistant", (Text("Look."), *calls), usage=Usage(2, 1)), run_id="r"),
        PermissionDecided("c", "look", "look", "", "h", allow=True, by="Ann", run_id="r"),
        ToolStarted("c", "look", "read", "k", run_id="r"),
        ToolStarted("c", "look", "read", "k", run_id="r"),
        ToolProgress("c", "look", "half", run_id="r"),
        ToolFinished("c", "look", ToolResult("c", "look", (Text("seen"),)), 0.5, run_id="r"),
        ToolStarted("d", "ask", "idempotent", "k", attempt=4, run_id="r"),
        RunStarted("child", run_id="r/d", path="child"),
        ToolsChanged(("a", "b"), ("c",), run_id="r"),
        ViewChanged("tools", run_id="r"),
        Compacted(user("So far.", origin="summary"), 2, 1_000, run_id="r"),
        MessageAdded(user("More.", origin="steering"), run_id="r"),
        ModelRequested(2, model="m", attempt=3, run_id="r"),
        ModelRequested(7, model="side", aside=True, run_id="r"),
        ReplyDiscarded(7, "late", Message("assistant", (), usage=Usage(4, 4)), aside=True, run_id="r"),
        FailedOver("m", "n", "E", "down", run_id="r"),
        ReplyDiscarded(2, "cut_off", Message("assistant", (), usage=Usage(3, 3)), run_id="r"),
    ]
    for event in events:
        script.add(event, 1)
    return script


def at(second: float) -> float:
    return START + second


def test_a_tree_has_everything_in_its_place():
    reply = Message(
        "assistant",
        (Text("Look."), ToolCall("c", "look", "{}"), ToolCall("d", "ask", "[]")),
        usage=Usage(2, 1),
    )
    look = TracedToolCall(
        call_id="c",
        name="look",
        arguments="{}",
        effect="read",
        attempts=2,
        started_at=at(10),
        finished_at=at(13),
        duration_seconds=0.5,
        status="ok",
        result="seen",
        permission="allowed by Ann",
        progress=["half"],
        progress_count=1,
    )
    child = TracedRun(
        run_id="r/d", path="child", agent="child", engine="react", started_at=at(15), ended_at=at(15), cost_usd=0
    )
    ask = TracedToolCall(
        call_id="d", name="ask", arguments="[]", effect="idempotent", attempts=4, started_at=at(14), runs=[child]
    )
    first = TracedTurn(
        turn=1,
        run_id="r",
        path="",
        model="n",
        provider="q",
        settings={"seed": 1},
        prefix="a-b",
        messages=1,
        attempts=2,
        requested_at=at(2),
        first_delta_at=at(5),
        replied_at=at(7),
        ended_at=at(13),
        reply=reply,
        usage=Usage(2, 1),
        cost_usd=3.0,
        estimated_tokens=9,
        price_usd=(1e6, 1e6, None, None),
        entered=[ContextItem(at(0), "prompt", "user", "Go.", 3, user("Go."))],
        notices=[TraceNotice(at(3), "retry_scheduled", "attempt 1 of 4, again in 0.5 s: E: slow", is_problem=True)],
        calls=[look, ask],
        retries=1,
    )
    summary, more = user("So far.", origin="summary"), user("More.", origin="steering")
    second = TracedTurn(
        turn=2,
        run_id="r",
        path="",
        model="m",
        attempts=3,
        requested_at=at(20),
        replied_at=at(24),
        ended_at=at(24),
        usage=Usage(3, 3),
        entered=[
            ContextItem(at(8), "reply", "assistant", "Look.\n[call look {}]\n[call ask []]", 34, reply),
            ContextItem(at(13), "result of look", "tool", "seen", 4, None, "c"),
            ContextItem(at(18), "summary of 2 messages", "user", "So far.", 7, summary),
            ContextItem(at(19), "steering", "user", "More.", 5, more),
        ],
        changes=["tools"],
        added_tools=["a", "b"],
        removed_tools=["c"],
        notices=[
            TraceNotice(at(16), "tools_changed", "+a +b -c"),
            TraceNotice(at(17), "view_changed", "the prompt cache is missed: tools"),
            TraceNotice(at(18), "compacted", "2 messages replaced by a summary, 1,000 tokens are sent now"),
            TraceNotice(at(22), "reply_discarded", "late", is_problem=True),
            TraceNotice(at(23), "failed_over", "from m to n: E: down", is_problem=True),
            TraceNotice(at(24), "reply_discarded", "cut_off", is_problem=True),
        ],
        failovers=1,
    )
    aside = TracedTurn(
        turn=7,
        run_id="r",
        path="",
        model="side",
        is_aside=True,
        requested_at=at(21),
        replied_at=at(22),
        ended_at=at(22),
        usage=Usage(4, 4),
    )
    assert everything().live().runs == [
        TracedRun(
            run_id="r",
            agent="engineer",
            engine="react",
            started_at=at(0),
            ended_at=at(24),
            usage=Usage(9, 8),
            turns=[first, second, aside],
            notices=[TraceNotice(at(1), "skill_loaded", "maps, by model")],
        )
    ]


def test_a_run_that_has_ended_has_its_end_and_one_that_waits_its_reason():
    script = everything()
    script.add(RunEnded("failed", "limit", "Too long.", Usage(5, 5), cost_usd=0.25, run_id="r"), 1)
    script.add(ErrorRaised("E", "late", run_id="r"), 1)
    (run,) = script.live().runs
    assert (run.status, run.reason, run.error, run.usage, run.cost_usd, run.ended_at, run.duration_seconds) == (
        *("failed", "limit", "Too long.", Usage(5, 5), 0.25),
        *(at(25), 25.0),
    )
    script = everything()
    script.add(RunWaiting((), reason="question", run_id="r"), 1)
    script.add(ErrorRaised("E", "late", run_id="r"), 1)
    (run,) = script.live().runs
    assert (run.status, run.reason, run.usage, run.ended_at) == ("waiting", "question", Usage(9, 8), at(25))


def test_the_cost_of_an_open_run_is_that_of_its_turns_and_the_runs_below_it():
    script = Script()
    script.begin("r", "go")
    script.turn("r", 1, [ToolCall("c", "ask")], Usage(100, 10))
    script.begin("r/c", "look", "child", "child")
    script.turn("r/c", 1, [Text("hm")], Usage(50, 5), path="child")
    script.add(RunStarted("job", run_id="r/job", path="job"))
    script.turn("r/job", 1, [Text("hm")], Usage(20, 2), path="job")
    (run,) = script.live().runs
    assert run.usage == Usage(170, 17)
    assert run.cost_usd == pytest.approx(PRICES.cost_usd(Usage(170, 17)))


@pytest.mark.parametrize(
    ("event", "text", "is_problem"),
    [
        (AutoContinued(2), "asked to go on (2)", False),
        (CancelRequested("after_turn"), "cancel requested: after_turn", False),
        (CompactionStarted("limit", 12_345), "limit, at 12,345 tokens", False),
        (EntriesLost(3, 5), "entries 3 to 5 of the log were lost to damage", False),
        (ErrorRaised("E", "odd"), "E: odd", True),
        (ErrorRaised("E", "odd", "model"), "E: odd (in model)", True),
        (GuardrailTripped("repeat", 3, "nudge"), "repeat: nudge after 3", True),
        (InboxAdded("i", "approval", "Deploy?"), "waits for approval: Deploy?", False),
        (InboxResolved("i", {"ok": True}), 'i: {"ok":true}', False),
        (Lagged(7, 1), "7 events were missed", True),
        (LimitReached("max_turns"), "max_turns", True),
        (QuestionAnswered("q", "yes", "user"), "user: yes", False),
        (QuestionAnswered("q", "yes", "user", rejected="late"), "user: yes (declined: late)", False),
        (QuestionAsked("q", "permission", "May I?"), "permission: May I?", False),
        (RunResumed(), "the run goes on", False),
        (RunWaiting(()), "the run waits", False),
        (RunWaiting((), reason="shutdown"), "shutdown", False),
        (SessionConfigured({"title": "T"}), '{"title":"T"}', False),
        (SessionImported("digest", "s"), "from session s", False),
        (WatcherDropped("w", "E"), "w: E", True),
    ],
)
def test_an_event_beside_requests_and_calls_is_told_in_one_line(event, text, is_problem):
    script = Script()
    script.begin("r", "go")
    script.add(msgspec.structs.replace(event, run_id="r"), 1)
    kind = str(type(event).__struct_config__.tag)
    assert script.live().runs[0].notices == [TraceNotice(at(1), kind, text, is_problem)]


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        (PermissionDecided("c", "t", "t", "", "h", allow=True), "allowed"),
        (PermissionDecided("c", "t", "t", "", "h", allow=False, reason="no"), "denied: no"),
        (PermissionDecided("c", "t", "t", "", "h", allow=False, reason="no", by="Ann"), "denied by Ann: no"),
    ],
)
def test_a_decision_is_told_with_who_made_it_and_why(decision, told):
    script = Script()
    script.begin("r", "go")
    script.turn("r", 1, [ToolCall("c", "t")], Usage(1, 1))
    script.add(msgspec.structs.replace(decision, run_id="r"))
    assert script.live().runs[0].turns[0].calls[0].permission == told


def test_what_is_said_without_a_request_or_beside_one_is_no_reply():
    script = Script()
    script.begin("r", "go")
    script.add(MessageAdded(assistant("from before"), run_id="r"))
    script.add(ModelRequested(1, model="m", run_id="r"))
    script.add(MessageAdded(user("also this"), run_id="r"))
    script.add(MessageAdded(Message("assistant", (Text("as told"),), origin="steering"), run_id="r"))
    script.add(MessageAdded(assistant("done"), run_id="r"))
    script.add(MessageAdded(assistant("again"), run_id="r"))
    script.add(ModelRequested(2, model="m", run_id="r"))
    first, second = script.stored().runs[0].turns
    assert first.reply == assistant("done")
    assert [(each.reason, each.text) for each in first.entered] == [("prompt", "go"), ("assistant", "from before")]
    assert [(each.reason, each.text) for each in second.entered] == [
        ("prompt", "also this"),
        ("steering", "as told"),
        ("reply", "done"),
        ("assistant", "again"),
    ]


def test_only_the_first_piece_of_a_reply_counts_and_one_of_an_unknown_run_does_not_matter():
    events: list[tuple[float, Event | NonEventTraceData, int]] = [
        (1.0, SessionConfigured({"title": "T"}), 1),
        (1.0, FirstDelta("unknown"), 0),
        (1.0, ReplyFinished(run_id="other"), 0),
        (2.0, ModelRequested(1, model="m", run_id="r"), 2),
        (3.0, FirstDelta("r"), 0),
        (4.0, FirstDelta("r"), 0),
        (5.0, MessageAdded(assistant("done"), run_id="r"), 3),
        (6.0, ReplyFinished(run_id="r"), 0),
    ]
    other, run = build_trace_tree(build_trace_entries(events))
    assert (other.run_id, other.turns) == ("other", [])
    assert [(each.first_delta_at, each.replied_at) for each in run.turns] == [(3.0, 5.0)]


def test_a_run_of_a_model_that_is_free_costs_nothing_and_one_without_a_price_is_not_known():
    script = Script()
    script.begin("r", "go")
    script.add(ModelRequested(1, model="m", price_usd=(0.0, 0.0, None, None), run_id="r"))
    script.add(MessageAdded(Message("assistant", (Text("a"),), usage=Usage(3, 1)), run_id="r"))
    script.add(ModelRequested(2, model="m", run_id="r"))
    assert script.stored().runs[0].cost_usd == 0.0
    script.add(MessageAdded(Message("assistant", (Text("b"),), usage=Usage(3, 1)), run_id="r"))
    (run,) = script.stored().runs
    assert (run.cost_usd, run.usage) == (None, Usage(6, 2))
    assert [turn.context_tokens for turn in run.turns] == [3, 3]


def test_exactly_as_many_notices_are_kept_as_there_is_room_for():
    script = Script()
    script.begin("r", "go")
    for number in range(NOTICE_LIMIT + 1):
        script.add(ErrorRaised("E", str(number), run_id="r"))
    assert [each.text for each in script.live().runs[0].notices] == [f"E: {number}" for number in range(NOTICE_LIMIT)]


def test_runs_are_listed_before_those_below_them():
    script = Script()
    script.begin("r", "go")
    script.turn("r", 1, [ToolCall("c", "ask")], Usage(1, 1))
    for run_id, path in (("r/job", "job"), ("r/c", "child"), ("r/c/x", "child/x")):
        script.add(RunStarted("a", run_id=run_id, path=path))
    script.begin("s", "go")
    assert [each.run_id for each in flatten_runs(script.live().runs)] == ["r", "r/c", "r/c/x", "r/job", "s"]
