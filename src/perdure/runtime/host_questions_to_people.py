"""Questions that the host program, not a tool, asks people in a display slot; any process can answer them."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from perdure.core.display_slot import Askable
from perdure.core.error import NotAnswered
from perdure.core.event import Entry, SlotClosed, SlotOpened
from perdure.core.run_mailbox import SLOT_POST
from perdure.core.steady_time import get_steady_time
from perdure.core.store import Post

if TYPE_CHECKING:
    from .session_display_slots import SessionDisplay

EXPIRED_REASON = "no answer in time"


async def ask_people(
    display: "SessionDisplay", asked: Askable[Any], slot_id: str, timeout_seconds: float | None
) -> Any:
    """Show a question in a display slot, and return its answer. Raises `NotAnswered` if it is declined, or expires.

    A question that was asked before under this id is not opened again: its answer counts.
    """
    session = display.session
    entries = await session.store.read(session.session_id)
    opened, closed = _find_slot(entries, slot_id)
    if opened is None:
        now = get_steady_time(session.agent.clock)
        expires_at = None if timeout_seconds is None else now + timeout_seconds
        await display.open_question(asked, slot_id, expires_at)
    else:
        expires_at = opened.expires_at
    after = entries[-1].seq if entries else 0
    async with aclosing(display.watch_entries(after)) as coming:
        while closed is None:
            closed = _find_posted_closing(await session.store.posts(session.session_id), slot_id)
            if closed is None and expires_at is not None and get_steady_time(session.agent.clock) >= expires_at:
                await display.remove(slot_id, EXPIRED_REASON)
                raise NotAnswered(f"{EXPIRED_REASON}: {asked.text}")
            if closed is None:
                entry = await anext(coming, _SESSION_CLOSED)
                if entry is _SESSION_CLOSED:
                    raise NotAnswered("the session was closed, and there is no answer yet")
                closed = _get_closing(entry, slot_id)
    if not closed.is_answered:
        raise NotAnswered(closed.reason or "the question was removed")
    return closed.answer


_SESSION_CLOSED = Entry(-1, 0.0, SlotClosed(""))
"""Marks the end of the entries of a session."""


def _find_slot(entries: Sequence[Entry], slot_id: str) -> tuple[SlotOpened | None, SlotClosed | None]:
    """Return the events that last opened a display slot and closed it after that."""
    opened, closed = None, None
    for entry in entries:
        event = entry.event
        if isinstance(event, SlotOpened) and event.slot_id == slot_id:
            opened, closed = event, None
        closed = _get_closing(entry, slot_id) or closed
    return opened, closed


def _get_closing(entry: Entry | None, slot_id: str) -> SlotClosed | None:
    event = None if entry is None else entry.event
    return event if isinstance(event, SlotClosed) and event.slot_id == slot_id else None


def _find_posted_closing(posts: Sequence[Post], slot_id: str) -> SlotClosed | None:
    """Return the closing of a display slot that is posted to the process which runs the session; `None` if there is
    none.
    """
    for post in posts:
        if post.kind == SLOT_POST and post.text_field("slot_id") == slot_id:
            answered = "answer" in post.body
            return SlotClosed(slot_id, post.text_field("reason"), answered, post.body.get("answer"))
    return None
