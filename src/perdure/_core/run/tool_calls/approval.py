"""Permission for prepared tool calls: rules and grants decide, and a person is asked about the rest.

Imported when the first gate or tool asks for it: many programs have neither.
"""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perdure._core.permission.inherited import GateChainDecision, decide_by_gate
from perdure._core.permission.request import NO_ONE_TO_ASK, PermissionRequest, Verdict, build_permission_decided_event
from perdure._core.permission.targets.command import CommandTarget
from perdure._core.permission.targets.text import TextTarget, UncomputableTarget
from perdure._core.run.calling_run import list_seen_labels
from perdure._core.run.run import Run
from perdure._core.schema.parsing import parse_arguments
from perdure._core.schema.problems import Invalid
from perdure._core.tools.binding import build_call_binding
from perdure._core.tools.results import CONTAINED_ERRORS, build_denied_result, build_error_result, describe_error
from perdure._core.values.binding import ApprovalBinding
from perdure._core.values.event import PermissionDecided
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import replace_surrogates, to_text
from perdure._core.values.message import ToolResult, merge_labels

from .execution import PreparedCall
from .preparation import store_results_without_running
from .questions import ask_permission

MAX_EARLIER_CALLS = 200
"""Number of earlier calls that are compared with the rules that an answer can make."""


async def filter_permitted(run: Run, prepared_calls: list[PreparedCall]) -> list[PreparedCall]:
    """Return the prepared tool calls that are permitted to run; ask a person once about all that no rule decides.

    A missing answer or an error denies a call.
    """
    refused: list[ToolResult] = []
    asked: list[tuple[PreparedCall, PermissionRequest]] = []
    for prepared in prepared_calls:
        if prepared.tool.is_of_the_runtime:
            continue  # it only says that the run ends, or who goes on
        try:
            request = build_permission_request(
                prepared, run.session_id, run.run_id, build_call_binding(run, prepared.tool)
            )
            if labels := list_seen_labels(run):
                request = add_seen_labels(labels, request)
        except Invalid as problem:  # a hook put something there that cannot be shown, and so not be approved
            refused.append(
                build_error_result(prepared.call, f"invalid arguments for {prepared.call.name!r}: {problem}")
            )
            continue
        if not was_allowed_before_crash(run, request):
            asked.append((prepared, request))
    if not asked and not refused:
        return prepared_calls
    decisions: list[Event] = []
    answers = await ask_gate(run, [request for _, request in asked]) if asked else ()
    for (prepared, request), (verdict, level) in zip(asked, answers, strict=True):
        decision = build_permission_decided_event(request, verdict, run.path, level=level, at=run.clock.now())
        decisions.append(decision if verdict.scope == "once" else _seal(run, decision))
        if not verdict.allow:
            refused.append(build_denied_result(prepared.call, verdict.reason))
    await store_results_without_running(run, refused, *decisions)
    no = {result.call_id for result in refused}
    return [prepared for prepared in prepared_calls if prepared.call.call_id not in no]


def _seal(run: Run, decision: PermissionDecided) -> PermissionDecided:
    """Return a decision that is remembered with its seal, made for what is stored of it."""
    if (redactor := run.redaction.redactor) is not None:
        decision = redactor.event(decision)
    return run.spec.seal_decision(decision, run.log.store)


def build_permission_request(
    prepared: PreparedCall, session_id: str, run_id: str, binding: ApprovalBinding
) -> PermissionRequest:
    """Build the permission request for a prepared tool call, with its target, arguments and their hash."""
    prepared.freeze()
    required = prepared.needs_permission()
    try:
        target = prepared.get_target()
    except Exception as error:  # noqa: BLE001 - without a target, a person has to look at the arguments
        target, required = UncomputableTarget(describe_error(error)), True
    has_network = isinstance(target, CommandTarget) and target.network
    named_action = target.named_action if isinstance(target, CommandTarget) else ""
    return PermissionRequest(
        prepared.call.call_id,
        prepared.tool.name,
        named_action or prepared.tool.action or prepared.tool.name,
        to_text(prepared.checked_arguments)
        if target is None or isinstance(target, UncomputableTarget)
        else replace_surrogates(str(target)),
        prepared.checked_arguments or {},
        prepared.arguments_hash,
        required,
        session_id,
        run_id,
        None if isinstance(target, TextTarget) else target,
        binding,
        sends=prepared.tool.sends or has_network,
    )


def add_seen_labels(labels: Mapping[str, tuple[str, ...]], request: PermissionRequest) -> PermissionRequest:
    """Return the permission request with the labels (such as `untrusted`) of all text that the model has seen.

    The sources of that text, such as `tool:fetch`, are added too.
    """
    return replace(request, labels=tuple(labels), sources=merge_labels(*labels.values()))


def was_allowed_before_crash(run: Run, request: PermissionRequest) -> bool:
    """Return True if this tool call was allowed before a crash, for the same tool and the same arguments.

    A decision that does not say which tool it was for does not count.
    """
    decision = run.state.decisions.get(request.call_id)
    return (
        decision is not None
        and decision.allow
        and decision.arguments_hash == request.arguments_hash
        and decision.tool_identity == request.binding.tool
    )


def add_earlier_calls(run: Run, request: PermissionRequest) -> PermissionRequest:
    """Return the permission request with earlier calls of the same tool, for the person who is asked.

    They show which calls a lasting answer would have matched.
    """
    tool = run.toolbox.get(request.tool)
    if tool is None:
        return request  # a tool of the provider
    made = [each for message in run.state.messages for each in message.tool_calls if each.name == request.tool]
    earlier: list[PermissionRequest] = []
    for call in made[-MAX_EARLIER_CALLS:]:
        try:
            arguments = parse_arguments(call.arguments)
            prepared = PreparedCall(call, tool, arguments, tool.parameters.parse(arguments))
            earlier.append(build_permission_request(prepared, request.session_id, request.run_id, request.binding))
        except Invalid:
            continue  # it was refused then, too
    return replace(request, earlier=tuple(earlier))


async def ask_gate(run: Run, requests: Sequence[PermissionRequest]) -> Sequence[tuple[Verdict, int]]:
    """Ask the run's permission gate for a verdict on each request. If the gate raises an error, all are denied.

    Each verdict comes with the level of the gate that asked a person; 0 if none did.
    """
    if run.gate is None:
        is_denied = [each.required or each.can_leak for each in requests]
        return [(NO_ONE_TO_ASK if each else Verdict(allow=True), 0) for each in is_denied]
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


async def ask_about_undecided(run: Run, undecided: Sequence[GateChainDecision]) -> dict[str, Verdict]:
    """Ask a person about each request that no rule decides, in one question for each gate; return verdicts by call."""
    verdicts: dict[str, Verdict] = {}
    for asker in {id(each.asker): each.asker for each in undecided}.values():
        requests = [add_earlier_calls(run, each.request) for each in undecided if each.asker is asker]
        answers = [NO_ONE_TO_ASK] * len(requests) if asker is None else await ask_permission(run, asker, requests)
        verdicts |= {each.call_id: answer for each, answer in zip(requests, answers, strict=True)}
    return verdicts
