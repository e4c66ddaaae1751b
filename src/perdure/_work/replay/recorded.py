"""What an agent of a replay is given in place of gates, tools and compaction: what was recorded."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure._core.model.protocol import Model
from perdure._core.permission.gate import Gate, cast_to_question_gate
from perdure._core.permission.grants import Grant, Grants
from perdure._core.permission.inherited import list_chain_grants
from perdure._core.permission.request import NO_ANSWER, PermissionRequest, Verdict
from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.run import Run
from perdure._core.run.spec import RECALL_ATTRIBUTE, BetweenTurns
from perdure._core.schema.parsing import arguments_hash
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Arguments, Tool
from perdure._core.values.error import ContextOverflow
from perdure._core.values.event import (
    Compacted,
    Entry,
    GrantRevoked,
    InboxAdded,
    ModelRequested,
    SubagentFinished,
    ToolsChanged,
)
from perdure._core.values.event_class import SlotClosed
from perdure._core.values.jsonable import to_text
from perdure._core.values.message import Status, ToolCall, ToolResult

from .comparison import get_call_id
from .log import is_compaction, is_result_shortening
from .playback import Playback

_OURS = "perdure."


class RecordedCompaction:
    """Compaction in a replay: it stores the recorded summaries where they were recorded, and asks no model."""

    model: Model | None = None
    """Model for summaries: always `None`."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback

    async def __call__(self, run: Run) -> None:
        """Store the summaries that were recorded before the next request or call."""
        await self.compact(run)

    async def compact(
        self,
        run: Run,
        cause: str = "",  # noqa: ARG002 - as of every compaction
        *,
        focus: str = "",  # noqa: ARG002 - the same
        error: ContextOverflow | None = None,  # noqa: ARG002 - the same
    ) -> bool:
        """Store the summaries recorded at this point; return True if the model is sent less from now on."""
        stored = await self._playback.store_next(run, is_compaction)
        return any(isinstance(event, Compacted) for event in stored)


def make_recorded_compaction_step(playback: Playback, step: BetweenTurns) -> Any:
    """Return a replay's substitute for a compaction step: it stores the recorded events instead of calling `step`.

    A function that is not part of Perdure is returned unchanged.
    """
    if not getattr(step, "__module__", "").startswith(_OURS):
        return step
    if callable(getattr(step, "compact", None)):
        return RecordedCompaction(playback)

    async def shorten(run: Run) -> None:
        await playback.store_next(run, is_result_shortening)

    return shorten


def make_recorded_events_step(playback: Playback) -> BetweenTurns:
    """Return a between-turns function for a replay, which stores the events that were recorded between these turns.

    These are closed display slots, revoked grants and finished subagents.
    """

    def is_note(entry: Entry) -> bool:
        return isinstance(entry.event, GrantRevoked | SlotClosed | SubagentFinished) and not entry.event.path

    async def take(run: Run) -> None:
        left = playback.check.remaining
        before = next((each.seq for each in left if _is_request_or_call(each)), 0)
        for event in await playback.store_other_entries(run, before, is_note):
            if isinstance(event, GrantRevoked):
                for _, grants in list_chain_grants(run.gate):
                    grants.forget(event.grant_id)

    async def recall_private_run(run: Run, path: str) -> None:
        await playback.store_private_run(run, path)

    vars(take)[RECALL_ATTRIBUTE] = recall_private_run
    return take


def _is_request_or_call(entry: Entry) -> bool:
    return isinstance(entry.event, ModelRequested) or get_call_id(entry.event) is not None


def copy_gate_for_replay(playback: Playback, gate: Gate | None) -> Gate | None:
    """Return a copy of a permission gate that takes approvals from the log; a custom gate is returned as it is."""
    asks = cast_to_question_gate(gate)
    if asks is None:
        return gate
    given = {
        Grant.of_decision(each, "").grant_id for each in playback.record.decisions.values() if each.scope != "once"
    }
    kept = Grants([each for each in asks.grants if each.scope == "forever" and each.grant_id not in given])
    double = asks.with_handler(partial(_recorded_verdicts, playback), kept)
    playback.gates.append(double)
    return double


def _recorded_verdicts(playback: Playback, requests: Sequence[PermissionRequest]) -> list[Verdict]:
    return [_recorded_verdict(playback, each) for each in requests]


def _recorded_verdict(playback: Playback, request: PermissionRequest) -> Verdict:
    decision = playback.record.decisions.get(request.call_id)
    playback.check.approval_calls.add(request.call_id)
    if decision is not None:
        return Verdict(decision.allow, decision.reason, decision.scope, decision.covers or "arguments", decision.by)
    left = playback.check.remaining
    if left and playback.segment.ended is not None:
        what = f"approval is requested for the call of {request.tool!r}, and was not then"
        call = f"call {request.tool} {to_text(request.arguments)}"
        playback.check.record_divergence(left[0].seq, "permission", what, call, f"approval is requested\n{call}")
    return NO_ANSWER


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
        await self._restore_entries(
            get_run_of_call(context), segment.result_entries.get(call_id, self._playback.record.last + 1)
        )
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
                get_run_of_call(context).announce_tools(entry.event.added)  # those that were loaded
                get_run_of_call(context).add_tools(
                    [self._added[name] for name in entry.event.added if name in self._added]
                )

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
