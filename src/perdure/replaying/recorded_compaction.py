"""Take summaries, and the other work between two turns, from the recorded log instead of doing it again.

No summary is requested again: the recorded one is stored at its place, and so are the short forms of older results,
closed slots, revoked grants, and finished subagents. When they were due is therefore not compared; an agent that does
not do them any more is noticed.
"""

from typing import Any

from perdure.core.error import ContextOverflow
from perdure.core.event import Compacted, Entry, GrantRevoked, ModelRequested, SlotClosed, SubagentFinished
from perdure.core.gate_operations import list_grants_of
from perdure.core.model import Model
from perdure.core.run import BetweenTurns, Run

from .compare import call_id_of
from .playback import Playback
from .segment import is_compaction, is_shortening

_OURS = "perdure."


class RecordedCompaction:
    """Compaction of a replay: it stores the recorded summaries at their recorded places, and asks no model."""

    model: Model | None = None
    """Model for summaries: always `None`."""

    def __init__(self, tape: Playback) -> None:
        self._tape = tape

    async def __call__(self, run: Run) -> None:
        """Store the summaries that were recorded before the next request or call."""
        await self.compact(run)

    async def compact(
        self,
        run: Run,
        cause: str = "",  # noqa: ARG002 - as of every compaction
        *,
        focus: str = "",  # noqa: ARG002 - the same
        error: ContextOverflow | None = None,  # noqa: ARG002 - the same
    ) -> bool:
        """Store the summaries recorded at this point; return True if the model is sent less from now on."""
        stored = await self._tape.store_next(run, is_compaction)
        return any(isinstance(event, Compacted) for event in stored)


def replay_recorded_compaction(tape: Playback, step: BetweenTurns) -> Any:
    """Return a step between turns that stores the recorded results of `upkeep`; return custom steps as they are."""
    if not getattr(step, "__module__", "").startswith(_OURS):
        return step
    if callable(getattr(step, "compact", None)):
        return RecordedCompaction(tape)

    async def shorten(run: Run) -> None:
        await tape.store_next(run, is_shortening)

    return shorten


def build_note_storing(tape: Playback) -> BetweenTurns:
    """Return a step between turns that stores recorded slot closings, revoked grants and finished subagents again."""

    def is_note(entry: Entry) -> bool:
        return isinstance(entry.event, GrantRevoked | SlotClosed | SubagentFinished) and not entry.event.path

    async def take(run: Run) -> None:
        left = tape.check.remaining
        before = next((each.seq for each in left if _is_request_or_call(each)), 0)
        for event in await tape.store_other_entries(run, before, is_note):
            if isinstance(event, GrantRevoked):
                for _, grants in list_grants_of(run.gate):
                    grants.forget(event.grant_id)

    return take


def _is_request_or_call(entry: Entry) -> bool:
    return isinstance(entry.event, ModelRequested) or call_id_of(entry.event) is not None
