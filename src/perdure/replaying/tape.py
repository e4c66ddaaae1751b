"""Where a replay stands, and what the outside world did there. Above: `calls.py`, `gate.py`, `upkeep.py`, `offline.py`.
Below: the record, `check.py`, which compares, and `doubles.py`.

What the outside world did is done again: what a model said, what people said, sent and cancelled. None of it has an
effect.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable

from perdure.core.error import OutOfBudget
from perdure.core.event import Entry, Event, InboxResolved, ModelEvent, ReplyDiscarded, ReplyFinished
from perdure.core.message import Status
from perdure.core.model import ModelInfo, Request
from perdure.core.permission import Permissions
from perdure.core.plain import to_text
from perdure.core.run import Run

from .check import Check, Stopped
from .diff import NOTHING
from .doubles import RecordedClock, begins_anew, deltas, error_like
from .record import Record
from .session import RecordedSession
from .stretch import FOLLOW_UP, Exchange, Stretch

_BREATHS = 200
"""Turns of the event loop that a stand-in waits for something that is about to happen."""
_OVERFLOW = "ContextOverflow"


class Tape:
    """Where a replay stands, and what the outside world did there."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.clock = RecordedClock(check)
        self.session: RecordedSession
        """The session that is being replayed."""
        self.stretch: Stretch
        self.exchange: Exchange | None = None
        """The request that was answered last."""
        self.gates: list[Permissions] = []
        """The gates that take the place of others."""

    @property
    def record(self) -> Record:
        """The recording."""
        return self.check.record

    async def begin(self, stretch: Stretch) -> None:
        """Follow this stretch; what came from outside before its first request is said at once."""
        self.stretch, self.exchange = stretch, None
        self.check.begin(stretch)
        await self.say()

    async def say(self) -> None:
        """Tell the model what was told to it from outside, unless what it answers has not been asked for yet."""
        messages = self.stretch.first if self.exchange is None else self.exchange.after
        waiting = [each for each in messages if isinstance(each, InboxResolved)]
        known = {item.item_id for item in await self.session.inbox()} if waiting else set[str]()
        for message in list(messages):
            if isinstance(message, InboxResolved):
                if message.item_id not in known:
                    continue
                await self.session.resolve(message.item_id, message.response)
            elif message.origin == FOLLOW_UP:
                await self.session.follow_up(message)
            else:
                await self.session.steer(message)
            messages.remove(message)
        await asyncio.sleep(0)  # posts are handed over when the event loop gets to it

    async def interrupt(self) -> None:
        """Interrupt the run in the way in which it was interrupted. What has ended before that ends first."""
        for _ in range(_BREATHS):
            await asyncio.sleep(0)
        if self.stretch.ended is not None and self.stretch.ended.reason == "timeout":
            self.clock.ring()
        else:
            await self.session.cancel("now")
        for _ in range(_BREATHS):
            await asyncio.sleep(0)  # this is where the interruption arrives
        then = f"the run is interrupted: {self.stretch.ended.reason if self.stretch.ended else ''}"
        seq = self.stretch.entries[-1].seq
        self.check.diverge(seq, "ending", "nothing interrupts the run here any more", then, "the run goes on")

    # -- what was stored beside ----------------------------------------------------------------------------------------

    async def store_next(self, run: Run, is_wanted: Callable[[Event], bool]) -> list[Event]:
        """Store what comes next in the record, as long as it is of this kind, and say what that was."""
        done: list[Event] = []
        while (event := self.check.upcoming) is not None and is_wanted(event):
            done.append(event)
            await run.emit(event)
        return done

    async def store_beside(self, run: Run, before: int, is_wanted: Callable[[Entry], bool]) -> list[Event]:
        """Store again what was stored beside all else before this entry, and say what that was."""
        beside = self.stretch.beside
        place = bisect_left(beside, before, key=_number)
        events = [entry.event for entry in beside[:place] if is_wanted(entry)]
        beside[:place] = [entry for entry in beside[:place] if not is_wanted(entry)]
        if events:
            await run.emit(*events)
        return events

    # -- the model -----------------------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Say what was said to this request."""
        self.check.see(request, await self.session.view())
        current, self.check.current = self.check.current, None
        exchange = self.stretch.exchanges.get(current or 0)
        if current is None or exchange is None:
            message = "the model is asked for something that is not in the log"
            self.check.diverge(self.record.last + 1, "request", message, NOTHING, to_text(request.messages[-1:]))
            raise Stopped(message)
        self.exchange = exchange
        beside = self.stretch.beside
        del beside[: bisect_left(beside, current, key=_number)]  # what is older was made by code that runs again
        is_whole = exchange.reply is not None or exchange.overflowed
        for discarded in exchange.discarded if is_whole else exchange.discarded[:-1]:
            for event in (*deltas(discarded), begins_anew(discarded)):
                yield event
        if exchange.overflowed:
            raise error_like(_OVERFLOW, self._error_of(_OVERFLOW))
        if exchange.reply is None:
            async for event in self._broken_off(exchange.discarded[-1] if exchange.discarded else None):
                yield event
            return
        await self.say()
        if self._cancelled_after(exchange):
            await self.session.cancel("after_turn")
        yield ReplyFinished(message=exchange.reply)

    def _error_of(self, reason: str) -> str:
        """What the run says about an error that has ended it."""
        ended = self.stretch.ended
        return ended.error if ended is not None and ended.reason == reason else "as recorded"

    async def _broken_off(self, discarded: ReplyDiscarded | None) -> AsyncGenerator[ModelEvent, None]:
        """A request that got no reply: it failed, was interrupted, or the process died."""
        if discarded is not None:
            if discarded.reason == "empty" and discarded.partial is not None:
                yield ReplyFinished(message=discarded.partial)
                return
            for event in deltas(discarded):
                yield event
            if discarded.reason in {"RetryScheduled", "FailedOver"}:
                yield begins_anew(discarded)
        ended = self.stretch.ended
        if ended is None:
            raise Stopped("the record breaks off here")
        if self.stretch.interrupted:
            await self.interrupt()
            raise Stopped("nothing interrupts the run here any more")
        if (ended.status, ended.reason) == ("limit", "budget"):
            raise OutOfBudget(ended.error)
        raise error_like(ended.reason, ended.error)

    def _cancelled_after(self, exchange: Exchange) -> bool:
        """Whether somebody cancelled the run, and let this turn end first."""
        if not self.stretch.interrupted or exchange is not self.stretch.last_exchange:
            return False
        return not self.stretch.statuses(exchange) & {Status.CANCELLED, Status.CANCELLED_BEFORE_START}


def _number(entry: Entry) -> int:
    return entry.seq


class RecordedModel:
    """Says what was said."""

    def __init__(self, tape: Tape, info: ModelInfo) -> None:
        self.info = info
        """What is known about the model whose place it takes."""
        self._tape = tape

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """The recorded answer."""
        return self._tape.answer(request)
