"""Computation of the cost of a run, finished or not, from the prices that are stored with its model requests."""

from typing import TYPE_CHECKING

from .message import NO_USAGE, Usage
from .model import Price

if TYPE_CHECKING:
    from .fold import State
    from .run import Run


def list_run_costs(run: "Run") -> list[float | None]:
    """Return the costs that a run in progress consists of: its own, those of its subagents, and those beside it.

    One is `None` if a price is neither reported nor known.
    """
    # Children that have ended are counted in `state.children_usd`.
    below = [child.cost_usd for child in run.children if child.state.run_ended_event is None]
    return [_find_own_cost_usd(run), run.state.children_usd, *below, *_list_other_costs(run)]


def sum_known_cost_usd(run: "Run") -> float:
    """Return the cost of a run in progress as far as it is known: what has no price must not lift a limit."""
    below = [sum_known_cost_usd(child) for child in run.children if child.state.run_ended_event is None]
    others = [each or 0.0 for each in _list_other_costs(run)]
    return (_find_own_cost_usd(run) or 0.0) + run.state.children_usd + sum([*below, *others])


def count_spending_beside(run: "Run", usage: Usage, cost_usd: float | None) -> None:
    """Count the tokens and cost of a model that is not the run's and worked for it, here and in the runs above.

    Those have the cost from the runs below them.
    """
    run.spent_beside.append((usage, cost_usd))
    above = run.parent
    while above is not None:
        above.spent_beside.append((usage, 0.0))
        above = above.parent


def _find_own_cost_usd(run: "Run") -> float | None:
    return run.state.own_cost_usd(run.info.price)


def _list_other_costs(run: "Run") -> list[float | None]:
    """Return the costs of models beside a run and, after a resume, of subagents that have not been resumed."""
    costs = [cost_usd for _, cost_usd in run.spent_beside]
    if run.state.open_children:
        live = [child.state for child in run.children]
        costs += [find_cost_usd(each) for each in run.state.open_children.values() if each not in live]
    return costs


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
