"""Parse the cost of a request from the fields in which providers report it. No I/O.

cost: 0.0012                             OpenRouter, in US dollars; others do the same
cost: {"total_cost": 0.005}              Perplexity
cost: {"usd": 0.0006}                    Venice
cost_in_usd_ticks: 35404000              xAI
"""

from collections.abc import Mapping
from typing import Any

from perdure.core.message import is_cost

from .mistyped_json_fields import as_dict

_TICKS_PER_USD = 10**10
_TOTALS = ("total_cost", "usd")


def parse_reported_cost(usage: Mapping[str, Any]) -> float | None:
    """Return the cost that a usage object reports, in US dollars; `None` if it reports none.

    A request that is billed to a key of the user at another provider costs what that provider charges, as well.
    """
    ticks = usage.get("cost_in_usd_ticks")
    if is_cost(ticks) and ticks:  # 0 where another company serves the model, and bills it itself
        return float(ticks) / _TICKS_PER_USD
    cost = parse_cost(usage.get("cost"))
    if cost is not None and usage.get("is_byok") is True:
        return cost + (parse_cost(as_dict(usage.get("cost_details")).get("upstream_inference_cost")) or 0.0)
    return cost


def parse_cost(cost: Any) -> float | None:
    """Return a cost in US dollars from a number, a text or an object with a total; `None` for anything else."""
    if isinstance(cost, dict):
        cost = next((total for name in _TOTALS if (total := as_dict(cost).get(name)) is not None), None)
    if isinstance(cost, str):
        try:
            cost = float(cost)
        except ValueError:
            return None
    return float(cost) if is_cost(cost) else None
