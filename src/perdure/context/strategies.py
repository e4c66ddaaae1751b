"""How the beginning of a conversation becomes one message: by a model, by leaving it out, by a function of your own.

Above: `compaction.py`. Below: `snapshot.py`, `hand_off.py`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from perdure.core import check
from perdure.core.error import ConfigError
from perdure.core.message import NO_USAGE, Message, Usage
from perdure.core.run import Run

from .file_ledger import ledger_of
from .hand_off import Carried, carried_by, hand_off, is_summary, skills_in
from .lines import line_of
from .snapshot import Snapshots
from .tokens import SUMMARY, messages_tokens

LARGEST_SUMMARY = 24_000
"""In tokens."""
LEAST_ROOM = 200
"""For a summary, in tokens; with less it could not even say what it is."""

Strategy: TypeAlias = Callable[[Run, Sequence[Message]], Awaitable[Message | None]]
"""Makes the message that stands for these messages; nothing, to leave them as they are."""


class Plan(Struct, frozen=True):
    """What is to be replaced."""

    replaced: list[Message]
    """What the model is sent now, and will not be any more."""
    upto: int
    """How many messages of the transcript that is."""
    room: int
    """For the summary, in tokens."""
    tokens: int
    """What is replaced has."""


class Work:
    """One summary in the making."""

    def __init__(self, run: Run, plan: Plan, snapshots: Snapshots) -> None:
        self.run = run
        self.plan = plan
        self.snapshot = ""
        """What the model has written."""
        self.is_made = False
        """Whether there is a message, be it too long."""
        self._snapshots = snapshots

    @property
    def usage(self) -> Usage | None:
        """What it has used; `None` when nobody was asked, or nobody told."""
        spent = self._snapshots.spent
        return sum(spent, NO_USAGE) if spent else None

    async def summed_up(self) -> Message:
        """The message, with a snapshot that a model has made."""
        replaced, upto = self.plan.replaced, self.plan.upto
        fresh = [each for each in replaced if not is_summary(each)]
        lines = [line_of(each, number) for number, each in enumerate(fresh, upto - len(fresh) + 1)]
        self.snapshot = await self._snapshots.take(lines, carried_by(replaced).snapshot)
        return hand_off(self.run, replaced, upto, self.plan.room, self.snapshot)

    async def made_by(self, strategy: Strategy) -> Message | None:
        """What a strategy makes, marked as a summary, with what the next one has to know."""
        replaced = self.plan.replaced
        made = await strategy(self.run, replaced)
        if made is None:
            return None
        check.returned("strategy", strategy, made, Message, "a message such as user(…), or None")
        if made.role != "user" or not made.text.strip():
            raise ConfigError(f"the strategy {strategy!r} returned {made!r}: it has to return words, as user(…)")
        if SUMMARY in made.metadata:
            return made
        before = carried_by(replaced)
        files, skills = before.files.followed_by(ledger_of(replaced)), before.skills | skills_in(replaced)
        noted = msgspec.to_builtins(Carried(made.text, files, skills))
        return msgspec.structs.replace(made, origin=SUMMARY, metadata={**made.metadata, SUMMARY: noted})


async def keep_recent(run: Run, replaced: Sequence[Message]) -> Message:
    """A strategy that asks no model: older messages are left out, and a marker says so. Files and tasks are noted."""
    fresh = [each for each in replaced if not is_summary(each)]
    room = max(min(messages_tokens(replaced) // 2, LARGEST_SUMMARY), LEAST_ROOM)
    return hand_off(run, replaced, run.state.transcript.compacted + len(fresh), room, None)
