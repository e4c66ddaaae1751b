"""Repairs of a log whose run was interrupted, compared whole."""

from typing import Literal

import pytest

from perdure import Status, Text, ToolCall, ToolResult, Usage, assistant
from perdure._core.log.fold import fold_events
from perdure._core.log.repair import (
    ENDING_CRASH_LOOP,
    ENDING_PARENT_ENDED,
    ENDING_PROCESS_DIED,
    ENDING_UNANSWERED,
    INTERRUPTED_CALL_TEXT,
    INTERRUPTED_READ_TEXT,
    NOT_STARTED_CALL_TEXT,
    build_child_repairs,
    build_direct_call_repairs,
    build_repair_events,
    has_open_children,
)
from perdure.events import (
    EntriesLost,
    Event,
    MessageAdded,
    ModelRequested,
    QuestionAsked,
    QuestionWithdrawn,
    RunEnded,
    RunStarted,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
)

BEGUN = RunStarted("agent", run_id="r1")
PRICED = ModelRequested(1, estimated_tokens=1_000_000, price_usd=(2.0, 8.0, None, None), run_id="r1")


def reply(*call_ids: str) -> MessageAdded:
    return MessageAdded(assistant([ToolCall(each, "act") for each in call_ids]), run_id="r1")


def started(call_id: str, effect: str = "at_most_once", run_id: str = "r1") -> ToolStarted:
    return ToolStarted(call_id, "act", effect, "", f"key-{call_id}", 1, run_id=run_id)


def lost(call_id: str, text: str, status: Status = Status.UNKNOWN) -> ToolFinished:
    return ToolFinished(call_id, "act", ToolResult(call_id, "act", (Text(text),), status), run_id="r1")


def ended(ending: tuple[str, str, str], usage: Usage, cost_usd: float | None, turns: int = 1) -> RunEnded:
    return RunEnded(*ending, usage, cost_usd, turns, run_id="r1")


def test_every_open_call_gets_a_result_that_says_what_is_known_of_it() -> None:
    state = fold_events([BEGUN, reply("a", "b", "c"), started("a"), started("b", "read"), started("d", run_id="r0")])
    assert build_repair_events(state) == [
        lost("a", INTERRUPTED_CALL_TEXT),
        lost("b", INTERRUPTED_READ_TEXT),
        lost("c", NOT_STARTED_CALL_TEXT, Status.CANCELLED_BEFORE_START),
        ToolFinished("d", "act", ToolResult("d", "act", (Text(INTERRUPTED_CALL_TEXT),), Status.UNKNOWN), run_id="r0"),
        ended(ENDING_PROCESS_DIED, Usage(), 0.0, turns=0),
    ]
    assert [each.run_id for each in build_direct_call_repairs(state)] == ["r0"]


def test_after_damage_any_open_call_may_have_begun() -> None:
    state = fold_events([BEGUN, reply("a"), EntriesLost(3, 4, run_id="r1")])
    assert build_repair_events(state)[0] == lost("a", INTERRUPTED_CALL_TEXT)


@pytest.mark.parametrize(
    ("ending", "usage", "cost_usd"),
    [
        (ENDING_PROCESS_DIED, Usage(1_500_000, precision="estimated"), 3.0),
        (ENDING_CRASH_LOOP, Usage(1_500_000, precision="estimated"), 3.0),
        (ENDING_UNANSWERED, Usage(500_000), 1.0),
        (ENDING_PARENT_ENDED, Usage(500_000), 1.0),
    ],
)
def test_only_after_a_crash_the_request_without_a_reply_is_counted(
    ending: tuple[str, str, str], usage: Usage, cost_usd: float
) -> None:
    said = MessageAdded(assistant("Hi", usage=Usage(500_000)), run_id="r1")
    second = ModelRequested(2, estimated_tokens=1_000_000, price_usd=PRICED.price_usd, run_id="r1")
    state = fold_events([BEGUN, PRICED, said, second])
    assert build_repair_events(state, ending) == [ended(ending, usage, cost_usd, turns=2)]


def test_children_are_ended_first_and_their_tasks_are_given_up() -> None:
    events: list[Event] = [
        BEGUN,
        reply("a", "b"),
        SubagentStarted("a", "scout", "Look.", "a", run_id="r1"),
        SubagentStarted("b", "scout", "Look.", "elsewhere/scout-1", run_id="r1"),
        RunStarted("scout", input_id="a", run_id="r2", path="a"),
    ]
    state = fold_events(events)
    assert has_open_children(state)
    assert build_child_repairs(state, ENDING_PARENT_ENDED) == [
        RunEnded(*ENDING_PARENT_ENDED, Usage(), 0.0, run_id="r2", path="a"),
        SubagentFinished("a", "scout", "cancelled", "the run that it worked for has ended", run_id="r1"),
    ]
    assert not has_open_children(fold_events([BEGUN]))
    assert build_child_repairs(fold_events([BEGUN]), ENDING_PARENT_ENDED) == []


def test_questions_of_a_call_that_is_over_are_withdrawn_and_no_others() -> None:
    def asked(ask_id: str, about: Literal["permission", "slot"], call_id: str, path: str = "") -> QuestionAsked:
        return QuestionAsked(ask_id, about, calls=({"call_id": call_id},), run_id="r1", path=path)

    questions = [
        asked("q1", "slot", "a"),
        asked("q2", "permission", "a"),
        asked("q3", "slot", "other"),
        asked("q4", "slot", "a", "child"),
    ]
    state = fold_events([BEGUN, reply("a"), started("a"), *questions])
    reason = "the call that asked is over (unknown): no answer is needed any more"
    withdrawn = [each for each in build_repair_events(state) if isinstance(each, QuestionWithdrawn)]
    assert withdrawn == [QuestionWithdrawn("q1", reason, run_id="r1")]


def test_a_run_that_is_over_with_calls_left_open_is_not_ended_again() -> None:
    state = fold_events([BEGUN, reply("a"), RunEnded("failed", run_id="r1")])
    assert build_repair_events(state) == [lost("a", NOT_STARTED_CALL_TEXT, Status.CANCELLED_BEFORE_START)]
    task = SubagentStarted("a", "scout", "Look.", "a", run_id="r1")
    left = fold_events([BEGUN, task, RunEnded("failed", run_id="r1")])
    assert [type(each) for each in build_repair_events(left)] == [SubagentFinished]
