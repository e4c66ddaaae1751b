"""`Schedule`: what a background agent is asked to do, and when. A value without behaviour, which can be stored."""

import re
from typing import Any, Final

from msgspec import Struct

from perdure._core.log.reserved_ids import find_reserved_name
from perdure._core.values import checks
from perdure._core.values.jsonable import to_text

from .timing import At, Cron, Every, Timing

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_USUAL_LATE_SECONDS: Final = 60.0
_MOST_RETRIES: Final = 100


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task for a background agent: a prompt or a skill, when it is due, and in which session it runs."""

    name: str
    """Name of the schedule: letters, digits, `.`, `_` and `-`."""
    when: Timing | None = None
    """`every(…)`, `at(…)` or `cron(…)`; `None` for a schedule that only `trigger` fires."""
    prompt: str = ""
    """The prompt. The input of a trigger is added to it; without a prompt it is the prompt."""
    skill: str = ""
    """Name of the skill to begin with, instead of a prompt. The input of a trigger is its arguments."""
    session: str = ""
    """Session of the runs; by default one of the schedule's name."""
    new_session: bool = False
    """True for a session of its own for each firing, whose id begins with that of `session`."""
    role: str = ""
    """Role of the agent in these runs."""
    timeout_seconds: float | None = 3600.0
    """The longest time of a run; `None` for no limit."""
    retries: int = 0
    """Number of times that a failed run is tried again. One that made a call that must not be repeated is not."""
    retry_seconds: float = 1.0
    """Time until the first retry; each further one takes twice as long."""
    late_seconds: float | None = None
    """How late a firing may begin; after that it is missed. By default a minute, and any time for `at`."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            checks.raise_config_error("Schedule", "name", self.name, "give 1 to 64 letters, digits, '.', '_' or '-'")
        if self.when is not None and not isinstance(self.when, (Every, At, Cron)):
            checks.raise_config_error("Schedule", "when", self.when, "use every(…), at(…) or cron(…)")
        for field in ("prompt", "skill", "session", "role"):
            checks.require_text("Schedule", field, getattr(self, field))
        checks.require_one_line("Schedule", "session", self.session)
        if find_reserved_name(self.choose_session("firing")):
            checks.raise_config_error(
                "Schedule",
                "session",
                self.session or self.name,
                "the runtime has its own sessions there: give another",
            )
        checks.require_bool("Schedule", "new_session", self.new_session)
        checks.require_int("Schedule", "retries", self.retries)
        if self.retries > _MOST_RETRIES:
            checks.raise_config_error("Schedule", "retries", self.retries, f"give at most {_MOST_RETRIES}")
        checks.require_number("Schedule", "retry_seconds", self.retry_seconds)
        for field in ("timeout_seconds", "late_seconds"):
            if getattr(self, field) is not None:
                checks.require_number("Schedule", field, getattr(self, field))
        if self.timeout_seconds == 0:
            checks.raise_config_error("Schedule", "timeout_seconds", 0, "give more than 0, or None")
        self._check_task()

    def _check_task(self) -> None:
        if self.prompt.strip() and self.skill:
            checks.raise_config_error("Schedule", "skill", self.skill, "there is a prompt already: keep one")
        if self.when is not None and not self.prompt.strip() and not self.skill:
            checks.raise_config_error("Schedule", "prompt", self.prompt, "give a prompt, or a skill")

    @property
    def longest_delay_seconds(self) -> float | None:
        """The longest time by which a firing may begin late; `None` for any."""
        if self.late_seconds is not None or isinstance(self.when, At):
            return self.late_seconds
        return _USUAL_LATE_SECONDS

    def describe_timing(self) -> str:
        """Return when it is due as text, such as `every 5m`, or `when triggered`."""
        return "when triggered" if self.when is None else self.when.describe()

    def choose_session(self, firing_id: str) -> str:
        """Return the id of the session in which a firing runs."""
        session = self.session or self.name
        return f"{session}-{firing_id}" if self.new_session else session

    def build_prompt(self, trigger_input: Any = None) -> str:
        """Return the prompt of a firing: that of the schedule, followed by the input of its trigger."""
        given = "" if trigger_input is None else to_text(trigger_input)
        if self.skill:
            return f"/{self.skill} {given}".rstrip()
        return "\n\n".join([each for each in (self.prompt, given) if each.strip()])
