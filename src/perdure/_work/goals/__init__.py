"""Goals: work that is repeated until a grader or a checker finds it done.

`until(grader)` is an engine for the same session. `pursue_goal` lets a maker and a checker work in fresh sessions, with
a checklist, budgets and a log from which `resume_goal` continues after a crash.
"""

from .goal import ChecklistItem, Goal, GoalStatus
from .plot import draw_score_svg, draw_sparkline
from .pursuit import new_goal_id, pursue_goal, resume_goal, stop_goal
from .record import GoalIteration, GoalRecord, list_goals, read_goal
from .until import GradeGiven, read_grades, until

__all__ = [
    "ChecklistItem",
    "Goal",
    "GoalIteration",
    "GoalRecord",
    "GoalStatus",
    "GradeGiven",
    "draw_score_svg",
    "draw_sparkline",
    "list_goals",
    "new_goal_id",
    "pursue_goal",
    "read_goal",
    "read_grades",
    "resume_goal",
    "stop_goal",
    "until",
]
