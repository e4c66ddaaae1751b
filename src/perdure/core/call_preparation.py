"""Preparation of tool calls before they run: find the tool, parse and validate the arguments, get permission.

Mistakes of the model are returned to it as results. Calls without permission are denied. Nothing here has an effect.
"""

import asyncio
import inspect
from collections.abc import Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from . import check, question
from .binding import bind_call
from .event import Event, LimitReached, ToolFinished
from .fold import State
from .gate_operations import GateDecision, decide_by_gate
from .log_repair import build_withdrawals
from .message import ToolCall, ToolResult, merge_labels
from .permission_request import NO_ONE_TO_ASK, PermissionRequest, Verdict, build_decision
from .run import Run
from .schema import Invalid, parse_arguments
from .tool import Arguments, Skip, Tool
from .tool_execution import PreparedCall
from .unsuccessful_results import (
    CONTAINED_ERRORS,
    build_call_limit_result,
    build_denied_result,
    build_error_result,
    build_reply_limit_result,
    build_unknown_result,
    describe_error,
)


async def prepare_calls(run: Run, calls: Sequence[ToolCall]) -> list[PreparedCall]:
    """Return the tool calls that may run, as prepared calls; store an error result for each mistake of the model."""
    jobs: list[PreparedCall] = []
    refused: list[ToolResult] = []
    over: tuple[Event, ...] = ()
    limits = run.options.limits
    most, each_reply = limits.max_tool_calls, limits.max_calls_per_reply
    if each_reply is not None and len(run.state.open_calls) > each_reply:
        made = set(islice(run.state.open_calls, each_reply))  # by their place in the reply, also after a resume
        refused = [build_reply_limit_result(call, each_reply) for call in calls if call.call_id not in made]
        calls = [call for call in calls if call.call_id in made]
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
    refused: list[ToolResult] = []
    asked: list[tuple[PreparedCall, PermissionRequest]] = []
    for job in jobs:
        try:
            request = job.build_permission_request(run.session_id, run.run_id, bind_call(run, job.tool))
            if run.state.labels:
                request = add_labels_in_view(run.state, request)
        except Invalid as problem:  # a hook put something there that cannot be shown, and so not be approved
            refused.append(build_error_result(job.call, f"invalid arguments for {job.call.name!r}: {problem}"))
            continue
        if not was_allowed_before_crash(run, request):
            asked.append((job, request))
    if not asked and not refused:
        return jobs
    decisions: list[Event] = []
    answers = await ask_gate(run, [request for _, request in asked]) if asked else ()
    for (job, request), (verdict, level) in zip(asked, answers, strict=True):
        decisions.append(build_decision(request, verdict, run.path, level=level, at=run.clock.now()))
        if not verdict.allow:
            refused.append(build_denied_result(job.call, verdict.reason))
    await store_results_without_running(run, refused, *decisions)
    no = {result.call_id for result in refused}
    return [job for job in jobs if job.call.call_id not in no]


def add_labels_in_view(state: State, request: PermissionRequest) -> PermissionRequest:
    """Return a request with the labels of all that the model has seen, and the sources of the text that has them."""
    return replace(request, labels=tuple(state.labels), sources=merge_labels(*state.labels.values()))


def was_allowed_before_crash(run: Run, request: PermissionRequest) -> bool:
    """Return True if this call, of the same tool and with the same arguments, was allowed before a crash.

    A decision that an older version stored does not say which tool it was for, and does not count.
    """
    decision = run.state.decisions.get(request.call_id)
    return (
        decision is not None
        and decision.allow
        and decision.arguments_hash == request.arguments_hash
        and decision.tool_identity == request.binding.tool
    )


async def ask_gate(run: Run, requests: Sequence[PermissionRequest]) -> Sequence[tuple[Verdict, int]]:
    """Ask the run's gate (it decides about tool calls) for a verdict on each request. If it raises, all are denied.

    Each verdict comes with the level of the gate that asked a person; 0 if none did.
    """
    if run.gate is None:
        return [(Verdict(allow=True) if not each.required else NO_ONE_TO_ASK, 0) for each in requests]
    try:
        decisions = await decide_by_gate(run.gate, requests)
    except CONTAINED_ERRORS as error:  # when a gate fails, every call is denied
        if isinstance(error, asyncio.CancelledError) and run.is_interrupted:
            raise
        run.report_error(error, "the permission gate")
        failed = Verdict(allow=False, reason=f"permission denied: asking failed ({describe_error(error)})")
        return [(failed, 0)] * len(requests)
    answers = await ask_about_undecided(run, [each for each in decisions if each.verdict is None])
    return [(each.verdict or answers[each.request.call_id], each.level) for each in decisions]


async def ask_about_undecided(run: Run, undecided: Sequence[GateDecision]) -> dict[str, Verdict]:
    """Ask a person about each request that no rule decides, in one question for each gate; return verdicts by call."""
    verdicts: dict[str, Verdict] = {}
    for asker in {id(each.asker): each.asker for each in undecided}.values():
        requests = [each.request for each in undecided if each.asker is asker]
        answers = (
            [NO_ONE_TO_ASK] * len(requests) if asker is None else await question.ask_permission(run, asker, requests)
        )
        verdicts |= {each.call_id: answer for each, answer in zip(requests, answers, strict=True)}
    return verdicts


async def store_results_without_running(run: Run, results: Sequence[ToolResult], *decisions: Event) -> None:
    """Store the results of tool calls that will not run, after the permission decisions that led to them."""
    if results or decisions:
        await run.emit(*decisions, *[event for result in results for event in build_settling_events(run, result)])


def build_settling_events(run: Run, result: ToolResult, seconds: float = 0.0) -> list[Event]:
    """Build the events that end a tool call: its open questions are withdrawn, and its result is stored."""
    finished = build_tool_finished(run, result, seconds)
    return [*build_withdrawals(run.state, result), finished] if run.state.questions_by_id else [finished]


def build_tool_finished(run: Run, result: ToolResult, seconds: float = 0.0) -> ToolFinished:
    """Build the `ToolFinished` event with the result of a call."""
    return ToolFinished(result.call_id, result.name, result, seconds, run_id=run.run_id, path=run.path)
