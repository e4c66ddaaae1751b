"""Preparation of tool calls before they run: find the tool, run its hooks, parse and validate the arguments."""

import asyncio
import inspect
import re
from collections.abc import Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

from perdure._core.log.repair import build_withdrawals
from perdure._core.model.size_limit import replace_oversized_result
from perdure._core.run.run import Run
from perdure._core.schema.parameters import build_parameters_from_json_schema
from perdure._core.schema.parsing import parse_arguments
from perdure._core.schema.problems import Invalid
from perdure._core.tools.arguments import build_hook_arguments, take_changed_arguments
from perdure._core.tools.context import ToolContext
from perdure._core.tools.results import (
    CONTAINED_ERRORS,
    build_call_limit_result,
    build_denied_result,
    build_error_result,
    build_interrupted_result,
    build_reply_limit_result,
    describe_error,
)
from perdure._core.tools.tool import Arguments, Skip, Tool
from perdure._core.values import checks
from perdure._core.values.clock import find_program_call_id
from perdure._core.values.engine_event import LimitReached
from perdure._core.values.event import ToolFinished
from perdure._core.values.event_class import Event
from perdure._core.values.message import ToolCall, ToolResult
from perdure._core.values.provenance import UNTRUSTED_LABEL

from .execution import PreparedCall

APPROVED = "Approved. The provider makes the call."
"""Result of a call that the provider was allowed to make."""

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_LENGTH = 64


def build_permission_only_tool(call: ToolCall) -> Tool[..., Any]:
    """Build a substitute tool for a call that the provider executes itself: it only asks for permission."""
    return Tool(
        name=_NOT_IN_A_NAME.sub("_", call.name)[:_MAX_NAME_LENGTH] or "_",
        description="A tool that the provider of the model runs.",
        parameters=build_parameters_from_json_schema({"type": "object"}),
        call=_approve,
        effect="read",
        permission=True,
        source="provider",
        labels=(UNTRUSTED_LABEL,),  # what it finds comes with the reply
        sends=True,
    )


async def _approve(_arguments: Arguments, _context: ToolContext[Any]) -> str:
    return APPROVED


async def prepare_calls(run: Run, calls: Sequence[ToolCall]) -> list[PreparedCall]:
    """Prepare a reply's tool calls, and return those that can run; store an error result for each model mistake."""
    prepared_calls: list[PreparedCall] = []
    refused: list[ToolResult] = []
    over: tuple[Event, ...] = ()
    counting = run.parent if run.is_private and run.parent is not None else run  # the run whose limit applies
    most, each_reply = counting.options.limits.max_tool_calls, run.options.limits.max_calls_per_reply
    if each_reply is not None and len(run.state.open_calls) > each_reply:
        made = set(islice(run.state.open_calls, each_reply))  # by their place in the reply, also after a resume
        over_count = run.state.open_calls.keys() - made
        refused = [build_reply_limit_result(call, each_reply) for call in calls if call.call_id in over_count]
        calls = [call for call in calls if call.call_id not in over_count]
    reserved = 0 if most is None else _count_reserved_calls(run, calls)
    for call in calls:
        tool = run.toolbox.get(call.name)
        if tool is None or tool.prepare or call.run_by_provider or call.call_id in run.state.started_calls:
            prepared = await prepare_call(run, call)
        else:
            prepared = prepare_call_without_hooks(run, call, tool)  # nearly always: nothing has to be awaited
        if isinstance(prepared, ToolResult):
            refused.append(prepared)
        elif (
            most is not None
            and not prepared.tool.is_of_the_runtime
            and _is_uncounted(run, prepared)
            and counting.state.tool_calls + reserved + len(prepared_calls) >= most
        ):
            refused.append(build_call_limit_result(call, most))
            if _is_refused_again(run, refused[-1]):
                over = (LimitReached("max_tool_calls", run_id=run.run_id, path=run.path),)
        else:
            prepared_calls.append(prepared)
    if refused:
        await store_results_without_running(run, refused, *over)
    return prepared_calls


def _is_refused_again(run: Run, refusal: ToolResult) -> bool:
    """Return True if a call beyond the limit of tool calls ends the run: not the first time, so that the model can
    answer, but for the calls of an engine, which is not told otherwise.
    """
    if refusal.call_id not in run.state.open_calls and not find_program_call_id(refusal.call_id):
        return True
    return bool([each for each in run.state.latest_results if each.text == refusal.text])


def _count_reserved_calls(run: Run, calls: Sequence[ToolCall]) -> int:
    """Return the number of other calls of the reply that may still start, and are counted only then.

    There are none, unless a program of the reply makes the calls.
    """
    begun, now = run.state.begun_call_ids, {call.call_id for call in calls}
    return len([each for each in run.state.unsettled_calls if each.call_id not in begun and each.call_id not in now])


def _is_uncounted(run: Run, prepared: PreparedCall) -> bool:
    """Return True if a tool call has not been counted towards the run's limit of tool calls."""
    return not prepared.attempts and prepared.call.call_id not in run.state.subagents


