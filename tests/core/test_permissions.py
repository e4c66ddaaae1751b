"""What may be done: rules, verdicts that are remembered, and one question for a batch."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure import ConfigError, Grant, Permissions, allow, ask, deny
from perdure._core.permission.grants import describe_rule, grants_from_log, make_grant
from perdure._core.permission.request import NO_ANSWER, NO_ONE_TO_ASK, build_permission_decided_event, complete_verdicts
from perdure._core.permission.targets.command import CommandPart
from perdure._core.values.binding import NO_BINDING
from perdure.events import GrantRevoked, PermissionDecided
from perdure.permissions import (
    CommandTarget,
    Explanation,
    Grants,
    PathTarget,
    PermissionRequest,
    Rule,
    Verdict,
    allow_all,
    command,
    deny_all,
    later,
)
from tests.core.material import torn_texts

YES = Verdict(allow=True)
NO = Verdict(allow=False, reason="not today")

ASKED_IN_VAIN = (
    "permission denied: the rule ask('shell') requires approval, and there is no one to ask; do not try it again in "
    "this run"
)
"""Why a call is denied that a rule would ask about."""


def request(tool="shell", *, action="run", target="ls", required=True, call_id="c1", session_id="s1"):
    return PermissionRequest(call_id, tool, action, target, {"x": 1}, "hash", required, session_id, "r1")


class Person:
    """Somebody to ask, who gives prepared answers and remembers the questions."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, requests):
        self.asked.append(list(requests))
        return self.answers


async def decide(permissions, **details):
    (verdict,) = await permissions([request(**details)])
    return verdict


# -- rules -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (allow(), True),
        (allow("shell"), True),
        (allow("sh*"), True),
        (allow("Shell"), False),
        (allow("git_*"), False),
        (allow("shell", action="run"), True),
        (allow("shell", action="read"), False),
        (allow(target="l?"), True),
        (allow(target="[l-m]s"), True),
        (allow(target="rm *"), False),
        (allow("shell", action="run", target="ls"), True),
        (allow("shell", action="run", target="pwd"), False),
    ],
    ids=str,
)
def test_a_rule_is_about_the_calls_that_match_all_its_patterns(rule, matches):
    assert rule.matches(request()) is matches


@given(torn_texts, torn_texts, torn_texts)
def test_a_rule_without_patterns_is_about_every_call(tool, action, target):
    assert allow().matches(request(tool, action=action, target=target))


@pytest.mark.parametrize("policy", ["allow", "deny", "ask"])
def test_a_rule_reads_as_it_is_written(policy):
    make = {"allow": allow, "deny": deny, "ask": ask}[policy]
    assert make("shell", target="rm *") == Rule(policy, "shell", "*", "rm *")
    assert str(make("shell", action="run", target="rm *")) == f"{policy}('shell', action='run', target='rm *')"
    assert str(make()) == f"{policy}('*')"


