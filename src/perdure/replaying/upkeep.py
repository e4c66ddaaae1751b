"""What is done before requests and calls, from the record. Above: `offline.py`. Below: `tape.py`.

A summary is not asked for again: the one that was recorded is stored where it was, and so is that older results are
sent in their short form, what people have closed or taken back meanwhile, and that other agents were done. When these
were due is therefore not compared; an agent that does not do it at all any more shows itself.
"""

from typing import Any

from perdure.core.error import ContextOverflow
from perdure.core.event import Compacted, Entry, GrantRevoked, ModelRequested, SlotClosed, SubagentFinished
from perdure.core.model import Model
from perdure.core.permission import Permissions
from perdure.core.run import Run, Upkeep

from .check import call_of
from .stretch import is_compaction, is_shortening
from .tape import Tape

_OURS = "perdure."


class RecordedCompaction:
    """Sums up where, and as, it was summed up then."""

    model: Model | None = None
    """Who sums up: nobody is asked."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    async def __call__(self, run: Run) -> None:
        """Before a request, and before calls."""
        await self.compact(run)

    async def compact(
        self,
        run: Run,
        cause: str = "",  # noqa: ARG002 - as of every compaction
        *,
        focus: str = "",  # noqa: ARG002 - the same
        error: ContextOverflow | None = None,  # noqa: ARG002 - the same
    ) -> bool:
        """Says whether the model is sent less from here on."""
        stored = await self._tape.store_next(run, is_compaction)
        return any(isinstance(event, Compacted) for event in stored)


def recorded_upkeep(tape: Tape, upkeep: Upkeep) -> Any:
    """What we ship is served from the record; somebody's own is code that runs again."""
    if not getattr(upkeep, "__module__", "").startswith(_OURS):
        return upkeep
    if callable(getattr(upkeep, "compact", None)):
        return RecordedCompaction(tape)

    async def shorten(run: Run) -> None:
        await tape.store_next(run, is_shortening)

    return shorten


def notes(tape: Tape) -> Upkeep:
    """What people have closed or taken back, and that other agents are done: none of it is told to the model."""

    def is_note(entry: Entry) -> bool:
        return isinstance(entry.event, GrantRevoked | SlotClosed | SubagentFinished) and not entry.event.path

    async def take(run: Run) -> None:
        left = tape.check.left
        before = next((each.seq for each in left if _begins_something(each)), 0)
        for event in await tape.store_beside(run, before, is_note):
            if isinstance(event, GrantRevoked) and isinstance(run.gate, Permissions):
                run.gate.grants.forget(event.grant_id)

    return take


def _begins_something(entry: Entry) -> bool:
    return isinstance(entry.event, ModelRequested) or call_of(entry.event) is not None
