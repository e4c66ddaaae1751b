"""What a log amounts to: the same whether it is watched as it grows or read back, and never a broken conversation."""

from collections.abc import Iterable
from typing import NoReturn

import pytest
from msgspec.structs import replace

from perdure import Message, Status, Text, ToolCall, ToolResult, Usage, assistant, user
from perdure._core.log.fold import fold_events
from perdure._core.log.past_runs import PastRunTotals, RunWithInputId
from perdure._core.log.repair import INTERRUPTED_CALL_TEXT, NOT_STARTED_CALL_TEXT, build_repair_events
from perdure._core.values.clock import build_program_call_id
from perdure.engines import State, fold_entries
from perdure.events import (
    AnswerReviewed,
    Compacted,
    Custom,
    EntriesLost,
    Entry,
    Event,
    GrantRevoked,
    InboxAdded,
    InboxResolved,
    LimitReached,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    PermissionDecided,
    PlanMade,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    ReplyDiscarded,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionConfigured,
    SessionImported,
    SkillLoaded,
    SlotClosed,
    SlotOpened,
    SlotUpdated,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    ValueKept,
    ViewChanged,
)
from perdure.models import Price
from perdure.permissions import Scope
from tests.transcript import assert_valid


def folded(*events: Event) -> State:
    return fold_entries(Entry(place, 0.0, event) for place, event in enumerate(events, 1))


def reply(*call_ids: str, usage: Usage | None = None) -> Message:
    return assistant([ToolCall(call_id, "act") for call_id in call_ids], usage=usage)


def started(call_id: str, attempt: int = 1) -> ToolStarted:
    return ToolStarted(call_id, "act", "at_most_once", "", f"key-{call_id}", attempt, run_id="r1")


def finished(call_id: str, text: str = "done") -> ToolFinished:
    return ToolFinished(call_id, "act", ToolResult(call_id, "act", (Text(text),)), run_id="r1")


def decided(call_id: str, scope: Scope = "once") -> PermissionDecided:
    return PermissionDecided(call_id, "act", "act", "", "hash", allow=True, scope=scope)


START = (RunStarted("agent", run_id="r1"), MessageAdded(user("Go"), run_id="r1"), ModelRequested(1, run_id="r1"))


