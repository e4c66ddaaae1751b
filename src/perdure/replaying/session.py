"""A session whose runs begin with what was stored, whatever a person had typed. Above: `tape.py`, `drive.py`.
Below: sessions and their driver.

What a message asks for (hooks, skills, files) was done before it was stored. It is not done again: the stored messages
begin the run, under the name that it had.
"""

from collections.abc import Sequence
from typing import Any

from perdure.core.message import Message
from perdure.core.outcome import Outcome
from perdure.driver import NOTHING_NEW, Order
from perdure.override import Options
from perdure.session import Session

from .stretch import Stretch


class RecordedSession(Session[Any]):
    """A session that is replayed."""

    async def begin(self, stretch: Stretch, overrides: Options) -> Outcome[Any] | None:
        """Begin a run, or go on with it, as it was then. `None` when there was to be one, and nothing begins it."""
        run_id = stretch.started.run_id
        if stretch.unwanted:
            self._driver.stop(run_id, "now")
        outcome = await self._uncancelled(self._driver.perform(_order(stretch, run_id, overrides)))
        return None if outcome.reason == NOTHING_NEW else outcome

    async def view(self) -> Sequence[Message]:
        """What the model is sent of the conversation now."""
        return (await self._state()).view


def _order(stretch: Stretch, run_id: str, overrides: Options) -> Order:
    if stretch.begins == "resume":
        return Order("resume", overrides=overrides)
    if stretch.begins == "wake":
        return Order("wake", run_id)
    return Order("run", run_id, overrides, tuple(stretch.opening), beside=tuple(stretch.skills), answer=stretch.answer)
