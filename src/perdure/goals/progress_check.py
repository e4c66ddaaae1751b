"""Decide if an iteration of a goal made progress: more done, or a better score, than in any iteration before."""

from collections.abc import Iterable
from typing import Final

from .goal import WHOLE, ChecklistItem
from .goal_record import GoalIteration

MIN_PERCENT_STEP: Final = 10
"""Percent by which an item has to pass its best value so far to count as progress."""
MIN_SCORE_STEP: Final = 0.01
"""Amount by which the grader's score has to pass its best value so far to count as progress."""


def is_progress(items: Iterable[ChecklistItem], score: float | None, before: Iterable[GoalIteration]) -> bool:
    """Return True if a checklist, or the grader's score, is better than in every iteration before.

    Counted are the ids of done items, the percentage of open ones and the score, each against its best value so far.
    Titles, summaries and the wording of evidence do not count, and neither does an item that is done, undone and done
    again. All of these values have an upper bound, so there is an end to progress, whatever a checker writes.
    """
    past = [*before]
    best = _find_best_values(past)
    for item in items:
        reached = WHOLE if item.done else item.progress
        known = best.get(item.id, 0)
        if (item.done and known < WHOLE) or reached >= known + MIN_PERCENT_STEP:
            return True
    scores = [each.grade.score for each in past if each.grade is not None and each.grade.is_judged]
    return score is not None and score >= max(scores, default=0.0) + MIN_SCORE_STEP


def _find_best_values(iterations: Iterable[GoalIteration]) -> dict[str, int]:
    """Return the highest percentage that each item ever had, by its id."""
    best: dict[str, int] = {}
    for iteration in iterations:
        for item in () if iteration.verdict is None else iteration.verdict.items:
            best[item.id] = max(best.get(item.id, 0), WHOLE if item.done else item.progress)
    return best
