"""Every slot of a session as a screen sees it. Above: `display.py`, screens. Below: `core`.

What tools show, what they ask, whether calls may be made, what became of a call that a crash cut off: to a screen all
of it is the same, a renderer's name and data for it, and perhaps an answer that somebody waits for.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct

from perdure.core.event import QuestionAsked, SlotOpened
from perdure.core.fold import State
from perdure.core.mailbox import ANSWER, CANCEL, SLOT
from perdure.core.store import Post

_SCOPE: Final = {"type": "string", "enum": ["once", "session", "session_target", "forever"]}
_VERDICT: Final = {
    "type": "object",
    "properties": {"allow": {"type": "boolean"}, "reason": {"type": "string"}, "scope": _SCOPE},
    "required": ["allow"],
    "additionalProperties": False,
}
VERDICTS: Final[Mapping[str, Any]] = {
    "anyOf": [
        {"type": "boolean"},
        _VERDICT,
        {"type": "object", "additionalProperties": {"anyOf": [{"type": "boolean"}, _VERDICT]}},
    ]
}
"""The JSON Schema of an answer about permission: yes or no, a verdict, or one of these for each call by its id."""


class SlotView(Struct, frozen=True):
    """Something that people are shown, or asked."""

    slot_id: str
    """What an answer has to name."""
    renderer: str
    """How it is shown: `text`, `table`, `confirm`, `form`, …, `permission`, `settlement`, or a kind of your own."""
    input: Any = None
    """What is shown, as JSON values."""
    text: str = ""
    """What is asked, in words: for a screen that does not know the renderer."""
    waits: bool = False
    """Whether somebody waits for an answer."""
    output: Mapping[str, Any] | None = None
    """The JSON Schema of an answer; `None` when anything may be answered."""
    tool: str = ""
    """Which tool asks; empty when it only shows something, or when several calls are asked about."""
    call_id: str = ""
    """The call that shows or asks it; empty when several are asked about."""
    path: str = ""
    """Where in a tree of agents: empty for the session's own."""
    expires_at: float | None = None
    """When it is too late to answer, in seconds since 1970; `None` for never."""


def views(state: State, posts: Collection[Post], now: float) -> list[SlotView]:
    """What is shown, in the order in which it came, and then what waits for an answer.

    What has been answered or closed by a post is not shown any more, and neither is a question that has expired, or
    whose run waits only for its end, because it was cancelled.
    """
    settled = {
        post.named("slot_id" if post.kind == SLOT else "ask_id") for post in posts if post.kind in {SLOT, ANSWER}
    }
    shown = [_of_slot(slot) for slot_id, slot in state.slots.items() if slot_id not in settled]
    run_id = state.run.run_id if state.waiting and state.run is not None else None
    unwanted = run_id in [post.named("run_id") for post in posts if post.kind == CANCEL]
    asked = [
        of_question(question)
        for question in ([] if unwanted else state.questions)
        if question.ask_id not in settled and (question.expires_at is None or question.expires_at > now)
    ]
    return [*shown, *asked]


def of_question(question: QuestionAsked) -> SlotView:
    """A question as a slot."""
    alone: Mapping[str, Any] = question.calls[0] if len(question.calls) == 1 else {}
    is_slot = question.about == "slot"
    return SlotView(
        question.ask_id,
        question.renderer if is_slot else question.about,
        question.input if is_slot else {"calls": list(question.calls)},
        question.text,
        waits=True,
        output=VERDICTS if question.about == "permission" else question.output,
        tool=alone.get("tool", ""),
        call_id=alone.get("call_id", ""),
        path=question.path,
        expires_at=question.expires_at,
    )


def _of_slot(slot: SlotOpened) -> SlotView:
    return SlotView(slot.slot_id, slot.renderer, slot.input, call_id=slot.call_id, path=slot.path)
