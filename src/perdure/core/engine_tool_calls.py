"""Direct tool calls: made by an engine (`run.call_tool`) or a caller (`session.call`), not requested by a model.

They are validated, gated, stored and carried out like the calls of a reply, and count towards the same limits. Only the
conversation does not have them: the result goes to the code that called.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from . import argument_checks
from .error import UsageError
from .jsonable import to_text
from .loop import carry_out_calls
from .message import ToolCall, ToolResult
from .outcome import Outcome
from .tool_call_permission import filter_permitted
from .tool_call_preparation import prepare_calls, store_results_without_running
from .unsuccessful_results import build_interrupted_result, build_not_started_result

if TYPE_CHECKING:
    from .run import Engine, Run

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
    argument_checks.require_text("run.call_tool", "name", name, non_empty=True)
    if not isinstance(arguments, Mapping):
        argument_checks.raise_config_error("run.call_tool", "arguments", arguments, "give a dict")
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
