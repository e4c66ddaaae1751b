"""A watcher that remembers. Above: tests, and whoever wants to see a run. Below: `tree.py`, which draws it.

recorder = Recorder()
agent = Agent(model, watchers=[recorder])
...
print(recorder)
"""

from typing import Any, TypeVar

from perdure.core.error import ConfigError
from perdure.core.event import Entry, Event, TextDelta

from .tree import draw

E = TypeVar("E", bound=Event)


class Recorder:
    """Collects what it is called with; give it wherever a watcher is taken."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """Everything that was seen, in order."""

    def __call__(self, entry: Entry) -> None:
        """Remember an entry."""
        given: Any = entry
        if not isinstance(given, Entry):
            raise ConfigError(f"a Recorder is called with an Entry, not with {given!r}")
        self.entries.append(entry)

    def __str__(self) -> str:
        return self.tree()

    def __repr__(self) -> str:
        return f"<Recorder: {len(self.entries)} entries>"

    @property
    def events(self) -> list[Event]:
        """The events without their places."""
        return [entry.event for entry in self.entries]

    @property
    def kinds(self) -> list[str]:
        """The wire name of each event: `["run_started", "turn_started", ...]`."""
        return [str(entry.event.__struct_config__.tag) for entry in self.entries]

    @property
    def text(self) -> str:
        """The words of the session's own agent as they were streamed, without those of agents below it."""
        return "".join([event.text for event in self.of(TextDelta) if not event.path])

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind: `recorder.of(ToolFinished)`."""
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]

    def tree(self, *, counts: bool = False, durations: bool = False) -> str:
        """What happened, as an indented tree that is the same each time the same happens.

        Durations depend on the machine, and counts of deltas on how quickly a watcher follows (one that falls behind
        gets several as one), so both are left out unless asked for.
        """
        return draw(self.entries, counts=counts, durations=durations)

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()
