"""Compaction strategies: summarize the start of a conversation, leave it out, or replace it by a message of your own.

A model summarizes it, older messages are left out, or a function of your own builds the message.
"""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from perdure.core import argument_checks
from perdure.core.error import ConfigError
from perdure.core.message import NO_USAGE, Message, Usage
from perdure.core.run import Run

from .conversation_summarizer import ConversationSummarizer
from .message_lines import format_message_line
from .summary_message import SummaryCarryOver, build_summary_message, collect_skill_texts, is_summary, read_summary_data
from .tokens import SUMMARY_ORIGIN, estimate_messages_tokens
from .touched_files import collect_touched_files

MAX_SUMMARY_TOKENS = 24_000
"""Maximum size of a summary, in tokens."""
MIN_SUMMARY_TOKENS = 200
"""Minimum room for a summary, in tokens; less would not fit even its heading."""

Strategy: TypeAlias = Callable[[Run, Sequence[Message]], "Awaitable[Message | None] | Message | None"]
"""Plain or async function that returns the message to replace these messages, or None to keep them."""


class CompactionPlan(Struct, frozen=True):
    """The messages that a compaction will replace by a summary, and the maximum size of the summary."""

    replaced: list[Message]
    """Messages that are sent now and will be replaced."""
    upto: int
    """Number of messages of the transcript that are covered."""
    room: int
    """Room for the summary, in tokens."""
    tokens: int
    """Size of the replaced messages, in tokens."""


class SummaryMessageBuilder:
    """Builds the message that replaces the start of a conversation, with a model or with a strategy function."""

    def __init__(self, run: Run, plan: CompactionPlan, snapshots: ConversationSummarizer) -> None:
        self.run = run
        self.plan = plan
        self.snapshot = ""
        """Text that the model has written."""
        self.is_made = False
        """True if a message was made, even if it is too long."""
        self._snapshots = snapshots

    @property
    def usage(self) -> Usage | None:
        """Token usage of the requests for the summary; `None` if no model was asked or none reported it."""
        spent = self._snapshots.spent
        return sum(spent, NO_USAGE) if spent else None

    async def build_with_model(self) -> Message:
        """Let a model summarize the messages, and build the message that replaces them."""
        replaced, upto = self.plan.replaced, self.plan.upto
        fresh = [each for each in replaced if not is_summary(each)]
        lines = [format_message_line(each, number) for number, each in enumerate(fresh, upto - len(fresh) + 1)]
        self.snapshot = await self._snapshots.write_snapshot(lines, read_summary_data(replaced).snapshot)
        summary = build_summary_message(self.run, replaced, upto, self.plan.room, self.snapshot)
        return msgspec.structs.replace(summary, labels=self._snapshots.labels)

    async def build_with_strategy(self, strategy: Strategy) -> Message | None:
        """Let a strategy function build the message, and add the data that the next summary needs; `None` if it
        returns none.
        """
        replaced = self.plan.replaced
        answer = strategy(self.run, replaced)
        made = await answer if isawaitable(answer) else answer
        if made is None:
            return None
        argument_checks.require_return_type("strategy", strategy, made, Message, "a message such as user(…), or None")
        if made.role != "user" or not made.text.strip():
            raise ConfigError(f"the strategy {strategy!r} returned {made!r}: it has to return text, as user(…)")
        if SUMMARY_ORIGIN in made.metadata:
            return made
        before = read_summary_data(replaced)
        files, skills = (
            before.files.merge_later(collect_touched_files(replaced)),
            before.skills | collect_skill_texts(replaced),
        )
        noted = msgspec.to_builtins(SummaryCarryOver(made.text, files, skills))
        return msgspec.structs.replace(made, origin=SUMMARY_ORIGIN, metadata={**made.metadata, SUMMARY_ORIGIN: noted})


async def keep_recent(run: Run, replaced: Sequence[Message]) -> Message:
    """Compaction strategy that asks no model: replace the older messages by a short note.

    The note says that they were left out, and lists files and tasks.
    """
    fresh = [each for each in replaced if not is_summary(each)]
    room = max(min(estimate_messages_tokens(replaced) // 2, MAX_SUMMARY_TOKENS), MIN_SUMMARY_TOKENS)
    return build_summary_message(run, replaced, run.state.transcript.compacted_count + len(fresh), room, None)
