# Written by `python -m scripts.exports`, from the table in background.py. Not edited by hand.

from ._runtime.shutdown import Shutdown as Shutdown
from ._work.goals.events import MakerFinished as MakerFinished
from ._work.goals.events import VerdictGiven as VerdictGiven
from ._work.goals.goal import ChecklistItem as ChecklistItem
from ._work.goals.goal import Goal as Goal
from ._work.goals.goal import GoalStatus as GoalStatus
from ._work.goals.plot import draw_score_svg as draw_score_svg
from ._work.goals.plot import draw_sparkline as draw_sparkline
from ._work.goals.pursuit import new_goal_id as new_goal_id
from ._work.goals.pursuit import pursue_goal as pursue_goal
from ._work.goals.pursuit import resume_goal as resume_goal
from ._work.goals.pursuit import stop_goal as stop_goal
from ._work.goals.record import GoalIteration as GoalIteration
from ._work.goals.record import GoalRecord as GoalRecord
from ._work.goals.record import list_goals as list_goals
from ._work.goals.record import read_goal as read_goal
from ._work.goals.until import GradeGiven as GradeGiven
from ._work.goals.worktree import GoalWorktree as GoalWorktree
from ._work.goals.worktree import prepare_worktree as prepare_worktree
from ._work.schedules.firing import Firing as Firing
from ._work.schedules.firing import ScheduleJournalRecord as ScheduleJournalRecord
from ._work.schedules.schedule import Schedule as Schedule
from ._work.schedules.scheduler import Scheduler as Scheduler
from ._work.schedules.stored import ScheduleStatus as ScheduleStatus
from ._work.schedules.stored import StoredSchedules as StoredSchedules
from ._work.schedules.timing import At as At
from ._work.schedules.timing import Cron as Cron
from ._work.schedules.timing import Every as Every
from ._work.schedules.timing import at as at
from ._work.schedules.timing import cron as cron
from ._work.schedules.timing import every as every

__all__ = [
    "At",
    "ChecklistItem",
    "Cron",
    "Every",
    "Firing",
    "Goal",
    "GoalIteration",
    "GoalRecord",
    "GoalStatus",
    "GoalWorktree",
    "GradeGiven",
    "MakerFinished",
    "Schedule",
    "ScheduleJournalRecord",
    "ScheduleStatus",
    "Scheduler",
    "Shutdown",
    "StoredSchedules",
    "VerdictGiven",
    "at",
    "cron",
    "draw_score_svg",
    "draw_sparkline",
    "every",
    "list_goals",
    "new_goal_id",
    "prepare_worktree",
    "pursue_goal",
    "read_goal",
    "resume_goal",
    "stop_goal",
]
