"""The display slots of a session, what its host asks people in them, and adapters that show them all."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from msgspec.structs import replace

from perdure._core.log.fold import State, fold_entries
from perdure._core.log.store import Post, cancel_and_await_tasks
from perdure._core.people.inbox import HostEvent
from perdure._core.people.mailbox import SLOT_POST, build_slot_closing_post
from perdure._core.run.tool_calls.questions import build_decline_body, check_slot_answer
from perdure._core.tools.slots import Answer, Askable, Showable, TextQuestion, require_showable
from perdure._core.values import checks
from perdure._core.values.clock import get_steady_time, new_id
from perdure._core.values.error import ConfigError, NotAnswered, SessionBusy, UsageError
from perdure._core.values.event import Entry
from perdure._core.values.event_class import Event, QuestionAsked, SlotClosed, SlotOpened, SlotUpdated
from perdure._core.values.jsonable import replace_surrogates
from perdure._people.view import SlotView, build_slot_views, list_open_slots
from perdure._runtime.resume.reasons import is_waiting_run_cancelled

from .posts import iterate_with_timeouts
from .stored import prefix_path_with_job_handle

if TYPE_CHECKING:
    from .session import Session


T = TypeVar("T")
logger = logging.getLogger("perdure")


class DisplayAdapter(Protocol):
    """Adapter protocol by which a host program shows a session's display slots, in a window, a chat or a web page.

    The methods may be plain or async.
    """

    def show(self, slot: SlotView) -> object:
        """Show a slot that is new, or whose content has changed."""

    def close(self, slot_id: str) -> object:
        """Remove a slot that was closed, or whose question needs no answer any more."""

    def ask(self, slot: SlotView) -> Any:
        """Return the answer to the question in a slot; raise `NotAnswered` to decline it.

        It is cancelled when the question is settled elsewhere. An adapter that answers in another way, by
        `display.resolve`, need not return.
        """


@asynccontextmanager
async def connect_adapter(display: "SessionDisplay", adapter: DisplayAdapter) -> AsyncGenerator[None]:
    """Async context manager that passes all display slots of a session to an adapter."""
    for method in ("show", "close", "ask"):
        if not callable(getattr(adapter, method, None)):
            advice = f"give an object with show(slot), close(slot_id) and ask(slot): it has no {method}"
            checks.raise_config_error("display.connect", "adapter", adapter, advice)
    connection = _Connection(display, adapter)
    task = asyncio.ensure_future(connection.serve())
    try:
        yield
    finally:
        await cancel_and_await_tasks((task,))


class _Connection:
    """The connection of an adapter to a display: the slots it shows, and the questions it asks."""

    def __init__(self, display: "SessionDisplay", adapter: DisplayAdapter) -> None:
        self._display = display
        self._adapter = adapter
        self._shown: dict[str, SlotView] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Pass every change of the display to the adapter until this task is cancelled."""
        try:
            async with aclosing(self._display.subscribe()) as changes:
                async for slots in changes:
                    await self._pass_changes({slot.slot_id: slot for slot in slots})
        finally:
            await cancel_and_await_tasks(list(self._asking.values()))

    async def _pass_changes(self, slots: dict[str, SlotView]) -> None:
        before, self._shown = self._shown, slots
        for slot_id in before.keys() - slots.keys():
            if (task := self._asking.pop(slot_id, None)) is not None:
                task.cancel()
            await self._report_errors(self._adapter.close, slot_id)
        for slot_id, slot in slots.items():
            if before.get(slot_id) != slot:
                await self._report_errors(self._adapter.show, slot)
            if slot.waits and slot_id not in self._asking:
                self._asking[slot_id] = asyncio.ensure_future(self._report_errors(self._ask, slot))

    async def _ask(self, slot: SlotView) -> None:
        try:
            answer = self._adapter.ask(slot)
            await self._display.resolve(slot.slot_id, await answer if isawaitable(answer) else answer)
        except NotAnswered as refusal:
            await self._display.reject(slot.slot_id, str(refusal) or "the question was declined")

    async def _report_errors(self, method: Callable[[T], object], argument: T) -> None:
        """Call a method of the adapter and log its errors, so that the display goes on and questions stay open."""
        try:
            work = method(argument)
            if isawaitable(work):
                await work
        except (ConfigError, UsageError) as error:
            logger.warning("the answer of the display %r is not accepted: %s", self._adapter, error)
        except Exception:
            logger.exception("the display %r failed", self._adapter)


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
        checks.require_text("display.push", "slot_id", slot_id)
        slot_id = slot_id or new_id()
        if slot_id not in await self._list_open_slots():
            await self._record(SlotOpened(slot_id, shown.shown_as, shown.input), f"show-{slot_id}")
        return slot_id

    async def update(self, slot_id: str, shown: Showable) -> None:
        """Replace the content of a slot. Raises `UsageError` if there is no such slot."""
        require_showable("display.update", shown, Showable)
        checks.require_text("display.update", "slot_id", slot_id, non_empty=True)
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
        checks.require_text("display.ask", "slot_id", slot_id)
        if timeout_seconds is not None:
            checks.require_number("display.ask", "timeout_seconds", timeout_seconds)

        return asked.read(await ask_people(self, asked, slot_id or new_id(), timeout_seconds))

    def connect(self, adapter: "DisplayAdapter") -> AbstractAsyncContextManager[None]:
        """Pass all slots of the session to an adapter during the block: what is shown, changed, closed and asked."""
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
        checks.require_text("display.resolve", "slot_id", slot_id, non_empty=True)
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
        checks.require_text("display.reject", "slot_id", slot_id, non_empty=True)
        checks.require_text("display.reject", "reason", reason, non_empty=True)
        state = await self._read_state()
        if (slot := (await self._list_open_slots(state)).get(slot_id)) is not None:
            _require_waiting(slot)
            return await self._close_slot(SlotClosed(slot_id, reason))
        if (there := await self._find_child_display(state, slot_id)) is not None:
            return await there.reject(slot_id, reason)
        return await self._post_refusal(state, await self._find_question(state, slot_id), reason)

    async def remove(self, slot_id: str, reason: str = "removed") -> bool:
        """Remove a slot, and decline its question if it has one. Return False if it was settled before."""
        checks.require_text("display.remove", "slot_id", slot_id, non_empty=True)
        checks.require_text("display.remove", "reason", reason, non_empty=True)
        state = await self._read_state()
        if slot_id in await self._list_open_slots(state):
            return await self._close_slot(SlotClosed(slot_id, reason))
        if (there := await self._find_child_display(state, slot_id)) is not None:
            return await there.remove(slot_id, reason)
        return await self._post_refusal(state, await self._find_question(state, slot_id), reason)

    async def clear(self, reason: str = "the display was cleared") -> int:
        """Remove all slots, and return their number. Tools that wait for an answer get none, as with `reject`."""
        checks.require_text("display.clear", "reason", reason, non_empty=True)
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
