"""Gates below gates: what is denied above stays denied, and everything else is decided below."""

from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Grant, Permissions, allow, ask, deny
from perdure._core.permission.inherited import (
    BackgroundTaskCaller,
    DenyRulesGate,
    RestrictedGate,
    add_rules_to_gate,
    can_ask_in_process,
    can_call_see_path,
    decide_by_gate,
    explain_decision,
    explain_each_gate,
    gate_depth,
    has_path_restrictions,
    list_chain_grants,
    narrow_gate,
    restrict_gate,
)
from perdure._core.permission.request import NO_ONE_TO_ASK
from perdure.permissions import (
    Explanation,
    Gate,
    Grants,
    PathTarget,
    PermissionRequest,
    Rule,
    Verdict,
    allow_all,
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


def test_a_gate_can_ask_in_this_process_if_it_or_one_above_it_has_a_handler():
    here, elsewhere = Permissions(handler=allow_all), Permissions(handler=later)
    assert can_ask_in_process(here)
    assert not any(
        map(can_ask_in_process, (None, allow_all, Permissions(), elsewhere, RestrictedGate(allow_all, elsewhere)))
    )
    assert can_ask_in_process(RestrictedGate(elsewhere, here))
    assert can_ask_in_process(RestrictedGate(here, elsewhere))


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


async def test_what_the_gate_above_asks_about_is_not_allowed_below():
    asked: list[str] = []

    async def person(requests: Sequence[PermissionRequest]) -> list[Verdict]:
        asked.extend([each.tool for each in requests])
        return [Verdict(allow=each.tool == "shell") for each in requests]

    above = Permissions(ask("shell"), ask("pay"), handler=person)
    assert await allowed(restrict_gate(allow_all, above), "shell", "pay", "read") == [True, False, True]
    assert asked == ["shell", "pay"]
    assert await allowed(restrict_gate(allow_all, Permissions()), "shell", required=True) == [False]
    assert await allowed(restrict_gate(Permissions(), Permissions()), "shell", required=True) == [False]


async def test_the_gate_above_asks_its_own_handler_and_not_that_of_the_gate_below():
    async def yes(requests: Sequence[PermissionRequest]) -> list[Verdict]:
        return [Verdict(allow=True)] * len(requests)

    async def no(requests: Sequence[PermissionRequest]) -> list[Verdict]:
        return [NO] * len(requests)

    below, above = Permissions(ask(), handler=yes), Permissions(ask("shell"), handler=no)
    assert await allowed(restrict_gate(below, above), "shell", "read") == [False, True]
    decisions = await decide_by_gate(RestrictedGate(below, above), [request("shell"), request("read")])
    assert [(each.asker, each.level) for each in decisions] == [(above, 0), (below, 1)]


async def test_rules_say_why_also_those_above():
    gate = restrict_gate(Permissions(deny("write"), handler=later), Permissions(deny("shell"), handler=later))
    assert isinstance(gate, RestrictedGate)
    decisions = await gate.decide([request("shell"), request("write"), request("pay", required=True)])
    assert [each.verdict and each.verdict.reason for each in decisions] == [
        "denied by the rule deny('shell')",
        "denied by the rule deny('write')",
        None,
    ]
    assert gate.explain(request("shell")).rule == "deny('shell')"
    assert gate.explain(request("write")).rule == "deny('write')"
    assert gate.explain(request("read")).verdict == "allow"
    assert gate.explain(request("pay", required=True)).verdict == "ask"
    below_a_function = restrict_gate(Permissions(), nothing_but_reading)
    assert isinstance(below_a_function, RestrictedGate)
    assert below_a_function.explain(request("shell")).verdict == "ask"  # it is called when the call is made


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


HERE = BackgroundTaskCaller("s", "s@1", "boss", "r")


@pytest.mark.parametrize("own", [allow_all, None])
async def test_a_remembered_denial_of_another_session_holds_below_it(own: Gate | None):
    no = Grant("session", False, "shell", "shell", "", "s", "never here")
    silent = Grant("session", False, "pay", "pay", "", "s")
    above = Permissions(grants=Grants([no, silent]))
    gate = restrict_gate(own, above, HERE)
    assert isinstance(gate, RestrictedGate)
    child = [request("shell", "s/scout-1"), request("read", "s/scout-1"), request("pay", "s/scout-1")]
    reasons = [verdict.reason for verdict in await gate(child)]
    assert reasons == ["never here", "everything is allowed", "denied before, for session"]
    assert gate.explain(child[0]).grant == no
    assert gate.explain(child[1]).verdict == "allow"


async def test_a_permission_of_another_session_does_not_hold_below_it():
    yes = Grant("session", True, "shell", "shell", "", "s")
    gate = restrict_gate(allow_all, Permissions(grants=Grants([yes])), HERE)
    assert isinstance(gate, RestrictedGate)
    (verdict,) = await gate([request("shell", "s/scout-1", required=True)])
    assert verdict == NO_ONE_TO_ASK


async def test_a_gate_that_answers_too_little_refuses_the_rest():
    short = restrict_gate(allow_all, lambda _: [Verdict(allow=True)])
    assert await allowed(short, "a", "b") == [True, False]


def test_every_gate_of_a_chain_has_its_level():
    top, middle, low = Permissions(), Permissions(), Permissions()
    chain = restrict_gate(low, restrict_gate(middle, top))
    assert list_chain_grants(chain) == [(0, top.grants), (1, middle.grants), (2, low.grants)]
    assert list_chain_grants(restrict_gate(allow_all, top)) == [(0, top.grants)]
    assert list_chain_grants(None) == []
    assert list_chain_grants(add_rules_to_gate(Careful(), [deny("pay")])) == []


class Careful:
    """A gate that remembers nothing."""

    def __call__(self, requests: Sequence[PermissionRequest]) -> list[Verdict]:
        return [Verdict(allow=True)] * len(requests)


async def test_denials_of_an_extension_hold_beside_any_gate():
    for gate in (allow_all, Careful(), restrict_gate(allow_all, Careful())):
        restricted = add_rules_to_gate(gate, [deny("pay"), allow("look"), ask("read")])
        assert await allowed(restricted, "pay", "read") == [False, True]
        assert explain_decision(restricted, request("pay")).rule == "deny('pay')"
    below = RestrictedGate(Permissions(), Permissions(allow())).with_rules([ask("read")])
    assert below is not None
    assert explain_decision(below, request("read")).rule == "ask('read')"
    assert add_rules_to_gate(None, [deny("pay")]) is not None


def test_a_gate_that_decides_by_more_than_its_rules_gets_only_the_denials_of_others():
    class Cautious(Permissions):
        """Decides by more than its rules."""

    gate = Cautious(allow("look"))
    assert gate.with_rules([deny("pay")]) is None
    assert add_rules_to_gate(gate, [allow("pay")]) is gate
    assert isinstance(add_rules_to_gate(gate, [deny("pay")]), RestrictedGate)


class RuleFollower(Careful):
    """A gate of somebody's own that can be given rules."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = rules

    def with_rules(self, rules: Sequence[Rule]) -> "RuleFollower":
        return RuleFollower(rules)


async def test_rules_that_narrow_a_gate_never_allow_what_it_does_not():
    rules = [allow("shell"), allow("look", target="a"), ask("look"), deny("pay")]
    gate = narrow_gate(Permissions(ask("shell"), handler=later), rules)
    assert narrow_gate(gate, []) is gate
    explained = {
        each: explain_decision(gate, request(each, required=True)) for each in ("shell", "read", "look", "pay")
    }
    assert [each.verdict for each in explained.values()] == ["ask", "ask", "ask", "deny"]
    assert [each.rule for each in explained.values()] == ["ask('shell')", "", "ask('look')", "deny('pay')"]
    assert explain_decision(gate, request("shell")).beaten == ()  # what it allows is left to the gate
    assert isinstance(gate, Permissions)
    assert gate.rules == (ask("shell"), *rules)
    given = narrow_gate(RuleFollower(), rules)
    assert isinstance(given, RuleFollower)
    assert given.rules == [ask("look"), deny("pay")]


async def test_the_lowest_gate_of_a_chain_is_narrowed_and_every_gate_keeps_its_level():
    class Cautious(Permissions):
        """Decides by more than its rules."""

    top, low, special = Permissions(allow()), Permissions(allow()), Cautious(allow())
    for own, above, grants in (
        (low, top, [(0, top.grants), (1, low.grants)]),
        (special, top, [(0, top.grants), (1, special.grants)]),
        (None, top, [(0, top.grants)]),
        (None, special, [(0, special.grants)]),
    ):
        gate = narrow_gate(RestrictedGate(own, above, HERE), [deny("pay")])
        again = narrow_gate(gate, [deny("shell")])
        assert await allowed(again, "read", "pay", "shell") == [True, False, False]
        assert list_chain_grants(again) == grants
    assert await allowed(narrow_gate(narrow_gate(Careful(), [deny("pay")]), [deny("shell")]), "pay", "shell") == [
        False,
        False,
    ]
    assert list_chain_grants(add_rules_to_gate(RestrictedGate(special, top), [deny("pay")])) == [
        (0, top.grants),
        (1, special.grants),
    ]


async def test_an_agent_that_has_its_gate_from_above_asks_there_about_what_its_extensions_ask_about():
    gate = add_rules_to_gate(
        restrict_gate(None, Permissions(allow(), handler=later), HERE), [ask("pay"), allow("look")]
    )
    assert [explain_decision(gate, request(each)).verdict for each in ("pay", "look", "read")] == [
        "ask",
        "allow",
        "allow",
    ]


def test_a_gate_without_words_is_explained_by_what_it_is():
    assert explain_decision(None, request("a", required=True)).verdict == "deny"
    assert explain_decision(None, request("a")).verdict == "allow"
    assert explain_decision(allow_all, request("a")).verdict == "allow"
    assert explain_decision(deny_all, request("a")).verdict == "deny"
    assert explain_decision(Careful(), request("a")).why == "the gate 'Careful' decides when the call is made"


def test_a_gate_can_be_copied_with_another_handler():
    gate, kept = Permissions(deny("pay")), Grants()
    double = gate.with_handler(later, kept)
    assert (double.handler, double.grants, double.rules, gate.handler) == (later, kept, gate.rules, None)


# -- paths that an allowed call may see --------------------------------------------------------------------------------

SECRET, PLAIN = PathTarget("/srv/secret.txt", "/srv"), PathTarget("/srv/notes.txt", "/srv")
REFUSED = Grants([Grant("session", False, "read", "read", "/srv/secret.txt", "s")])
GRANTED = Grants([Grant("session", True, "read", "read", "/srv/secret.txt", "s")])


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (None, False),
        (allow_all, False),
        (Careful(), False),
        (Permissions(), False),
        (Permissions(deny("shell")), False),
        (Permissions(allow("read", target="/srv/*")), False),
        (Permissions(deny("read", target="/srv/secret*")), True),
        (Permissions(ask("read", target="/srv/secret*")), True),
        (Permissions(grants=REFUSED), True),
        (Permissions(grants=GRANTED), False),
        (DenyRulesGate([deny("shell")]), True),
        (RestrictedGate(Permissions(), Permissions()), False),
        (RestrictedGate(None, Permissions(deny(target="/srv/secret*"))), True),
        (RestrictedGate(Permissions(deny(target="/srv/secret*")), Permissions()), True),
    ],
)
def test_rules_about_targets_and_remembered_denials_restrict_paths(gate: Gate | None, expected: bool) -> None:
    assert has_path_restrictions(gate) is expected


@pytest.mark.parametrize(
    ("gate", "seen"),
    [
        (Careful(), [True, True]),
        (Permissions(), [True, True]),
        (Permissions(deny("read", target="/srv/secret*")), [False, True]),
        (Permissions(ask("read", target="/srv/secret*"), handler=later), [False, True]),
        (Permissions(ask("read"), handler=later), [True, True]),
        (RestrictedGate(Permissions(ask("read"), handler=later), Permissions(allow())), [True, True]),
        (RestrictedGate(Permissions(), Permissions(deny(target="/srv/secret*"))), [False, True]),
        (RestrictedGate(Permissions(deny(target="/srv/secret*")), Permissions()), [False, True]),
        (Permissions(grants=REFUSED), [False, True]),
    ],
)
def test_an_allowed_call_sees_the_paths_that_no_rule_or_grant_objects_to(gate: Gate, seen: list[bool]) -> None:
    assert [can_call_see_path(gate, request("read"), path) for path in (SECRET, PLAIN)] == seen


# -- whole explanations ------------------------------------------------------------------------------------------------


def test_a_gate_of_denials_says_which_rule_denies() -> None:
    gate = DenyRulesGate([deny("pay")]).add_denials([deny("shell")])
    reasons = [(each.allow, each.reason) for each in gate([request(each) for each in ("pay", "shell", "read")])]
    assert reasons == [
        (False, "denied by the rule deny('pay')"),
        (False, "denied by the rule deny('shell')"),
        (True, "everything is allowed"),
    ]
    assert gate.explain(request("pay")) == Explanation("deny", "denied by the rule deny('pay')", "deny('pay')")
    assert gate.explain(request("read")) == Explanation("allow", "everything is allowed")


def test_the_stricter_of_two_gates_explains_a_call() -> None:
    asks, refuses = Permissions(ask("pay"), handler=later), Permissions(deny("pay"))
    yes = Permissions(allow("pay"))
    for own, above, rule in (
        (yes, asks, "ask('pay')"),
        (refuses, asks, "deny('pay')"),
        (asks, refuses, "deny('pay')"),
        (asks, yes, "ask('pay')"),
        (None, asks, "ask('pay')"),
        (refuses, yes, "deny('pay')"),
    ):
        assert RestrictedGate(own, above).explain(request("pay")).rule == rule


def test_each_gate_of_a_chain_explains_a_call_the_highest_first() -> None:
    chain = RestrictedGate(Permissions(ask("pay"), handler=later), RestrictedGate(Careful(), Permissions(deny("pay"))))
    assert [each.verdict for each in explain_each_gate(chain, request("pay"))] == ["deny", "ask"]
    assert explain_each_gate(None, request("pay")) == []


def test_gates_of_denials_are_not_counted_as_levels() -> None:
    denials = DenyRulesGate([deny("pay")])
    assert [gate_depth(each) for each in (None, allow_all, denials)] == [0, 1, 0]
    assert gate_depth(RestrictedGate(Permissions(), Permissions())) == 2
    assert gate_depth(RestrictedGate(Permissions(), denials)) == 1
    assert gate_depth(RestrictedGate(None, RestrictedGate(Permissions(), Permissions()))) == 3


def test_a_chain_is_narrowed_at_its_lowest_gate_alone() -> None:
    top, low = Permissions(allow()), Permissions(allow())
    gate = RestrictedGate(low, top, HERE).narrow_by_rules([ask("read")])
    assert isinstance(gate, RestrictedGate)
    above, own = gate.parts
    assert above is top
    assert isinstance(own, Permissions)
    assert own.rules == (allow(), ask("read"))
    assert RestrictedGate(Careful(), top).narrow_by_rules([ask("read")]) is None
    assert RestrictedGate(Careful(), top).with_rules([ask("read")]) is None


def test_denials_of_another_session_outlast_rules_that_are_added() -> None:
    above = Permissions(allow(), grants=Grants([Grant("session", False, "shell", "shell", "", "s", "never here")]))
    asked = request("shell", "s/scout-1")
    chain = RestrictedGate(Permissions(allow()), above, HERE)
    for gate in (chain, chain.with_rules([ask("read")]), chain.narrow_by_rules([ask("read")])):
        assert explain_decision(gate, asked).why == "never here"
    assert explain_decision(chain.add_denials([deny("pay")]), asked).why == "never here"
    assert explain_decision(RestrictedGate(None, above, HERE).narrow_by_rules([ask("read")]), asked).why == "never here"
