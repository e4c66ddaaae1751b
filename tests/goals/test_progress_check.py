"""Progress: by how much an item or a score has to pass its best value so far."""

import pytest

from perdure import Usage
from perdure._work.goals.engine import is_progress
from perdure._work.goals.record import measure_progress
from perdure._work.judging.graders.grader import build_failed_grade
from perdure.background import ChecklistItem, GoalIteration, VerdictGiven
from perdure.evals import Grade


def item(progress: int = 0, *, done: bool = False, item_id: str = "1") -> ChecklistItem:
    return ChecklistItem(item_id, "The hull is tight.", done, "seen", progress)


def iteration(number: int, *items: ChecklistItem, grade: Grade | None = None) -> GoalIteration:
    verdict = VerdictGiven(number, f"checker-{number}", items, False, "", True, 0.0, Usage(), 0.0)
    return GoalIteration(number=number, verdict=verdict, grade=grade)


@pytest.mark.parametrize(
    ("now", "expected"),
    [(item(49), False), (item(50), True), (item(0), False), (item(100, done=True), True)],
)
def test_an_open_item_makes_progress_by_ten_percent_over_its_best(now, expected):
    assert is_progress([now], None, [iteration(1, item(40)), iteration(2, item(20))]) is expected


def test_the_first_iteration_makes_progress_by_ten_percent_too():
    assert not is_progress([item(9)], None, [])
    assert is_progress([item(10)], None, [])


def test_an_item_that_was_done_makes_no_progress_again_and_another_one_does():
    past = [iteration(1, item(100, done=True), item(5, item_id="2"))]
    assert not is_progress([item(100, done=True), item(14, item_id="2")], None, past)
    assert is_progress([item(100, done=True), item(15, item_id="2")], None, past)


@pytest.mark.parametrize(("score", "expected"), [(0.5, False), (0.505, False), (0.515, True), (None, False)])
def test_a_score_makes_progress_by_a_hundredth_over_the_best_one_that_was_judged(score, expected):
    past = [
        iteration(1, item(), grade=Grade(passed=False, score=0.5)),
        iteration(2, item(), grade=build_failed_grade("tests", "raised", "no disk")),
    ]
    assert is_progress([item()], score, past) is expected


def test_the_progress_of_a_checklist_is_the_mean_of_its_items():
    assert measure_progress([item(100, done=True), item(50, item_id="2")]) == 0.75
    assert measure_progress([]) == 0.0
