"""Gates below gates: what is denied above stays denied, and everything else is decided below."""

from collections.abc import Sequence
from typing import Any

import pytest

from perdure.core.gate_operations import RestrictedGate, find_refusals, restrict_gate, with_rules
from perdure.core.permission import (
    NO_ONE_TO_ASK,
    Gate,
    Grant,
    Grants,
    PermissionRequest,
    Permissions,
    Verdict,
    allow,
    allow_all,
    ask,
    deny,
    deny_all,
    later,
)

NO = Verdict(allow=False, reason="not by me")


def request(tool: str, session_id: str = "s", *, required: bool = False) -> PermissionRequest:
    return PermissionRequest(f"call of {tool}", tool, tool, "", {}, "", required, session_id)


def nothing_but_reading(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """A gate of somebody's own, and no coroutine."""
    return [Verdict(allow=True) if each.tool == "read" else NO for each in requests]


async def allowed(gate: Gate | None, *tools: str, required: bool = False) -> list[bool]:
    assert gate is not None
    answered: Any = gate([request(each, required=required) for each in tools])
    verdicts = answered if isinstance(answered, list) else await answered
    return [verdict.allow for verdict in verdicts]


def test_without_a_gate_on_either_side_there_is_nothing_to_hold():
    gate = Permissions()
    assert restrict_gate(None, None) is None
    assert restrict_gate(None, gate) is gate
    assert restrict_gate(gate, None) is gate
    assert restrict_gate(gate, gate) is gate
    assert restrict_gate(gate, allow_all) is gate


@pytest.mark.parametrize("own", [allow_all, Permissions(), Permissions(allow("*"))])
@pytest.mark.parametrize("above", [Permissions(deny("shell")), nothing_but_reading])
async def test_what_is_denied_above_is_denied_whatever_the_gate_below_says(own: Gate, above: Gate):
    assert await allowed(restrict_gate(own, above), "read", "shell", "read") == [True, False, True]


async def test_what_is_denied_below_is_denied_too():
    assert await allowed(restrict_gate(deny_all, Permissions()), "read") == [False]
    assert await allowed(restrict_gate(Permissions(deny("read")), nothing_but_reading), "read") == [False]


async def test_what_the_gate_above_would_only_ask_about_is_decided_below():
    above = Permissions(ask("shell"), handler=later)
    assert await allowed(restrict_gate(allow_all, above), "shell") == [True]
    assert await allowed(restrict_gate(allow_all, Permissions()), "shell", required=True) == [True]
    assert await allowed(restrict_gate(Permissions(), Permissions()), "shell", required=True) == [False]


async def test_rules_say_why_also_those_above():
    gate = restrict_gate(Permissions(deny("write"), handler=later), Permissions(deny("shell")))
    assert isinstance(gate, RestrictedGate)
    verdicts = await gate.verdicts([request("shell"), request("write"), request("pay", required=True)])
    assert [each and each.reason for each in verdicts] == [
        "denied by the rule deny('shell')",
        "denied by the rule deny('write')",
        None,
    ]
    assert gate.explain(request("shell")).rule == "deny('shell')"
    assert gate.explain(request("read")).verdict == "allow"
    below_a_function = restrict_gate(Permissions(), nothing_but_reading)
    assert isinstance(below_a_function, RestrictedGate)
    assert below_a_function.explain(request("shell")).verdict == "allow"  # it is asked when the call is made


async def test_a_denial_holds_through_every_gate_in_between():
    middle = restrict_gate(Permissions(deny("write")), nothing_but_reading)
    assert middle is not None
    assert await allowed(restrict_gate(allow_all, middle), "read", "shell", "write") == [True, False, False]
    top = restrict_gate(Permissions(), Permissions(deny("shell")))
    assert top is not None
    lowest = restrict_gate(Permissions(), top)
    assert isinstance(lowest, RestrictedGate)
    assert lowest.explain(request("shell")).rule == "deny('shell')"
    assert await allowed(restrict_gate(allow_all, restrict_gate(allow_all, Permissions(deny("shell")))), "shell") == [
        False
    ]


async def test_a_remembered_denial_of_another_session_holds_below_it():
    no = Grant("session", False, "shell", "shell", "", "s", "never here")
    above = Permissions(grants=Grants([no]))
    gate = restrict_gate(allow_all, above, "s")
    assert gate is not None
    child = [request("shell", "s/scout-1"), request("read", "s/scout-1")]
    answered: Any = gate(child)
    assert [verdict.reason for verdict in await answered] == ["never here", "everything is allowed"]
    held = restrict_gate(Permissions(), above, "s")
    assert isinstance(held, RestrictedGate)
    assert held.explain(child[0]).grant == no


async def test_a_gate_that_answers_too_little_refuses_the_rest():
    assert [
        each and each.allow for each in await find_refusals(lambda _: [Verdict(allow=True)], [request("a")] * 2)
    ] == [
        None,
        False,
    ]
    assert await find_refusals(Permissions(), [request("a", required=True)]) == [None]
    assert NO_ONE_TO_ASK.allow is False


def test_a_gate_that_decides_by_more_than_its_rules_gets_only_the_denials_of_others():
    class Cautious(Permissions):
        """Decides by more than its rules."""

    gate = Cautious(allow("look"))
    assert gate.with_rules([deny("pay")]) is None
    assert with_rules(gate, [allow("pay")]) is gate
    assert isinstance(with_rules(gate, [deny("pay")]), RestrictedGate)
