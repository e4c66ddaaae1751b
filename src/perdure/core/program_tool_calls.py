"""Tool calls of a program: code that one tool runs, and that calls other tools of the same run.

They are validated, gated, limited, stored and carried out like the calls of a reply, and their results go to the
program. A program that is run again after a crash or a question gets the stored results of calls that were finished,
and a call that had begun is settled by the effect of its tool: no effect is repeated silently.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .calling_run import list_seen_labels
from .engine_tool_calls import store_open_direct_results
from .error import ToolError
from .loop import carry_out_calls
from .message import ToolCall, ToolResult
from .program_call_id import build_program_call_id, build_program_call_prefix
from .tool_call_preparation import prepare_calls
from .unsuccessful_results import RunSuspended

if TYPE_CHECKING:
    from .tool_call_execution import PreparedCall
    from .tool_context import ToolContext


class ProgramDiverged(ToolError):
    """Raised when a program that is run again does not make the calls that it made before."""


class ProgramCallExecutor:
    """Makes the tool calls of one model-written program; calls from before a crash get their stored results."""

    def __init__(self, context: "ToolContext[Any]") -> None:
        self._context = context
        self._before = dict(_list_earlier_calls(context))
        """The calls that an earlier attempt at the program has begun or finished, by the beginning of their ids."""
        self.count = 0
        """Number of calls that the program has made so far."""

    async def make(self, calls: Sequence[tuple[str, str]]) -> list[ToolResult]:
        """Make calls, each given by its tool and its arguments as JSON, several at a time; return their results.

        Raises `ProgramDiverged` if an earlier attempt at the program made another call at the same place, and
        `RunSuspended` if one of them waits for an answer, or this process leaves the run.
        """
        run = self._context.run
        made = [self._build_call(*each) for each in calls]
        left = [call for call in made if call.call_id not in run.state.direct_results]
        if left:
            if run.leaving_reason:
                raise RunSuspended
            if run.cancel_mode is not None and run.cancel_mode != "after_turn":
                raise ToolError("the run is being cancelled: the program was stopped before its next call")
            await _carry_out(self._context, left)
        return [run.state.direct_results[call.call_id] for call in made]

    def _build_call(self, name: str, arguments: str) -> ToolCall:
        self.count += 1
        own_id, number = self._context.call_id, self.count
        call_id = build_program_call_id(own_id, number, name, arguments)
        earlier = self._before.get(build_program_call_prefix(own_id, number)) if self._before else None
        if earlier is not None and earlier != call_id:
            raise ProgramDiverged(
                f"the program was interrupted and run again, and its call {number}, of {name!r}, is not the one that "
                "it made before: it was stopped there. Calls before it were not repeated"
            )
        return ToolCall(call_id, name, arguments)


def _list_earlier_calls(context: "ToolContext[Any]") -> "Iterator[tuple[str, str]]":
    """Yield the ids of calls that an earlier attempt has made, each with the beginning that its place determines."""
    beginning, state = build_program_call_prefix(context.call_id, 0)[:-2], context.run.state
    for call_id in (*state.direct_results, *state.started_calls, *state.subagents):
        if call_id.startswith(beginning):
            yield f"{call_id.rpartition('-')[0]}-", call_id


async def _carry_out(context: "ToolContext[Any]", calls: Sequence[ToolCall]) -> None:
    """Carry out calls of a program; each gets exactly one result, even if the run or the program is cancelled."""
    run = context.run
    try:
        prepared_calls = await prepare_calls(run, calls)
        for each in prepared_calls:
            each.program = context
        if prepared_calls:
            await carry_out_calls(run, await _filter_permitted(context, prepared_calls))
    except asyncio.CancelledError:
        if not run.leaving_reason:  # else whoever resumes the run carries them out
            await store_open_direct_results(run, calls)
        raise
    if run.cancel_mode is not None:  # a cancel with `after_tools` kept some of the calls from starting
        await store_open_direct_results(run, calls)


async def _filter_permitted(context: "ToolContext[Any]", calls: "list[PreparedCall]") -> "list[PreparedCall]":
    """Return the calls that may run; a person is asked once about all that no rule decides."""
    run = context.run
    if run.spec.gate is None and not any(each.needs_permission(list_seen_labels(run)) for each in calls):
        return calls
    from .tool_call_permission import filter_permitted  # at first use: many agents need no permission

    return await filter_permitted(run, calls)
