"""Send tool results of earlier runs to the model as the short summaries that their tools have provided.

A tool can provide a short summary of its result (`ToolOutput.summary`, or `@tool(summary=…)`). The run that made the
call sends the full result; later runs send the summary. The log keeps the content. Changing what was sent before costs
a miss of the provider's prompt cache, so results are shortened in batches that are worth it.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from perdure.core import argument_checks
from perdure.core.event import ViewChanged
from perdure.core.message import Message
from perdure.core.run import Run
from perdure.core.transcript import shorten_message_for_model

from .tokens import count_context_tokens, estimate_message_tokens

VIEW_CHANGE_CAUSE = "summaries"


def summarize_old_results(*, min_tokens: int = 2_000, min_fraction: float = 0.1) -> Callable[[Run], Awaitable[None]]:
    """Make a `between_turns` function that replaces tool results of earlier runs by their tools' short summaries.

    It does so once that saves `min_tokens` and `min_fraction` of the context.

    Pass it to an extension as `between_turns`, before the compaction: shortened results need not be summarized.
    """
    argument_checks.require_int("summarize_old_results", "min_tokens", min_tokens)
    argument_checks.require_number("summarize_old_results", "min_fraction", min_fraction, 1)

    async def upkeep(run: Run) -> None:
        state, transcript = run.state, run.state.transcript
        if state.turns:  # only at the start of a run: older messages do not change during it
            return
        first = max(transcript.shortened_count, transcript.compacted_count)
        saved = sum(estimate_savings(state.messages[first : state.first_message_index]))
        if saved and saved >= min_tokens and saved >= min_fraction * count_context_tokens(run):
            await run.emit(run.stamp_event(ViewChanged(VIEW_CHANGE_CAUSE, state.first_message_index)))

    return upkeep


def estimate_savings(messages: Sequence[Message]) -> Iterator[int]:
    """Yield, for each message with tool results, the tokens saved by sending the results' summaries instead."""
    for message in messages:
        if message.role == "tool":
            yield max(
                estimate_message_tokens(shorten_message_for_model(message))
                - estimate_message_tokens(shorten_message_for_model(message, short=True)),
                0,
            )
