"""Direct tool calls, which no model requested: those of an engine, a caller, or a program that a tool runs."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from perdure._core.run.calling_run import get_run_of_call, list_seen_labels
from perdure._core.run.outcome import Outcome
from perdure._core.tools.results import RunSuspended, build_interrupted_result, build_not_started_result
from perdure._core.values import checks
from perdure._core.values.clock import build_program_call_id, build_program_call_prefix
from perdure._core.values.error import ToolError, UsageError
from perdure._core.values.jsonable import to_text
from perdure._core.values.message import ToolCall, ToolResult

from .approval import filter_permitted
from .batch import carry_out_calls
from .preparation import prepare_calls, store_results_without_running

if TYPE_CHECKING:
    from perdure._core.run.run import Run
    from perdure._core.run.spec import Engine
    from perdure._core.tools.context import ToolContext

    from .execution import PreparedCall


_running_for: ContextVar["Run | None"] = ContextVar("_running_for", default=None)
"""The run whose direct calls the current task carries out; a tool that it calls inherits it."""


_PROGRESS_KEY = "perdure:direct_calls"


class _Progress:
    """Counts of the direct tool calls that the engine of a run has made so far."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held while calls are carried out."""
        self.made: Counter[str] = Counter()
        """How often each call was made, by a digest of its name and arguments."""


async def call_tools(run: "Run", calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[ToolResult]:
    """Carry out the tool calls of an engine, several at a time, and return their results in the order of the calls.

    After a crash, an engine that makes the same calls again gets the results that are stored, and a call that had begun
    is settled by the effect of its tool: no effect is repeated silently.
    """
    if _running_for.get() is run:
        raise UsageError("a tool that run.call_tool carries out cannot call tools of the run itself: call the function")
    progress = run.scratch.setdefault(_PROGRESS_KEY, _Progress())
    made = [_build_call(run, progress, name, arguments) for name, arguments in calls]
    async with progress.lock:  # calls that are made at once would pass the limits
        await carry_out_direct_calls(run, [call for call in made if call.call_id not in run.state.direct_results])
    return [run.state.direct_results[call.call_id] for call in made]


def _build_call(run: "Run", progress: "_Progress", name: str, arguments: Mapping[str, Any]) -> ToolCall:
    """Build a direct tool call, with an id derived from its name, its arguments, and how often the run made the same
    call.

    So the id is the same when the engine makes the call again after a crash.
    """
    checks.require_text("run.call_tool", "name", name, non_empty=True)
    if not isinstance(arguments, Mapping):
        checks.raise_config_error("run.call_tool", "arguments", arguments, "give a dict")
    import hashlib  # at first use: it loads OpenSSL

    encoded = to_text(dict(arguments))
    digest = hashlib.sha256(f"{run.path}\n{name}\n{encoded}".encode()).hexdigest()[:16]
    progress.made[digest] += 1
    return ToolCall(f"engine_{run.state.first_message_index}_{digest}_{progress.made[digest]}", name, encoded)


async def carry_out_direct_calls(run: "Run", calls: Sequence[ToolCall]) -> None:
    """Carry out tool calls that no model reply requested; each gets exactly one result, even if the run is
    cancelled.
    """
    token = _running_for.set(run)
    try:
        jobs = await prepare_calls(run, calls)
        await carry_out_calls(run, await filter_permitted(run, jobs) if jobs else jobs)
    except asyncio.CancelledError:
        await store_open_direct_results(run, calls)
        raise
    finally:
        _running_for.reset(token)
    if run.cancel_mode is not None:  # a cancel with `after_tools` kept some of the calls from starting
        await store_open_direct_results(run, calls)


async def store_open_direct_results(run: "Run", calls: Sequence[ToolCall]) -> None:
    """Store a result for each direct tool call that has none: `unknown` if the call had begun, else not started."""
    left = [
        build_interrupted_result(call, run.state.find_started_effect(call.call_id))
        if call.call_id in run.entered_calls
        else build_not_started_result(call)
        for call in calls
        if call.call_id not in run.state.direct_results
    ]
    await store_results_without_running(run, left)


def build_direct_call_engine(call: ToolCall) -> "Engine":
    """Build an engine that only carries out one tool call, without a model.

    Validation, permission gate and log are the usual ones.
    """

    async def direct_call(run: "Run") -> Outcome[Any]:
        try:
            await carry_out_direct_calls(run, [call])
        finally:
            run.output = run.state.latest_result
        return run.outcome("done")

    return direct_call


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
        run = get_run_of_call(self._context)
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
    run = get_run_of_call(context)
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
    run = get_run_of_call(context)
    if run.spec.gate is None and not any(each.needs_permission(list_seen_labels(run)) for each in calls):
        return calls
    from .approval import filter_permitted  # at first use: many agents need no permission

    return await filter_permitted(run, calls)
