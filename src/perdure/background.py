"""Work without a person: goals, schedules, and the shutdown that leaves runs for the next process."""

from ._facade import export

NAMES_BY_MODULE = {
    "._runtime.shutdown": ("Shutdown",),
    "._work.goals.events": ("MakerFinished", "VerdictGiven"),
    "._work.goals.goal": ("ChecklistItem", "Goal", "GoalStatus"),
    "._work.goals.plot": ("draw_score_svg", "draw_sparkline"),
    "._work.goals.pursuit": ("new_goal_id", "pursue_goal", "resume_goal", "stop_goal"),
    "._work.goals.record": ("GoalIteration", "GoalRecord", "list_goals", "read_goal"),
    "._work.goals.until": ("GradeGiven",),
    "._work.goals.worktree": ("GoalWorktree", "prepare_worktree"),
    "._work.schedules.firing": ("Firing", "ScheduleJournalRecord"),
    "._work.schedules.schedule": ("Schedule",),
    "._work.schedules.scheduler": ("Scheduler",),
    "._work.schedules.stored": ("ScheduleStatus", "StoredSchedules"),
    "._work.schedules.timing": ("At", "Cron", "Every", "at", "cron", "every"),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
