"""The session of a replay: its runs begin with the recorded messages instead of a typed prompt.

What a typed message asks for (`/name` handlers, skills, files) was done before it was stored, and is not done again:
the stored messages begin the run, under its recorded id.
"""

from collections.abc import Sequence
from typing import Any

from perdure._core.run.outcome import Outcome
from perdure._core.values.event import RunResumed
from perdure._core.values.message import Message
from perdure._runtime.agent.overrides import RunOverrides
from perdure._runtime.session.commands import DriverCommand, ResumeCommand, RunPromptCommand, WakeCommand
from perdure._runtime.session.driver import NOTHING_NEW
from perdure._runtime.session.session import Session

from .log import RunSegment


class ReplaySession(Session[Any]):
    """Session of a replay, which runs the agent again on the recorded messages instead of typed prompts.

    `/name` and `@file` in these messages are not handled again.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._driver.accepts_any_agent = True  # a replay shows what another one would do

    async def begin(self, segment: RunSegment, overrides: RunOverrides) -> Outcome[Any] | None:
        """Begin or resume a run as recorded, and return its outcome; `None` if there was nothing to answer."""
        run_id = segment.started.run_id
        if segment.is_cancelled_at_start:
            self._driver.cancel_run(run_id, "now")
        outcome = await self._driver.perform_command(_command(segment, run_id, overrides))
        return None if outcome.reason == NOTHING_NEW else outcome

    async def view(self) -> Sequence[Message]:
        """Return the messages that the model would be sent now, after compaction."""
        return (await self.read_state()).view


def _command(segment: RunSegment, run_id: str, overrides: RunOverrides) -> DriverCommand:
    if segment.begins == "resume":
        # One that was parked then is parked now; one that went on then may have been taken up again.
        return ResumeCommand(overrides, unpark=isinstance(segment.entries[0].event, RunResumed))
    if segment.begins == "wake":
        return WakeCommand(run_id)
    return RunPromptCommand(run_id, overrides, tuple(segment.opening), tuple(segment.skills), segment.answer)
