"""The tasks of a run: which of them are ready, which are done, and how they are told to the model."""

from perdure._core.values.engine_event import PlannedTask
from perdure._engines.planner_tasks import MAX_RESULT_CHARACTERS, PlannerTasks
from perdure.engines import PrivateRunResult

PLAN = [PlannedTask("a", "note one"), PlannedTask("b", "note two"), PlannedTask("c", "join them", ("a", "b"))]


def build_board(**answers: PrivateRunResult) -> PlannerTasks:
    board = PlannerTasks()
    board.add_plan(PLAN)
    board.answers.update(answers)
    return board


def ready(board: PlannerTasks) -> list[tuple[int, str]]:
    return [(each.number, each.task.id) for each in board.list_ready()]


DONE = PrivateRunResult("done", "", "one is noted")
FAILED = PrivateRunResult("stopped", "max_turns", "half of it")


def test_a_task_is_ready_when_all_that_it_depends_on_was_carried_out() -> None:
    assert ready(build_board()) == [(1, "a"), (2, "b")]
    assert ready(build_board(a=DONE)) == [(2, "b")]
    assert ready(build_board(a=DONE, b=DONE)) == [(3, "c")]
    assert ready(build_board(a=DONE, b=FAILED)) == []


def test_a_board_is_complete_when_every_task_of_the_last_plan_is_done() -> None:
    assert PlannerTasks().is_complete
    assert not build_board(a=DONE, b=DONE).is_complete
    assert not build_board(a=DONE, b=DONE, c=FAILED).is_complete
    board = build_board(a=DONE, b=DONE, c=DONE)
    assert (board.is_complete, board.done_ids, board.is_cut_short) == (True, ["a", "b", "c"], False)
    assert build_board(a=FAILED, b=DONE).done_ids == ["b"]


def test_another_plan_keeps_what_has_ended_and_gives_up_what_has_not_begun() -> None:
    board = build_board(a=DONE, b=FAILED)
    board.add_plan([PlannedTask("b", "note it again"), PlannedTask("d", "end", ("a", "b"))])
    assert [(each.number, each.task.id) for each in board.tasks] == [(1, "a"), (4, "b"), (5, "d")]
    assert (board.answers, ready(board), board.is_complete) == ({"a": DONE}, [(4, "b")], False)
    board.add_plan([PlannedTask("e", "begin anew")])
    assert [(each.number, each.task.id) for each in board.tasks] == [(1, "a"), (6, "e")]


def test_tasks_are_told_with_their_results() -> None:
    board = build_board(a=DONE, b=FAILED)
    assert board.describe().split("\n\n") == [
        "Task a: note one\nDone. Result:\none is noted",
        "Task b: note two\nFailed (stopped max_turns). So far:\nhalf of it",
        "Task c: join them\nNot begun. It depends on a, b.",
    ]
    assert board.describe(only=["a"]) == "Task a: note one\nDone. Result:\none is noted"
    assert board.describe(only=[]) == ""
    bare = build_board(b=PrivateRunResult("failed"))
    assert bare.describe(only=["a", "b"]).split("\n\n") == [
        "Task a: note one\nNot begun.",
        "Task b: note two\nFailed (failed).",
    ]


def test_long_results_are_cut() -> None:
    [_, result] = build_board(a=PrivateRunResult("done", "", "x" * 9999)).describe(only=["a"]).split("Result:\n")
    assert result == "x" * MAX_RESULT_CHARACTERS
