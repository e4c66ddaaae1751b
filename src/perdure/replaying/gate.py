"""The gate of a replay: whoever it would ask says what was said then. Above: `offline.py`. Below: `tape.py`."""

import copy
from collections.abc import Sequence
from functools import partial

from perdure.core.permission import NO_ANSWER, Gate, Grant, Grants, PermissionRequest, Permissions, Verdict
from perdure.core.plain import to_text

from .tape import Tape


def recorded_gate(tape: Tape, gate: Gate | None) -> Gate | None:
    """The gate as it is, except that whoever it would ask says what was said then. One of somebody's own stays."""
    if not isinstance(gate, Permissions):
        return gate
    given = {Grant.of_decision(each, "").grant_id for each in tape.record.decisions.values() if each.scope != "once"}
    double = copy.copy(gate)
    double.handler = partial(_verdicts, tape)
    double.grants = Grants([each for each in gate.grants if each.scope == "forever" and each.grant_id not in given])
    tape.gates.append(double)
    return double


def _verdicts(tape: Tape, requests: Sequence[PermissionRequest]) -> list[Verdict]:
    return [_verdict(tape, each) for each in requests]


def _verdict(tape: Tape, request: PermissionRequest) -> Verdict:
    decision = tape.record.decisions.get(request.call_id)
    tape.check.asked.add(request.call_id)
    if decision is not None:
        return Verdict(decision.allow, decision.reason, decision.scope)
    left = tape.check.left
    if left and tape.stretch.ended is not None:
        what = f"somebody is asked about the call of {request.tool!r}, and nobody was then"
        call = f"call {request.tool} {to_text(request.arguments)}"
        tape.check.diverge(left[0].seq, "permission", what, call, f"somebody is asked\n{call}")
    return NO_ANSWER