def words(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


# -- the transcript ----------------------------------------------------------------------------------------------------


def test_a_reply_with_calls_enters_the_transcript_together_with_its_results():
    state = folded(*START, MessageAdded(reply("a", "b")), started("a"), started("b"), finished("b", "second"))
    assert words(state.messages) == ["Go"]
    assert [call.call_id for call in state.unsettled_calls] == ["a"]
    assert state.unsettled_reply == reply("a", "b")
    state.apply(finished("a", "first"))
    assert_valid(state.messages)
    assert [result.text for result in state.messages[2].tool_results] == ["first", "second"]
    assert state.latest_results == state.messages[2].tool_results
    assert not any((state.unsettled_reply, state.unsettled_calls, state.open_calls, state.started_calls))


def test_a_reply_without_calls_is_the_answer_until_something_follows():
    state = folded(*START)
    assert state.answer is None
    state.apply(MessageAdded(assistant("Hello.")))
    assert state.answer == assistant("Hello.")
    state.apply(MessageAdded(user("And?")))
    assert state.answer is None


def test_an_answer_belongs_to_its_run():
    state = folded(*START, MessageAdded(assistant("Hello.")), RunEnded("done"), RunStarted(run_id="r2"))
    assert state.answer is None


def test_results_of_tools_are_not_an_answer():
    assert folded(*START, MessageAdded(reply("a")), finished("a")).answer is None


def test_a_result_of_a_call_that_no_reply_made_is_the_latest_and_nothing_else():
    state = folded(*START, started("direct"), finished("direct"))
    assert state.latest_result == finished("direct").result
    assert (words(state.messages), state.started_calls) == (["Go"], {})


def test_every_call_id_there_has_been_is_known():
    state = folded(*START, MessageAdded(reply("a")), finished("a"), MessageAdded(reply("b", "c")))
    assert state.call_ids == {"a", "b", "c"}


# -- counting ----------------------------------------------------------------------------------------------------------


def test_turns_attempts_calls_and_usage_are_counted():
    state = folded(
        *START,
        ModelRequested(1, 2),
        MessageAdded(reply("a", "b", usage=Usage(10, 1))),
        started("a"),
        started("b"),
        finished("a"),
        finished("b"),
        ModelRequested(2),
    )
    assert (state.turns, state.attempts, state.tool_calls, state.usage) == (2, 1, 2, Usage(10, 1))
    state.apply(MessageAdded(assistant("Done.", usage=Usage(5, 5))))
    assert (state.attempts, state.usage, state.usage) == (0, Usage(15, 6), Usage(15, 6))


def test_a_message_that_comes_while_a_reply_is_awaited_is_no_reply():
    state = folded(*START, ModelRequested(1), ModelRequested(1, 2), MessageAdded(user("Hurry.")))
    assert (state.turns, state.attempts) == (1, 2)


@pytest.mark.parametrize(
    "progress",
    [
        MessageAdded(user("Hurry.")),
        finished("a"),
        QuestionAnswered("q", answer=True),
        RunWaiting(("q",)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_progress_of_a_run_or_of_its_child_leaves_no_recovery_counted(progress):
    state = folded(*START, MessageAdded(reply("a")), started("a"), RunResumed(), RunResumed())
    assert state.recoveries == 2
    state.apply(progress)
    assert state.recoveries == 0
    state.apply(RunResumed())
    assert state.recoveries == 1


def test_a_call_that_is_started_again_after_a_crash_counts_once():
    state = folded(*START, MessageAdded(reply("a")), started("a"), started("a", 2))
    assert (state.tool_calls, state.started_calls["a"].attempt) == (1, 2)


def test_a_new_run_counts_anew_and_the_transcript_goes_on():
    state = folded(
        *START,
        MessageAdded(assistant("Hello.", usage=Usage(10, 1))),
        RunEnded("done", run_id="r1"),
        RunStarted(run_id="r2"),
    )
    assert (state.turns, state.attempts, state.tool_calls, state.usage, state.first_message_index) == (
        0,
        0,
        0,
        Usage(),
        2,
    )
    assert state.run == RunStarted(run_id="r2")
    assert state.run_ended_event is None


def test_a_run_is_interrupted_from_its_start_to_its_end():
    state = State()
    assert not state.is_interrupted
    state.apply(START[0])
    assert state.is_interrupted
    state.apply(RunResumed(run_id="r1"))
    assert state.is_interrupted
    state.apply(RunEnded("done"))
    assert not state.is_interrupted


def test_events_of_other_agents_and_of_other_kinds_change_nothing():
    state = folded(
        *START, MessageAdded(assistant("Child."), path="child"), Custom("note"), RunEnded("done", path="child")
    )
    assert (words(state.messages), state.is_interrupted) == (["Go"], True)


def test_verdicts_are_known_until_their_call_is_settled_and_longer_ones_for_good():
    state = folded(*START, MessageAdded(reply("a", "b")), decided("a"), decided("b", "session"))
    assert set(state.decisions) == {"a", "b"}
    state.apply(finished("a"))
    state.apply(finished("b"))
    assert (state.decisions, state.remembered_decisions) == ({}, [decided("b", "session")])


# -- repairs -----------------------------------------------------------------------------------------------------------


def repaired(*events: Event) -> State:
    state = folded(*events)
    for event in build_repair_events(state):
        state.apply(event)
    assert build_repair_events(state) == []
    assert_valid(state.messages)
    assert not state.is_interrupted
    return state


def test_a_log_in_good_order_needs_no_repair():
    assert build_repair_events(State()) == []
    assert build_repair_events(folded(*START, MessageAdded(assistant("Hello.")), RunEnded("done"))) == []


def test_a_started_call_that_only_reads_may_be_repeated():
    state = repaired(*START, MessageAdded(reply("a")), ToolStarted("a", "look", "read", "key"))
    assert [(result.status, result.text) for result in state.messages[2].tool_results] == [
        (Status.UNKNOWN, "The runtime stopped while this ran. It only reads, and changes nothing: it can be repeated.")
    ]


def test_started_calls_become_unknown_and_others_say_that_they_never_began():
    state = repaired(*START, MessageAdded(reply("a", "b", "c")), started("a"), started("b"), finished("b"))
    results = state.messages[2].tool_results
    assert [(result.status, result.text) for result in results] == [
        (Status.UNKNOWN, INTERRUPTED_CALL_TEXT),
        (Status.OK, "done"),
        (Status.CANCELLED_BEFORE_START, NOT_STARTED_CALL_TEXT),
    ]


def test_a_run_that_was_cut_off_is_closed_with_what_it_used():
    events = build_repair_events(folded(*START, MessageAdded(assistant("Hello.", usage=Usage(3, 4)))))
    assert events == [RunEnded("failed", "interrupted", "the process ended", Usage(3, 4), turns=1, run_id="r1")]


def test_a_call_that_no_reply_made_is_settled_too():
    state = repaired(RunStarted(run_id="r1"), started("direct"))
    assert state.latest_result is not None
    assert (state.latest_result.call_id, state.latest_result.status, state.started_calls) == (
        "direct",
        Status.UNKNOWN,
        {},
    )


def test_calls_that_a_run_left_open_when_it_failed_are_settled():
    events = build_repair_events(folded(*START, MessageAdded(reply("a")), RunEnded("failed")))
    assert [type(event) for event in events] == [ToolFinished]


def test_repairs_belong_to_the_run_they_repair():
    events = build_repair_events(folded(*START, MessageAdded(reply("a")), started("a")))
    assert {event.run_id for event in events} == {"r1"}


# -- what tools leave, show and ask ------------------------------------------------------------------------------------


def test_of_what_tools_leave_under_a_name_the_last_counts():
    state = folded(ValueKept("tasks", [1]), ValueKept("notes", "a"), ValueKept("tasks", [1, 2]))
    assert state.kept_values == {"tasks": [1, 2], "notes": "a"}


def test_a_slot_is_shown_until_it_is_closed_and_may_change():
    state = folded(SlotOpened("s1", "progress", {"done": 1}), SlotUpdated("s1", {"done": 2}), SlotUpdated("s2", {}))
    assert state.slots["s1"].input == {"done": 2}
    state.apply(SlotClosed("s1"))
    assert state.slots == {}


@pytest.mark.parametrize(
    ("until", "after_call", "after_run"), [("closed", True, True), ("call", False, False), ("run", True, False)]
)
def test_a_slot_may_be_shown_only_as_long_as_its_call_or_its_run(until, after_call, after_run):
    slot = SlotOpened("s1", "text", "hello", "a", until, run_id="r1")
    state = folded(*START, MessageAdded(reply("a")), started("a"), slot, finished("a"))
    assert ("s1" in state.slots) == after_call
    state.apply(RunEnded("done", run_id="r1"))
    assert ("s1" in state.slots) == after_run


def test_a_question_that_is_withdrawn_is_open_no_more():
    state = folded(*START, QuestionAsked("q1", "slot", "Which?"), QuestionWithdrawn("q1", "the call is over"))
    assert state.open_questions == []


def test_a_call_that_is_repaired_does_not_wait_for_its_answers():
    asked = QuestionAsked("q1", "slot", "Which?", ({"call_id": "a", "tool": "act", "place": 1},), run_id="r1")
    other = QuestionAsked("q2", "slot", "What?", ({"call_id": "b", "tool": "act", "place": 1},), run_id="r1")
    state = folded(*START, MessageAdded(reply("a")), started("a"), asked, other)
    withdrawn = [event for event in build_repair_events(state) if isinstance(event, QuestionWithdrawn)]
    assert [each.ask_id for each in withdrawn] == ["q1"]
    assert "unknown" in withdrawn[0].reason


def test_skills_settings_and_grants_of_a_session_are_known():
    state = folded(
        SkillLoaded("pdf"), SessionConfigured({"role": "critic"}), decided("a", "session"), GrantRevoked("grant_1")
    )
    assert (list(state.skills), state.settings) == (["pdf"], {"role": "critic"})
    state.apply(SessionConfigured({"role": "clerk", "for": "billing"}))
    assert (state.settings, state.settings_by_agent) == ({"role": "critic"}, {"billing": {"role": "clerk"}})
    assert state.remembered_decisions == [decided("a", "session"), GrantRevoked("grant_1")]


# -- what the model is sent --------------------------------------------------------------------------------------------


def test_after_a_compaction_the_model_is_sent_the_summary_and_what_came_later():
    state = folded(*[MessageAdded(user(word)) for word in ("one", "two", "three")])
    state.apply(Compacted(user("sum"), 2, usage=Usage(5, 2)))
    state.apply(MessageAdded(user("four")))
    assert words(state.view) == ["sum", "three", "four"]
    assert words(state.messages) == ["one", "two", "three", "four"]
    assert state.usage == Usage(5, 2)


def test_turns_are_counted_since_the_last_compaction():
    state = folded(*START, MessageAdded(assistant("a")), ModelRequested(2), ModelRequested(2, 2))
    assert state.view_turns == 2
    state.apply(Compacted(user("sum"), 1))
    assert state.view_turns == 0


def test_it_is_known_whether_a_change_of_the_view_was_told_since_the_last_request():
    state = folded(*START)
    state.apply(ViewChanged("tools"))
    assert state.view_changed
    state.apply(ModelRequested(2))
    assert not state.view_changed


# -- children ----------------------------------------------------------------------------------------------------------


def test_the_events_of_a_child_make_a_state_of_its_own():
    state = folded(
        *START,
        RunStarted("child", run_id="r2", path="a"),
        MessageAdded(user("Do it"), path="a"),
        RunStarted("grandchild", run_id="r3", path="a/b"),
        MessageAdded(user("Deeper"), path="a/b"),
    )
    assert (words(state.messages), words(state.children["a"].messages)) == (["Go"], ["Do it"])
    assert state.children["a/b"].parent is state.children["a"]
    assert words(state.children["a"].get_child("a/b").messages) == ["Deeper"]


def test_what_a_child_uses_counts_for_all_above_it():
    state = folded(
        *START,
        RunStarted("child", path="a"),
        RunStarted("grandchild", path="a/b"),
        MessageAdded(assistant("deep", usage=Usage(10, 1)), path="a/b"),
        RunEnded("done", cost_usd=0.5, path="a/b"),
        MessageAdded(assistant("done", usage=Usage(5, 1)), path="a"),
        RunEnded("done", cost_usd=0.75, path="a"),
        MessageAdded(assistant("end", usage=Usage(1, 1))),
    )
    assert (state.usage, state.own_usage) == (Usage(16, 3), Usage(1, 1))
    assert (state.children["a"].usage, state.children_usd) == (Usage(15, 2), 0.75)
    state.apply(RunStarted("agent", run_id="r2"))
    assert (state.usage, state.children_usd) == (Usage(), 0.0)


def test_the_end_of_a_child_closes_its_own_questions_alone():
    state = folded(
        *START,
        QuestionAsked("q1", "permission"),
        RunStarted("child", path="a"),
        QuestionAsked("q2", "permission", path="a"),
        QuestionAnswered("q2", path="a"),
    )
    assert [each.ask_id for each in state.open_questions] == ["q1"]
    assert state.children["a"].questions_by_id is state.questions_by_id
    state.apply(RunEnded("done", path="a"))
    assert (list(state.questions_by_id), state.answers_by_question) == (["q1"], {})
    state.apply(RunEnded("done"))
    assert state.questions_by_id == {}


def test_repairs_settle_children_first_and_find_nothing_the_second_time():
    state = folded(
        *START,
        MessageAdded(reply("a")),
        RunStarted("child", run_id="r2", path="a"),
        MessageAdded(user("Do it"), path="a"),
        MessageAdded(reply("c"), path="a"),
        ToolStarted("c", "act", "at_most_once", "", run_id="r2", path="a"),
    )
    events = build_repair_events(state)
    assert [(type(each).__name__, each.path) for each in events] == [
        ("ToolFinished", "a"),
        ("RunEnded", "a"),
        ("ToolFinished", ""),
        ("RunEnded", ""),
    ]
    for event in events:
        state.apply(event)
    assert build_repair_events(state) == []
    assert_valid(state.messages)
    assert_valid(state.children["a"].messages)


class Unwalked(dict[str, State]):
    """Children of which there may be thousands: looked up, never gone through."""

    def _refuse(self) -> NoReturn:
        raise AssertionError("all children were gone through")

    values = items = keys = __iter__ = _refuse


def test_children_that_are_done_are_not_gone_through_again():
    state = State()
    state.children = Unwalked()
    for event in START:
        state.apply(event)
    for number in range(3):
        state.apply(MessageAdded(reply(f"c{number}")))
        state.apply(RunStarted("child", input_id=f"c{number}", path=f"a{number}"))
        assert (state.begun_call_ids, list(state.open_children)) == (frozenset({f"c{number}"}), [f"a{number}"])
        state.apply(RunEnded("done", path=f"a{number}"))
        assert (state.begun_call_ids, state.open_children) == (
            frozenset({f"c{number}"}),
            dict[str, State](),
        )  # its result is not there yet
        result = ToolResult(f"c{number}", "act", (Text("ok"),))
        state.apply(ToolFinished(f"c{number}", "act", result))
    assert (state.begun_call_ids, state.child_paths_by_call) == (frozenset(), {})
    assert [type(each) for each in build_repair_events(state)] == [RunEnded]


def test_what_was_used_in_a_session_of_its_own_counts_when_its_end_is_told():
    state = folded(
        *START,
        SubagentStarted("c1", "scout", "Go.", "s/scout-1"),
        SubagentStarted("c2", "scout", "Go.", "s/scout-2"),
        SubagentFinished("c1", "scout", "done", "It is x.", Usage(10, 1), 0.5),
        SubagentFinished("c2", "scout", "done", "It is y.", Usage(5, 1)),
    )
    assert (state.usage, state.own_usage, state.children_usd) == (Usage(15, 2), Usage(), 0.5)
    assert state.subagents == {}


# -- inbox items of subagents ------------------------------------------------------------------------------------------


def test_the_result_of_an_inbox_item_is_for_whoever_added_it_or_the_nearest_agent_above_that_works():
    state = State()
    for path in ("", "a", "a/b"):
        state.apply(RunStarted(run_id=path or "r", path=path))
    own, child, deep = (
        InboxAdded("i0", "t", "q"),
        InboxAdded("i1", "t", "q", path="a"),
        InboxAdded("i2", "t", "q", path="a/b"),
    )
    for event in (own, child, deep):
        state.apply(event)
    a, b = state.children["a"], state.children["a/b"]

    def recipients(item_id: str) -> list[str]:
        return [each.path for each in (state, a, b) if each.receives_inbox_result(item_id)]

    assert [recipients(each) for each in ("i0", "i1", "i2", "unknown")] == [[""], ["a"], ["a/b"], [""]]
    state.apply(RunEnded("done", run_id="a/b", path="a/b"))
    assert [recipients(each) for each in ("i1", "i2")] == [["a"], ["a"]]
    state.apply(RunEnded("done", run_id="a", path="a"))
    assert [recipients(each) for each in ("i1", "i2")] == [[""], [""]]
    assert state.session_inbox == b.session_inbox == {"i0": own, "i1": child, "i2": deep}


def test_an_inbox_item_is_resolved_by_whichever_agent_is_told():
    state = State()
    state.apply(InboxAdded("i1", "t", "q", path="a"))
    state.apply(InboxResolved("i1", "built"))
    state.apply(InboxResolved("i2", "of an item that is not known"))
    assert not state.session_inbox


def test_open_calls_are_repaired_with_work_in_proportion(monkeypatch):
    looked: list[int] = []
    begun = State.begun_call_ids
    assert isinstance(begun, property)
    monkeypatch.setattr(State, "begun_call_ids", property(lambda state: looked.append(1) or begun.__get__(state)))
    state = State()
    state.apply(MessageAdded(Message("assistant", tuple([ToolCall(f"c{n}", "f", "{}") for n in range(50)]))))
    assert len(build_repair_events(state)) == 50
    assert len(looked) == 1


# -- a parked run that is taken up again -------------------------------------------------------------------------------


@pytest.mark.parametrize("input_id", ["", "mail-1"])
def test_a_parked_run_that_is_resumed_is_not_over(input_id):
    state = State()
    state.apply(RunStarted(run_id="r", input_id=input_id))
    for _ in range(3):
        state.apply(RunResumed(run_id="r"))
    state.apply(RunEnded("parked", "crash_loop", run_id="r"))
    assert state.is_parked
    state.apply(RunResumed(run_id="r"))
    assert (state.is_parked, state.is_interrupted, state.recoveries) == (False, True, 1)
    assert [past.run_ended_event for past in state.runs_by_input_id.values()] == [None] * bool(input_id)


def test_a_run_that_ended_otherwise_stays_over():
    state = State()
    for event in (RunStarted(run_id="r"), RunEnded("done", run_id="r"), RunResumed(run_id="r")):
        state.apply(event)
    assert not state.is_interrupted


# -- requests that a crash left without a reply ------------------------------------------------------------------------


def sent(tokens: int = 100, path: str = "") -> ModelRequested:
    return ModelRequested(1, estimated_tokens=tokens, run_id="r", path=path)


def test_a_request_that_a_crash_left_without_a_reply_counts_with_its_estimate():
    state = State()
    for event in (RunStarted(run_id="r"), sent()):
        state.apply(event)
    assert (state.usage.total_tokens, state.unanswered_usage.total_tokens) == (0, 100)
    state.apply(RunResumed(run_id="r"))
    state.apply(sent(120))
    state.apply(RunResumed(run_id="r"))
    assert (state.usage, state.unanswered_usage.total_tokens) == (Usage(220, precision="estimated"), 0)


@pytest.mark.parametrize("reason", ["interrupted", "crash_loop", "cancelled"])
def test_the_end_of_a_run_after_a_crash_counts_it_and_any_other_end_does_not(reason):
    state = State()
    for event in (RunStarted(run_id="r"), sent(), RunStarted(run_id="r/c", path="c"), sent(30, "c")):
        state.apply(event)
    ending = ("failed", reason, "")
    ends = [each for each in build_repair_events(state, ending) if isinstance(each, RunEnded)]
    for end in ends:
        state.apply(end)
    counted = [30, 130] if reason != "cancelled" else [0, 0]
    assert [each.usage.total_tokens for each in ends] == counted
    assert state.usage.total_tokens == counted[1]
    assert state.unanswered_usage.total_tokens == 0


def test_a_request_that_was_answered_or_discarded_or_has_no_estimate_does_not_count():
    reply = Message("assistant", (Text("Hello."),), usage=Usage(90, 5))
    for after in (MessageAdded(reply), ReplyDiscarded(1, "error", None)):
        state = State()
        for event in (RunStarted(run_id="r"), sent(), after, RunResumed(run_id="r")):
            state.apply(event)
        assert state.usage.precision == "exact"
    state = State()
    for event in (RunStarted(run_id="r"), sent(0), RunResumed(run_id="r")):
        state.apply(event)
    assert state.usage == Usage()


# -- totals of a session -----------------------------------------------------------------------------------------------


def run_events(run_id: str, tokens: int, cost_usd: float | None) -> list[Event]:
    usage = Usage(tokens)
    return [
        RunStarted(run_id=run_id),
        ModelRequested(1, run_id=run_id),
        MessageAdded(assistant("Yes.", usage=usage), run_id=run_id),
        RunEnded("done", usage=usage, cost_usd=cost_usd, turns=1, run_id=run_id),
    ]


@pytest.mark.parametrize(
    ("costs", "total"), [([], 0.0), ([0.5], 0.5), ([0.5, 0.25, 0.25], 1.0), ([None, 0.5], None), ([0.5, None], None)]
)
def test_tokens_turns_and_cost_of_all_runs_add_up(costs, total):
    events = [event for place, cost in enumerate(costs) for event in run_events(f"r{place}", 10, cost)]
    state = fold_events(events)
    assert (state.total_usage.input_tokens, state.total_turns, state.total_usd) == (10 * len(costs), len(costs), total)


def test_a_run_without_tokens_costs_nothing_although_its_price_is_unknown():
    ended = RunEnded("cancelled", run_id="r")
    assert fold_events([RunStarted(run_id="r"), ended, RunStarted(run_id="q")]).total_usd == 0.0


def test_words_of_the_assistant_that_a_host_has_sent_are_no_answer():
    said = Message("assistant", (Text("Welcome."),), origin="steering")
    state = fold_events([RunStarted(run_id="r"), MessageAdded(user("Hi"), run_id="r"), MessageAdded(said, run_id="r")])
    assert state.answer is None
    assert state.last_reply is None
    assert state.is_steered


def test_a_new_run_begins_without_the_direct_results_and_the_requests_aside_of_the_run_before():
    aside = ModelRequested(1, 1, "m", "p", {}, "", 1, aside=True, run_id="r1")
    before = (RunStarted("agent", run_id="r1"), aside, finished("direct"))
    state = folded(*before)
    assert (list(state.aside_requests), list(state.direct_results)) == ([1], ["direct"])
    ended = folded(*before, RunEnded("done", run_id="r1"))
    assert (ended.aside_requests, list(ended.direct_results)) == ({}, ["direct"])
    again = folded(*before, RunStarted("agent", run_id="r2"))
    assert (again.aside_requests, again.direct_results) == ({}, {})


def test_a_call_is_settled_by_its_result_whether_it_is_alone_or_one_of_several():
    one = folded(MessageAdded(reply("a")), finished("a"))
    several = folded(MessageAdded(reply("a", "b")), finished("b"), finished("a"))
    half = folded(MessageAdded(reply("a", "b")), finished("b"))
    assert [[each.call_id for each in state.latest_results] for state in (one, several, half)] == [
        ["a"],
        ["a", "b"],
        [],
    ]
    assert [len(state.messages) for state in (one, several, half)] == [2, 2, 0]
    assert [list(state.results) for state in (one, several, half)] == [[], [], ["b"]]
    assert [len(state.unsettled_calls) for state in (one, several, half)] == [0, 0, 1]


def test_the_calls_of_a_run_are_counted_from_none_on():
    assert folded().tool_calls == 0
    assert folded(*START, MessageAdded(reply("a", "b")), started("a")).tool_calls == 1
    assert folded(*START, MessageAdded(reply("a", "b")), started("a"), started("b")).tool_calls == 2
    assert folded(*START, MessageAdded(reply("a")), SubagentStarted("a", "scout", "Look.", run_id="r1")).tool_calls == 1


def test_a_child_whose_cost_is_not_known_adds_none_to_that_of_its_parent():
    task = SubagentStarted("c1", "scout", "Go.", "scout", run_id="r1")
    began = RunStarted("scout", input_id="c1", run_id="r1/c1", path="scout")
    for cost, total in ((None, 0.0), (0.0, 0.0), (0.25, 0.25)):
        state = folded(
            RunStarted(run_id="r1"), task, began, RunEnded("done", cost_usd=cost, run_id="r1/c1", path="scout")
        )
        assert state.children_usd == total


# -- every field -------------------------------------------------------------------------------------------------------

OF_A_RUN: dict[str, object] = {
    "run": None,
    "run_ended_event": None,
    "first_message_index": 0,
    "turns": 0,
    "attempts": 0,
    "tool_calls": 0,
    "unanswered_request": None,
    "aside_requests": {},
    "children_usd": 0.0,
    "price_usd": (),
    "direct_results": {},
    "is_waiting": False,
    "recoveries": 0,
    "has_lost_entries": False,
    "engine_steps": [],
    "reached_limit": "",
    "own_usage": Usage(),
    "usage": Usage(),
    "answer": None,
    "last_reply": None,
    "is_interrupted": False,
    "is_private": False,
    "is_parked": False,
    "unanswered_requests": [],
    "unanswered_usage": Usage(),
}
"""What a state says of the current run, as it is before the first one."""

OF_A_SESSION: dict[str, object] = {
    "path": "",
    "parent": None,
    "children": {},
    "open_children": {},
    "child_paths_by_call": {},
    "messages": [],
    "view": [],
    "call_ids": set(),
    "first_run_id": "",
    "view_turns": 0,
    "view_changed": False,
    "last_request": None,
    "unsettled_reply": None,
    "open_calls": {},
    "results": {},
    "started_calls": {},
    "subagents": {},
    "latest_result": None,
    "latest_results": (),
    "decisions": {},
    "remembered_decisions": [],
    "questions_by_id": {},
    "answers_by_question": {},
    "slots": {},
    "may_have_lost_runs": False,
    "inbox": {},
    "runs_by_input_id": {},
    "kept_values": {},
    "skills": {},
    "settings": {},
    "settings_by_agent": {},
    "labels": {},
    "imports": [],
    "past": PastRunTotals(),
    "total_usage": Usage(),
    "total_turns": 0,
    "total_usd": 0.0,
    "is_steered": False,
    "open_questions": [],
    "unsettled_calls": [],
    "begun_call_ids": frozenset(),
    "session_inbox": {},
}


def look(state: State, names: Iterable[str]) -> dict[str, object]:
    return {name: getattr(state, name) for name in names}


def test_a_log_without_events_is_a_session_in_which_nothing_has_happened() -> None:
    expected = OF_A_RUN | OF_A_SESSION
    assert look(fold_events([]), expected) == expected
    assert {name for name in State.__slots__ if not name.startswith("_")} - {*expected} == {"transcript"}


def test_of_the_run_before_a_new_run_keeps_nothing() -> None:
    aside = ModelRequested(2, aside=True, estimated_tokens=7, price_usd=(1.0, 2.0), run_id="r1")
    first = (
        RunStarted("agent", run_id="r1"),
        MessageAdded(user("Go"), run_id="r1"),
        ModelRequested(1, 3, estimated_tokens=5, price_usd=(1.0, 2.0), run_id="r1"),
        aside,
        ReplyDiscarded(1, "error", assistant("Well", usage=Usage(9, 9)), run_id="r1"),
        SubagentFinished("c1", "scout", "done", "", Usage(3, 1), 0.5, run_id="r1"),
        started("direct"),
        finished("direct"),
        RunWaiting(("q",), run_id="r1"),
        PlanMade((), run_id="r1"),
        AnswerReviewed("Good.", run_id="r1"),
        LimitReached("max_turns", run_id="r1"),
        EntriesLost(3, 4, run_id="r1"),
    )
    state = folded(*first)
    assert look(state, OF_A_RUN) == OF_A_RUN | {
        "run": first[0],
        "is_interrupted": True,
        "turns": 2,
        "attempts": 3,
        "tool_calls": 1,
        "aside_requests": {2: aside},
        "children_usd": 0.5,
        "price_usd": (1.0, 2.0),
        "direct_results": {"direct": finished("direct").result},
        "is_waiting": True,
        "has_lost_entries": True,
        "engine_steps": [PlanMade((), run_id="r1"), AnswerReviewed("Good.", run_id="r1")],
        "reached_limit": "max_turns",
        "own_usage": Usage(9, 9),
        "usage": Usage(12, 10),
        "unanswered_requests": [aside],
        "unanswered_usage": Usage(7, precision="estimated"),
    }
    state.apply(RunResumed(run_id="r1"))
    assert (state.is_waiting, state.recoveries, state.unanswered_requests) == (False, 1, [])
    second = RunStarted("agent", run_id="r2")
    state.apply(second)
    assert look(state, OF_A_RUN) == OF_A_RUN | {"run": second, "is_interrupted": True, "first_message_index": 1}
    assert (state.first_run_id, state.total_turns, state.total_usage.input_tokens) == ("r1", 2, 19)


# -- inputs with an id -------------------------------------------------------------------------------------------------


def test_a_run_is_found_by_the_id_of_its_input_with_its_messages_and_its_end() -> None:
    ended = RunEnded("done", run_id="r2")
    state = folded(
        *START,
        MessageAdded(assistant("Hello.")),
        RunEnded("done", run_id="r1"),
        RunStarted(run_id="r2", input_id="mail-1"),
        MessageAdded(user("Go on")),
    )
    assert state.runs_by_input_id == {"mail-1": RunWithInputId("r2", 2)}
    state.apply(MessageAdded(assistant("Done.")))
    state.apply(ended)
    assert state.runs_by_input_id == {"mail-1": RunWithInputId("r2", 2, 4, ended)}


@pytest.mark.parametrize("private", [False, True])
def test_a_child_carries_out_the_call_that_is_its_input_unless_it_is_private(private: bool) -> None:
    began = RunStarted("child", input_id="c1", private=private, run_id="r2", path="a")
    state = folded(*START, MessageAdded(reply("c1")), began)
    assert state.child_paths_by_call == ({} if private else {"c1": "a"})
    assert state.begun_call_ids == frozenset(() if private else ("c1",))
    assert state.open_children == {"a": state.children["a"]}
    state.apply(RunEnded("done", run_id="r2", path="a"))
    assert state.open_children == {}
    assert folded(*START, RunStarted("child", run_id="r2", path="a")).child_paths_by_call == {}


# -- private runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("private", [False, True])
def test_turns_calls_and_labels_of_a_private_run_count_for_the_run_above(private: bool) -> None:
    seen = ToolResult("a", "act", (Text("x"),), labels=("secret",))
    state = folded(
        *START,
        RunStarted("planner", private=private, run_id="r2", path="plan"),
        ModelRequested(1, path="plan"),
        ModelRequested(1, 2, path="plan"),
        MessageAdded(reply("a", "b"), path="plan"),
        ToolStarted("a", "act", "pure", "", "key", 1, path="plan"),
        ToolStarted("a", "act", "pure", "", "key", 2, path="plan"),
        ToolFinished("a", "act", seen, path="plan"),
        SubagentStarted("b", "scout", "Look.", path="plan"),
        finished("b"),
        ToolFinished("b", "act", ToolResult("b", "act", ()), path="plan"),
        ModelRequested(2, path="plan"),
    )
    child = state.children["plan"]
    assert (child.is_private, child.turns, child.tool_calls, child.labels) == (private, 2, 2, {"secret": ("tool:act",)})
    assert (state.turns, state.tool_calls, state.labels) == ((3, 2, child.labels) if private else (1, 0, {}))


# -- requests aside ----------------------------------------------------------------------------------------------------


def test_a_request_aside_is_a_turn_that_changes_nothing_of_the_conversation() -> None:
    aside = ModelRequested(2, aside=True, estimated_tokens=20, price_usd=(3.0, 4.0))
    asked = ModelRequested(1, estimated_tokens=10)
    state = folded(RunStarted(run_id="r1"), asked, ViewChanged("tools"), aside)
    assert (state.turns, state.attempts, state.view_turns, state.view_changed) == (2, 1, 1, True)
    assert (state.last_request, state.unanswered_requests, state.price_usd) == (asked, [asked, aside], (3.0, 4.0))
    assert state.unanswered_usage == Usage(30, precision="estimated")
    again = ModelRequested(1, 2)
    state.apply(again)
    assert (state.turns, state.attempts, state.view_turns, state.view_changed) == (2, 2, 1, False)
    assert (state.last_request, state.unanswered_requests, state.price_usd) == (again, [again, aside], ())


@pytest.mark.parametrize("usage", [None, Usage(4, 2)])
def test_a_request_aside_is_answered_or_discarded_with_its_tokens(usage: Usage | None) -> None:
    asked, aside = ModelRequested(1), ModelRequested(2, aside=True)
    for after in (
        ModelReplied(2, assistant("Sum.", usage=usage)),
        ReplyDiscarded(2, "error", assistant("Su", usage=usage), aside=True),
    ):
        state = folded(RunStarted(run_id="r1"), asked, aside, after)
        assert (state.unanswered_requests, state.usage, words(state.messages)) == ([asked], usage or Usage(), [])
    assert folded(RunStarted(run_id="r1"), asked, aside, ReplyDiscarded(2, "error", aside=True)).usage == Usage()
    assert folded(asked, aside, ReplyDiscarded(1, "error", None)).unanswered_requests == [aside]
    assert folded(ReplyDiscarded(1, "error"), ModelReplied(1, assistant("Sum."))).unanswered_requests == []


def test_an_answer_aside_in_a_child_is_progress_of_all_above_it() -> None:
    state = folded(*START, RunStarted(path="a"), RunStarted(path="a/b"))
    everyone = (state, state.children["a"], state.children["a/b"])
    for event in (
        ModelReplied(1, assistant("Sum."), path="a/b"),
        MessageAdded(user("Go on"), path="a/b"),
        ToolFinished("x", "act", ToolResult("x", "act", ()), path="a/b"),
        RunWaiting(("q",), path="a/b"),
        QuestionAnswered("q", path="a/b"),
    ):
        for path in ("", "a", "a/b"):
            state.apply(RunResumed(path=path))
        assert [each.recoveries for each in everyone] == [1, 1, 1]
        state.apply(event)
        assert [each.recoveries for each in everyone] == [0, 0, 0]


def test_estimates_of_children_in_progress_are_added() -> None:
    asked = [ModelRequested(1, estimated_tokens=tokens, path=path) for path, tokens in (("", 1), ("a", 20), ("b", 300))]
    state = folded(RunStarted(), RunStarted(path="a"), RunStarted(path="b"), *asked)
    assert (state.own_unanswered_usage.input_tokens, state.unanswered_usage.input_tokens) == (1, 321)
    state.apply(RunEnded("done", path="b"))
    assert state.unanswered_usage.input_tokens == 21


# -- costs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usages", "with_price", "without_price"),
    [
        ((Usage(1_000_000, reported_usd=0.5), Usage(1_000_000, reported_usd=0.25)), 0.75, 0.75),
        ((Usage(1_000_000), Usage(2_000_000)), 6.0, None),
        ((Usage(1_000_000, reported_usd=0.5), Usage(2_000_000)), 4.5, None),
    ],
)
def test_a_run_costs_what_was_reported_and_the_price_of_the_rest(
    usages: tuple[Usage, ...], with_price: float, without_price: float | None
) -> None:
    state = folded(*START, *[MessageAdded(assistant("Yes.", usage=usage)) for usage in usages])
    assert (state.own_cost_usd(Price(input_usd=2.0, output_usd=8.0)), state.own_cost_usd(None)) == (
        with_price,
        without_price,
    )


def test_the_cost_of_a_run_that_is_not_over_counts_if_its_price_is_known() -> None:
    events = [*run_events("r1", 10, 0.5), RunStarted(run_id="r2")]
    said = MessageAdded(assistant("Yes.", usage=Usage(1_000_000)))
    known = fold_events([*events, ModelRequested(1, price_usd=(2.0, 8.0, None, None)), said])
    unknown = fold_events([*events, ModelRequested(1), said])
    assert (known.total_usd, unknown.total_usd) == (2.5, None)
    assert (known.total_usage, known.total_turns) == (Usage(1_000_010), 2)


# -- the last reply ----------------------------------------------------------------------------------------------------


def test_the_last_reply_is_known_while_its_calls_run_and_until_the_next_request() -> None:
    state = folded(*START)
    done = assistant("Done.")
    for event, last_reply, answer in (
        (Custom("note"), None, None),
        (MessageAdded(reply("a")), reply("a"), None),
        (finished("a"), reply("a"), None),
        (ModelRequested(2), None, None),
        (MessageAdded(done), done, done),
        (MessageAdded(Message("user", (Text("Stop"),), origin="steering")), None, None),
        (RunStarted(run_id="r2"), None, None),
    ):
        state.apply(event)
        assert look(state, ("last_reply", "answer")) == {"last_reply": last_reply, "answer": answer}


# -- labels ------------------------------------------------------------------------------------------------------------


def test_each_label_has_the_first_twenty_sources_of_its_texts() -> None:
    state = folded(*START)
    for number in range(25):
        call = f"c{number}"
        state.apply(MessageAdded(assistant([ToolCall(call, f"t{number}")])))
        labels = ("all", "even") if number % 2 == 0 else ("all",)
        state.apply(ToolFinished(call, f"t{number}", ToolResult(call, f"t{number}", (), labels=labels)))
    assert state.labels == {
        "all": tuple(f"tool:t{number}" for number in range(20)),
        "even": tuple(f"tool:t{number}" for number in range(0, 25, 2)),
    }


def test_a_reply_aside_from_the_conversation_labels_what_follows() -> None:
    found = replace(assistant("Found."), labels=("untrusted",))
    for after in (ModelReplied(2, found), ReplyDiscarded(2, "error", found, aside=True)):
        state = folded(RunStarted(run_id="r1"), ModelRequested(2, aside=True), after)
        assert [*state.labels] == ["untrusted"]


def test_a_result_for_a_program_an_engine_or_a_host_labels_what_follows() -> None:
    inner = build_program_call_id("p", 1, "act", "{}")
    labelled = ToolFinished(inner, "act", ToolResult(inner, "act", (), labels=("secret",)))
    plain = ToolFinished(inner, "act", ToolResult(inner, "act", ()))
    assert folded(*START, started("p"), labelled).labels == {"secret": ("tool:act",)}
    assert folded(*START, started("p"), plain).labels == {}
    assert folded(*START, labelled).labels == {"secret": ("tool:act",)}


def test_a_summary_has_the_labels_of_what_it_replaces_and_its_tokens_count() -> None:
    def labelled(text: str, label: str) -> MessageAdded:
        return MessageAdded(Message("user", (Text(text),), labels=(label,)))

    events = (*START, labelled("one", "x"), labelled("two", "y"), labelled("three", "z"))
    state = folded(*events, Compacted(user("Summary"), 3, usage=Usage(5, 1)))
    assert (words(state.view), state.view[0].labels) == (["Summary", "three"], ("x", "y"))
    assert (state.view_turns, state.usage, len(state.messages)) == (0, Usage(5, 1), 4)
    assert folded(*START, Compacted(user("Summary"), 1)).usage == Usage()


def test_older_results_are_shortened_up_to_where_the_event_says() -> None:
    results = [ToolResult(each, "act", (Text("long text"),), summary="short") for each in ("a", "b")]
    state = folded(*START)
    for result in results:
        state.apply(MessageAdded(reply(result.call_id)))
        state.apply(ToolFinished(result.call_id, "act", result))
    state.apply(ViewChanged("tools"))
    assert (state.view_changed, state.view) == (True, state.messages)
    state.apply(ViewChanged("results", 3))
    assert [each.text for message in state.view for each in message.tool_results] == ["short", "long text"]


# -- damage ------------------------------------------------------------------------------------------------------------


def test_lost_entries_concern_the_runs_that_are_open_and_calls_without_results() -> None:
    runs = (RunStarted(run_id="r1"), RunStarted(path="open"), RunStarted(path="over"), RunEnded("done", path="over"))
    calls = (RunStarted(path="calls"), MessageAdded(reply("a"), path="calls"), RunEnded("failed", path="calls"))
    state = folded(*runs, *calls, RunEnded("done", run_id="r1"))
    state.apply(EntriesLost(8, 9, run_id="r1"))
    assert (state.has_lost_entries, state.may_have_lost_runs) == (False, False)
    assert {path: child.has_lost_entries for path, child in state.children.items()} == {
        "open": True,
        "over": False,
        "calls": True,
    }
    state.apply(EntriesLost(10, 11))
    assert (state.has_lost_entries, state.may_have_lost_runs) == (False, True)


# -- the session -------------------------------------------------------------------------------------------------------


def test_settings_are_those_of_the_session_or_of_the_agent_that_they_are_for() -> None:
    state = folded(
        SessionConfigured({"model": "a", "effort": "low"}),
        SessionConfigured({"model": "b", "for": "writer"}),
        SessionConfigured({"effort": "high"}),
        SessionConfigured({"effort": "none", "for": "writer"}),
        SessionImported("d1"),
        SessionImported("d2"),
    )
    assert state.settings == {"model": "a", "effort": "high"}
    assert state.settings_by_agent == {"writer": {"model": "b", "effort": "none"}}
    assert state.imports == [SessionImported("d1"), SessionImported("d2")]


def test_grants_and_their_revocations_are_those_of_all_agents_in_order() -> None:
    grant, revoked = decided("a", "session"), GrantRevoked("g1")
    state = folded(RunStarted(), RunStarted(path="x"), grant, decided("b"), revoked)
    assert state.remembered_decisions == state.children["x"].remembered_decisions == [grant, revoked]
    assert state.decisions == {"a": grant, "b": decided("b")}
    assert (state.children["x"].first_run_id, state.children["x"].decisions) == (state.first_run_id, {})


def test_tokens_before_the_first_run_count_for_none() -> None:
    before = Compacted(user("Summary"), 0, usage=Usage(5, 1))
    state = folded(before)
    assert state.usage == Usage(5, 1)
    state = folded(before, RunStarted(run_id="r1"))
    assert (state.usage, state.total_usage) == (Usage(), Usage())


def test_a_slot_lasts_as_long_as_the_run_or_the_call_that_it_names_and_no_other() -> None:
    slots = [
        SlotOpened("s1", "form", until="run", run_id="r1"),
        SlotOpened("s2", "form", until="run", run_id="r0"),
        SlotOpened("s3", "form", until="call", call_id="a", run_id="r1"),
        SlotOpened("s4", "form", until="call", call_id="b", run_id="r1"),
        SlotOpened("s5", "form", until="closed", call_id="a", run_id="r1"),
    ]
    state = folded(*START, *slots, finished("a"))
    assert list(state.slots) == ["s1", "s2", "s4", "s5"]
    state.apply(SlotUpdated("s9", {"a": 1}))
    state.apply(RunEnded("done", run_id="r1"))
    assert list(state.slots) == ["s2", "s4", "s5"]
