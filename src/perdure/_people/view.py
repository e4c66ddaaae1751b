"""`SlotView`: an open display slot, ready for a user interface: content that a tool shows, or an open question.

Slots shown by tools, questions of tools, requests for approval, calls that a crash cut off: a screen displays all of
them alike, by the name of a renderer and its data, and perhaps an answer that is waited for.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.log.fold import State
from perdure._core.log.store import Post
from perdure._core.people.mailbox import ANSWER_POST, CANCEL_POST, SLOT_POST, list_posted_events
from perdure._core.values.event_class import QuestionAsked, SlotOpened, SlotUpdated

_SCOPE: Final = {"type": "string", "enum": ["once", "run", "session", "forever"]}
_VERDICT: Final = {
    "type": "object",
    "properties": {
        "allow": {"type": "boolean"},
        "reason": {"type": "string"},
        "scope": _SCOPE,
        "covers": {"type": "string"},
    },
    "required": ["allow"],
    "additionalProperties": False,
}
VERDICT_SCHEMA: Final[Mapping[str, Any]] = {
    "anyOf": [
        {"type": "boolean"},
        _VERDICT,
        {"type": "object", "additionalProperties": {"anyOf": [{"type": "boolean"}, _VERDICT]}},
    ]
}
"""The JSON Schema of an answer about permission: yes or no, a verdict, or one of these for each call by its id."""


class SlotView(Struct, frozen=True):
    """An open display slot for a user interface: content that a tool shows, or a question that awaits an answer."""

    slot_id: str
    """The id that an answer has to name."""
    renderer: str
    """The name of its renderer: `text`, `table`, `confirm`, `form`, …, `permission`, `settlement`, or your own kind."""
    input: Any = None
    """The data to display, as JSON values."""
    text: str = ""
    """The question as text: for a screen that does not know the renderer."""
    waits: bool = False
    """True if an answer is waited for."""
    output: Mapping[str, Any] | None = None
    """The JSON Schema of an answer; `None` when any answer is valid."""
    tool: str = ""
    """The name of the tool that asks; empty when it only shows something, or when the question is about several
    calls."""
    call_id: str = ""
    """The call that shows or asks it; empty when the question is about several."""
    path: str = ""
    """The path of the agent in the tree of agents: empty for the session's own."""
    expires_at: float | None = None
    """The time after which it cannot be answered any more, in seconds since 1970; `None` for never."""


def build_slot_views(
    state: State, posts: Collection[Post], now: float, lost_questions: Collection[str] = ()
) -> list[SlotView]:
    """Build the list of open display slots of a session for a user interface: shown content, then open questions.

    A slot that a post has answered or closed is left out, and so is a question that has expired, that no answer can
    reach (`lost_questions`, by id), or whose run is only waiting for its end because it was cancelled.
    """
    settled = {
        post.text_field("slot_id" if post.kind == SLOT_POST else "ask_id")
        for post in posts
        if post.kind in {SLOT_POST, ANSWER_POST}
    } | set(lost_questions)
    shown = [
        _slot_view_of_slot(slot)
        for slot_id, slot in list_open_slots(state, posts).items()
        if slot_id not in settled and (slot.expires_at is None or slot.expires_at > now)
    ]
    run_id = state.run.run_id if state.is_waiting and state.run is not None else None
    unwanted = run_id in [post.text_field("run_id") for post in posts if post.kind == CANCEL_POST]
    asked = [
        slot_view_of_question(question)
        for question in ([] if unwanted else state.open_questions)
        if question.ask_id not in settled and (question.expires_at is None or question.expires_at > now)
    ]
    return [*shown, *asked]


def list_open_slots(state: State, posts: Collection[Post]) -> dict[str, SlotOpened]:
    """Return the open display slots of a session by id, including slots that the host program has posted."""
    slots = dict(state.slots)
    for event in list_posted_events(posts):
        if isinstance(event, SlotOpened):
            slots.setdefault(event.slot_id, event)
        elif isinstance(event, SlotUpdated) and event.slot_id in slots:
            slots[event.slot_id] = replace(slots[event.slot_id], input=event.input)
    return slots


def slot_view_of_question(question: QuestionAsked) -> SlotView:
    """Convert a question to a `SlotView` for a user interface."""
    alone: Mapping[str, Any] = question.calls[0] if len(question.calls) == 1 else {}
    is_slot = question.about == "slot"
    return SlotView(
        question.ask_id,
        question.renderer if is_slot else question.about,
        question.input if is_slot else {"calls": list(question.calls)},
        question.text,
        waits=True,
        output=VERDICT_SCHEMA if question.about == "permission" else question.output,
        tool=alone.get("tool", ""),
        call_id=alone.get("call_id", ""),
        path=question.path,
        expires_at=question.expires_at,
    )


def _slot_view_of_slot(slot: SlotOpened) -> SlotView:
    return SlotView(
        slot.slot_id,
        slot.renderer,
        slot.input,
        slot.text,
        waits=slot.waits,
        output=slot.output,
        call_id=slot.call_id,
        path=slot.path,
        expires_at=slot.expires_at,
    )
