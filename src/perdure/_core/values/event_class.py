"""The base class of all events, checks of what each declares, and the events of questions and display slots."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

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


class QuestionAsked(Event, frozen=True):
    """A person was asked a question that must be answered before the run continues."""

    durable = True
    replay = "copied"
    structural = frozenset({"ask_id", "about", "renderer"})

    ask_id: str
    """Id that an answer has to name."""
    about: Literal["permission", "settlement", "slot"]
    """Subject: permission for calls (one question for the whole batch), the settlement of a call that a crash
    interrupted, or a slot: a question of a tool.
    """
    text: str = ""
    """The question as text."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """The calls in question: each one's `call_id`, `tool`, `action`, `target`, `arguments`, `arguments_hash`; for a
    permission question also its `typed_target`, `binding`, and `offers`: the widths in which an answer can be kept.
    """
    expires_at: float | None = None
    """Time after which the answer is no. `None` for never."""
    renderer: str = ""
    """Name of the renderer that shows it: `form`, `choice`, `confirm`, … Empty when no tool asks."""
    input: Any = None
    """Data for the renderer, as JSON values."""
    output: Mapping[str, Any] | None = None
    """JSON Schema of an answer; `None` when any value is accepted."""


class QuestionAnswered(Event, frozen=True):
    """A question was answered. Later answers to it are ignored."""

    durable = True
    replay = "copied"
    structural = frozenset({"ask_id", "source"})

    ask_id: str
    answer: Any = None
    """The answer, as JSON values."""
    source: str = ""
    """Origin of the answer: `handler`, `post`, or `expired` when none arrived in time."""
    rejected: str = ""
    """Reason why the person declined to answer; empty when they answered."""
    by: str = ""
    """Person who answered, if that is known."""


class QuestionWithdrawn(Event, frozen=True):
    """A question was withdrawn: it no longer needs an answer, for the `reason` given."""

    durable = True
    replay = "skipped"
    structural = frozenset({"ask_id"})

    ask_id: str
    reason: str


class SlotOpened(Event, frozen=True):
    """A tool or the host program opened a display slot, in which it shows content to people.

    The host program may also ask a question in it; a question of a tool is a `QuestionAsked` instead.
    """

    durable = True
    replay = "copied"
    structural = frozenset({"slot_id", "renderer", "call_id", "until"})

    slot_id: str
    renderer: str
    """Name of the renderer that shows it: `text`, `table`, `progress`, …"""
    input: Any = None
    """Data for the renderer, as JSON values."""
    call_id: str = ""
    """The tool call that shows it."""
    until: Literal["closed", "call", "run"] = "closed"
    """Lifetime: until it is closed, or at the latest until the call, or the run, is over."""
    waits: bool = False
    """True if the host program waits for an answer, with which the slot is closed. (A tool's is a `QuestionAsked`.)"""
    text: str = ""
    """The question as text."""
    output: Mapping[str, Any] | None = None
    expires_at: float | None = None
    """JSON Schema of an answer, `None` for any value; time after which there can be none, `None` for never."""


class SlotUpdated(Event, frozen=True):
    """New content replaced the content of a display slot."""

    durable = True
    replay = "copied"
    structural = frozenset({"slot_id"})

    slot_id: str
    input: Any = None


class SlotClosed(Event, frozen=True):
    """A display slot was closed, so that its content is no longer shown."""

    durable = True
    replay = "copied"
    structural = frozenset({"slot_id"})

    slot_id: str
    reason: str = ""
    is_answered: bool = False
    answer: Any = None
    """The answer to its question, as JSON values, if `is_answered`."""
    by: str = ""
    """Person who answered, if that is known."""