@pytest.mark.parametrize(
    ("make", "given", "keywords", "message"),
    [
        (allow, [5], {}, r"allow\(tool=5\): give a pattern as text"),
        (deny, ["shell"], {"action": None}, r"deny\(action=None\): give a pattern as text"),
        (ask, [], {"target": len}, r"ask\(target=<built-in function len>\): give a pattern as text"),
        (Rule, ["alow"], {}, r"Rule\('alow'\): use allow\(…\), deny\(…\) or ask\(…\)"),
        (Permissions, ["shell"], {}, r"'shell' is not a rule: use allow\(…\), deny\(…\) or ask\(…\)"),
        (Permissions, [], {"handler": "me"}, r"handler='me'.*give an async function"),
        (Verdict, ["no"], {}, r"allow='no'.*give True or False"),
        (
            Verdict,
            [True],
            {"scope": "always"},
            r"scope='always'.*'once', 'run', 'session' and 'forever'$",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(make, given, keywords, message):
    with pytest.raises(ConfigError, match=message):
        make(*given, **keywords)


# -- who decides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([allow("shell")], True),
        ([deny("shell")], False),
        ([allow("shell"), deny("shell")], False),
        ([deny("shell"), allow("shell")], False),
        ([allow("shell", target="ls"), deny()], True),
        ([allow("shell", target="ls"), deny(target="l*")], True),
        ([allow("shell"), deny(target="l*")], False),
        ([deny("other"), allow("shell")], True),
    ],
    ids=str,
)
async def test_the_strictest_rule_that_no_narrower_one_sets_aside_decides_whatever_the_order(rules, allowed):
    person = Person()
    assert (await decide(Permissions(*rules, handler=person))).allow is allowed
    assert person.asked == []


@pytest.mark.parametrize("rules", [[ask("shell"), allow("shell")], [allow(), ask(target="l*")]], ids=str)
async def test_asking_is_stricter_than_allowing(rules):
    person = Person(NO)
    assert await decide(Permissions(*rules, handler=person)) == NO
    assert person.asked == [[request()]]


async def test_denying_is_stricter_than_asking():
    person = Person(YES)
    assert not (await decide(Permissions(ask(), deny("sh*"), handler=person))).allow
    assert person.asked == []


async def test_the_first_rule_of_the_deciding_kind_is_the_reason():
    verdict = await decide(Permissions(allow(), deny("sh*"), deny("shell")))
    assert verdict.reason == "denied by the rule deny('sh*')"
    verdict = await decide(Permissions(allow("shell"), allow()))
    assert verdict.reason == "allowed by the rule allow('shell')"


async def test_without_a_rule_a_tool_that_needs_permission_is_asked_about():
    person = Person(YES)
    assert await decide(Permissions(handler=person)) == YES
    assert person.asked == [[request()]]


async def test_without_a_rule_a_tool_that_needs_none_is_allowed_unasked():
    person = Person()
    verdict = await decide(Permissions(handler=person), required=False)
    assert verdict == Verdict(allow=True, reason="the tool needs no permission")
    assert person.asked == []


async def test_a_rule_to_ask_holds_for_tools_that_need_no_permission_too():
    person = Person(NO)
    assert await decide(Permissions(ask("shell"), handler=person), required=False) == NO


@pytest.mark.parametrize("required", [True, False])
async def test_when_nobody_can_be_asked_asking_is_denying(required):
    verdict = await decide(Permissions(ask("shell")), required=required)
    assert not verdict.allow
    assert verdict.reason == ASKED_IN_VAIN
    assert await decide(Permissions(), required=True) == NO_ONE_TO_ASK
    assert "do not try it again" in NO_ONE_TO_ASK.reason


@given(st.lists(st.sampled_from([allow("shell"), deny("shell"), ask("shell"), allow("other"), deny("other")])))
def test_nothing_gets_through_that_a_rule_denies_or_nobody_allows(rules):
    verdict = asyncio.run(decide(Permissions(*rules)))
    policies = {rule.policy for rule in rules if rule.matches(request())}
    assert verdict.allow == (policies == {"allow"})


# -- a batch -----------------------------------------------------------------------------------------------------------


async def test_one_question_is_asked_for_all_open_calls_and_answers_come_in_the_order_of_the_calls():
    person = Person(NO, YES)
    batch = [
        request("free", required=False, call_id="c1"),
        request("mail", call_id="c2"),
        request("shell", call_id="c3"),
        request("web", call_id="c4"),
    ]
    permissions = Permissions(deny("shell"), handler=person)
    verdicts = await permissions(batch)
    assert [verdict.allow for verdict in verdicts] == [True, False, False, True]
    assert person.asked == [[batch[1], batch[3]]]


async def test_nobody_is_asked_about_nothing():
    person = Person()
    assert await Permissions(handler=person)([]) == []
    assert person.asked == []


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([], [NO_ANSWER, NO_ANSWER]),
        ([YES], [YES, NO_ANSWER]),
        ([None, YES], [NO_ANSWER, YES]),
        ([True, "yes"], [NO_ANSWER, NO_ANSWER]),
        ([YES, NO, YES], [YES, NO]),
    ],
    ids=str,
)
async def test_an_answer_that_is_missing_or_none_is_a_no(answers, expected):
    batch = [request(call_id="c1"), request(call_id="c2")]
    assert await Permissions(handler=Person(*answers))(batch) == expected
    assert complete_verdicts(batch, answers) == expected
    assert not NO_ANSWER.allow


