"""What a run in progress costs, with its subagents and the models that work for it, and whether a limit is spent."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from perdure._core.log.past_runs import find_cost_usd, is_reply
from perdure._core.model.protocol import Price
from perdure._core.model.transcript import CHARACTERS_PER_TOKEN
from perdure._core.values.event import Entry, MessageAdded, ModelReplied, ModelRequested
from perdure._core.values.message import Message, Text, Usage

from .stop import KEPT_FOR_ANSWER

if TYPE_CHECKING:
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


def find_spent_limit(run: "Run", kept: float = 0.0) -> str:
    """Return the name of the token or cost limit that this run or a parent run has used up; empty if none.

    The input of requests in flight counts: of several subagents at work, those that would ask when the others have
    already used up the limit do not. `kept` is the part of this run's limits that must be left.
    """
    limits, most = run.options.limits, run.options.limits.max_cost_usd
    if limits.token_budget is not None:
        used = find_used_tokens(run) + run.state.unanswered_usage.total_tokens
        if used >= limits.token_budget * (1 - kept):
            return "token_budget"
    if most is not None and find_spent_usd(run) + _estimate_in_flight_usd(run) >= most * (1 - kept):
        return "max_cost"
    return "" if run.parent is None else find_spent_limit(run.parent, KEPT_FOR_ANSWER if run.is_private else 0.0)


def list_usage_beside(run: "Run") -> list[Usage]:
    """Return the tokens of models beside a run, such as graders, and beside the runs below it.

    Those that the end of a child tells are in `state.usage`; that of one which was left behind tells none.
    """
    own = [usage for usage, _ in run.spent_beside]
    return [
        *own,
        *[usage for child in run.children if not _tells_usage_beside(child) for usage in list_usage_beside(child)],
    ]


def count_spending_beside(run: "Run", usage: Usage, cost_usd: float | None) -> None:
    """Count the tokens and cost of a model that is not the run's and worked for it; they count for the runs above."""
    run.spent_beside.append((usage, cost_usd))


def count_unreported_reply(run: "Run", requested: ModelRequested, reply: Message) -> None:
    """Count a reply whose tokens the model did not report towards the limits of a run and the runs above it.

    Its tokens are estimated as those of a request that a crash cut off: usage and cost of the outcome do not have them.
    """
    above: Run | None = run
    while above is not None:
        _add_unreported_reply(above, requested, reply)
        above = above.parent


def count_unreported_entries(run: "Run", entries: Iterable[Entry]) -> None:
    """Count the replies without reported tokens that a run and those below it had before it was resumed.

    The `entries` are those of the session. The runs above have counted their own when they were resumed.
    """
    requested: dict[tuple[str, int], ModelRequested] = {}
    for event in [each.event for each in entries if f"{each.event.run_id}/".startswith(f"{run.run_id}/")]:
        if isinstance(event, ModelRequested):
            requested[event.path, event.turn if event.aside else 0] = event
        elif isinstance(event, (MessageAdded, ModelReplied)) and is_reply(event.message):
            asked = requested.pop((event.path, event.turn if isinstance(event, ModelReplied) else 0), None)
            if asked is not None and event.message.usage is None:
                _add_unreported_reply(run, asked, event.message)


def find_used_tokens(run: "Run") -> int:
    """Return the tokens that count for the limits of a run, those that its models did not report included."""
    return run.usage.total_tokens + _get_unreported(run)[0]


def find_spent_usd(run: "Run") -> float:
    """Return the cost that counts for the limits of a run, as far as it is known or can be estimated."""
    return sum_known_cost_usd(run) + _get_unreported(run)[1]


def count_past_usage(run: "Run") -> None:
    """Count what a resumed run used before a crash in its budgets, unless they have counted it already.

    Subagents in progress count their own part when they are resumed.
    """
    if run.spec.budgets:
        state = run.state
        tokens = state.usage.total_tokens - sum([child.usage.total_tokens for child in state.open_children.values()])
        cost_usd = state.children_usd + (state.own_cost_usd(run.info.price) or 0.0)
        for budget in run.spec.budgets:
            budget.count_past(run.run_id, tokens, cost_usd)


def _find_own_cost_usd(run: "Run") -> float | None:
    return run.state.own_cost_usd(run.info.price)


def _estimate_in_flight_usd(run: "Run") -> float:
    """Return the estimated cost of the input of requests in flight, of this run and of its subagents."""
    price = run.info.price
    tokens = sum([each.estimated_tokens for each in run.state.unanswered_requests])
    own = 0.0 if price is None or not tokens else price.cost_usd(Usage(tokens))
    return own + sum([_estimate_in_flight_usd(child) for child in run.children])


def _list_other_costs(run: "Run") -> list[float | None]:
    """Return the costs of models beside a run and, after a resume, of subagents that have not been resumed."""
    costs = [cost_usd for _, cost_usd in run.spent_beside]
    if run.state.open_children:
        live = [child.state for child in run.children]
        costs += [find_cost_usd(each) for each in run.state.open_children.values() if each not in live]
    return costs


def _get_unreported(run: "Run") -> tuple[int, float]:
    """Return the estimated tokens and cost of replies whose model reported none."""
    found: tuple[int, float] = run.scratch.get(_UNREPORTED, (0, 0.0))
    return found


def _tells_usage_beside(child: "Run") -> bool:
    ended = child.state.run_ended_event
    return ended is not None and ended.usage.total_tokens > child.state.usage.total_tokens


def _add_unreported_reply(run: "Run", requested: ModelRequested, reply: Message) -> None:
    text = sum([len(part.text) if isinstance(part, Text) else 0 for part in reply.parts])
    text += sum([len(each.name) + len(each.arguments) for each in reply.tool_calls])
    used = Usage(requested.estimated_tokens, -(-text // CHARACTERS_PER_TOKEN))
    price = Price.from_tuple(requested.price_usd)
    tokens, usd = _get_unreported(run)
    usd += 0.0 if price is None else price.cost_usd(used)
    run.scratch[_UNREPORTED] = tokens + used.total_tokens, usd
