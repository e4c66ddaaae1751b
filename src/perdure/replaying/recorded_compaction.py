"""Compaction in a replay: summaries and other work between turns are taken from the recorded log.

No summary is requested again: the recorded one is stored at its place, and so are the short forms of older results,
closed slots, revoked grants, and finished subagents. When they were due is therefore not compared; an agent that does
not do them any more is noticed.
"""

from typing import Any

from perdure.core.error import ContextOverflow
from perdure.core.event import Compacted, Entry, GrantRevoked, ModelRequested, SlotClosed, SubagentFinished
from perdure.core.inherited_permission_gates import list_chain_grants
from perdure.core.model import Model
from perdure.core.run import BetweenTurns, Run
from perdure.core.run_function_types import RECALL_ATTRIBUTE

from .log_comparison import get_call_id
from .recorded_input_playback import Playback
from .run_segment import is_compaction, is_result_shortening

_OURS = "perdure."


class RecordedCompaction:
    """Compaction in a replay: it stores the recorded summaries where they were recorded, and asks no model."""

    model: Model | None = None
    """Model for summaries: always `None`."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback

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
        stored = await self._playback.store_next(run, is_compaction)
        return any(isinstance(event, Compacted) for event in stored)


def make_recorded_compaction_step(playback: Playback, step: BetweenTurns) -> Any:
    """Return a replay's substitute for a compaction step: it stores the recorded events instead of calling `step`.

    A function that is not part of Perdure is returned unchanged.
    """
    if not getattr(step, "__module__", "").startswith(_OURS):
        return step
    if callable(getattr(step, "compact", None)):
        return RecordedCompaction(playback)

    async def shorten(run: Run) -> None:
        await playback.store_next(run, is_result_shortening)

    return shorten


def make_recorded_events_step(playback: Playback) -> BetweenTurns:
    """Return a between-turns function for a replay, which stores the events that were recorded between these turns.

    These are closed display slots, revoked grants and finished subagents.
    """

    def is_note(entry: Entry) -> bool:
        return isinstance(entry.event, GrantRevoked | SlotClosed | SubagentFinished) and not entry.event.path

    async def take(run: Run) -> None:
        left = playback.check.remaining
        before = next((each.seq for each in left if _is_request_or_call(each)), 0)
        for event in await playback.store_other_entries(run, before, is_note):
            if isinstance(event, GrantRevoked):
                for _, grants in list_chain_grants(run.gate):
                    grants.forget(event.grant_id)

    async def recall_private_run(run: Run, path: str) -> None:
        await playback.store_private_run(run, path)

    vars(take)[RECALL_ATTRIBUTE] = recall_private_run
    return take


def _is_request_or_call(entry: Entry) -> bool:
    return isinstance(entry.event, ModelRequested) or get_call_id(entry.event) is not None
