"""Preparation of tool calls before they run: find the tool, parse and validate the arguments, get permission.

Mistakes of the model are returned to it as results. Calls without permission are denied. Nothing here has an effect.
"""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from . import check, question
from .event import Event, LimitReached, ToolFinished
from .log_repair import build_withdrawals
from .message import ToolCall, ToolResult
from .permission import (
    NO_ONE_TO_ASK,
    PermissionRequest,
    SupportsQuestions,
    Verdict,
    build_decision,
    complete_verdicts,
    questions_of,
)
from .run import Run
from .schema import Invalid, parse_arguments
from .tool import Arguments, Skip, Tool
from .tool_execution import PreparedCall
from .unsuccessful_results import (
    CONTAINED_ERRORS,
    build_call_limit_result,
    build_denied_result,
    build_error_result,
    build_unknown_result,
    describe_error,
)


async def prepare_calls(run: Run, calls: Sequence[ToolCall]) -> list[PreparedCall]:
    """Return the tool calls that may run, as prepared calls; store an error result for each mistake of the model."""
    jobs: list[PreparedCall] = []
    refused: list[ToolResult] = []
    over: tuple[Event, ...] = ()
    most = run.limits.max_tool_calls
    for call in calls:
        job = await prepare_call(run, call)
        if isinstance(job, ToolResult):
            refused.append(job)
        elif most is not None and _is_uncounted(run, job) and run.state.tool_calls + len(jobs) >= most:
            refused.append(build_call_limit_result(call, most))
            over = (LimitReached("max_tool_calls", run_id=run.run_id, path=run.path),)
        else:
            jobs.append(job)
    if refused:
        await store_results_without_running(run, refused, *over)
    return jobs


def _is_uncounted(run: Run, job: PreparedCall) -> bool:
    """Return True if a call does not count towards the limit of tool calls yet."""
    return not job.attempts and job.call.call_id not in run.state.subagents


async def prepare_call(run: Run, call: ToolCall) -> PreparedCall | ToolResult:
    """Find a call's tool, and parse, prepare and validate its arguments; return a prepared call or an error result."""
    before = run.state.started_calls.get(call.call_id)
    if before is not None and before.effect == "at_most_once":
        return build_unknown_result(call)
    if before is not None and before.effect == "ask":
        told = await question.ask_settlement(run, call)
        if told is not None:
            return told
    tool = run.toolbox.get(call.name)
    if tool is None:
        return build_error_result(call, f"there is no tool {call.name!r}; {run.toolbox.suggest_names(call.name)}")
    try:
        final = (
            await run_prepare_hooks(tool, call)
            if tool.prepare
            else validate_arguments(tool, parse_arguments(call.arguments))
        )
    except Invalid as problem:
        return build_error_result(call, f"invalid arguments for {call.name!r}: {problem}")
    except CONTAINED_ERRORS as error:  # a hook that fails must not let the call through
        if isinstance(error, asyncio.CancelledError) and run.is_interrupted:
            raise
        run.report_error(error, f"a prepare hook of {call.name!r}")
        return build_error_result(call, f"a hook of {call.name!r} failed: {describe_error(error)}")
    if isinstance(final, Skip):
        return build_denied_result(call, final.reason)
    return PreparedCall(call, tool, *final, before.attempt if before else 0)


async def run_prepare_hooks(tool: Tool[..., Any], call: ToolCall) -> tuple[Arguments, Arguments] | Skip:
    """Run a tool's `prepare` hooks; return the arguments, as JSON and converted for the function, or a `Skip`."""
    arguments = parse_arguments(call.arguments)
    for hook in tool.prepare:
        changed = hook(call, arguments)
        if inspect.isawaitable(changed):
            changed = await changed
        if isinstance(changed, Skip):
            return changed
        if changed is not None:
            check.require_return_type("before", hook, changed, dict, "a dict of arguments, a Skip(…), or nothing")
            arguments = changed
    return validate_arguments(tool, arguments)


