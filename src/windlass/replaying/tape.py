"""Where a replay stands, and the model, the tools and the gate that take its words. Above: `replay.py`.
Below: the record, `check.py`, which compares, and `doubles.py`.

What the outside world did is done again: what a model said, what tools returned, what people said, sent and cancelled.
None of it has an effect.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from windlass.core.arguments import arguments_hash
from windlass.core.event import InboxResolved, ModelEvent, ReplyDiscarded, ReplyFinished
from windlass.core.message import Message, Status, ToolCall, ToolResult
from windlass.core.model import ModelInfo, Request
from windlass.core.permission import NO_ANSWER, Gate, Grant, Grants, PermissionRequest, Permissions, Verdict
from windlass.core.plain import to_text
from windlass.core.tool import Arguments, Tool, ToolContext
from windlass.session import Session

from .check import Check, Stopped
from .diff import NOTHING
from .doubles import RecordedClock, begins_anew, deltas, error_like
from .record import FOLLOW_UP, Exchange, Record, Stretch

_BREATHS = 200
"""Turns of the event loop that a stand-in waits for something that is about to happen."""


class Tape:
    """Where a replay stands, and what the outside world did there."""

    def __init__(self, check: Check, added: Sequence[Tool[..., Any]]) -> None:
        self.check = check
        self.clock = RecordedClock(check)
        self.session: Session
        """The session that is being replayed."""
        self.stretch: Stretch
        self.exchange: Exchange | None = None
        """The request that was answered last."""
        self._added = {tool.name: self.served(tool) for tool in added}
        self._items: dict[str, str] = {}
        """What the items of the recorded inbox are called now, where they have other names."""

    @property
    def record(self) -> Record:
        """The recording."""
        return self.check.record

    def open(self, session: Session) -> None:
        """Go on with a session that begins with what was recorded."""
        self.session = session
        self._items.clear()

    async def begin(self, stretch: Stretch) -> None:
        """Follow this stretch; what came from outside before its first request is said at once."""
        self.stretch, self.exchange = stretch, None
        self.check.begin(stretch)
        await self._say(stretch.first)

    async def _say(self, messages: list[Message | InboxResolved]) -> None:
        """Tell the model what was told to it from outside, unless what it answers has not been asked for yet."""
        waiting = [each for each in messages if isinstance(each, InboxResolved)]
        known = {item.item_id for item in await self.session.inbox()} if waiting else set[str]()
        for message in list(messages):
            if isinstance(message, InboxResolved):
                item_id = self._items.get(message.item_id, message.item_id)
                if item_id not in known:
                    continue
                await self.session.resolve(item_id, message.response)
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

    # -- the model -----------------------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Say what was said to this request."""
        self.check.see(request, await self.session.messages() if self.check.suspicious else ())
        current, self.check.current = self.check.current, None
        exchange = self.stretch.exchanges.get(current or 0)
        if exchange is None:
            message = "the model is asked for something that is not in the log"
            self.check.diverge(self.record.last + 1, "request", message, NOTHING, to_text(request.messages[-1:]))
            raise Stopped(message)
        self.exchange = exchange
        attempts = exchange.discarded if exchange.reply is not None else exchange.discarded[:-1]
        for discarded in attempts:
            for event in (*deltas(discarded), begins_anew(discarded)):
                yield event
        if exchange.reply is None:
            async for event in self._broken_off(exchange.discarded[-1] if exchange.discarded else None):
                yield event
            return
        await self._say(exchange.after)
        if self._cancelled_after(exchange):
            await self.session.cancel("after_turn")
        yield ReplyFinished(message=exchange.reply)

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
        raise error_like(ended.reason, ended.error)

    def _cancelled_after(self, exchange: Exchange) -> bool:
        """Whether somebody cancelled the run, and let this turn end first."""
        if not self.stretch.interrupted or exchange is not self.stretch.last_exchange:
            return False
        return not self.stretch.statuses(exchange) & {Status.CANCELLED, Status.CANCELLED_BEFORE_START}

    # -- the tools -----------------------------------------------------------------------------------------------------

    def served(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """The tool as it is, except that its calls come from the record.

        A recorded result has passed all that the tool does to its results; it does not pass that again.
        """
        return msgspec.structs.replace(
            tool,
            call=self._call,
            prepare=(*tool.prepare, self._prepared),
            finish=(),
            summary=None,
            retries=0,
            timeout_seconds=None,
            abortable=True,
        )

    async def _call(self, _arguments: Arguments, context: ToolContext[Any]) -> ToolResult | str:
        result = self.stretch.results.get(context.call_id)
        if result is None:
            return ""  # a crash came before its result: the record breaks off when this is to be stored
        if result.status is Status.CANCELLED:
            await self.interrupt()
        if self.exchange is not None:
            await self._act_again(self.exchange, context)
        return result

    async def _act_again(self, exchange: Exchange, context: ToolContext[Any]) -> None:
        """What the calls of a reply did to the run, and what somebody did to it meanwhile."""
        context.add_tools(*[self._added[name] for name in exchange.added if name in self._added])
        inbox, exchange.added, exchange.inbox = exchange.inbox, (), []
        for item in inbox:
            self._items[item.item_id] = await context.add_to_inbox(
                item.tag, item.request, blocking=item.blocking, wake=item.wake
            )
        if inbox:
            await self._say(exchange.after)
        statuses = self.stretch.statuses(exchange)
        if Status.CANCELLED_BEFORE_START in statuses and Status.CANCELLED not in statuses:
            await self.session.cancel("after_tools")

    async def _prepared(self, call: ToolCall, arguments: Arguments) -> None:
        """The last look at the arguments with which a call is made."""
        known = self.record.hashes.get(call.call_id)
        if known is not None and known != arguments_hash(arguments):
            self._other_arguments(call, arguments)
        exchange, result = self.exchange, self.stretch.results.get(call.call_id)
        if exchange is None or result is None or result.status is not Status.CANCELLED_BEFORE_START:
            return
        if self.stretch.interrupted and not exchange.started:  # the cancel came before the first of them began
            await self.interrupt()

    def _other_arguments(self, call: ToolCall, arguments: Arguments) -> None:
        seq = next((each.seq for each in self.check.left if getattr(each.event, "call_id", "") == call.call_id), 0)
        what = f"the call of {call.name!r} is made with other arguments"
        self.check.diverge(
            seq, "call", what, f"call {call.name} {call.arguments}", f"call {call.name} {to_text(arguments)}"
        )

    # -- the gate ------------------------------------------------------------------------------------------------------

    def gate(self, gate: Gate | None) -> Gate | None:
        """The gate as it is, except that whoever it would ask says what was said then."""
        if not isinstance(gate, Permissions):
            return gate
        given = {
            Grant.of_decision(each, "").grant_id for each in self.record.decisions.values() if each.scope != "once"
        }
        double = copy.copy(gate)
        double.handler = self._verdicts
        double.grants = Grants([each for each in gate.grants if each.scope == "forever" and each.grant_id not in given])
        return double

    def _verdicts(self, requests: Sequence[PermissionRequest]) -> list[Verdict]:
        return [self._verdict(each) for each in requests]

    def _verdict(self, request: PermissionRequest) -> Verdict:
        decision = self.record.decisions.get(request.call_id)
        self.check.asked.add(request.call_id)
        if decision is not None:
            return Verdict(decision.allow, decision.reason, decision.scope)
        left = self.check.left
        if left and self.stretch.ended is not None:
            what = f"somebody is asked about the call of {request.tool!r}, and nobody was then"
            call = f"call {request.tool} {to_text(request.arguments)}"
            self.check.diverge(left[0].seq, "permission", what, call, f"somebody is asked\n{call}")
        return NO_ANSWER


class RecordedModel:
    """Says what was said."""

    def __init__(self, tape: Tape, info: ModelInfo) -> None:
        self.info = info
        """What is known about the model whose place it takes."""
        self._tape = tape

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """The recorded answer."""
        return self._tape.answer(request)
