"""Computation of the cost of a run, finished or not, from the prices that are stored with its model requests."""

from typing import TYPE_CHECKING

from .message import NO_USAGE
from .model import Price

if TYPE_CHECKING:
    from .fold import State


def find_cost_usd(state: "State", *, with_unanswered: bool = False) -> float | None:
    """Return the cost of a run and its subagents in US dollars; `None` if a price is not known.

    `with_unanswered` adds the estimated input of requests without a reply, which may be billed after a crash.
    """
    price = Price.from_tuple(state.price_usd)
    own, asked = state.own_cost_usd(price), state.own_unanswered_usage if with_unanswered else NO_USAGE
    if own is None and not state.own_usage.total_tokens:
        own = 0.0
    if asked.total_tokens:
        own = None if own is None or price is None else own + price.cost_usd(asked)
    below = [find_cost_usd(child, with_unanswered=with_unanswered) for child in state.open_children.values()]
    if own is None or None in below:
        return None
    return own + state.children_usd + sum([each or 0.0 for each in below])