def validate_arguments(tool: Tool[..., Any], arguments: Arguments) -> tuple[Arguments, Arguments]:
    """Validate a call's arguments; return them unchanged, and converted for the function. Raises `Invalid`."""
    return arguments, tool.parameters.parse(arguments)


async def filter_permitted(run: Run, jobs: list[PreparedCall]) -> list[PreparedCall]:
    """Return the calls that have permission to run; a person is asked once about all that no rule decides.

    A missing answer or an error denies a call.
    """
    asking = [(job, job.build_permission_request(run.session_id, run.run_id)) for job in jobs]
    asked = [(job, request) for job, request in asking if not was_allowed_before_crash(run, request)]
    if not asked:
        return jobs
    requests = [request for _, request in asked]
    verdicts = await ask_gate(run, requests)
    refused: list[ToolResult] = []
    decisions: list[Event] = []
    for (job, request), verdict in zip(asked, verdicts, strict=True):
        decisions.append(build_decision(request, verdict, run.path))
        if not verdict.allow:
            refused.append(build_denied_result(job.call, verdict.reason))
    await store_results_without_running(run, refused, *decisions)
    no = {result.call_id for result in refused}
    return [job for job in jobs if job.call.call_id not in no]


def was_allowed_before_crash(run: Run, request: PermissionRequest) -> bool:
    """Return True if this call, with the same arguments, was already allowed before a crash interrupted the run."""
    decision = run.state.decisions.get(request.call_id)
    return decision is not None and decision.allow and decision.arguments_hash == request.arguments_hash


async def ask_gate(run: Run, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """Ask the run's gate (it decides about tool calls) for a verdict on each request. If it raises, all are denied."""
    if run.gate is None:
        return [Verdict(allow=True) if not each.required else NO_ONE_TO_ASK for each in requests]
    asks = questions_of(run.gate)
    rules = None if asks is None or asks.handler is None else asks
    try:
        answered = run.gate(requests) if rules is None else rules.verdicts(requests)
        answers = list(await answered if inspect.isawaitable(answered) else answered)
    except CONTAINED_ERRORS as error:  # when a gate fails, every call is denied
        if isinstance(error, asyncio.CancelledError) and run.is_interrupted:
            raise
        run.report_error(error, "the permission gate")
        return [Verdict(allow=False, reason=f"permission denied: asking failed ({describe_error(error)})")] * len(
            requests
        )
    return (
        complete_verdicts(requests, answers)
        if rules is None
        else await ask_about_undecided(run, rules, requests, answers)
    )


async def ask_about_undecided(
    run: Run, gate: SupportsQuestions, requests: Sequence[PermissionRequest], verdicts: Sequence[Verdict | None]
) -> Sequence[Verdict]:
    """Ask a person about each request that no rule decides, and return the complete list of verdicts."""
    asked = [each for each, verdict in zip(requests, verdicts, strict=True) if verdict is None]
    answers = iter(await question.ask_permission(run, gate, asked) if asked else ())
    return [next(answers) if verdict is None else verdict for verdict in verdicts]


async def store_results_without_running(run: Run, results: Sequence[ToolResult], *decisions: Event) -> None:
    """Store the results of tool calls that will not run, after the permission decisions that led to them."""
    if results or decisions:
        await run.emit(*decisions, *[event for result in results for event in build_settling_events(run, result)])


def build_settling_events(run: Run, result: ToolResult, seconds: float = 0.0) -> list[Event]:
    """Build the events that end a tool call: its open questions are withdrawn, and its result is stored."""
    withdrawn = build_withdrawals(run.state, result) if run.state.questions_by_id else []
    return [*withdrawn, build_tool_finished(run, result, seconds)]


def build_tool_finished(run: Run, result: ToolResult, seconds: float = 0.0) -> ToolFinished:
    """Build the `ToolFinished` event with the result of a call."""
    return ToolFinished(result.call_id, result.name, result, seconds, run_id=run.run_id, path=run.path)
