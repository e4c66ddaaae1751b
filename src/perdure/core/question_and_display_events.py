"""Events of questions to people (asked, answered, withdrawn) and of display slots (opened, updated, closed)."""

from collections.abc import Mapping
from typing import Any, Literal

from .event_base_class import Event


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