async def test_an_error_of_the_handler_is_raised_and_nothing_is_remembered():
    async def broken(requests):
        raise OSError

    permissions = Permissions(handler=broken)
    with pytest.raises(OSError):
        await permissions([request()])
    assert list(permissions.grants) == []


@pytest.mark.parametrize(("gate", "allowed"), [(allow_all, True), (deny_all, False)])
@pytest.mark.parametrize("required", [True, False])
async def test_everything_or_nothing_may_pass(gate, allowed, required):
    verdicts = await gate([request(required=required), request("other")])
    assert [verdict.allow for verdict in verdicts] == [allowed, allowed]
    assert all(verdict.reason for verdict in verdicts)


# -- what is remembered ------------------------------------------------------------------------------------------------

ELSEWHERE = {
    "same": {},
    "other target": {"target": "pwd"},
    "other action": {"action": "read"},
    "other tool": {"tool": "mail"},
    "other session": {"session_id": "s2"},
    "other session and target": {"session_id": "s2", "target": "pwd"},
}


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize(
    ("scope", "reaches"),
    [
        ("once", []),
        ("session", ["same"]),
        ("forever", ["same", "other session"]),
    ],
)
async def test_a_verdict_is_remembered_as_far_as_its_scope_says(scope, reaches, allowed):
    permissions = Permissions(handler=Person(Verdict(allow=allowed, reason="because", scope=scope)))
    await permissions([request()])
    person = permissions.handler = Person(YES)
    for name, details in ELSEWHERE.items():
        person.asked.clear()
        verdict = await decide(permissions, **details)
        assert (person.asked == []) is (name in reaches), name
        if name in reaches:
            assert (verdict.allow, verdict.reason) == (allowed, "because")


async def test_what_was_remembered_without_a_reason_says_so():
    grants = Grants([Grant("session", allow=False, tool="shell", action="run", session_id="s1")])
    assert (await decide(Permissions(grants=grants))).reason == "denied before, for session"
    grants.remember(Grant("forever", allow=True, tool="mail", action="run", target="ls"))
    assert (await decide(Permissions(grants=grants), tool="mail")).reason == "allowed before, for forever"


async def test_a_remembered_denial_outranks_a_remembered_permission():
    wide = Grant("session", allow=True, tool="shell", action="run", session_id="s1")
    narrow = Grant("session", allow=False, tool="shell", action="run", target="ls", session_id="s1")
    for grants in ([wide, narrow], [narrow, wide]):
        permissions = Permissions(grants=Grants(grants))
        assert not (await decide(permissions)).allow
        assert (await decide(permissions, target="pwd")).allow


async def test_the_strictest_of_rules_and_memory_decides():
    grants = Grants([Grant("session", allow=True, tool="shell", action="run", session_id="s1")])
    assert not (await decide(Permissions(deny("shell"), grants=grants))).allow
    grants = Grants([Grant("session", allow=False, tool="shell", action="run", session_id="s1")])
    assert not (await decide(Permissions(allow("shell"), grants=grants))).allow


async def test_a_handler_may_be_a_plain_function():
    permissions = Permissions(ask("shell"), handler=lambda requests: [Verdict(allow=True)] * len(requests))
    assert (await decide(permissions)).allow


async def test_what_was_revoked_is_not_restored_until_it_is_granted_again():
    grant = Grant("session", allow=True, tool="shell", action="run", session_id="s1")
    grants = Grants([grant])
    assert grants.revoke(grant.grant_id)
    assert not grants.revoke(grant.grant_id)
    grants.restore(grant)
    assert list(grants) == []
    grants.remember(grant)
    grants.restore(grant)
    assert list(grants) == [grant]


async def test_grants_can_be_listed_and_taken_back():
    person = Person(Verdict(allow=True, scope="session", covers="tool"))
    permissions = Permissions(handler=person)
    await permissions([request()])
    (grant,) = permissions.grants
    assert (grant.tool, grant.action, grant.target, grant.session_id) == ("shell", "run", "", "s1")
    assert permissions.grants.revoke(grant.grant_id)
    assert not permissions.grants.revoke(grant.grant_id)
    assert list(permissions.grants) == []
    person.answers = [NO]
    assert await decide(permissions) == NO


