"""Give the agent of a replay, at the recorded points, the recorded replies, user messages, cancels and timeouts.

The model's replies, and what users answered, sent and cancelled, are repeated from the log. Nothing has side effects.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable

from perdure._core.model.protocol import ModelInfo, Request
from perdure._core.permission.gate import SupportsStoredQuestions
from perdure._core.run.run import Run
from perdure._core.values.error import OutOfBudget
from perdure._core.values.event import Entry, InboxResolved, ModelEvent, ReplyDiscarded, ReplyFinished
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import to_text
from perdure._core.values.message import Status

from .clock import (
    RecordedClock,
    build_discarded_deltas,
    build_recorded_error,
    build_reply_deltas,
    build_retry_event,
)
from .comparison import LogComparer, ReplayStopped
from .differences import NOTHING
from .log import FOLLOW_UP, RecordedExchange, RecordedLog, RunSegment
from .session import ReplaySession

_LOOP_ROUNDS = 200
"""Event loop iterations to wait for something that is about to happen."""
_OVERFLOW = "ContextOverflow"
_RETRIES = frozenset({"RetryScheduled", "FailedOver"})
"""Reasons of replies that were discarded because the request was sent again."""


class Playback:
    """Plays back the model replies, user messages and interruptions of a recorded log, one after another."""

    def __init__(self, check: LogComparer) -> None:
        self.check = check
        self.clock = RecordedClock(check)
        self.session: ReplaySession
        """The session in which the log is replayed."""
        self.segment: RunSegment
        self.exchange: RecordedExchange | None = None
        """The recorded request that was answered last, with its reply."""
        self.gates: list[SupportsStoredQuestions] = []
        """Copies of the permission gates (which decide whether a tool call may run) that the replay uses."""

    @property
    def record(self) -> RecordedLog:
        """The log that is played back."""
        return self.check.record

    async def begin(self, segment: RunSegment) -> None:
        """Move to the start of a segment, and send the messages that were recorded before its first model request."""
        self.segment, self.exchange = segment, None
        self.check.begin(segment)
        await self.send_messages()

    async def send_messages(self) -> None:
        """Send the steering, follow-ups and inbox answers that were recorded at this point.

        An inbox answer whose item does not exist yet is left for later.
        """
        messages = self.segment.early_messages if self.exchange is None else self.exchange.later_messages
        waiting = [each for each in messages if isinstance(each, InboxResolved)]
        known = {item.item_id for item in await self.session.inbox()} if waiting else set[str]()
        for message in list(messages):
            if isinstance(message, InboxResolved):
                if message.item_id not in known:
                    continue
                await self.session.resolve(message.item_id, message.response, labels=message.labels)
            elif message.origin == FOLLOW_UP:
                await self.session.follow_up(message)
            else:
                await self.session.steer(message)
            messages.remove(message)
        await asyncio.sleep(0)  # posts are handed over when the event loop gets to it

    async def interrupt(self) -> None:
        """Cancel the run, or let it time out, as recorded; calls that had ended before may end first."""
        for _ in range(_LOOP_ROUNDS):
            await asyncio.sleep(0)
        if self.segment.ended is not None and self.segment.ended.reason == "timeout":
            self.clock.fire_timers()
        else:
            await self.session.cancel("now")
        for _ in range(_LOOP_ROUNDS):
            await asyncio.sleep(0)  # this is where the interruption arrives
        then = f"the run is interrupted: {self.segment.ended.reason if self.segment.ended else ''}"
        seq = self.segment.entries[-1].seq
        self.check.record_divergence(seq, "ending", "nothing interrupts the run here any more", then, "the run goes on")

    # -- what was stored beside ----------------------------------------------------------------------------------------

    async def store_next(self, run: Run, is_wanted: Callable[[Event], bool]) -> list[Event]:
        """Store the next recorded events in the replayed session while `is_wanted` accepts them, and return them."""
        done: list[Event] = []
        while (event := self.check.next_event) is not None and is_wanted(event):
            done.append(event)
            await run.emit(event)
        return done

    async def store_other_entries(self, run: Run, before: int, is_wanted: Callable[[Entry], bool]) -> list[Event]:
        """Store the side entries that tool calls had recorded before entry `before`, if `is_wanted` accepts them.

        Returns their events.
        """
        beside = self.segment.other_entries
        place = bisect_left(beside, before, key=_entry_number)
        events = [entry.event for entry in beside[:place] if is_wanted(entry)]
        beside[:place] = [entry for entry in beside[:place] if not is_wanted(entry)]
        if events:
            await run.emit(*events)
        return events

    async def store_private_run(self, run: Run, path: str) -> None:
        """Store the recorded events of a private run of an engine, which is not performed in a replay.

        Raises `ReplayStopped` if it had not ended in this part of the log, or is not there.
        """

        def is_below(entry: Entry) -> bool:
            return entry.event.path == path or entry.event.path.startswith(f"{path}/")

        await self.store_other_entries(run, self.record.last + 1, is_below)
        state = run.state.children.get(path)
        if state is not None and state.run_ended_event is not None:
            if state.run_ended_event.status == "cancelled" and self.segment.is_interrupted:
                await self.interrupt()
            return
        if self.segment.ended is None or state is not None:  # a crash, a cancel or a question cut it off
            raise ReplayStopped("the record breaks off in a private run")
        message = f"the engine asks the model privately ({path}), which is not in the log"
        self.check.record_divergence(self.record.last + 1, "request", message, NOTHING, path)
        raise ReplayStopped(message)

    # -- the model -----------------------------------------------------------------------------------------------------

    async def stream_reply(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Compare the request with the recorded one, and stream the recorded reply or error."""
        self.check.compare_request(request, await self.session.view())
        current, self.check.current = self.check.current, None
        exchange = self.segment.exchanges.get(current or 0)
        if current is None or exchange is None:
            message = "the model is asked for something that is not in the log"
            self.check.record_divergence(
                self.record.last + 1, "request", message, NOTHING, to_text(request.messages[-1:])
            )
            raise ReplayStopped(message)
        self.exchange = exchange
        beside = self.segment.other_entries
        del beside[: bisect_left(beside, current, key=_entry_number)]  # what is older was made by code that runs again
        is_whole = exchange.reply is not None or exchange.is_overflowed
        for discarded in exchange.discarded if is_whole else exchange.discarded[:-1]:
            for event in (*build_discarded_deltas(discarded), build_retry_event(discarded)):
                yield event
        if exchange.is_overflowed:
            raise build_recorded_error(_OVERFLOW, self._recorded_error_text(_OVERFLOW))
        if exchange.reply is None:
            async for event in self._stream_without_reply(exchange.discarded[-1] if exchange.discarded else None):
                yield event
            return
        await self.send_messages()
        if self._is_cancelled_after(exchange):
            await self.session.cancel("after_turn")
        for event in build_reply_deltas(exchange.reply) if exchange.request.aside else ():
            yield event  # to an engine that reads them; for a turn, the end of the stream is all that the loop needs
        yield ReplyFinished(message=exchange.reply)

    def _recorded_error_text(self, reason: str) -> str:
        """Return the recorded message of the error that ended the run."""
        ended = self.segment.ended
        return ended.error if ended is not None and ended.reason == reason else "as recorded"

    async def _stream_without_reply(self, discarded: ReplyDiscarded | None) -> AsyncGenerator[ModelEvent, None]:
        """Stream what was recorded of a request without a reply: it failed, was interrupted, or the process died."""
        if discarded is not None:
            if discarded.reason == "empty" and discarded.partial is not None:
                yield ReplyFinished(message=discarded.partial)
                return
            for event in build_discarded_deltas(discarded):
                yield event
            if discarded.reason in _RETRIES:
                yield build_retry_event(discarded)
        ended = self.segment.ended
        if ended is None:
            raise ReplayStopped("the record breaks off here")
        if self.segment.is_interrupted:
            await self.interrupt()
            raise ReplayStopped("nothing interrupts the run here any more")
        if (ended.status, ended.reason) == ("limit", "budget"):
            raise OutOfBudget(ended.error)
        is_overcome = ended.status != "failed" and discarded is not None and discarded.reason not in _RETRIES
        raise build_recorded_error(discarded.reason if is_overcome and discarded else ended.reason, ended.error)

    def _is_cancelled_after(self, exchange: RecordedExchange) -> bool:
        """Return True if the run was cancelled in the mode that lets this turn end first."""
        if not self.segment.is_interrupted or exchange is not self.segment.last_exchange:
            return False
        return not self.segment.call_statuses(exchange) & {Status.CANCELLED, Status.CANCELLED_BEFORE_START}


def _entry_number(entry: Entry) -> int:
    return entry.seq


class RecordedModel:
    """Model of a replay: it compares each request with the log, and streams the recorded reply."""

    def __init__(self, playback: Playback, info: ModelInfo) -> None:
        self.info = info
        """Information about the model that it replaces."""
        self._playback = playback

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Stream the recorded reply to this request."""
        return self._playback.stream_reply(request)
