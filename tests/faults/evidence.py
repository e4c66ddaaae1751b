"""What outsiders know about a session and the processes that have driven it. Above: the auditors."""

import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from perdure.events import Entry
from tests.faults.plan import Item


class Effect(NamedTuple):
    """A line of the ledger."""

    tool: str
    key: str
    what: str


class Testimony(NamedTuple):
    """What one process has told about a session."""

    lines: Sequence[str]
    was_killed: bool


class Evidence(NamedTuple):
    """Everything that is known about a session and its processes."""

    items: Sequence[Item]
    """What was to be done."""
    entries: Sequence[Entry]
    """The log at the end."""
    effects: Sequence[Effect]
    """What has really happened, in order."""
    testimonies: Sequence[Testimony]
    """Of every process; the last one of these had to finish everything."""
    seconds: float
    """How long that one took."""
    waiting: Collection[str] = ()
    """The posts that nobody has taken."""

    @property
    def told(self) -> list[str]:
        """Every line of every process."""
        return [line for testimony in self.testimonies for line in testimony.lines]

    def of_kind(self, kind: type[Any]) -> list[Any]:
        """The events of one kind, in order."""
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]


def writer_of(entry: Entry) -> str:
    """Who has stored an entry: each driver of each run has a name of its own. A post that was taken has none."""
    found = re.fullmatch(r"(\w{16})-\d+", entry.id)
    return found[1] if found else ""
