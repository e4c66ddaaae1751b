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
    """Return the status line; on a narrow terminal, what matters least is left out.

    Kept longest are the state, the tokens and the cost.
    """
    spent = format_usage(usage)
    parts = {"state": state, "spent": spent, "model": to_one_line(model), "session": to_one_line(session)}
    for dropped in ((), ("session",), ("session", "model"), ("session", "model", "spent")):
        kept = [text for name, text in parts.items() if text and name not in dropped]
        line = separator.join(kept)
        if len(line) < columns:
            return line
    return state


def format_usage(usage: "SessionUsage | None") -> str:
    """Return the tokens, the share of the input that came from the prompt cache, and the cost of a session."""
    if usage is None or not usage.turns:
        return ""
    tokens = usage.usage
    share = tokens.cache_read_tokens / max(tokens.input_tokens, 1)
    cached = f", {share:.0%} cached" if tokens.cache_read_tokens else ""
    cost = "" if usage.cost_usd is None else f" {format_cost(usage.cost_usd)}"
    return f"{shorten_count(tokens.input_tokens)} in{cached}, {shorten_count(tokens.output_tokens)} out{cost}"


def format_cost(cost_usd: float) -> str:
    """Return a cost in dollars with as many digits as matter."""
    return f"${cost_usd:.2f}" if cost_usd >= 1 or not cost_usd else f"${cost_usd:.4f}"


def shorten_count(count: int) -> str:
    """Return a number of tokens in few characters, such as `12.3k`."""
    if count < _THOUSAND:
        return str(count)
    return f"{count / _THOUSAND:.1f}k" if count < _MILLION else f"{count / _MILLION:.1f}M"
