"""What people are shown and asked in a session, from any process. Above: callers, screens. Below: `session.py`.

A question is settled by a post, as ever: whoever drives the session gets it, or whoever drives it next. What is only
shown is closed in the log itself while nobody drives the session, and by a post while somebody does.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .core import check
from .core.error import SessionBusy, UsageError
from .core.event import Entry, Event, QuestionAsked, SlotClosed
from .core.fold import State, fold
from .core.mailbox import ANSWER, answer_name, closing
from .core.question import refusal
from .core.store import Post
from .interaction.view import SlotView, views
from .keeping import path_below
from .waking import is_unwanted

if TYPE_CHECKING:
    from .session import Session

LOOK_SECONDS = 1.0
"""How often a subscriber looks for what was settled by a post, which is no entry of the log yet."""


class SessionDisplay:
    """The slots of one session: what there is to see, and how to settle it."""

    def __init__(
        self,
        session: "Session",
        state: Callable[[], Awaitable[State]],
        post: Callable[[Post], Awaitable[bool]],
        note: Callable[[Event], Awaitable[None]],
        has_had: Callable[[str], Awaitable[bool]],
        *,
        below: "Callable[[State], Mapping[str, Session]]",
    ) -> None:
        self._session = session
        self._state = state
        self._post = post
        self._note = note
        self._has_had = has_had
        self._below = below

    async def slots(self) -> list[SlotView]:
        """What is shown now, and what waits for an answer, by whichever agent of the session, in the background too."""
        state = await self._state()
        return [*views(state, await self._posts(), self._now()), *await self._slots_below(state)]

    async def resolve(self, slot_id: str, value: Any) -> bool:
        """Answer a slot that waits; `False` when that was done before, or it is too late.

        Raises `ConfigError`, with every problem, when this is no answer to it.
        """
        check.text("display.resolve", "slot_id", slot_id, filled=True)
        if slot_id in (state := await self._state()).slots:
            raise UsageError(f"slot {slot_id!r} waits for no answer: it is only shown, and remove() closes it")
        if (there := await self._elsewhere(state, slot_id)) is not None:
            return await there.resolve(slot_id, value)
        question = await self._known(state, slot_id)
        return question is not None and await self._session.answer(slot_id, value)

    async def reject(self, slot_id: str, reason: str = "whoever was asked does not answer") -> bool:
        """Say that a slot is not going to be answered: the tool that waits for it is told, and why.

        Calls that wait for permission are denied, and one that a crash cut off is left as unknown. `False` when it was
        answered before.
        """
        check.text("display.reject", "slot_id", slot_id, filled=True)
        check.text("display.reject", "reason", reason, filled=True)
        state = await self._state()
        if slot_id in state.slots:
            raise UsageError(f"slot {slot_id!r} waits for no answer: it is only shown, and remove() closes it")
        if (there := await self._elsewhere(state, slot_id)) is not None:
            return await there.reject(slot_id, reason)
        return await self._reject(state, await self._known(state, slot_id), reason)

    async def remove(self, slot_id: str, reason: str = "removed") -> bool:
        """Show a slot no more. Whoever waits for it is released, as by `reject`. `False` when it was settled before."""
        check.text("display.remove", "slot_id", slot_id, filled=True)
        check.text("display.remove", "reason", reason, filled=True)
        state = await self._state()
        if slot_id in state.slots:
            return await self._close(slot_id, reason)
        if (there := await self._elsewhere(state, slot_id)) is not None:
            return await there.remove(slot_id, reason)
        return await self._reject(state, await self._known(state, slot_id), reason)

    async def clear(self, reason: str = "the display was cleared") -> int:
        """Show nothing any more, and release everybody who waits. Says how many slots there were."""
        check.text("display.clear", "reason", reason, filled=True)
        removed = [await self.remove(each.slot_id, reason) for each in await self.slots()]
        return sum(removed)

    async def subscribe(self) -> AsyncGenerator[list[SlotView]]:
        """All slots as they are now, and again whenever they have changed. Never ends by itself.

        What a run of this session object does is seen at once, everything else within a second.
        """
        entries, posts = await self._session.store.read(self._session.session_id), await self._posts()
        state, after = fold(entries), entries[-1].seq if entries else 0
        below = await self._slots_below(state)
        shown = [*views(state, posts, self._now()), *below]
        yield shown
        async with aclosing(_ticking(self._session.watch(after=after))) as coming:
            async for entry in coming:
                if entry is None:
                    posts, below = await self._posts(), await self._slots_below(state)
                elif entry.seq:
                    state.apply(entry.event)
                present = [*views(state, posts, self._now()), *below] if entry is None or entry.seq else shown
                if present != shown:
                    shown = present
                    yield shown

    # -- inside --------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._session.agent.clock.now()

    async def _posts(self) -> list[Post]:
        return list(await self._session.store.posts(self._session.session_id))

    async def _slots_below(self, state: State) -> list[SlotView]:
        """What agents show and ask that work in the background, each in a session of its own."""
        found: list[SlotView] = []
        for handle, session in self._below(state).items():
            found += [replace(each, path=path_below(handle, each.path)) for each in await session.display.slots()]
        return found

    async def _elsewhere(self, state: State, slot_id: str) -> "SessionDisplay | None":
        """The display of the session below that has this slot; `None` when none has, or it is here."""
        if slot_id not in state.asks:
            for session in self._below(state).values():
                if slot_id in [each.slot_id for each in await session.display.slots()]:
                    return session.display
        return None

    async def _known(self, state: State, slot_id: str) -> QuestionAsked | None:
        """The question of that id; `None` when it was settled before, and an error when there never was one."""
        question = state.asks.get(slot_id)
        if question is None and not await self._has_had(slot_id):
            known = ", ".join([repr(each) for each in (*state.slots, *[each.ask_id for each in state.questions])])
            raise UsageError(
                f"session {self._session.session_id!r} has no slot {slot_id!r}: open are {known or 'none'}"
            )
        return question

    async def _reject(self, state: State, question: QuestionAsked | None, reason: str) -> bool:
        if question is None or is_unwanted(state, await self._posts()):
            return False
        late = question.expires_at is not None and self._now() >= question.expires_at
        if question.ask_id in state.answers or late:
            return False
        return await self._post(Post(answer_name(question.ask_id), ANSWER, refusal(question, reason), self._now()))

    async def _close(self, slot_id: str, reason: str) -> bool:
        post = closing(slot_id, reason, self._now())
        try:
            await self._note(SlotClosed(slot_id, reason))
        except SessionBusy:  # somebody drives it, and does it at the next safe point
            return await self._post(post)
        return True


async def _ticking(entries: AsyncGenerator[Entry]) -> AsyncGenerator[Entry | None]:
    """The same, and `None` whenever nothing has come for a while."""
    coming: asyncio.Future[Entry | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(entries, None))
            arrived, _ = await asyncio.wait((coming,), timeout=LOOK_SECONDS)
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
