"""Detection of entries that a log has lost to damage, by gaps in the entry numbers.

A store that loses entries keeps the numbers of the others, and never gives a lost number to another entry. So the place
of a loss can be seen for ever, and folding the log takes it into account.
"""

from collections.abc import Sequence

from .error import StoreError
from .event import EntriesLost, Entry, Event, RunStarted


def mark_lost_entries(entries: Sequence[Entry], after: int | None = None, head: int = 0) -> list[Event]:
    """Return the events of log entries, with an `EntriesLost` event wherever entry numbers are missing.

    `after` is the number of the entry before them, by default that before the first one; `head` is the number that the
    log is known to have reached.
    """
    first = entries[0].seq - 1 if entries and after is None else after or 0
    last = max(head, entries[-1].seq) if entries else head
    if last - first == len(entries):
        return [entry.event for entry in entries]
    events: list[Event] = []
    before = first
    for entry in entries:
        if entry.seq > before + 1:
            events.append(_build_mark(before, entry.seq, events, entry.event))
        events.append(entry.event)
        before = entry.seq
    if last > before:
        events.append(_build_mark(before, last + 1, events, None))
    return events


def _build_mark(before: int, next_seq: int, events: Sequence[Event], event: Event | None) -> EntriesLost:
    """Build the `EntriesLost` event for the gap between two entries. If both belong to one run, no other run is
    missing.
    """
    run_id = events[-1].run_id if events else ""
    is_inside = event is not None and event.run_id == run_id and not isinstance(event, RunStarted)
    return EntriesLost(before + 1, next_seq - 1, run_id=run_id if is_inside else "")


def build_lost_entries_error(session_id: str) -> StoreError:
    """Build the error for a run that cannot be resumed because some of its entries were lost."""
    return StoreError(
        f"entries of the interrupted run of session {session_id!r} were lost to damage, and its calls may have had "
        "effects that the log does not show: check those, then go on with run()"
    )


def build_lost_input_error(session_id: str, input_id: str) -> StoreError:
    """Build the error for an input whose `input_id` may be in lost log entries, so that it may have run already."""
    return StoreError(
        f"session {session_id!r} has lost entries to damage, and the input {input_id!r} may have been among them: "
        "check whether it had its effect, then repeat it without an input_id, or in another session"
    )
