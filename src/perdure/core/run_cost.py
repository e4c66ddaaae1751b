"""Computation of the cost of a run, finished or not, from the prices that are stored with its model requests."""

from typing import TYPE_CHECKING, Final

from .event import MessageAdded, ModelReplied, ModelRequested
from .message import NO_USAGE, Message, Text, Usage
from .model import Price
from .transcript import CHARACTERS_PER_TOKEN

if TYPE_CHECKING:
    from .fold import State
    from .run import Run

_UNREPORTED: Final = "perdure.unreported_usage"


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


def count_unreported_reply(run: "Run", requested: ModelRequested, reply: Message) -> None:
    """Count a reply whose tokens the model did not report towards the limits of a run and the runs above it.

    Its tokens are estimated as those of a request that a crash cut off: usage and cost of the outcome do not have them.
    """
    text = sum([len(part.text) if isinstance(part, Text) else 0 for part in reply.parts])
    text += sum([len(each.name) + len(each.arguments) for each in reply.tool_calls])
    used, price = Usage(requested.estimated_tokens, -(-text // CHARACTERS_PER_TOKEN)), run.info.price
    above: Run | None = run
    while above is not None:
        tokens, usd = _get_unreported(above)
        usd += 0.0 if price is None else price.cost_usd(used)
        above.scratch[_UNREPORTED] = tokens + used.total_tokens, usd
        above = above.parent


def count_unreported_entries(run: "Run") -> None:
    """Count the replies without reported tokens that a run had before it was resumed."""
    requested: dict[str, ModelRequested] = {}
    for event in [each.event for each in run.entries if each.event.path == run.path]:
        if isinstance(event, ModelRequested):
            requested["last"] = event
        elif isinstance(event, (MessageAdded, ModelReplied)) and event.message.role == "assistant" and requested:
            if event.message.usage is None:
                count_unreported_reply(run, requested["last"], event.message)
            requested.clear()


def find_used_tokens(run: "Run") -> int:
    """Return the tokens that count for the limits of a run, those that its models did not report included."""
    return run.usage.total_tokens + _get_unreported(run)[0]


def find_spent_usd(run: "Run") -> float:
    """Return the cost that counts for the limits of a run, as far as it is known or can be estimated."""
    return sum_known_cost_usd(run) + _get_unreported(run)[1]


def _get_unreported(run: "Run") -> tuple[int, float]:
    """Return the estimated tokens and cost of replies whose model reported none."""
    found: tuple[int, float] = run.scratch.get(_UNREPORTED, (0, 0.0))
    return found


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
