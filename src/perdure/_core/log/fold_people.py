"""The part of the fold about people: questions to them and their answers, permissions, display slots, the inbox."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure._core.values.event import GrantRevoked, InboxAdded, InboxResolved, PermissionDecided
from perdure._core.values.event_class import (
    Event,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    SlotClosed,
    SlotOpened,
    SlotUpdated,
)

if TYPE_CHECKING:
    from .fold import State


def apply_question_asked(state: "State", event: QuestionAsked) -> None:
    """Add an open question."""
    state.questions_by_id[event.ask_id] = event


def apply_question_answered(state: "State", event: QuestionAnswered) -> None:
    """Store the answer to a question."""
    state.answers_by_question[event.ask_id] = event
    state.reset_recoveries()


def apply_question_withdrawn(state: "State", event: QuestionWithdrawn) -> None:
    """Remove a question that needs no answer any more."""
    state.questions_by_id.pop(event.ask_id, None)


def apply_permission_decided(state: "State", event: PermissionDecided) -> None:
    """Store a permission decision; keep it as a grant if it applies to more than one call."""
    state.decisions[event.call_id] = event
    if event.scope != "once":
        state.remembered_decisions.append(event)


def apply_grant_revoked(state: "State", event: GrantRevoked) -> None:
    """Record that a grant was revoked."""
    state.remembered_decisions.append(event)


def apply_slot_opened(state: "State", event: SlotOpened) -> None:
    """Add a display slot."""
    state.slots[event.slot_id] = event


def apply_slot_updated(state: "State", event: SlotUpdated) -> None:
    """Replace the content of a display slot."""
    if (slot := state.slots.get(event.slot_id)) is not None:
        state.slots[event.slot_id] = replace(slot, input=event.input)


def apply_slot_closed(state: "State", event: SlotClosed) -> None:
    """Remove a display slot."""
    state.slots.pop(event.slot_id, None)


def apply_inbox_added(state: "State", event: InboxAdded) -> None:
    """Add an inbox item that the agent waits for."""
    state.inbox[event.item_id] = event


def apply_inbox_resolved(state: "State", event: InboxResolved) -> None:
    """Remove the inbox item that was resolved, whichever agent had added it."""
    if (owner := state.find_inbox_owner(event.item_id)) is not None:
        del owner.inbox[event.item_id]


def remove_questions(state: "State") -> None:
    """Remove the questions of a run that has ended; those of the session's own run with those of all agents."""
    for ask_id, question in list(state.questions_by_id.items()):
        if state.parent is None or question.path == state.path:
            del state.questions_by_id[ask_id]
            state.answers_by_question.pop(ask_id, None)


def close_slots(state: "State", until: str, owner_id: str) -> None:
    """Remove the display slots that were to be shown only during this run, or during this tool call."""
    for slot_id, slot in list(state.slots.items()):
        if slot.until == until and owner_id in {slot.run_id, slot.call_id}:
            del state.slots[slot_id]


CHANGES_BY_PEOPLE: Mapping[type[Event], "Callable[[State, Any], None]"] = {
    PermissionDecided: apply_permission_decided,
    QuestionAsked: apply_question_asked,
    QuestionAnswered: apply_question_answered,
    InboxAdded: apply_inbox_added,
    InboxResolved: apply_inbox_resolved,
    QuestionWithdrawn: apply_question_withdrawn,
    SlotOpened: apply_slot_opened,
    SlotUpdated: apply_slot_updated,
    SlotClosed: apply_slot_closed,
    GrantRevoked: apply_grant_revoked,
}
"""The function that applies each event about people to the state."""
