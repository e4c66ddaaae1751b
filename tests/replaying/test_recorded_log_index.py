"""The index of a recorded log: its segments, and what was decided, answered, called and added in it."""

import pytest

from perdure import Status, StoreError, ToolCall, ToolResult, assistant, user
from perdure._core.log.repair import ENDING_CRASH_LOOP, ENDING_PROCESS_DIED, ENDING_UNANSWERED
from perdure._core.values.clock import SEPARATOR
from perdure._core.values.event import LOADED_TOOLS_NAME
from perdure._work.replay.log import RecordedLog, index_recorded_log
from perdure.events import (
    Entry,
    Event,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    RunEnded,
    RunResumed,
    RunStarted,
    SessionConfigured,
    SkillLoaded,
    SubagentFinished,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
    TurnStarted,
    ValueKept,
)


def index(*events: Event) -> RecordedLog:
    return index_recorded_log([Entry(number, 0.0, event) for number, event in enumerate(events, 1)])


def segments(*events: Event) -> list[tuple[str, list[int]]]:
    """How each segment begins, and the numbers of its entries."""
    return [(each.begins, [entry.seq for entry in each.entries]) for each in index(*events).segments]


PROMPT = MessageAdded(user("Go."))


def ended(path: str = "", ending: tuple[str, str, str] = ENDING_PROCESS_DIED) -> RunEnded:
    return RunEnded(ending[0], ending[1], ending[2], path=path)


def finished(status: Status, name: str = "look") -> ToolFinished:
    return ToolFinished("c", name, ToolResult("c", name, (), status))


def test_decisions_answers_arguments_and_tools_are_found_by_their_calls():
    asked = QuestionAsked("q", "permission", "May I?", ({"call_id": "c", "tool": "moor"},))
    of_program = QuestionAsked("p", "permission", "", ({"call_id": f"x{SEPARATOR}1", "tool": "moor"},))
    slot, lost = QuestionAsked("t", "slot", "Which?"), QuestionAnswered("gone", "yes", "user")
    answered, chosen = QuestionAnswered("q", "yes", "user"), QuestionAnswered("t", "this", "user")
    decided = PermissionDecided("c", "moor", "moor", "", "h1", allow=True)
    undecided = PermissionDecided("e", "moor", "moor", "", "", allow=False)
    found = index(
        RunStarted("a"),
        PROMPT,
        ModelRequested(1),
        MessageAdded(assistant(["Hm.", ToolCall("c", "moor", "{}"), ToolCall("d", "look", "[]")])),
        asked,
        of_program,
        slot,
        answered,
        chosen,
        lost,
        decided,
        undecided,
        PermissionDecided("z", "moor", "moor", "", "h9", allow=True, path="child"),
        ToolStarted("d", "look", "read", "k", "h2"),
        ToolStarted("y", "below", "read", "k", path="child"),
        ToolFinished("f", "known", ToolResult("f", "known")),
        ToolFinished("g", "unknown", ToolResult("g", "unknown", (), Status.ERROR)),
        ToolsChanged(("new",)),
        RunEnded("done"),
    )
    assert found == RecordedLog(
        found.segments,
        19,
        {"c": decided, "e": undecided},
        frozenset({"c"}),
        [(asked, answered), (slot, chosen)],
        {"c": "{}", "d": "[]"},
        {"c": "h1", "d": "h2"},
        frozenset({"look", "known"}),
        frozenset({"new"}),
    )
    (only,) = found.segments
    assert [entry.event for entry in only.other_entries if isinstance(entry.event, QuestionAsked)] == [
        of_program,
        slot,
    ]


def test_tools_that_a_skill_brought_or_that_the_model_has_loaded_were_not_added_by_tools():
    found = index(
        RunStarted("a"),
        PROMPT,
        ModelRequested(1),
        SkillLoaded("maps", "model"),
        ToolsChanged(("of_skill",)),
        ModelRequested(2),
        ValueKept(LOADED_TOOLS_NAME, ["loaded"]),
        ValueKept(LOADED_TOOLS_NAME, None),
        ValueKept("other", ["by_tool"]),
        ToolsChanged(("loaded", "by_tool"), ("gone",)),
    )
    assert found.added == {"by_tool"}


def test_a_log_of_which_an_entry_is_missing_is_refused():
    with pytest.raises(StoreError) as refused:
        index_recorded_log([Entry(1, 0.0, RunStarted("a")), Entry(3, 0.0, PROMPT)])
    assert str(refused.value) == "the recording is damaged: entry 2 has the number 3"


def test_a_log_is_split_where_runs_begin_and_go_on_and_what_is_between_them_belongs_to_none():
    assert segments() == []
    assert segments(
        SessionConfigured({"title": "T"}),
        RunStarted("a"),
        PROMPT,
        RunEnded("done", path="child"),
        RunEnded("done"),
        SessionConfigured({"title": "U"}),
        RunStarted("a", {"call": {}}),
        RunEnded("done"),
        RunStarted("a"),
        PROMPT,
        RunStarted("b", path="child"),
        RunResumed(path="child"),
        RunResumed(),
        TurnStarted(1),
    ) == [("run", [2, 3, 4, 5]), ("call", [7, 8]), ("run", [9, 10, 11, 12]), ("resume", [13, 14])]


@pytest.mark.parametrize("ending", [ENDING_PROCESS_DIED, ENDING_UNANSWERED])
def test_what_was_repaired_when_the_next_run_began_belongs_to_that_run(ending):
    assert segments(
        RunStarted("a"),
        PROMPT,
        ToolStarted("c", "look", "read", "k"),
        finished(Status.UNKNOWN),
        finished(Status.CANCELLED_BEFORE_START),
        ended("child", ending),
        SubagentFinished("c", "child", "failed", ending[2]),
        QuestionWithdrawn("q", "gone"),
        ended("", ending),
        RunStarted("a"),
        PROMPT,
    ) == [("run", [1, 2, 3]), ("run", [4, 5, 6, 7, 8, 9, 10, 11])]


@pytest.mark.parametrize(
    "event",
    [
        finished(Status.OK),
        finished(Status.ERROR),
        RunEnded("done", path="child"),
        SubagentFinished("c", "child", "failed", "something else"),
        TurnStarted(1),
    ],
)
def test_what_the_run_itself_has_written_stays_with_it(event):
    assert segments(RunStarted("a"), PROMPT, event, ended(), RunStarted("a"), PROMPT) == [
        ("run", [1, 2, 3]),
        ("run", [4, 5, 6]),
    ]


def test_a_run_that_ended_by_itself_keeps_its_end():
    assert segments(RunStarted("a"), PROMPT, RunEnded("failed", "ProviderDown"), RunStarted("a"), PROMPT) == [
        ("run", [1, 2, 3]),
        ("run", [4, 5]),
    ]


def test_a_run_that_was_parked_ends_with_a_segment_of_its_own_and_can_be_taken_up_again():
    parked = ended("", ENDING_CRASH_LOOP)
    assert segments(RunStarted("a"), PROMPT, finished(Status.UNKNOWN), parked, RunResumed(), TurnStarted(1)) == [
        ("run", [1, 2]),
        ("resume", [3, 4]),
        ("resume", [5, 6]),
    ]
