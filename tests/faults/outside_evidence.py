"""What is known about one session of the outside search: its log, and the lines of the ledger. Above: the audits."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.engines import State, fold_entries
from perdure.events import Entry
from perdure.stores import Post
from tests.faults.outside_ledger import Note


class Evidence(NamedTuple):
    """Everything that is known about a session."""

    name: str
    entries: Sequence[Entry]
    """The log at the end."""
    posts: Sequence[Post]
    """The posts that nobody has taken."""
    notes: Sequence[Note]
    """What was noted outside, in order."""

    @property
    def state(self) -> State:
        """The log, folded."""
        return fold_entries(self.entries)

    @property
    def is_child(self) -> bool:
        """Whether it is the session of an agent that worked in the background."""
        return "/" in self.name

    def noted(self, *kinds: str) -> list[Note]:
        """The lines of some kinds."""
        return [note for note in self.notes if note.what in kinds]

    def of_kind(self, kind: type[Any]) -> list[Any]:
        """The events of one kind, in order."""
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]
