"""Totals of a session's past runs (tokens, turns and cost), and the past runs whose caller gave an `input_id`."""

from msgspec import Struct

from .event import ModelRequested, RunEnded
from .message import NO_USAGE, Usage

CRASH_REASONS = frozenset({"interrupted", "crash_loop", "log_damaged"})
"""Reasons of runs that were ended in the log after their process had died."""


class RunWithInputId(Struct, frozen=True):
    """A run whose caller gave an `input_id`: when the input is sent again, its outcome is returned."""

    run_id: str
    first_message_index: int
    """Index of its first message in the transcript."""
    end_message_index: int = 0
    """Index after its last message in the transcript."""
    run_ended_event: RunEnded | None = None
    """The event that ended it; `None` while it has not ended."""


class PastRunTotals(Struct, frozen=True, gc=False):
    """Tokens, turns and cost of several runs of a session, added up."""

    usage: Usage = NO_USAGE
    turns: int = 0
    cost_usd: float | None = 0.0
    """Cost in US dollars; `None` if the price of one of them is not known."""

    def with_run(self, usage: Usage, turns: int, ended: RunEnded | None) -> "PastRunTotals":
        """Return the totals of these runs and another one; `ended` is the event that ended it, or `None`."""
        used = usage if self.usage is NO_USAGE else self.usage + usage
        return PastRunTotals(used, self.turns + turns, add_run_cost(self.cost_usd, ended))


def add_run_cost(past_usd: float | None, ended: RunEnded | None) -> float | None:
    """Add the cost of a run that has ended to the cost of the runs before it; `None` if either is not known.

    A run that has not ended, or that has no known cost and used no tokens, adds nothing.
    """
    if ended is None or past_usd is None:
        return past_usd
    if ended.cost_usd is None:
        return None if ended.usage.total_tokens else past_usd
    return past_usd + ended.cost_usd


def estimate_usage(request: ModelRequested) -> Usage:
    """Return the estimated input tokens of a model request that got no reply."""
    tokens = request.estimated_tokens
    return Usage(tokens, precision="estimated") if tokens else NO_USAGE
