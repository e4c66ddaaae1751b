"""Background agents: runs by schedule or by trigger, unattended, in durable sessions.

`Scheduler(agent, [Schedule(name="news", when=every(hours=1), prompt="…")]).serve()` fires them, in as many processes as
you like.
"""

from .firing import Firing, ScheduleJournalRecord
from .schedule import Schedule
from .scheduler import Scheduler
from .stored import ScheduleStatus
from .timing import At, Cron, Every, Timing, at, cron, every

__all__ = [
    "At",
    "Cron",
    "Every",
    "Firing",
    "Schedule",
    "ScheduleJournalRecord",
    "ScheduleStatus",
    "Scheduler",
    "Timing",
    "at",
    "cron",
    "every",
]
