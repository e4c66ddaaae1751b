"""Goals as text: a row of a list, all of a goal, and a line of JSON."""

import json
import time

import pytest

from perdure import Usage
from perdure._cli.work.goal_text import EXIT_CODES, encode_goal, format_goal, format_goal_row
from perdure.background import ChecklistItem, Goal, GoalIteration, GoalRecord, VerdictGiven

ITEMS = (
    ChecklistItem("1", "The hull is tight.", done=True, evidence="no water\nno rot", progress=90),
    ChecklistItem("2", "The sail is up.", progress=40),
    ChecklistItem("3", "The crew is paid."),
)


def judged(number: int, score: float) -> GoalIteration:
    return GoalIteration(number=number, verdict=VerdictGiven(number, "s", ITEMS, score=score))


WHOLE = GoalRecord(
    goal_id="goal-1",
    goal=Goal("Make the boat ready."),
    status="paused",
    reason="stopped",
    summary="One item is done.",
    items=ITEMS,
    iterations=(judged(1, 0.25), judged(2, 1.0), GoalIteration(number=3)),
    workdir="/work",
    branch="goal/1",
    usage=Usage(1200, 34),
    cost_usd=0.01234,
    seconds=61.4,
    updated_at=1_700_000_000.0,
)
BARE = GoalRecord(goal_id="goal-2", cost_usd=None)


def test_all_of_a_goal_is_shown():
    assert (
        format_goal(WHOLE)
        == """\
goal-1: paused (stopped)
Make the boat ready.

[x] 1. The hull is tight.
       no water
       no rot
[ ] 2. The sail is up. (40 %)
[ ] 3. The crew is paid.

scores  ▃█  0.25 1.00

3 iterations, 1,234 tokens, $0.0123, 61 s
branch goal/1 in /work

One item is done.
"""
    )


def test_what_a_goal_does_not_have_is_left_out():
    assert format_goal(BARE) == "goal-2: running\n\n\n\n0 iterations, 0 tokens, 0 s\n"


def test_a_row_has_when_it_changed_how_much_is_done_and_how_it_went(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(1_700_000_000.0))
    assert format_goal_row(WHOLE) == f"goal-1  {changed}  paused            1/3  ▃█ Make the boat ready.\n"
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(0.0))
    assert format_goal_row(BARE) == f"goal-2  {began}  running           0/0   \n"


@pytest.mark.parametrize(("status", "code"), EXIT_CODES.items())
def test_a_line_of_json_has_the_exit_code_the_objective_and_the_scores(status, code):
    line = encode_goal(
        GoalRecord(goal_id="goal-1", goal=Goal("Räum auf."), status=status, iterations=(judged(1, 0.5),))
    )
    assert line.isascii()
    assert line.count("\n") == 1
    row = json.loads(line)
    assert (row["goal_id"], row["status"], row["exit_code"]) == ("goal-1", status, code)
    assert (row["objective"], row["scores"]) == ("Räum auf.", [0.5])


def test_each_status_has_its_exit_code():
    assert EXIT_CODES == {
        "achieved": 0,
        "errored": 1,
        "blocked": 2,
        "max_iterations": 3,
        "budget_limited": 4,
        "paused": 5,
        "running": 5,
    }