async def test_a_verdict_for_a_pattern_that_does_not_match_the_call_is_refused_and_nothing_is_remembered():
    answers = [Verdict(allow=True, scope="session", covers="tool"), Verdict(allow=True, scope="run", covers="git **")]
    permissions = Permissions(handler=Person(*answers))
    with pytest.raises(ConfigError) as caught:
        await permissions([request(call_id="c1"), request(call_id="c2", target="ls")])
    assert str(caught.value) == (
        "Verdict(covers='git **') does not match the call of 'shell' on 'ls': give 'arguments', 'target', 'tool', or a "
        "pattern that does"
    )
    assert list(permissions.grants) == []


async def test_a_later_verdict_about_the_same_thing_replaces_the_earlier_one():
    grants = Grants()
    for allowed in (True, False):
        grants.remember(Grant("session", allow=allowed, tool="shell", action="run", session_id="s1"))
    (grant,) = grants
    assert not grant.allow


def test_the_list_of_grants_may_be_changed_while_it_is_walked():
    grants = Grants(Grant("session", allow=True, tool=name, action="run") for name in "abc")
    for grant in grants:
        grants.revoke(grant.grant_id)
    assert list(grants) == []


def test_permissions_of_several_agents_may_share_what_was_decided():
    grants = Grants()
    assert Permissions(grants=grants).grants is grants


@given(st.lists(st.tuples(torn_texts, torn_texts, torn_texts, torn_texts), min_size=2, max_size=2, unique=True))
def test_different_grants_have_different_names(keys):
    ids = {Grant("session", True, *key).grant_id for key in keys if not any("\0" in text for text in key)}
    assert len(ids) == sum(1 for key in keys if not any("\0" in text for text in key))


# -- in the log --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "covers", "target", "session_id"),
    [
        ("run", "arguments", "ls", "s1"),
        ("session", "tool", "", "s1"),
        ("session", "target", "ls", "s1"),
        ("session", "l*", "l*", "s1"),
        ("forever", "target", "ls", ""),
    ],
)
def test_a_decision_in_the_log_is_a_grant_for_later_calls(scope, covers, target, session_id):
    verdict = Verdict(allow=True, reason="because", scope=scope, covers=covers, by="anna")
    decision = build_permission_decided_event(request(), verdict, "child", level=1, at=5.0)
    assert decision == PermissionDecided(
        *("c1", "shell", "run", "ls", "hash"),
        allow=True,
        reason="because",
        scope=scope,
        covers=covers,
        by="anna",
        binding=NO_BINDING,
        level=1,
        at=5.0,
        run_id="r1",
        path="child",
    )
    grant = Grant.of_decision(decision, "s1")
    assert (grant.scope, grant.target, grant.session_id, grant.reason) == (scope, target, session_id, "because")
    assert (grant.by, grant.at, grant.run_id) == ("anna", 5.0, "r1" if scope == "run" else "")
    assert grant.covers_call(request())


def test_a_decision_that_does_not_say_what_it_covers_covers_these_arguments_alone():
    decision = PermissionDecided("c1", "shell", "run", "ls", "hash", allow=False, scope="session", run_id="r1")
    assert Grant.of_decision(decision, "s1").covers == "arguments"
    assert not Grant.of_decision(decision, "s1").covers_call(request(target="pwd"))


def test_a_decision_for_one_call_covers_no_other():
    assert not Grant.of_decision(build_permission_decided_event(request(), YES), "s1").covers_call(request())


def decided(scope="session", *, allowed=True, **details):
    return build_permission_decided_event(request(**details), Verdict(allow=allowed, scope=scope))


def grant_of(decision):
    return Grant.of_decision(decision, "s1")


def test_the_last_word_in_the_log_about_a_grant_counts():
    first, second = decided(), decided(target="pwd")
    revoked = GrantRevoked(grant_of(first).grant_id)
    assert grants_from_log([first, second, revoked], "s1") == {grant_of(first): False, grant_of(second): True}
    assert grants_from_log([first, revoked, first], "s1") == {grant_of(first): True}
    assert grants_from_log([GrantRevoked("grant_of_another")], "s1") == {}


