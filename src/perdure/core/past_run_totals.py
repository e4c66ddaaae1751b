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


class PastRunTotals(Struct, frozen=True):
    """Tokens, turns and cost of several runs of a session, added up."""

    usage: Usage = NO_USAGE
    turns: int = 0
    cost_usd: float | None = 0.0
    """Cost in US dollars; `None` if the price of one of them is not known."""


def add_run_cost(past_usd: float | None, ended: RunEnded | None) -> float | None:
    """Add the cost of a run that has ended to the cost of the runs before it; `None` if either is not known.

    A run that has not ended, or that has no known cost and used no tokens, adds nothing.
    """
    if ended is None or past_usd is None:
        return past_usd
    if ended.cost_usd is None:
        return None if ended.usage.total_tokens else past_usd
    return past_usd + ended.cost_usd


class UncountedRun(Struct, frozen=True, gc=False):
    """A past run of a session whose tokens and cost have not been added to the session's totals yet.

    Adding takes longer than all else that the end of a run changes, so it is done when the totals are asked for.
    """

    usage: Usage
    pending_usage: list[Usage]
    """Usage of further replies, in order."""
    children_usage: Usage
    turns: int
    run_ended_event: RunEnded | None

    def add_to(self, past: PastRunTotals) -> PastRunTotals:
        """Return the totals of the runs before it and of this one."""
        own = sum(self.pending_usage, self.usage)
        used = own if self.children_usage is NO_USAGE else own + self.children_usage
        return PastRunTotals(
            used if past.usage is NO_USAGE else past.usage + used,
            past.turns + self.turns,
            add_run_cost(past.cost_usd, self.run_ended_event),
        )


class UncountedRuns(Struct, frozen=True, array_like=True, gc=False):
    """The tokens, turns and costs of several past runs that have not been added to the session's totals yet."""

    usage: Usage
    turns: int
    costs: list[float]
    """Costs of those runs whose cost is known, in order: the sum depends on it, in the last digits."""
    is_cost_known: bool
    """False if one of the runs used tokens and its cost is not known."""

    def add_to(self, past: PastRunTotals) -> PastRunTotals:
        """Return the totals of the runs before them and of these."""
        usd = past.cost_usd if self.is_cost_known else None
        if usd is not None:
            for cost in self.costs:
                usd += cost
        usage = self.usage if past.usage is NO_USAGE else past.usage + self.usage
        return PastRunTotals(usage, past.turns + self.turns, usd)


class PastRunAccumulator:
    """Accumulator of a session's past runs, all but the last; their totals are computed on demand."""

    __slots__ = ("_totals", "uncounted")

    def __init__(self) -> None:
        self._totals = PastRunTotals()
        self.uncounted: list[UncountedRun | UncountedRuns] = []
        """The runs that have not been added to the totals yet, in order."""

    def count(self) -> PastRunTotals:
        """Return the tokens, turns and cost of all of them."""
        for run in self.uncounted:
            self._totals = run.add_to(self._totals)
        self.uncounted.clear()
        return self._totals


def estimate_usage(request: ModelRequested) -> Usage:
    """Return the estimated input tokens of a model request that got no reply."""
    tokens = request.estimated_tokens
    return Usage(tokens, precision="estimated") if tokens else NO_USAGE
