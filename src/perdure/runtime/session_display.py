"""The display slots of a session, for a user interface: list, answer, reject and remove them, from any process.

A question is answered by a post: the process that drives the session takes it, or the next one that does. A slot that
is only shown is closed directly in the log while no process drives the session, and by a post while one does.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.core import check
from perdure.core.answer import build_refusal_body
from perdure.core.error import SessionBusy, UsageError
from perdure.core.event import Entry, Event, QuestionAsked, SlotClosed
from perdure.core.fold import State, fold_entries
from perdure.core.mailbox import build_slot_closing_post
from perdure.core.store import Post
from perdure.interaction.slot_view import SlotView, build_slot_views

from .resume_reasons import is_waiting_run_cancelled
from .stored_session import prefix_path_with_handle

if TYPE_CHECKING:
    from .session import Session

POLL_SECONDS = 1.0
"""Seconds between a subscriber's checks for posts, which are not yet entries of the log."""


class SessionDisplay:
    """The display slots of one session: list what tools show and ask, answer questions, remove slots."""

    def __init__(
        self,
        session: "Session",
        read_state: Callable[[], Awaitable[State]],
        post: Callable[[Post], Awaitable[bool]],
        append_event: Callable[[Event], Awaitable[None]],
        has_asked: Callable[[str], Awaitable[bool]],
        *,
        child_sessions: "Callable[[State], Mapping[str, Session]]",
        post_answer: Callable[[str, dict[str, Any]], Awaitable[bool]],
        find_lost_questions: Callable[[State], Awaitable[Collection[str]]],
    ) -> None:
        self._session = session
        self._read_state = read_state
        self._post = post
        self._append_event = append_event
        self._has_asked = has_asked
        self._child_sessions = child_sessions
        self._post_answer = post_answer
        self._find_lost_questions = find_lost_questions

    async def slots(self) -> list[SlotView]:
        """Return the open display slots, including those of background agents."""
        state = await self._read_state()
        lost = await self._find_lost_questions(state)
        own = build_slot_views(state, await self._read_posts(), self._now(), lost)
        return [*own, *await self._list_child_slots(state)]

    async def resolve(self, slot_id: str, value: Any) -> bool:
        """Answer the question in a slot; return False if it was answered or removed before, has expired, or its call
        died with its process.

        Raises `ConfigError`, with every problem, if the value is not a valid answer.
        """
        check.require_text("display.resolve", "slot_id", slot_id, non_empty=True)
        if slot_id in (state := await self._read_state()).slots:
            raise UsageError(f"slot {slot_id!r} waits for no answer: it is only shown; close it with remove()")
        if (there := await self._find_child_display(state, slot_id)) is not None:
            return await there.resolve(slot_id, value)
        question = await self._find_question(state, slot_id)
        return question is not None and await self._session.answer(slot_id, value)

    async def reject(self, slot_id: str, reason: str = "the question was rejected") -> bool:
        """Decline the question in a slot; the tool that waits gets the reason. Return False if it was settled before.

        Calls that wait for permission are denied, and the result of a call that a crash cut off stays unknown.
        """
        check.require_text("display.reject", "slot_id", slot_id, non_empty=True)
        check.require_text("display.reject", "reason", reason, non_empty=True)
        state = await self._read_state()
        if slot_id in state.slots:
            raise UsageError(f"slot {slot_id!r} waits for no answer: it is only shown; close it with remove()")
        if (there := await self._find_child_display(state, slot_id)) is not None:
            return await there.reject(slot_id, reason)
        return await self._post_refusal(state, await self._find_question(state, slot_id), reason)

    async def remove(self, slot_id: str, reason: str = "removed") -> bool:
        """Remove a slot, and decline its question if it has one. Return False if it was settled before."""
        check.require_text("display.remove", "slot_id", slot_id, non_empty=True)
        check.require_text("display.remove", "reason", reason, non_empty=True)
        state = await self._read_state()
        if slot_id in state.slots:
            return await self._close_slot(slot_id, reason)
        if (there := await self._find_child_display(state, slot_id)) is not None:
            return await there.remove(slot_id, reason)
        return await self._post_refusal(state, await self._find_question(state, slot_id), reason)

    async def clear(self, reason: str = "the display was cleared") -> int:
        """Remove all slots, and return their number. Tools that wait for an answer get none, as with `reject`."""
        check.require_text("display.clear", "reason", reason, non_empty=True)
        removed = [await self.remove(each.slot_id, reason) for each in await self.slots()]
        return sum(removed)

    async def subscribe(self) -> AsyncGenerator[list[SlotView]]:
        """Yield the list of all open slots, now and after each change, as long as the session is open.

        Changes made by runs of this session object are seen at once, all others within a second.
        """
        entries, posts = await self._session.store.read(self._session.session_id), await self._read_posts()
        state, after = fold_entries(entries), entries[-1].seq if entries else 0
        below, lost = await self._list_child_slots(state), await self._find_lost_questions(state)
        shown = [*build_slot_views(state, posts, self._now(), lost), *below]
        yield shown
        async with aclosing(_iterate_with_timeouts(self._session.watch(after=after))) as coming:
            async for entry in coming:
                if entry is None:
                    posts, below = await self._read_posts(), await self._list_child_slots(state)
                    lost = await self._find_lost_questions(state)
                elif entry.seq:
                    state.apply(entry.event)
                present = (
                    [*build_slot_views(state, posts, self._now(), lost), *below]
                    if entry is None or entry.seq
                    else shown
                )
                if present != shown:
                    shown = present
                    yield shown

    # -- inside --------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._session.agent.clock.now()

    async def _read_posts(self) -> list[Post]:
        return list(await self._session.store.posts(self._session.session_id))

    async def _list_child_slots(self, state: State) -> list[SlotView]:
        """Return the slots of background agents, each of which works in a separate session."""
        found: list[SlotView] = []
        for handle, session in self._child_sessions(state).items():
            found += [
                replace(each, path=prefix_path_with_handle(handle, each.path)) for each in await session.display.slots()
            ]
        return found

    async def _find_child_display(self, state: State, slot_id: str) -> "SessionDisplay | None":
        """Return the display of the background session that has this slot; `None` if no such session has it."""
        if slot_id not in state.questions_by_id:
            for session in self._child_sessions(state).values():
                if slot_id in [each.slot_id for each in await session.display.slots()]:
                    return session.display
        return None

    async def _find_question(self, state: State, slot_id: str) -> QuestionAsked | None:
        """Return the open question with this id; `None` if it was settled before.

        Raises `UsageError` if there never was such a slot.
        """
        question = state.questions_by_id.get(slot_id)
        if question is None and not await self._has_asked(slot_id):
            known = ", ".join([repr(each) for each in (*state.slots, *[each.ask_id for each in state.open_questions])])
            raise UsageError(
                f"session {self._session.session_id!r} has no slot {slot_id!r}: open are {known or 'none'}"
            )
        return question

    async def _post_refusal(self, state: State, question: QuestionAsked | None, reason: str) -> bool:
        if question is None or is_waiting_run_cancelled(state, await self._read_posts()):
            return False
        late = question.expires_at is not None and self._now() >= question.expires_at
        if question.ask_id in state.answers_by_question or late:
            return False
        if question.ask_id in await self._find_lost_questions(state):
            return False
        return await self._post_answer(question.ask_id, build_refusal_body(question, reason))

    async def _close_slot(self, slot_id: str, reason: str) -> bool:
        post = build_slot_closing_post(slot_id, reason, self._now())
        try:
            await self._append_event(SlotClosed(slot_id, reason))
        except SessionBusy:  # a process drives the session, and takes the post at its next safe point
            return await self._post(post)
        return True


async def _iterate_with_timeouts(entries: AsyncGenerator[Entry]) -> AsyncGenerator[Entry | None]:
    """Yield the entries, and `None` whenever none has arrived for `POLL_SECONDS`."""
    coming: asyncio.Future[Entry | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(entries, None))
            arrived, _ = await asyncio.wait((coming,), timeout=POLL_SECONDS)
            if not arrived:
                yield None
                continue
            entry, coming = coming.result(), None
            if entry is None:
                return  # the session was closed
            yield entry
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait((coming,))
        await entries.aclose()
