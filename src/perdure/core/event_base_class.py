"""The base class of all events, and checks of what each event class declares: its fields, and its role in a replay."""

import re
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

ReplayRule: TypeAlias = Literal["compared", "copied", "skipped"]
"""Treatment of a recorded event in a replay. `compared`: it must happen again, in the same way. `copied`: a tool or an
outside caller stored it, and it is stored again from the record. `skipped`: it follows from other events.
"""


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class Event(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="kind", tag=_snake_case):
    """Base class of all events. In JSON, the kind of an event is its class name in snake case."""

    durable: ClassVar[bool] = False
    """True if the event is stored in the log."""
    critical: ClassVar[bool] = False
    """True if a process that does not know this kind must not drive the session."""
    replay: ClassVar[ReplayRule] = "skipped"
    """Treatment of events of this kind in a replay. Every durable class has to declare it."""
    compared_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that a replay compares; empty for all but `run_id` and `path`."""
    structural: ClassVar[frozenset[str]] = frozenset({"run_id", "path"})
    """Fields that identify or classify something: ids, names, hashes, terms of a fixed set. They are never redacted.

    A subclass lists its own; those of its base are added. Every field that is not listed counts as text to redact.
    """

    run_id: str = ""
    """The run in which it happened; empty between runs."""
    path: str = ""
    """Position in the tree of agents: empty for the session's own agent, `child`, `child/grandchild` below it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.structural = Event.structural | cls.structural

    def search_text(self) -> tuple[str, str] | None:
        """Return the role and the text of the event for full-text search; `None` if it has no text."""
        return None


def check_event_class(kind: type[Event]) -> None:
    """Raise `TypeError` if an event class declares unknown fields, or does not say how a replay treats its events.

    Only a class that is stored has to say that.
    """
    unknown = (kind.structural | {*kind.compared_fields}) - {*kind.__struct_fields__}
    if unknown:
        raise TypeError(f"{kind.__name__} declares fields that it does not have: {sorted(unknown)}")
    if kind.durable and "replay" not in vars(kind):
        raise TypeError(f"{kind.__name__} is durable: set `replay` to how a replay treats it")


def list_event_kinds(parent: type[Event]) -> dict[str, type[Event]]:
    """Return the direct subclasses of an event class as a dict, keyed by the `kind` that their events have in JSON.

    Raises `TypeError` for an invalid declaration.
    """
    kinds = parent.__subclasses__()
    for kind in kinds:
        check_event_class(kind)
    return {str(kind.__struct_config__.tag): kind for kind in kinds}
