"""A call on its way: from what the model wrote to a job that may run. Above: `loop.py`. Below: tools and permissions.

What the model got wrong goes back to it as a result. What nobody allows is denied. Nothing here has an effect.
"""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from . import check, question
from .effect import FAILURES, Job, denied, describe, error_result, out_of_calls, unknown
from .event import Event, LimitReached, ToolFinished
from .message import ToolCall, ToolResult
from .permission import NOBODY_TO_ASK, PermissionRequest, Permissions, Verdict, decision_of, one_each
from .repair import withdrawals
from .run import Run
from .schema import Invalid, parse_object
from .tool import Arguments, Skip, Tool


async def prepare(run: Run, calls: Sequence[ToolCall]) -> list[Job]:
    """The calls that can run. What the model got wrong goes back to it as a result."""
    jobs: list[Job] = []
    refused: list[ToolResult] = []
    over: tuple[Event, ...] = ()
    most = run.limits.max_tool_calls
    for call in calls:
        job = await prepared(run, call)
        if isinstance(job, ToolResult):
            refused.append(job)
        elif most is not None and _is_new(run, job) and run.state.tool_calls + len(jobs) >= most:
            refused.append(out_of_calls(call, most))
            over = (LimitReached("max_tool_calls", run_id=run.run_id, path=run.path),)
        else:
            jobs.append(job)
    if refused:
        await answer(run, refused, *over)
    return jobs


def _is_new(run: Run, job: Job) -> bool:
    """Whether the call has not been counted yet."""
    return not job.attempts and job.call.call_id not in run.state.subagents


async def prepared(run: Run, call: ToolCall) -> Job | ToolResult:
    """Resolve the tool, parse the arguments, let hooks see them, validate what will run."""
    before = run.state.started.get(call.call_id)
    if before is not None and before.effect == "at_most_once":
        return unknown(call)
    if before is not None and before.effect == "ask":
        told = await question.settlement(run, call)
        if told is not None:
            return told
    tool = run.toolbox.get(call.name)
    if tool is None:
        return error_result(call, f"there is no tool {call.name!r}; {run.toolbox.advice(call.name)}")
    try:
        final = await final_arguments(tool, call) if tool.prepare else parsed(tool, parse_object(call.arguments))
    except Invalid as problem:
        return error_result(call, f"invalid arguments for {call.name!r}: {problem}")
    except FAILURES as error:  # a hook that fails must not let the call through
        if isinstance(error, asyncio.CancelledError) and run.interrupted:
            raise
        run.report(error, f"a prepare hook of {call.name!r}")
        return error_result(call, f"a hook of {call.name!r} failed: {describe(error)}")
    if isinstance(final, Skip):
        return denied(call, final.reason)
    return Job(call, tool, *final, before.attempt if before else 0)


async def final_arguments(tool: Tool[..., Any], call: ToolCall) -> tuple[Arguments, Arguments] | Skip:
    """The arguments that will run, as JSON values, and what the function gets; or why the call is not to be made."""
    arguments = parse_object(call.arguments)
    for hook in tool.prepare:
        changed = hook(call, arguments)
        if inspect.isawaitable(changed):
            changed = await changed
        if isinstance(changed, Skip):
            return changed
        if changed is not None:
            check.returned("before", hook, changed, dict, "a dict of arguments, a Skip(…), or nothing")
            arguments = changed
    return parsed(tool, arguments)


def parsed(tool: Tool[..., Any], arguments: Arguments) -> tuple[Arguments, Arguments]:
    """The arguments as they are, and as the function gets them. Raises `Invalid`."""
    return arguments, tool.parameters.parse(arguments)


async def permit(run: Run, jobs: list[Job]) -> list[Job]:
    """The jobs that may run: one question for all of them. A missing answer is a no, and so is an error."""
    asking = [(job, job.permission_request(run.session_id, run.run_id)) for job in jobs]
    asked = [(job, request) for job, request in asking if not allowed_before(run, request)]
    if not asked:
        return jobs
    requests = [request for _, request in asked]
    verdicts = await ask(run, requests)
    refused: list[ToolResult] = []
    decisions: list[Event] = []
    for (job, request), verdict in zip(asked, verdicts, strict=True):
        decisions.append(decision_of(request, verdict, run.path))
        if not verdict.allow:
            refused.append(denied(job.call, verdict.reason))
    await answer(run, refused, *decisions)
    no = {result.call_id for result in refused}
    return [job for job in jobs if job.call.call_id not in no]


def allowed_before(run: Run, request: PermissionRequest) -> bool:
    """Whether this very call, with these very arguments, was allowed before a crash."""
    decision = run.state.decided.get(request.call_id)
    return decision is not None and decision.allow and decision.arguments_hash == request.arguments_hash


async def ask(run: Run, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """One verdict for each request."""
    if run.gate is None:
        return [Verdict(allow=True) if not each.required else NOBODY_TO_ASK for each in requests]
    rules = run.gate if isinstance(run.gate, Permissions) and run.gate.handler is not None else None
    try:
        answered = run.gate(requests) if rules is None else rules.verdicts(requests)
        answers = list(await answered if inspect.isawaitable(answered) else answered)
    except FAILURES as error:  # whatever goes wrong with a gate, nothing passes it
        if isinstance(error, asyncio.CancelledError) and run.interrupted:
            raise
        run.report(error, "the permission gate")
        return [Verdict(allow=False, reason=f"permission denied: asking failed ({describe(error)})")] * len(requests)
    return one_each(requests, answers) if rules is None else await asked_for(run, rules, requests, answers)


async def asked_for(
    run: Run, gate: Permissions, requests: Sequence[PermissionRequest], verdicts: Sequence[Verdict | None]
) -> Sequence[Verdict]:
    """What the rules have settled, and for the rest what somebody says."""
    asked = [each for each, verdict in zip(requests, verdicts, strict=True) if verdict is None]
    answers = iter(await question.permission(run, gate, asked) if asked else ())
    return [next(answers) if verdict is None else verdict for verdict in verdicts]


async def answer(run: Run, results: Sequence[ToolResult], *decisions: Event) -> None:
    """Store the results of calls that are not carried out, after the decisions that led to them."""
    if results or decisions:
        await run.emit(*decisions, *[event for result in results for event in settled(run, result)])


def settled(run: Run, result: ToolResult, seconds: float = 0.0) -> list[Event]:
    """What is stored when a call has its result: nobody waits any more for what it has asked."""
    withdrawn = withdrawals(run.state, result) if run.state.asks else []
    return [*withdrawn, finished(run, result, seconds)]


def finished(run: Run, result: ToolResult, seconds: float = 0.0) -> ToolFinished:
    """The event that settles a call."""
    return ToolFinished(result.call_id, result.name, result, seconds, run_id=run.run_id, path=run.path)
