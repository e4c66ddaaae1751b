"""Tools in a replay: they do not run, but return the results from the recorded log.

A recorded result has passed all that the tool does to its results. What the call stored besides it is stored again
before it: values, slots, questions and answers, inbox items, skills, summaries, and subagent runs. So reminders, limits
and the tools of a skill find the log as it was.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.core.argument_parsing import arguments_hash
from perdure.core.event import Entry, InboxAdded, ModelRequested, ToolsChanged
from perdure.core.jsonable import to_text
from perdure.core.message import Status, ToolCall, ToolResult
from perdure.core.run import Run
from perdure.core.tool import Arguments, Tool, ToolContext

from .recorded_input_playback import Playback
from .run_segment import is_compaction


class RecordedTools:
    """Factory for copies of an agent's tools that return the recorded results instead of running."""

    def __init__(self, playback: Playback, added: Mapping[str, Tool[..., Any]]) -> None:
        self._playback = playback
        self._added = added
        """Tools that calls may have added, by name."""
        self._changed: set[int] = set()
        """Entries about added tools that have been handled."""

    def wrap_tool(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """Return a copy of the tool that does not run, but returns the recorded result of each call."""
        return msgspec.structs.replace(
            tool,
            call=self._call,
            prepare=(*tool.prepare, self._check_arguments),
            finish=(),
            summary=None,
            retries=0,
            timeout_seconds=None,
            abortable=True,
        )

    async def _call(self, _arguments: Arguments, context: ToolContext[Any]) -> ToolResult | str:
        segment, call_id = self._playback.segment, context.call_id
        if call_id in segment.started_calls:
            await context.begin()  # of a tool that asks first, and went on to do something
        result = segment.results.get(call_id)
        await self._restore_entries(context.run, segment.result_entries.get(call_id, self._playback.record.last + 1))
        if result is None:
            return ""  # a crash precedes its result, or it waits: the replay stops when this is to be stored
        if result.status is Status.CANCELLED:
            await self._playback.interrupt()
        self._restore_added_tools(context)
        await self._repeat_cancel()
        return result

    async def _restore_entries(self, run: Run, before: int) -> None:
        """Store the recorded entries that precede this tool result and are not stored yet."""
        left = self._playback.check.remaining

        def is_wanted(entry: Entry) -> bool:
            return not is_compaction(entry.event) or entry in left  # else it precedes the calls

        stored = await self._playback.store_other_entries(run, before, is_wanted)
        if any(isinstance(event, InboxAdded) for event in stored):
            await self._playback.send_messages()

    def _restore_added_tools(self, context: ToolContext[Any]) -> None:
        """Add the tools that were added during the calls of this reply."""
        for entry in self._playback.check.remaining:
            if isinstance(entry.event, ModelRequested):
                return
            if isinstance(entry.event, ToolsChanged) and entry.seq not in self._changed:
                self._changed.add(entry.seq)
                context.run.announce_tools(entry.event.added)  # those that were loaded
                context.run.add_tools([self._added[name] for name in entry.event.added if name in self._added])

    async def _repeat_cancel(self) -> None:
        """Cancel the run if it was cancelled during the calls of this reply."""
        playback = self._playback
        statuses = playback.segment.call_statuses(playback.exchange) if playback.exchange is not None else set[Status]()
        if Status.CANCELLED_BEFORE_START in statuses and Status.CANCELLED not in statuses:
            await playback.session.cancel("after_tools")

    async def _check_arguments(self, call: ToolCall, arguments: Arguments) -> None:
        """Compare the final arguments of a call with the recorded ones."""
        playback = self._playback
        known = playback.record.hashes.get(call.call_id)
        if known is not None and known != arguments_hash(arguments):
            self._record_other_arguments(call, arguments)
        exchange, result = playback.exchange, playback.segment.results.get(call.call_id)
        if exchange is None or result is None or result.status is not Status.CANCELLED_BEFORE_START:
            return
        if playback.segment.is_interrupted and not exchange.started:  # the cancel precedes the first of them
            await playback.interrupt()

    def _record_other_arguments(self, call: ToolCall, arguments: Arguments) -> None:
        check = self._playback.check
        seq = next((each.seq for each in check.remaining if getattr(each.event, "call_id", "") == call.call_id), 0)
        what = f"the call of {call.name!r} is made with other arguments"
        check.record_divergence(
            seq, "call", what, f"call {call.name} {call.arguments}", f"call {call.name} {to_text(arguments)}"
        )
