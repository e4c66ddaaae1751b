"""Ended runs in short leave in the state of a session what their events would."""

import pytest

from perdure.core.ended_run_outlines import EndedRuns, EndedRunsOutline, outline_ended_runs
from perdure.core.event import (
    Event,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    QuestionAsked,
    RunEnded,
    RunStarted,
    SessionConfigured,
    SlotOpened,
    ToolFinished,
    ToolStarted,
)
from perdure.core.fold import State, fold_events
from perdure.core.message import Message, Text, ToolCall, ToolResult, Usage, assistant, user
from perdure.core.past_run_totals import PastRunTotals, UncountedRuns
from tests.random_log import RandomLog, describe_state


def build_ended_runs(outline: EndedRunsOutline, events: list[Event]) -> EndedRuns:
    """What a store makes of an outline."""
    messages: list[Message] = []
    result_messages: list[int] = []
    for places in outline.messages:
        found = [events[place] for place in places]
        if isinstance(found[0], MessageAdded):
            messages.append(found[0].message)
        else:
            result_messages.append(len(messages))
            messages.append(Message("tool", tuple([each.result for each in found if isinstance(each, ToolFinished)])))
    first, ends = events[outline.first], [events[place] for place in outline.ends]
    assert isinstance(first, RunStarted)
    return EndedRuns(
        summary=outline.summary,
        first_event=first,
        messages=messages,
        result_messages=result_messages,
        ends=[each for each in ends if isinstance(each, RunEnded)],
        last_run=events[outline.last_run : outline.end],
        list_events=lambda: events[outline.first : outline.end],
    )


def shorten(events: list[Event]) -> list[Event | EndedRuns]:
    short: list[Event | EndedRuns] = []
    at = 0
    for outline in outline_ended_runs(events):
        short += [*events[at : outline.first], build_ended_runs(outline, events)]
        at = outline.end
    return short + events[at:]


def run(number: int = 1, *, reason: str = "", cost_usd: float | None = 0.25, tokens: int = 3) -> list[Event]:
    run_id = f"r{number}"
    return [
        RunStarted("agent", run_id=run_id),
        MessageAdded(user("Hi"), run_id=run_id),
        ModelRequested(1, run_id=run_id),
        MessageAdded(assistant("Hello.", usage=Usage(tokens)), run_id=run_id),
        RunEnded("done", reason, usage=Usage(tokens), cost_usd=cost_usd, run_id=run_id),
    ]


@pytest.mark.parametrize("seed", range(60))
def test_a_random_log_with_runs_in_short_gives_the_same_state(seed):
    log = RandomLog(seed)
    events = log.make(12, strangeness=(seed % 6) / 8)
    if seed % 3 == 2:
        events = log.damage(events)
    short = shorten(events)
    assert describe_state(fold_events(short)) == describe_state(fold_events(events))


@pytest.mark.parametrize("seed", range(20))
def test_a_single_thing_that_is_rare_gives_the_same_state(seed):
    log = RandomLog(f"single {seed}")
    usual = log.make(6, strangeness=0.0)
    for number in range(40):
        events = log.insert_anything(usual)
        assert describe_state(fold_events(shorten(events))) == describe_state(fold_events(events)), number


@pytest.mark.parametrize("seed", range(40))
def test_runs_in_which_little_is_strange_give_the_same_state(seed):
    events = RandomLog(f"little {seed}").make(30, strangeness=1.0, within=0.04)
    assert describe_state(fold_events(shorten(events))) == describe_state(fold_events(events))


@pytest.mark.parametrize("seed", range(20))
def test_what_comes_before_and_after_makes_no_difference(seed):
    log = RandomLog(f"between {seed}")
    before, usual, after = log.make(3, strangeness=0.9), log.make(4, strangeness=0.0), log.make(3, strangeness=0.5)
    in_short, by_events = fold_events(before), fold_events(before)
    in_short.apply_all(shorten(usual))
    by_events.apply_all(usual)
    assert describe_state(in_short) == describe_state(by_events)
    for state in (in_short, by_events):
        state.apply_all(after)
    assert describe_state(in_short) == describe_state(by_events)


def test_usual_runs_are_outlined_and_the_last_of_them_is_folded_by_its_events():
    events = [*run(1), *run(2), *run(3)]
    (outline,) = outline_ended_runs(events)
    assert (outline.first, outline.last_run, outline.end) == (0, 10, 15)
    assert outline.messages == [[1], [3], [6], [8]]
    assert outline.summary.totals == UncountedRuns(Usage(6), 2, [0.25, 0.25], is_cost_known=True)


def test_a_single_run_is_not_worth_an_outline():
    assert outline_ended_runs(run()) == []


@pytest.mark.parametrize("reason", ["interrupted", "crash_loop", "log_damaged"])
def test_a_run_whose_process_died_is_not_a_usual_one(reason):
    assert outline_ended_runs([*run(1), *run(2, reason=reason), *run(3)]) == []


def test_what_happens_between_two_runs_is_between_two_outlines():
    events = [*run(1), *run(2), SessionConfigured({"role": "x"}), *run(3), *run(4)]
    assert [(each.first, each.end) for each in outline_ended_runs(events)] == [(0, 10), (11, 21)]


CALL = MessageAdded(assistant([ToolCall("c1", "act")], usage=Usage(1)), run_id="r1")
RESULT = ToolFinished("c1", "act", ToolResult("c1", "act", (Text("done"),)), run_id="r1")


