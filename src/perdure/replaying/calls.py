"""Tools whose calls come from the record. Above: `offline.py`. Below: `tape.py`.

A recorded result has passed all that the tool does to its results. What the call left in the log beside it is stored
again in front of it: values, slots, questions and answers, items of the inbox, skills, summaries, and the runs of other
agents. So what follows (reminders, limits, the tools of a skill) finds the log as it was.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.core.arguments import arguments_hash
from perdure.core.event import Entry, InboxAdded, ModelRequested, ToolsChanged
from perdure.core.message import Status, ToolCall, ToolResult
from perdure.core.plain import to_text
from perdure.core.run import Run
from perdure.core.tool import Arguments, Tool, ToolContext

from .stretch import is_compaction
from .tape import Tape


class Calls:
    """Carries out calls, from the record."""

    def __init__(self, tape: Tape, added: Mapping[str, Tool[..., Any]]) -> None:
        self._tape = tape
        self._added = added
        """The tools that calls may have added, by name."""
        self._changed: set[int] = set()
        """The entries that tell of tools which have been added again."""

    def served(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """The tool as it is, except that its calls come from the record."""
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
        stretch, call_id = self._tape.stretch, context.call_id
        if call_id in stretch.intents:
            await context.begin()  # of a tool that asks first, and went on to do something
        result = stretch.results.get(call_id)
        await self._store_again(context.run, stretch.finished.get(call_id, self._tape.record.last + 1))
        if result is None:
            return ""  # a crash came before its result, or it waits: the record breaks off when this is to be stored
        if result.status is Status.CANCELLED:
            await self._tape.interrupt()
        self._add_again(context)
        await self._cancel_again()
        return result

    async def _store_again(self, run: Run, before: int) -> None:
        """What was stored before this result, and nobody has stored again yet."""
        left = self._tape.check.left

        def is_wanted(entry: Entry) -> bool:
            return not is_compaction(entry.event) or entry in left  # else it came before the calls

        stored = await self._tape.store_beside(run, before, is_wanted)
        if any(isinstance(event, InboxAdded) for event in stored):
            await self._tape.say()

    def _add_again(self, context: ToolContext[Any]) -> None:
        """Offer the tools that were offered since the calls of this reply."""
        for entry in self._tape.check.left:
            if isinstance(entry.event, ModelRequested):
                return
            if isinstance(entry.event, ToolsChanged) and entry.seq not in self._changed:
                self._changed.add(entry.seq)
                context.add_tools(*[self._added[name] for name in entry.event.added if name in self._added])

    async def _cancel_again(self) -> None:
        """Somebody may have cancelled the run while the calls of this reply went on."""
        tape = self._tape
        statuses = tape.stretch.statuses(tape.exchange) if tape.exchange is not None else set[Status]()
        if Status.CANCELLED_BEFORE_START in statuses and Status.CANCELLED not in statuses:
            await tape.session.cancel("after_tools")

    async def _prepared(self, call: ToolCall, arguments: Arguments) -> None:
        """The last look at the arguments with which a call is made."""
        tape = self._tape
        known = tape.record.hashes.get(call.call_id)
        if known is not None and known != arguments_hash(arguments):
            self._other_arguments(call, arguments)
        exchange, result = tape.exchange, tape.stretch.results.get(call.call_id)
        if exchange is None or result is None or result.status is not Status.CANCELLED_BEFORE_START:
            return
        if tape.stretch.interrupted and not exchange.started:  # the cancel came before the first of them began
            await tape.interrupt()

    def _other_arguments(self, call: ToolCall, arguments: Arguments) -> None:
        check = self._tape.check
        seq = next((each.seq for each in check.left if getattr(each.event, "call_id", "") == call.call_id), 0)
        what = f"the call of {call.name!r} is made with other arguments"
        check.diverge(seq, "call", what, f"call {call.name} {call.arguments}", f"call {call.name} {to_text(arguments)}")
