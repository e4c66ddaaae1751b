"""Permission gates for a replay: they take a person's approvals of tool calls from the recorded log."""

from collections.abc import Sequence
from functools import partial

from perdure.core.jsonable import to_text
from perdure.core.permissions import NO_ANSWER, Gate, Grant, Grants, PermissionRequest, Verdict, cast_to_question_gate

from .recorded_input_playback import Playback


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
