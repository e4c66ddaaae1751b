"""The display slots of a session (what tools show and ask in a user interface): list, answer and remove them.

That is possible from any process.

A question is answered by a post: the process that drives the session takes it, or the next one that does. A slot that
is only shown is closed directly in the log while no process drives the session, and by a post while one does.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from perdure.core import argument_checks
from perdure.core.clock_and_ids import new_id
from perdure.core.display_slot import Answer, Askable, Showable, TextQuestion, require_showable
from perdure.core.error import SessionBusy, UsageError
from perdure.core.event import Entry, Event, QuestionAsked, SlotClosed, SlotOpened, SlotUpdated
from perdure.core.fold import State, fold_entries
from perdure.core.inbox import HostEvent
from perdure.core.jsonable import replace_surrogates
from perdure.core.question_answer_validation import build_decline_body, check_slot_answer
from perdure.core.run_mailbox import SLOT_POST, build_slot_closing_post
from perdure.core.steady_time import get_steady_time
from perdure.core.store import Post
from perdure.interaction.slot_view import SlotView, build_slot_views, list_open_slots

from .post_delivery import iterate_with_timeouts
from .resume_reasons import is_waiting_run_cancelled
from .stored_session import prefix_path_with_job_handle

if TYPE_CHECKING:
    from .display_slot_adapter import DisplayAdapter
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
        record: Callable[[HostEvent, str], Awaitable[None]],
        child_sessions: "Callable[[State], Mapping[str, Session]]",
        post_answer: Callable[[str, dict[str, Any]], Awaitable[bool]],
        find_lost_questions: Callable[[State], Awaitable[Collection[str]]],
    ) -> None:
        self.session = session
        self._read_state = read_state
        self._post = post
        self._append_event = append_event
        self._has_asked = has_asked
        self._record = record
        self._child_sessions = child_sessions
        self._post_answer = post_answer
        self._find_lost_questions = find_lost_questions

    # -- what the host program shows and asks --------------------------------------------------------------------------

    async def push(self, shown: Showable, *, slot_id: str = "") -> str:
        """Show content in a new slot, from the host program or a `/name` command, and return the slot's id.

        It is shown until it is removed, whether the session runs or not. `slot_id` is your id for it: a slot that is
        open under this id is not opened again.
        """
        require_showable("display.push", shown, Showable)
        argument_checks.require_text("display.push", "slot_id", slot_id)
        slot_id = slot_id or new_id()
        if slot_id not in await self._list_open_slots():
            await self._record(SlotOpened(slot_id, shown.shown_as, shown.input), f"show-{slot_id}")
        return slot_id

    async def update(self, slot_id: str, shown: Showable) -> None:
        """Replace the content of a slot. Raises `UsageError` if there is no such slot."""
        require_showable("display.update", shown, Showable)
        argument_checks.require_text("display.update", "slot_id", slot_id, non_empty=True)
        if slot_id not in await self._list_open_slots():
            raise UsageError(f"session {self.session.session_id!r} has no open slot {slot_id!r}: push() opens one")
        await self._record(SlotUpdated(slot_id, shown.input), f"update-{new_id()}")

    async def ask(
        self, question: str | Askable[Answer], *, timeout_seconds: float | None = None, slot_id: str = ""
    ) -> Answer:
        """Ask people a question from the host program, and wait for the answer. Raises `NotAnswered` if it is declined.

        The answer is stored. `slot_id` is your id for the question: asked again under the same id, after a crash of the
        host for example, it is not opened a second time, and an answer that was given meanwhile is returned. Without an
        answer in `timeout_seconds`, the slot is closed, and `NotAnswered` is raised.
        """
        asked = cast("Askable[Answer]", TextQuestion(question) if isinstance(question, str) else question)
        require_showable("display.ask", asked, Askable)
        argument_checks.require_text("display.ask", "slot_id", slot_id)
        if timeout_seconds is not None:
            argument_checks.require_number("display.ask", "timeout_seconds", timeout_seconds)
        from .host_questions_to_people import ask_people  # at first use: most hosts only show something

        return asked.read(await ask_people(self, asked, slot_id or new_id(), timeout_seconds))

    def connect(self, adapter: "DisplayAdapter") -> AbstractAsyncContextManager[None]:
        """Pass all slots of the session to an adapter during the block: what is shown, changed, closed and asked."""
        from .display_slot_adapter import connect_adapter  # at first use: most programs use the methods above

        return connect_adapter(self, adapter)

    async def answer_slot(self, slot_id: str, value: Any, *, by: str = "") -> bool:
        """Answer a question of the host program; return False if the slot is closed. Raises `ConfigError`."""
        slot = (await self._list_open_slots()).get(slot_id)
        if slot is None or not slot.waits or self._is_expired(slot.expires_at):
            return False
        answer = check_slot_answer(slot.text, slot.output, value)
        return await self._close_slot(SlotClosed(slot_id, is_answered=True, answer=answer, by=by))

    async def open_question(self, asked: Askable[Any], slot_id: str, expires_at: float | None) -> None:
        """Open a slot with a question of the host program."""
        opened = SlotOpened(
            slot_id,
            asked.shown_as,
            asked.input,
            waits=True,
            text=replace_surrogates(asked.text),
            output=asked.output,
            expires_at=expires_at,
        )
        await self._record(opened, f"show-{slot_id}")

    # -- what a user interface does ------------------------------------------------------------------------------------

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
        argument_checks.require_text("display.resolve", "slot_id", slot_id, non_empty=True)
        state = await self._read_state()
        if (slot := (await self._list_open_slots(state)).get(slot_id)) is not None:
            _require_waiting(slot)
            return await self.answer_slot(slot_id, value)
        if (there := await self._find_child_display(state, slot_id)) is not None:
            return await there.resolve(slot_id, value)
        question = await self._find_question(state, slot_id)
        return question is not None and await self.session.answer(slot_id, value)

    async def reject(self, slot_id: str, reason: str = "the question was rejected") -> bool:
        """Decline the question in a slot; the tool that waits gets the reason. Return False if it was settled before.

        Calls that wait for permission are denied, and the result of a call that a crash cut off stays unknown.
        """
        argument_checks.require_text("display.reject", "slot_id", slot_id, non_empty=True)
        argument_checks.require_text("display.reject", "reason", reason, non_empty=True)
        state = await self._read_state()
        if (slot := (await self._list_open_slots(state)).get(slot_id)) is not None:
            _require_waiting(slot)
            return await self._close_slot(SlotClosed(slot_id, reason))
        if (there := await self._find_child_display(state, slot_id)) is not None:
            return await there.reject(slot_id, reason)
        return await self._post_refusal(state, await self._find_question(state, slot_id), reason)

    async def remove(self, slot_id: str, reason: str = "removed") -> bool:
        """Remove a slot, and decline its question if it has one. Return False if it was settled before."""
        argument_checks.require_text("display.remove", "slot_id", slot_id, non_empty=True)
        argument_checks.require_text("display.remove", "reason", reason, non_empty=True)
        state = await self._read_state()
        if slot_id in await self._list_open_slots(state):
            return await self._close_slot(SlotClosed(slot_id, reason))
        if (there := await self._find_child_display(state, slot_id)) is not None:
            return await there.remove(slot_id, reason)
        return await self._post_refusal(state, await self._find_question(state, slot_id), reason)

    async def clear(self, reason: str = "the display was cleared") -> int:
        """Remove all slots, and return their number. Tools that wait for an answer get none, as with `reject`."""
        argument_checks.require_text("display.clear", "reason", reason, non_empty=True)
        removed = [await self.remove(each.slot_id, reason) for each in await self.slots()]
        return sum(removed)

    async def subscribe(self) -> AsyncGenerator[list[SlotView]]:
        """Yield the list of all open slots, now and after each change, as long as the session is open.

        Changes made by runs of this session object are seen at once, all others within a second.
        """
        entries, posts = await self.session.store.read(self.session.session_id), await self._read_posts()
        state, after = fold_entries(entries), entries[-1].seq if entries else 0
        below, lost = await self._list_child_slots(state), await self._find_lost_questions(state)
        shown = [*build_slot_views(state, posts, self._now(), lost), *below]
        yield shown
        async with aclosing(self.watch_entries(after)) as coming:
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

    def watch_entries(self, after: int) -> AsyncGenerator[Entry | None]:
        """Yield the entries of the session after number `after`, and `None` when none arrived for `POLL_SECONDS`."""
        return iterate_with_timeouts(self.session.watch(after=after), POLL_SECONDS)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return get_steady_time(self.session.agent.clock)

    async def _read_posts(self) -> list[Post]:
        return list(await self.session.store.posts(self.session.session_id))

    async def _list_child_slots(self, state: State) -> list[SlotView]:
        """Return the slots of background agents, each of which works in a separate session."""
        found: list[SlotView] = []
        for handle, session in self._child_sessions(state).items():
            found += [
                replace(each, path=prefix_path_with_job_handle(handle, each.path))
                for each in await session.display.slots()
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
            raise UsageError(f"session {self.session.session_id!r} has no slot {slot_id!r}: open are {known or 'none'}")
        return question

    async def _post_refusal(self, state: State, question: QuestionAsked | None, reason: str) -> bool:
        if question is None or is_waiting_run_cancelled(state, await self._read_posts()):
            return False
        late = question.expires_at is not None and self._now() >= question.expires_at
        if question.ask_id in state.answers_by_question or late:
            return False
        if question.ask_id in await self._find_lost_questions(state):
            return False
        return await self._post_answer(question.ask_id, build_decline_body(question, reason))

    async def _close_slot(self, closed: SlotClosed) -> bool:
        try:
            await self._append_event(closed)
        except SessionBusy:  # a process drives the session, and takes the post at its next safe point
            return await self._post(build_slot_closing_post(closed, self._now()))
        return True

    async def _list_open_slots(self, state: State | None = None) -> dict[str, SlotOpened]:
        """Return the slots of this session that wait for no tool, without those that a post has closed."""
        posts = await self._read_posts()
        closed = {post.text_field("slot_id") for post in posts if post.kind == SLOT_POST}
        slots = list_open_slots(await self._read_state() if state is None else state, posts)
        return {slot_id: slot for slot_id, slot in slots.items() if slot_id not in closed}

    def _is_expired(self, expires_at: float | None) -> bool:
        return expires_at is not None and self._now() >= expires_at


def _require_waiting(slot: SlotOpened) -> None:
    """Raise `UsageError` if a slot waits for no answer."""
    if not slot.waits:
        raise UsageError(f"slot {slot.slot_id!r} waits for no answer: it is only shown; close it with remove()")