def test_what_the_log_takes_back_holds_no_more_until_it_is_decided_again():
    decision = decided()
    revoked = GrantRevoked(grant_of(decision).grant_id)
    grants = Grants()
    grants.sync_with_log([decision], "s1")
    assert list(grants) == [grant_of(decision)]
    grants.sync_with_log([decision, revoked], "s1")
    assert list(grants) == []
    grants.sync_with_log([decision, revoked, decision], "s1")
    assert list(grants) == [grant_of(decision)]


def test_what_holds_for_ever_is_not_taken_back_by_an_old_log():
    decision = decided("forever")
    grants = Grants([grant_of(decision)])
    grants.sync_with_log([decision, GrantRevoked(grant_of(decision).grant_id)], "s1")
    assert list(grants) == [grant_of(decision)]


def test_what_held_for_ever_and_is_taken_back_is_restored_by_no_other_log():
    decision = decided("forever")
    grants = Grants([grant_of(decision)])
    grants.forget(grant_of(decision).grant_id)
    grants.forget("grant_of_another")
    grants.sync_with_log([decision], "s2")
    assert list(grants) == []


# -- why ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permissions", "required", "expected"),
    [
        (
            Permissions(deny("shell"), handler=later),
            True,
            Explanation("deny", "denied by the rule deny('shell')", "deny('shell')"),
        ),
        (
            Permissions(allow(target="l*")),
            True,
            Explanation("allow", "allowed by the rule allow('*', target='l*')", "allow('*', target='l*')"),
        ),
        (Permissions(), False, Explanation("allow", "the tool needs no permission")),
        (Permissions(handler=later), True, Explanation("ask", "the tool needs permission")),
        (
            Permissions(ask("shell"), handler=later),
            False,
            Explanation("ask", "the rule ask('shell') requires approval", "ask('shell')"),
        ),
        (Permissions(ask("shell")), False, Explanation("deny", ASKED_IN_VAIN, "ask('shell')")),
        (Permissions(), True, Explanation("deny", NO_ONE_TO_ASK.reason)),
        (
            Permissions(grants=Grants([Grant("session", True, "shell", "run", "", "s1")])),
            True,
            Explanation("allow", "allowed before, for session", grant=Grant("session", True, "shell", "run", "", "s1")),
        ),
        (
            Permissions(allow(), grants=Grants([Grant("forever", False, "shell", "run", "ls", "", "never")])),
            True,
            Explanation("deny", "never", "allow('*')", Grant("forever", False, "shell", "run", "ls", "", "never")),
        ),
    ],
)
def test_an_explanation_says_what_decides(permissions, required, expected):
    assert permissions.explain(request(required=required)) == expected


few = st.sampled_from(["shell", "git", "s*", "*", "l[s]", "ls", "run", "r?n", "read"])
rules = st.builds(Rule, st.sampled_from(["allow", "deny", "ask"]), few, few, few)
grants_given = st.builds(
    Grant,
    st.sampled_from(["session", "forever"]),
    st.booleans(),
    st.sampled_from(["shell", "git"]),
    st.sampled_from(["run", "read"]),
    st.sampled_from(["", "ls"]),
    st.sampled_from(["", "s1", "s2"]),
)
requests_made = st.builds(
    request,
    st.sampled_from(["shell", "git"]),
    action=st.sampled_from(["run", "read"]),
    target=st.sampled_from(["ls", "l*", ""]),
    required=st.booleans(),
)


@given(st.lists(rules, max_size=4), st.lists(grants_given, max_size=4), requests_made, st.sampled_from([None, YES, NO]))
def test_an_explanation_agrees_with_what_the_gate_then_does(rules, grants, made, answer):
    person = None if answer is None else Person(answer)
    gate = Permissions(*rules, handler=person, grants=Grants(grants))
    explained = gate.explain(made)
    (verdict,) = asyncio.run(gate([made]))
    if explained.verdict == "ask":
        assert person is not None
        assert (len(person.asked), verdict) == (1, answer)
    else:
        assert person is None or not person.asked
        assert (verdict.allow, verdict.reason) == (explained.verdict == "allow", explained.why)


