"""Gates below gates: what is denied above stays denied, and everything else is decided below."""

from collections.abc import Sequence
from typing import Any

import pytest

from perdure.core.gate import Held, held_below, refusals
from perdure.core.permission import (
    NOBODY_TO_ASK,
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
    assert held_below(None, None) is None
    assert held_below(None, gate) is gate
    assert held_below(gate, None) is gate
    assert held_below(gate, gate) is gate
    assert held_below(gate, allow_all) is gate


@pytest.mark.parametrize("own", [allow_all, Permissions(), Permissions(allow("*"))])
@pytest.mark.parametrize("above", [Permissions(deny("shell")), nothing_but_reading])
async def test_what_is_denied_above_is_denied_whatever_the_gate_below_says(own: Gate, above: Gate):
    assert await allowed(held_below(own, above), "read", "shell", "read") == [True, False, True]


async def test_what_is_denied_below_is_denied_too():
    assert await allowed(held_below(deny_all, Permissions()), "read") == [False]
    assert await allowed(held_below(Permissions(deny("read")), nothing_but_reading), "read") == [False]


async def test_what_the_gate_above_would_only_ask_about_is_decided_below():
    above = Permissions(ask("shell"), handler=later)
    assert await allowed(held_below(allow_all, above), "shell") == [True]
    assert await allowed(held_below(allow_all, Permissions()), "shell", required=True) == [True]
    assert await allowed(held_below(Permissions(), Permissions()), "shell", required=True) == [False]


async def test_rules_say_why_also_those_above():
    gate = held_below(Permissions(deny("write"), handler=later), Permissions(deny("shell")))
    assert isinstance(gate, Held)
    verdicts = await gate.verdicts([request("shell"), request("write"), request("pay", required=True)])
    assert [each and each.reason for each in verdicts] == [
        "denied by the rule deny('shell')",
        "denied by the rule deny('write')",
        None,
    ]
    assert gate.explain(request("shell")).rule == "deny('shell')"
    assert gate.explain(request("read")).verdict == "allow"
    below_a_function = held_below(Permissions(), nothing_but_reading)
    assert isinstance(below_a_function, Held)
    assert below_a_function.explain(request("shell")).verdict == "allow"  # it is asked when the call is made


async def test_a_denial_holds_through_every_gate_in_between():
    middle = held_below(Permissions(deny("write")), nothing_but_reading)
    assert middle is not None
    assert await allowed(held_below(allow_all, middle), "read", "shell", "write") == [True, False, False]
    top = held_below(Permissions(), Permissions(deny("shell")))
    assert top is not None
    lowest = held_below(Permissions(), top)
    assert isinstance(lowest, Held)
    assert lowest.explain(request("shell")).rule == "deny('shell')"
    assert await allowed(held_below(allow_all, held_below(allow_all, Permissions(deny("shell")))), "shell") == [False]


async def test_a_remembered_denial_of_another_session_holds_below_it():
    no = Grant("session", False, "shell", "shell", "", "s", "never here")
    above = Permissions(grants=Grants([no]))
    gate = held_below(allow_all, above, "s")
    assert gate is not None
    child = [request("shell", "s/scout-1"), request("read", "s/scout-1")]
    answered: Any = gate(child)
    assert [verdict.reason for verdict in await answered] == ["never here", "everything is allowed"]
    held = held_below(Permissions(), above, "s")
    assert isinstance(held, Held)
    assert held.explain(child[0]).grant == no


async def test_a_gate_that_answers_too_little_refuses_the_rest():
    assert [each and each.allow for each in await refusals(lambda _: [Verdict(allow=True)], [request("a")] * 2)] == [
        None,
        False,
    ]
    assert await refusals(Permissions(), [request("a", required=True)]) == [None]
    assert NOBODY_TO_ASK.allow is False
