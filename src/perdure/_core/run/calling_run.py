"""The run that the current task works for, and the labels of what other sessions give to its tools and its engine.

A tool or an engine may run an agent of its own, in another session. The prompt of that session has the labels of all
that the calling run has seen, and the answer brings its labels back: whatever the code makes of the text, they hold.
"""

import threading
from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import ref

from msgspec.structs import replace

from perdure._core.values.event import ValueKept
from perdure._core.values.event_class import Event
from perdure._core.values.message import Message, merge_labels
from perdure._core.values.provenance import KEPT_LABELS

if TYPE_CHECKING:
    from perdure._core.tools.context import ToolContext

    from .run import Run

_calling_run: "ContextVar[ref[Run] | None]" = ContextVar("perdure_calling_run", default=None)
"""A weak reference: tasks and timers that outlive a run keep the context they were made in."""
_OTHER_LABELS: Final = "perdure.labels_of_other_sessions"
_label_lock: Final = threading.Lock()
"""Serializes `label_calling_run`: plain tools on several threads may call it at the same time."""


def enter_run(run: "Run | None") -> "Token[ref[Run] | None]":
    """Make this the run that the current task works for; `None` for a task that outlives its run."""
    return _calling_run.set(None if run is None else ref(run))


def leave_run(token: "Token[ref[Run] | None]") -> None:
    """Undo `enter_run`."""
    _calling_run.reset(token)


def get_calling_run() -> "Run | None":
    """Return the run that the current task works for; `None` outside of tools and engines."""
    found = _calling_run.get()
    return None if found is None else found()


def get_run_of_call(context: "ToolContext[Any]") -> "Run":
    """Return the run that a tool call belongs to, with all that tools of the runtime need of it."""
    return cast("Run", context.run)


def add_labels_of_caller(message: Message) -> Message:
    """Return a message to another session with the labels of the run whose tool or engine sends it."""
    run = get_calling_run()
    if run is None or not (labels := list_seen_labels(run)):
        return message
    return replace(message, labels=merge_labels(message.labels, labels))


def label_calling_run(run: "Run", labels: Iterable[str], source: str) -> None:
    """Give a run the labels of what another session has returned to its tool or its engine."""
    with _label_lock:
        told: Mapping[str, str] = run.scratch.get(_OTHER_LABELS, {})
        run.scratch[_OTHER_LABELS] = {**told, **dict.fromkeys(labels, source)}  # others may iterate the one before


def find_other_labels(run: "Run") -> dict[str, str]:
    """Return the labels of what other sessions have given to a run that its log does not have yet, with sources."""
    told: Mapping[str, str] = run.scratch.get(_OTHER_LABELS, {})
    return {label: source for label, source in told.items() if label not in run.state.labels}


def list_seen_labels(run: "Run") -> Mapping[str, tuple[str, ...]]:
    """Return the labels of all that a run has seen, with their sources: those of its log, and those of others."""
    if not run.scratch:
        return run.state.labels
    return {**run.state.labels, **{label: (source,) for label, source in find_other_labels(run).items()}}


def build_label_events(run: "Run") -> list[Event]:
    """Build the event that keeps labels for later runs, if a run ends before a request or a result could have them."""
    missing = find_other_labels(run)
    return [run.stamp_event(ValueKept(KEPT_LABELS, missing))] if missing else []