# -- the rule that an answer makes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("covers", "rule"),
    [
        ("arguments", "allow('shell', action='run', target='git status') with exactly these arguments"),
        ("target", "allow('shell', action='run', target='git status')"),
        ("git *", "allow('shell', action='run', target='git *')"),
        ("tool", "allow('shell', action='run')"),
    ],
)
def test_what_a_yes_would_allow_is_shown_as_a_rule_for_each_width(covers, rule):
    assert describe_rule(request(target="git status"), covers) == rule


def test_a_star_in_a_target_is_shown_as_a_star_and_not_as_a_pattern():
    assert describe_rule(request(target="rm *"), "target") == "allow('shell', action='run', target='rm [*]')"
    shown = str(Grant("forever", False, "shell", "run", "a[1]?", covers="target").rule)
    assert shown == "deny('shell', action='run', target='a[[]1][?]')"


texts = st.text("ab*?[]!-\n", max_size=6)


@given(
    st.sampled_from(["session", "forever"]),
    st.sampled_from(["target", "tool"]),
    st.tuples(texts, texts),
    st.tuples(texts, texts),
)
def test_the_rule_that_is_shown_matches_exactly_what_the_grant_covers(scope, covers, made, others):
    made = request(action=made[0], target=made[1])
    grant = grant_of(build_permission_decided_event(made, Verdict(allow=True, scope=scope, covers=covers)))
    assert grant.rule.matches(made)
    other = request(action=others[0], target=others[1])
    assert grant.rule.matches(other) == grant.covers_call(other)


# -- reasons -----------------------------------------------------------------------------------------------------------


async def test_a_gate_that_denies_everything_tells_why():
    gate = Permissions.deny_all("nothing is changed on Fridays")
    (verdict,) = await gate([request()])
    assert (verdict.allow, verdict.reason) == (False, "nothing is changed on Fridays")
    (verdict,) = await Permissions.deny_all()([request()])
    assert (verdict.allow, verdict.reason) == (False, "denied by the rule deny('*')")


def test_the_reason_of_a_denying_rule_is_what_the_model_is_told():
    gate = Permissions(deny("write", reason="read only"), handler=later)
    explained = gate.explain(request(tool="write"))
    assert (explained.verdict, explained.why, explained.rule) == ("deny", "read only", "deny('write')")
    with pytest.raises(ConfigError, match=r"deny\(reason=5\): give text"):
        deny(reason=5)  # type: ignore[arg-type]


# -- command lines that a parser has taken apart -----------------------------------------------------------------------


def line_request(*commands, reads=(), note=""):
    parts = tuple([CommandPart(tuple(each.split()), "it only reads" if each in reads else "") for each in commands])
    argv = parts[0].argv if len(parts) == 1 else ()
    target = CommandTarget("; ".join(commands), argv, parts, note)
    return PermissionRequest("c1", "bash", "run", target.text, {}, "h", required=True, typed_target=target)


def explain_line(*commands, reads=(), rules=(), handler=later):
    explanation = Permissions(*rules, handler=handler).explain(line_request(*commands, reads=reads))
    return explanation.verdict, explanation.why


PUSH = allow("bash", target=command("git push"))


def test_each_simple_command_of_a_line_is_decided_on_its_own():
    rules = [PUSH, allow("bash", target=command("make"))]
    verdict, why = explain_line("git push", "make test", rules=rules)
    assert verdict == "allow"
    assert why == (
        "git push: allowed by the rule allow('bash', target=command('git push')); "
        "make test: allowed by the rule allow('bash', target=command('make'))"
    )


def test_a_line_is_asked_about_for_the_parts_that_nothing_allows():
    assert explain_line("git push", "make", "ls", reads=["ls"], rules=[PUSH]) == (
        "ask",
        "the tool needs permission, for: make",
    )


def test_a_line_is_denied_for_one_part_that_is():
    rules = [deny("bash", target=command("rm"), reason="no")]
    assert explain_line("ls", "rm x", rules=rules) == ("deny", "no")
    grants = Grants([Grant("forever", allow=False, tool="bash", target="rm x", reason="never", covers="target")])
    explanation = Permissions(handler=later, grants=grants).explain(line_request("ls", "rm x"))
    assert (explanation.verdict, explanation.why) == ("deny", "never")


