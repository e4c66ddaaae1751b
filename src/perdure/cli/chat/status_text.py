"""The status line of the chat: state, model, session, tokens, share of the prompt cache, and cost."""

from typing import TYPE_CHECKING, Final

from perdure.cli.terminal_output import to_one_line

if TYPE_CHECKING:
    from perdure.runtime.session_report import SessionUsage

SPINNER: Final = "-\\|/"
_THOUSAND: Final = 1000
_MILLION: Final = 1_000_000


def format_status(
    *, state: str, model: str, session: str, usage: "SessionUsage | None", columns: int, separator: str = " | "
) -> str:
    """Return the status line of the chat; on a narrow terminal, the least important parts are left out.

    Kept longest are the state, the tokens and the cost.
    """
    spent, name, number = format_usage(usage), to_one_line(model), to_one_line(session)
    choices = ((state, spent, name, number), (state, spent, name), (state, spent), (state, format_usage_briefly(usage)))
    for parts in choices:
        line = separator.join([each for each in parts if each])
        if len(line) < columns:
            return line
    return state


def format_usage(usage: "SessionUsage | None") -> str:
    """Return a session's tokens, the share of its input that the prompt cache supplied, and its cost, as text."""
    if usage is None or not usage.turns:
        return ""
    tokens = usage.usage
    share = tokens.cache_read_tokens / max(tokens.input_tokens, 1)
    cached = f", {share:.0%} cached" if tokens.cache_read_tokens else ""
    cost = "" if usage.cost_usd is None else f" {format_cost(usage.cost_usd)}"
    return f"{shorten_count(tokens.input_tokens)} in{cached}, {shorten_count(tokens.output_tokens)} out{cost}"


def format_usage_briefly(usage: "SessionUsage | None") -> str:
    """Return tokens in and out, the cached share and the cost, for a narrow terminal."""
    if usage is None or not usage.turns:
        return ""
    tokens = usage.usage
    share = f" {tokens.cache_read_tokens / max(tokens.input_tokens, 1):.0%}" if tokens.cache_read_tokens else ""
    cost = "" if usage.cost_usd is None else f" {format_cost(usage.cost_usd)}"
    return f"{shorten_count(tokens.input_tokens)}/{shorten_count(tokens.output_tokens)}{share}{cost}"


def format_cost(cost_usd: float) -> str:
    """Return a cost in dollars as text: four decimals below one dollar, otherwise two (also for zero)."""
    return f"${cost_usd:.2f}" if cost_usd >= 1 or not cost_usd else f"${cost_usd:.4f}"


def shorten_count(count: int) -> str:
    """Return a number of tokens in few characters, such as `12.3k`."""
    if count < _THOUSAND:
        return str(count)
    return f"{count / _THOUSAND:.1f}k" if count < _MILLION else f"{count / _MILLION:.1f}M"
