"""What may be done in a session: why, what was decided before, and how it is taken back, in every process."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Agent, ConfigError, Extension, Grant, Limits, Permissions, Session, Status, allow, ask, deny, tool
from perdure._core.permission.gate import cast_to_question_gate, get_gate_grants
from perdure._core.permission.inherited import list_chain_grants, restrict_gate
from perdure._core.permission.request import NO_ONE_TO_ASK
from perdure.events import GrantRevoked, PermissionDecided, QuestionAsked
from perdure.permissions import (
    Explanation,
    GrantFile,
    Grants,
    PermissionRequest,
    Rule,
    Verdict,
    allow_all,
    deny_all,
    later,
)
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.tools import Skip, before
from tests.doubles import SECONDS, Held, log_of, of

pytestmark = pytest.mark.resumed


@tool(permission=True, action="spend", target="what")
async def pay(what: str) -> str:
    """Pay."""
    return f"paid {what}"


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "looked"


def session_of(*replies: Any, store: MemoryStore | None = None, session_id: str = "s", **options: Any) -> Session:
    tools = options.pop("tools", [pay, look])
    return Agent(ScriptedModel(*replies), tools=tools, store=store or MemoryStore(), **options).session(session_id)


def yes(scope: Any, covers: str = "arguments") -> Any:
    return answer_with(Verdict(allow=True, scope=scope, covers=covers))


def answer_with(verdict: Verdict) -> Any:
    async def answer(requests: Any) -> list[Verdict]:
        return [verdict for _ in requests]

    return answer


def statuses(outcome: Any) -> list[Status]:
    return [each.status for message in outcome.new_messages for each in message.tool_results]


# -- explain -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "name", "verdict", "why"),
    [
        (None, "pay", "deny", NO_ONE_TO_ASK.reason),
        (None, "look", "allow", "the tool needs no permission"),
        (allow_all, "pay", "allow", "everything is allowed"),
        (deny_all, "look", "deny", "permission denied: no tool may be used"),
        (yes("once"), "pay", "ask", "the gate 'answer' decides when the call is made"),
        (Permissions(handler=later), "pay", "ask", "the tool needs permission"),
        (Permissions(deny(target="tea")), "pay", "deny", "denied by the rule deny('*', target='tea')"),
    ],
)
async def test_an_explanation_says_what_would_become_of_a_call(gate, name, verdict, why):
    session = session_of(permission=gate)
    explanation = await session.explain(name, {"what": "tea"} if name == "pay" else {})
    assert (explanation.verdict, explanation.why) == (verdict, why)
    assert await session.info() is None  # and nothing is logged


async def test_the_arguments_are_those_that_would_run():
    rewritten = before(pay, lambda _call, arguments: {"what": f"green {arguments['what']}"})
    session = session_of(permission=Permissions(allow(target="green *")), tools=[rewritten])
    assert (await session.explain("pay", {"what": "tea"})).verdict == "allow"
    skipped = before(pay, lambda _call, _arguments: Skip("not today"))
    explanation = await session_of(tools=[skipped], permission=allow_all).explain("pay", {"what": "tea"})
    assert (explanation.verdict, explanation.why) == ("deny", "not today")


async def test_grants_that_are_bound_to_nothing_are_listed_in_every_session():
    everywhere = Grant("forever", allow=True, tool="pay", covers="tool")
    other = Grant("session", allow=True, tool="look", session_id="other", covers="tool")
    session = session_of(permission=Permissions(grants=Grants([everywhere, other])))
    assert await session.grants() == [everywhere]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("buy", {}, "there is no tool 'buy'"),
        ("pay", {}, "invalid arguments for 'pay': what: missing; it is required"),
        ("pay", "tea", "session.explain(arguments='tea'): give a dict"),
        ("", {}, "session.explain(tool=''): give non-empty text"),
    ],
)
async def test_what_could_not_even_be_called_is_refused(name, arguments, told):
    with pytest.raises(ConfigError) as refused:
        await session_of().explain(name, arguments)
    assert told in str(refused.value)


async def test_while_a_run_goes_on_its_own_tools_and_gate_are_meant():
    held = Held()
    session = session_of(call("held"), "Done.", tools=[held.tool, pay])
    run = asyncio.ensure_future(session.run("Go.", permission=allow_all))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    assert (await session.explain("pay", {"what": "tea"})).verdict == "allow"
    held.released.set()
    await asyncio.wait_for(run, SECONDS)
    assert (await session.explain("pay", {"what": "tea"})).verdict == "deny"


rules = st.builds(
    Rule,
    st.sampled_from(["allow", "deny", "ask"]),
    st.sampled_from(["pay", "*", "look"]),
    st.sampled_from(["*", "spend"]),
    st.sampled_from(["*", "tea", "t*", "cake"]),
)
granted = st.builds(
    lambda scope, allowed, target: Grant(
        scope, allowed, "pay", "spend", "" if scope == "session" else target, "" if scope == "forever" else "s"
    ),
    st.sampled_from(["session", "forever"]),
    st.booleans(),
    st.sampled_from(["tea", "cake"]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(rules, max_size=3), st.lists(granted, max_size=3), st.booleans(), st.sampled_from(["tea", "cake"]))
def test_an_explanation_agrees_with_what_then_happens(rules, grants, can_ask, what):
    async def trial() -> None:
        gate = Permissions(*rules, grants=Grants(grants), handler=later if can_ask else None)
        session = session_of(call("pay", what=what), "Done.", permission=gate)
        explanation = await session.explain("pay", {"what": what})
        outcome = await session.run("Go.")
        log = await log_of(session.store, "s")
        if explanation.verdict == "ask":
            assert outcome.status == "waiting"
            assert len(of(log, QuestionAsked)) == 1
            return
        (decided,) = of(log, PermissionDecided)
        assert (decided.allow, decided.reason) == (explanation.verdict == "allow", explanation.why)
        assert statuses(outcome) == [Status.OK if decided.allow else Status.DENIED]

    asyncio.run(trial())


# -- grants ------------------------------------------------------------------------------------------------------------


async def test_what_was_decided_is_listed_and_taken_back_for_every_process():
    store = MemoryStore()
    gate = Permissions(handler=yes("session", "tool"))
    await session_of(call("pay", what="tea"), "Paid.", store=store, permission=gate).run("1")
    elsewhere = session_of(store=store, permission=Permissions())
    (grant,) = await elsewhere.grants()
    assert (grant.scope, grant.tool, grant.session_id) == ("session", "pay", "s")
    assert (await elsewhere.explain("pay", {"what": "cake"})).grant == grant
    assert await elsewhere.revoke(grant.grant_id)
    assert not await elsewhere.revoke(grant.grant_id)
    assert await elsewhere.grants() == []
    assert of(await log_of(store, "s"), GrantRevoked) == [GrantRevoked(grant.grant_id)]
    outcome = await session_of(call("pay", what="tea"), "No.", store=store, permission=Permissions()).run("2")
    assert statuses(outcome) == [Status.DENIED]


async def test_a_process_that_remembers_it_holds_no_more_to_what_another_one_took_back():
    store = MemoryStore()
    gate = Permissions(handler=yes("session"))
    session = session_of(call("pay", what="tea"), "Paid.", "x", store=store, permission=gate)
    await session.run("1")
    (grant,) = await session.grants()
    assert await session_of(store=store).revoke(grant.grant_id)
    assert await session.grants() == []
    await session.run("2")
    assert list(gate.grants) == []


async def test_what_is_decided_again_after_that_holds_again():
    store = MemoryStore()
    asked = [call("pay", what="tea"), "Paid."]
    gate = Permissions(handler=yes("session", "target"))
    session = session_of(*asked, *asked, store=store, permission=gate)
    await session.run("1")
    (grant,) = await session.grants()
    assert await session.revoke(grant.grant_id)
    await session.run("2")
    outcome = await session_of(*asked, store=store, permission=Permissions()).run("3")
    assert statuses(outcome) == [Status.OK]


async def test_a_permission_that_is_taken_back_while_the_model_speaks_does_not_hold_for_what_it_asks():
    store = MemoryStore()
    elsewhere = session_of(store=store)

    async def revoke_then_pay(_request: Any) -> Any:
        (grant,) = await elsewhere.grants()
        assert await elsewhere.revoke(grant.grant_id)
        assert await elsewhere.grants() == []
        return call("pay", what="cake")

    gate = Permissions(handler=yes("session"))
    session = session_of(
        call("pay", what="tea"),
        revoke_then_pay,
        "Done.",
        store=store,
        permission=gate,
    )
    outcome = await asyncio.wait_for(session.run("Go."), SECONDS)
    assert statuses(outcome) == [Status.OK, Status.OK]
    log = await log_of(store, "s")
    kinds = [type(each).__name__ for each in log if isinstance(each, (GrantRevoked, QuestionAsked))]
    assert kinds == ["QuestionAsked", "GrantRevoked", "QuestionAsked"]
    assert await store.posts("s") == []


async def test_what_holds_for_ever_is_taken_back_in_the_file(tmp_path):
    path = tmp_path / "grants.jsonl"
    gate, store = Permissions(handler=yes("forever"), grants=GrantFile(path)), MemoryStore()
    session = session_of(call("pay", what="tea"), "Paid.", permission=gate, store=store)
    await session.run("1")
    elsewhere = Permissions(grants=GrantFile(path))
    other = session_of(call("pay", what="tea"), "No.", session_id="other", permission=elsewhere, store=store)
    (grant,) = await other.grants()
    assert await other.revoke(grant.grant_id)  # though that session has no log yet
    assert await session.grants() == []
    assert path.read_bytes() == b""
    assert statuses(await other.run("2")) == [Status.DENIED]


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("opened", [["asked"], ["other", "asked"], ["asked", "other"]])
async def test_an_answer_for_ever_that_only_a_log_has_counts_for_that_session_whatever_was_opened_before(allow, opened):
    store = MemoryStore()
    gate = Permissions(handler=answer_with(Verdict(allow=allow, scope="forever", covers="tool")))
    await session_of(call("pay", what="tea"), "Paid.", store=store, session_id="asked", permission=gate).run("1")
    here = session_of(store=store, session_id="new", permission=gate)
    assert (await here.explain("pay", {"what": "cake"})).verdict == ("allow" if allow else "deny")  # kept in memory
    later_on = Permissions(handler=later)
    sessions = {
        name: session_of(store=store, session_id=name, permission=later_on) for name in ("asked", "other", "new")
    }
    for name in opened:
        await sessions[name].explain("pay", {"what": "cake"})
    verdicts = {name: (await each.explain("pay", {"what": "cake"})).verdict for name, each in sessions.items()}
    assert verdicts == {"asked": "allow" if allow else "deny", "other": "ask", "new": "ask"}
    assert [len(await each.grants()) for each in sessions.values()] == [1, 0, 0]
    fork = await sessions["asked"].fork("fork")
    assert (await fork.explain("pay", {"what": "cake"})).verdict == "ask"
    kept = await sessions["asked"].fork("kept", keep_grants=True)
    assert (await kept.explain("pay", {"what": "cake"})).verdict == ("allow" if allow else "deny")


async def test_an_answer_for_ever_of_a_log_is_listed_once_by_the_process_that_was_given_it():
    store, gate = MemoryStore(), Permissions(handler=yes("forever", "tool"))
    session = session_of(call("pay", what="tea"), "Paid.", "Done.", store=store, permission=gate)
    await session.run("1")
    await session.run("2")
    (grant,) = await session.grants()
    assert (grant.scope, grant.session_id) == ("forever", "")
    assert [*gate.grants] == [grant]
    elsewhere = session_of(store=store, permission=Permissions())
    (logged,) = await elsewhere.grants()
    assert (logged.scope, logged.session_id, logged.grant_id) == ("forever", "s", grant.grant_id)


async def test_an_answer_for_ever_is_taken_back_by_another_process_through_the_log_of_its_session():
    store, gate = MemoryStore(), Permissions(handler=yes("forever", "tool"))
    session = session_of(call("pay", what="tea"), "Paid.", "Done.", store=store, permission=gate)
    await session.run("1")
    elsewhere = session_of(store=store, permission=Permissions(handler=later))
    (grant,) = await elsewhere.grants()
    assert await elsewhere.revoke(grant.grant_id)
    assert (await elsewhere.explain("pay", {"what": "tea"})).verdict == "ask"
    assert await session.grants() == []
    assert [*gate.grants] == []
    assert (
        await session_of(store=store, permission=Permissions(handler=later)).explain("pay", {"what": "x"})
    ).verdict == "ask"


async def test_an_answer_for_ever_in_two_logs_is_taken_back_in_one_of_them():
    store = MemoryStore()
    for name in ("a", "b"):  # two processes that know nothing of each other
        gate = Permissions(handler=yes("forever", "tool"))
        await session_of(call("pay", what="tea"), "Paid.", store=store, session_id=name, permission=gate).run("1")
    gate = Permissions(handler=later)
    first, second = [session_of(store=store, session_id=name, permission=gate) for name in ("a", "b")]
    (grant,), (same,) = await first.grants(), await second.grants()
    assert grant.grant_id == same.grant_id
    assert await first.revoke(grant.grant_id)
    assert [(await each.explain("pay", {"what": "tea"})).verdict for each in (first, second)] == ["ask", "allow"]


async def test_grants_are_listed_and_taken_back_where_the_conversation_was_handed_to_an_agent_that_is_not_here():
    store, gate = MemoryStore(), Permissions(handler=yes("session", "tool"))
    model = ScriptedModel(call("pay", what="tea"), "Paid.")
    expert = Agent(model, name="expert", tools=[pay])
    desk = Agent(ScriptedModel(), name="desk", handoffs=[expert], permission=gate, store=store).session("s")
    await desk.configure(agent="expert")
    await desk.run("1")
    elsewhere = session_of(store=store)
    (grant,) = await elsewhere.grants()
    assert await elsewhere.revoke(grant.grant_id)
    assert await desk.grants() == []


async def test_grants_of_a_session_whose_gate_is_a_function_are_those_of_its_log():
    store = MemoryStore()
    await session_of(call("pay", what="tea"), "Paid.", store=store, permission=Permissions(handler=yes("session"))).run(
        "1"
    )
    session = session_of(store=store, permission=allow_all)
    (grant,) = await session.grants()
    assert await session.revoke(grant.grant_id)
    assert await session.grants() == []


async def test_what_nobody_has_decided_cannot_be_taken_back():
    assert not await session_of().revoke("grant_of_another")
    with pytest.raises(ConfigError, match="give non-empty text"):
        await session_of().revoke("")


async def test_an_ask_rule_shows_in_the_explanation():
    explanation = await session_of(permission=Permissions(ask("look"), handler=later)).explain("look", {})
    assert (explanation.verdict, explanation.rule) == ("ask", "ask('look')")


async def test_a_tool_that_the_limits_leave_out_is_denied_and_said_to_be():
    session = session_of(permission=allow_all, limits=Limits(allowed_tools=("look",)))
    explanation = await session.explain("pay", {"what": "rope"})
    assert (explanation.verdict, explanation.why) == (
        "deny",
        "allowed_tools does not list 'pay': it is not offered, and not called",
    )
    assert (await session.explain("look", {})).verdict == "allow"


# -- gates of a user's own, with the powers of `Permissions` -----------------------------------------------------------


class Ward:
    """A gate that is no `Permissions`: it remembers, explains, and asks nobody. Everything but tea is denied."""

    def __init__(self) -> None:
        self.grants = Grants()

    async def __call__(self, requests: Any) -> list[Verdict]:
        told = [self.explain(each).verdict == "allow" for each in requests]
        return [Verdict(allow=each, scope="session", covers="tool") for each in told]

    def explain(self, request: PermissionRequest) -> Explanation:
        grant = self.grants.find(request)
        if grant is not None:
            return Explanation("allow" if grant.allow else "deny", "as before", grant=grant)
        return Explanation("allow" if request.target == "tea" else "deny", "tea only")


async def test_a_gate_of_a_users_own_explains_and_remembers_what_the_log_says():
    store, gate = MemoryStore(), Ward()
    first = session_of(call("pay", what="tea"), "Paid.", store=store, permission=gate)
    assert (await first.explain("pay", {"what": "wine"})) == Explanation("deny", "tea only")
    assert statuses(await first.run("Tea.")) == ["ok"]
    fresh = Ward()  # of another process: it is filled from the log
    second = session_of(call("pay", what="wine"), "Paid.", store=store, permission=fresh)
    (grant,) = await second.grants()
    assert [*fresh.grants] == [grant]
    assert (await second.explain("pay", {"what": "wine"})).grant == grant
    assert statuses(await second.run("Wine.")) == ["ok"]
    assert await second.revoke(grant.grant_id)
    assert [*fresh.grants] == await second.grants() == []
    assert (await second.explain("pay", {"what": "wine"})).why == "tea only"


async def test_a_gate_of_a_users_own_below_denials_of_an_extension_keeps_its_powers():
    gate = Ward()
    extension = Extension(name="dry", rules=[deny(target="wine"), allow()])
    session = session_of(call("pay", what="tea"), "Paid.", permission=gate, extensions=[extension])
    assert (await session.explain("pay", {"what": "wine"})).rule == "deny('*', target='wine')"
    assert (await session.explain("pay", {"what": "beer"})).why == "tea only"  # it cannot be combined with `allow()`
    assert statuses(await session.run("Tea.")) == ["ok"]
    assert await session.grants() == [*gate.grants] != []


class Combined(Ward):
    """One that can be combined with the rules of extensions."""

    def with_rules(self, rules: Sequence[Rule]) -> Permissions:
        return Permissions(*rules, grants=self.grants)


async def test_a_gate_of_a_users_own_may_take_the_rules_of_extensions():
    extension = Extension(name="generous", rules=[allow("pay")])
    session = session_of(call("pay", what="beer"), "Paid.", permission=Combined(), extensions=[extension])
    assert (await session.explain("pay", {"what": "beer"})).rule == "allow('pay')"
    assert statuses(await session.run("Beer.")) == ["ok"]


class Patient(Ward):
    """One that leaves its questions to the run."""

    handler: Any = staticmethod(later)
    expires_seconds = None

    async def verdicts(self, requests: Sequence[PermissionRequest]) -> list[Verdict | None]:
        told = [self.explain(each) for each in requests]
        return [Verdict(allow=True) if each.verdict == "allow" else None for each in told]

    def with_handler(self, handler: Any, grants: Grants) -> "Patient":
        double = Patient()
        double.handler, double.grants = handler, grants
        return double


async def test_a_gate_of_a_users_own_may_leave_its_questions_to_the_run():
    gate = Patient()
    session = session_of(call("pay", what="wine"), "Paid.", permission=gate)
    assert (await session.run("Wine.")).status == "waiting"
    (question,) = await session.questions()
    await session.answer(question.ask_id, Verdict(allow=True, scope="session"))
    assert statuses(await session.resume()) == ["ok"]
    assert [each.scope for each in gate.grants] == ["session"]
    kept = Grants()
    double = cast_to_question_gate(gate)
    assert double is not None
    assert cast_to_question_gate(double.with_handler(later, kept)) is not None
    assert get_gate_grants(double.with_handler(later, kept)) is kept
    assert list_chain_grants(restrict_gate(Ward(), deny_all))[0][0] == 1
    assert list_chain_grants(restrict_gate(allow_all, deny_all)) == []