def test_a_command_that_only_reads_is_allowed_and_says_why():
    assert explain_line("ls", reads=["ls"]) == ("allow", "it only reads")
    assert explain_line("ls", "cat", reads=["ls", "cat"])[0] == "allow"
    assert explain_line("make") == ("ask", "the tool needs permission")
    verdict, why = explain_line("make", handler=None)
    assert verdict == "deny"
    assert "no one to ask" in why


def test_an_asking_rule_asks_about_commands_that_only_read_too():
    assert explain_line("ls", reads=["ls"], rules=[ask("bash")])[0] == "ask"


def test_a_request_tells_what_a_person_should_know():
    assert line_request("ls", note="There is no sandbox.").note == "There is no sandbox."
    assert request().note == ""
    assert request().reads_only == ""


@pytest.mark.parametrize("seconds", [0.001, 1, None])
def test_a_question_may_stay_open_as_briefly_as_one_likes(seconds):
    assert Permissions(expires_seconds=seconds).expires_seconds == seconds


class OwnGate(Permissions):
    """A gate that may decide by more than its rules."""


def test_rules_are_added_to_a_gate_that_decides_by_rules_alone():
    call = request()
    gate = Permissions(allow("shell"))
    assert gate.explain(call).verdict == "allow"
    for make in (gate.with_rules, gate.narrow_by_rules):
        more = make([deny("shell")])
        assert more is not None
        assert (more.explain(call).verdict, gate.explain(call).verdict) == ("deny", "allow")
    wider = Permissions().narrow_by_rules([allow("shell")])
    assert wider is not None
    assert wider.explain(call).verdict == "deny"  # there is no one to ask
    own = OwnGate(allow("shell"))
    assert (own.with_rules([deny("shell")]), own.narrow_by_rules([deny("shell")])) == (None, None)


def test_called_by_hand_the_handler_for_later_denies_each_request():
    assert later([request(), request(target="pwd")]) == [NO_ONE_TO_ASK, NO_ONE_TO_ASK]


@pytest.mark.parametrize(("covers", "verdict"), [("tool", "ask"), ("arguments", "allow")])
def test_a_rule_that_asks_about_labels_lets_only_an_answer_for_this_call_count(covers, verdict):
    labelled = replace(request(), labels=("untrusted",))
    answer = make_grant(request(), Verdict(allow=True, scope="session", covers=covers))
    about_labels = Permissions(ask("shell", when="untrusted"), handler=later, grants=Grants([answer]))
    assert about_labels.explain(labelled).verdict == verdict
    assert about_labels.explain(request()).verdict == "allow"
    about_others = Permissions(ask("deploy", when="untrusted"), handler=later, grants=Grants([answer]))
    assert about_others.explain(labelled).verdict == "allow"


@pytest.mark.parametrize(("covers", "is_exact"), [("tool", False), ("arguments", True)])
def test_a_call_that_can_send_out_private_data_is_allowed_only_by_an_answer_for_it(covers, is_exact):
    leaking = replace(request(), labels=("private", "untrusted"), sources=("tool:mail", "tool:fetch"), sends=True)
    answer = make_grant(request(), Verdict(allow=True, scope="session", covers=covers))
    gate = Permissions(allow("shell"), handler=later, grants=Grants([answer]))
    rule = str(allow("shell"))
    why = (
        "it can send data out, and the model has seen private data and untrusted text "
        "(private, untrusted; from tool:mail, tool:fetch)"
    )
    asked, allowed = Explanation("ask", why, rule), Explanation("allow", "allowed before, for session", rule, answer)
    assert gate.explain(leaking) == (allowed if is_exact else asked)
    for harmless in (replace(leaking, sends=False), replace(leaking, labels=("private",))):
        assert not harmless.can_leak
        assert gate.explain(harmless) == Explanation("allow", f"allowed by the rule {rule}", rule)


def test_a_rule_that_allows_a_file_which_other_programs_trust_is_told_with_the_reason_to_ask():
    target = PathTarget("/w/AGENTS.md", "/w", caution="other programs trust it")
    request = PermissionRequest("c", "write", "write", "AGENTS.md", {}, "", required=True, typed_target=target)
    explained = Permissions(allow("*"), handler=later).explain(request)
    assert (explained.verdict, explained.why) == ("ask", "other programs trust it")
