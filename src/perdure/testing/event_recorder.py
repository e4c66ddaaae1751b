"""A watcher (a callback for events) that collects the events of runs, for assertions in tests.

recorder = Recorder()
agent = Agent(model, watchers=[recorder])
...
print(recorder)
"""

from typing import Any, TypeVar

from perdure.core.error import ConfigError
from perdure.core.event import Entry, Event, TextDelta

from .event_tree_text import draw_tree

E = TypeVar("E", bound=Event)


class Recorder:
    """Watcher (a callback for events) that collects every entry of an agent's runs, for assertions in tests."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """All recorded entries, in order."""

    def __call__(self, entry: Entry) -> None:
        """Record an entry."""
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
        """The events of the recorded entries."""
        return [entry.event for entry in self.entries]

    @property
    def kinds(self) -> list[str]:
        """Name of each recorded event, as in the log: `["run_started", "turn_started", ...]`."""
        return [str(entry.event.__struct_config__.tag) for entry in self.entries]

    @property
    def text(self) -> str:
        """Streamed text of the session's own agent, without that of subagents."""
        return "".join([event.text for event in self.of(TextDelta) if not event.path])

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one type: `recorder.of(ToolFinished)`."""
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]

    def tree(self, *, counts: bool = False, durations: bool = False) -> str:
        """Draw the recorded events as an indented tree that is stable between equal runs.

        Durations depend on the machine, and counts of deltas on how quickly a watcher follows (a slow one gets several
        merged into one), so both are left out by default.
        """
        return draw_tree(self.entries, counts=counts, durations=durations)

    def clear(self) -> None:
        """Forget all recorded entries."""
        self.entries.clear()