async def prepare_call(run: Run, call: ToolCall) -> PreparedCall | ToolResult:
    """Find a call's tool, and parse, prepare and validate its arguments; return a prepared call or an error result."""
    before = run.state.started_calls.get(call.call_id)
    if before is not None and before.effect == "at_most_once":
        return build_interrupted_result(call)
    if before is not None and before.effect == "ask":
        from .questions import ask_about_interrupted_call  # at first use: few programs ask

        told = await ask_about_interrupted_call(run, call)
        if told is not None:
            return told
    tool = _get_provider_tool(call) if call.run_by_provider else run.toolbox.get(call.name)
    if tool is None:
        return build_error_result(call, f"there is no tool {call.name!r}; {run.toolbox.suggest_names(call.name)}")
    attempts = 0 if before is None else before.attempt
    if not tool.prepare:
        return prepare_call_without_hooks(run, call, tool, attempts)
    await run.store_held_events()
    try:
        final = await run_prepare_hooks(tool, call)
    except CONTAINED_ERRORS as error:
        return _build_preparation_error(run, call, error)
    if isinstance(final, Skip):
        return build_denied_result(call, final.reason)
    return PreparedCall(call, tool, *final, attempts)


def prepare_call_without_hooks(
    run: Run, call: ToolCall, tool: Tool[..., Any], attempts: int = 0
) -> PreparedCall | ToolResult:
    """Parse and validate the arguments of a tool call whose tool has no `prepare` hooks."""
    try:
        arguments = parse_arguments(call.arguments)
        return PreparedCall(call, tool, arguments, tool.parameters.parse(arguments), attempts)
    except CONTAINED_ERRORS as error:
        return _build_preparation_error(run, call, error)


def _build_preparation_error(run: Run, call: ToolCall, error: BaseException) -> ToolResult:
    """Build the result of a call whose arguments are invalid, or whose hook has failed; raise a cancel of the run."""
    if isinstance(error, Invalid):
        return build_error_result(call, f"invalid arguments for {call.name!r}: {error}")
    if isinstance(error, asyncio.CancelledError) and run.is_interrupted:
        raise error
    run.report_error(error, f"a prepare hook of {call.name!r}")  # one that fails must not let the call through
    return build_error_result(call, f"a hook of {call.name!r} failed: {describe_error(error)}")


def _get_provider_tool(call: ToolCall) -> Tool[..., Any]:

    return build_permission_only_tool(call)


async def run_prepare_hooks(tool: Tool[..., Any], call: ToolCall) -> tuple[Arguments, Arguments] | Skip:
    """Run a tool's `prepare` hooks; return the arguments, as JSON and converted for the function, or a `Skip`."""
    arguments = parse_arguments(call.arguments)
    for hook in tool.prepare:
        shown = build_hook_arguments(tool, arguments)
        given = deepcopy(shown)
        changed = hook(call, given)
        if inspect.isawaitable(changed):
            changed = await changed
        if isinstance(changed, Skip):
            return changed
        if changed is None:
            changed = given  # which the hook may have changed
        checks.require_return_type("before", hook, changed, dict, "a dict of arguments, a Skip(…), or nothing")
        arguments = take_changed_arguments(arguments, shown, changed)
    return validate_arguments(tool, arguments)


def validate_arguments(tool: Tool[..., Any], arguments: Arguments) -> tuple[Arguments, Arguments]:
    """Validate the arguments of a tool call; return the JSON arguments and the arguments converted for the function.

    Raises `Invalid`.
    """
    return arguments, tool.parameters.parse(arguments)


async def store_results_without_running(run: Run, results: Sequence[ToolResult], *decisions: Event) -> None:
    """Store the results of tool calls that will not run, after the permission decisions that led to them."""
    if results or decisions:
        await run.emit(*decisions, *[event for result in results for event in build_call_ending_events(run, result)])


def build_call_ending_events(run: Run, result: ToolResult, seconds: float = 0.0) -> list[Event]:
    """Build the events that end a tool call: one stores its result, others withdraw its open questions."""
    finished = build_tool_finished(run, replace_oversized_result(result), seconds)
    if run.unstored_tools:
        return [*_take_added_tools(run), *build_withdrawals(run.state, result), finished]
    return [*build_withdrawals(run.state, result), finished] if run.state.questions_by_id else [finished]


def _take_added_tools(run: Run) -> list[Event]:
    """Return the event that stores the tools added since the last tool result, if any were."""
    from perdure._core.run.toolset import build_added_tools_event  # at first use, which few runs have

    added, run.unstored_tools = run.unstored_tools, []
    return [build_added_tools_event(run, added)]


def build_tool_finished(run: Run, result: ToolResult, seconds: float = 0.0) -> ToolFinished:
    """Build the `ToolFinished` event with the result of a call."""
    return ToolFinished(result.call_id, result.name, result, seconds, run_id=run.run_id, path=run.path)
