"""Older results of tools, sent as their summaries. Above: the assembly, the loop. Below: `tokens.py`, `core`.

A tool may say in a few words what its result was (`ToolOutput.summary`, or `@tool(summary=…)`). While a run works with
a result the model sees all of it; later runs are sent the short form. The log keeps the content. Changing what was sent
before costs a miss of the provider's cache, so results are shortened in batches that are worth it.
"""

from collections.abc import Iterator, Sequence

from perdure.core import check
from perdure.core.event import ViewChanged
from perdure.core.message import Message
from perdure.core.run import Run, Upkeep
from perdure.core.view import as_sent

from .tokens import context_tokens, message_tokens

CAUSE = "summaries"


def summarised(*, min_tokens: int = 2_000, min_fraction: float = 0.1) -> Upkeep:
    """Send results of earlier runs as their summaries, once that saves `min_tokens` and `min_fraction` of the context.

    Give it to an extension as `upkeep`, before the compaction: what is shortened need not be summed up.
    """
    check.whole_number("summarised", "min_tokens", min_tokens)
    check.number("summarised", "min_fraction", min_fraction, 1)

    async def upkeep(run: Run) -> None:
        state, transcript = run.state, run.state.transcript
        if state.turns:  # what is older than the run does not change while it goes on
            return
        first = max(transcript.short, transcript.compacted)
        saved = sum(savings(state.messages[first : state.first]))
        if saved and saved >= min_tokens and saved >= min_fraction * context_tokens(run):
            await run.emit(run.stamped(ViewChanged(CAUSE, state.first)))

    return upkeep


def savings(messages: Sequence[Message]) -> Iterator[int]:
    """What each message with results would save."""
    for message in messages:
        if message.role == "tool":
            yield max(message_tokens(as_sent(message)) - message_tokens(as_sent(message, short=True)), 0)