def calling(*between: Event, result: Event = RESULT) -> list[Event]:
    """A run with a call, and another one."""
    return [*run(1)[:3], CALL, *between, result, *run(1)[2:], *run(2)]


@pytest.mark.parametrize(
    "left",
    [
        CALL,
        ToolStarted("c1", "act", "read", ""),
        PermissionDecided("c1", "act", "act", "x", "", allow=True),
        RunStarted("child", input_id="c1", run_id="child", path="act:1"),
        SlotOpened("slot", "note", {}, call_id="c1", until="call"),
        QuestionAsked("ask", "slot"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_was_left_open_before_is_settled_as_by_their_events(left):
    events = [left, *calling()]
    short = [left, *shorten(calling())]
    assert len(short) < len(events)
    state = fold_events(short)
    assert describe_state(state) == describe_state(fold_events(events))
    assert [state.started_calls, state.decisions, state.child_paths_by_call, state.slots] == [{}, {}, {}, {}]
    assert state.open_questions == []


@pytest.mark.parametrize(
    "unusual",
    [
        calling(result=ToolFinished("c1", "act", ToolResult("c2", "act"))),
        calling(result=ToolFinished("c1", "act", ToolResult("c1", "act", labels=("private",)))),
        calling(result=ToolFinished("c1", "act", ToolResult("c1", "act", preview="…"))),
        [*run(1)[:3], CALL, run(1)[4], *run(2)],
        calling(ToolStarted("c2", "act", "read", "")),
        calling(RESULT, ToolStarted("c1", "act", "read", "")),
        calling(PermissionDecided("c1", "act", "act", "x", "", allow=True, scope="run")),
        calling(PermissionDecided("c2", "act", "act", "x", "", allow=True)),
        calling(MessageAdded(user("Stop."))),
        calling(ModelRequested(1, aside=True)),
        calling(ModelRequested(1, path="act:1")),
        [*run(1)[:3], MessageAdded(assistant("Hi", usage=Usage(1, reported_usd=0.1))), *run(1)[3:], *run(2)],
        [*run(1)[:3], MessageAdded(user("Hi", labels=["untrusted"])), *run(1)[3:], *run(2)],
        [*run(1), *run(2)[:2], *run(2)[4:]],
        [*run(1), *run(2)[:4]],
        [*run(1), RunStarted(path="act:1"), *run(2)[1:]],
    ],
)
def test_two_runs_of_which_one_is_not_usual_have_no_outline(unusual):
    assert outline_ended_runs(unusual) == []


@pytest.mark.parametrize(
    "late",
    [
        ToolStarted("c1", "act", "read", ""),
        PermissionDecided("c1", "act", "act", "x", "", allow=True),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_call_that_begins_after_its_result_and_before_that_of_another_stays_open(late):
    both = MessageAdded(assistant([ToolCall("c1", "act"), ToolCall("c2", "act")]), run_id="r1")
    other = ToolFinished("c2", "act", ToolResult("c2", "act", (Text("done"),)), run_id="r1")
    in_order, too_late = [both, late, RESULT, other], [both, RESULT, late, other]
    for between, outlines in ((in_order, 1), (too_late, 0)):
        events = [*run(1)[:3], *between, *run(1)[2:], *run(2)]
        assert len(outline_ended_runs(events)) == outlines
        state = fold_events(shorten(events))
        assert describe_state(state) == describe_state(fold_events(events))
        assert bool(state.started_calls or state.decisions) is (outlines == 0)


@pytest.mark.parametrize(
    "usual",
    [
        calling(),
        calling(ToolStarted("c1", "act", "read", "")),
        calling(PermissionDecided("c1", "act", "act", "x", "", allow=True)),
        calling(ModelRequested(1, attempt=2)),
    ],
)
def test_calls_and_decisions_about_them_are_usual(usual):
    assert len(outline_ended_runs(usual)) == 1


def test_the_tokens_before_the_first_run_count_for_none():
    events = [MessageAdded(assistant("Hello.", usage=Usage(100))), *run(1), *run(2)]
    assert fold_events(shorten(events)).total_usage == Usage(6)


@pytest.mark.parametrize(
    ("past_usd", "is_cost_known", "usd"), [(1.0, True, 1.75), (None, True, None), (1.0, False, None)]
)
def test_a_cost_that_is_not_known_makes_the_sum_unknown(past_usd, is_cost_known, usd):
    runs = UncountedRuns(Usage(2), 3, [0.5, 0.25], is_cost_known)
    assert runs.add_to(PastRunTotals(Usage(1), 1, past_usd)) == PastRunTotals(Usage(3), 4, usd)


def test_runs_without_tokens_and_cost_leave_the_cost_known():
    events = [*run(1, cost_usd=None, tokens=0), *run(2, cost_usd=None), *run(3)]
    (outline,) = outline_ended_runs([*run(1, cost_usd=None, tokens=0), *run(3)])
    assert outline.summary.totals.is_cost_known
    assert fold_events(shorten(events)).total_usd is None


def test_after_a_summary_the_messages_of_ended_runs_are_sent_as_well():
    state = State()
    state.apply_all(run(1))
    state.transcript.compact(user("In short"), 2)
    state.apply_all(shorten([*run(2), *run(3)]))
    assert [each.text for each in state.view] == ["In short", "Hi", "Hello.", "Hi", "Hello."]
    assert len(state.messages) == 6
