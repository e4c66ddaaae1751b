"""Remembered answers: for how long, for what, and bound to what."""

from typing import Any

import pytest
from msgspec.structs import replace

from perdure import ConfigError, Grant, Permissions, allow, deny
from perdure._core.permission.grants import check_grant_pattern, grants_from_log, list_offers, make_grant
from perdure._core.permission.request import build_permission_decided_event
from perdure.events import GrantRevoked, PermissionDecided
from perdure.permissions import (
    ApprovalBinding,
    CommandTarget,
    Grants,
    PathTarget,
    PermissionRequest,
    Target,
    UncomputableTarget,
    UrlTarget,
    Verdict,
    command,
    later,
    path,
)
from tests.coming_from.shows import shows

HERE = ApprovalBinding("tool", "boss", "store", "/project", "s@1")


def request(target: str | Target = "ls", *, hashed: str = "hash", run_id: str = "r", **bound: str) -> PermissionRequest:
    typed = None if isinstance(target, str) else target
    binding = replace(HERE, **bound)
    return PermissionRequest("c", "shell", "run", str(target), {}, hashed, True, "s", run_id, typed, binding)


def granted(
    scope: Any = "session", covers: str = "arguments", made: PermissionRequest | None = None, *, allow: bool = True
) -> Grant:
    verdict = Verdict(allow, scope=scope, covers=covers)
    return make_grant(made or request(), verdict)


# -- for what ----------------------------------------------------------------------------------------------------------


@shows("glove", "StoreAdapter.getPermission", "StoreAdapter.setPermission")
@pytest.mark.parametrize(
    ("covers", "same", "other_arguments", "other_target"),
    [
        ("arguments", True, False, False),
        ("target", True, True, False),
        ("tool", True, True, True),
        ("l*", True, True, False),
    ],
)
def test_a_grant_covers_what_it_says(covers, same, other_arguments, other_target):
    grant = granted(covers=covers)
    assert grant.covers_call(request()) is same
    assert grant.covers_call(request(hashed="other")) is other_arguments
    assert grant.covers_call(request("pwd", hashed="other")) is other_target


@pytest.mark.parametrize(
    ("target", "covers", "inside", "outside"),
    [
        (PathTarget("/p/a/x", "/p"), "/p/a/**", PathTarget("/p/a/b/y", "/p"), PathTarget("/p/c", "/p")),
        (
            UrlTarget.of("https://a.example/x"),
            "https://a.example/**",
            UrlTarget.of("https://a.example/y"),
            UrlTarget.of("http://a.example/x"),
        ),
        (CommandTarget.of("git log -3"), "git log", CommandTarget.of("git log -5"), CommandTarget.of("git log; rm x")),
    ],
)
def test_a_pattern_is_one_for_the_kind_of_target(target, covers, inside, outside):
    grant = granted(covers=covers, made=request(target))
    assert grant.covers_call(request(inside))
    assert not grant.covers_call(request(outside))
    assert not grant.covers_call(request(str(inside)))  # plain text is another kind
    denial = replace(grant, allow=False)
    assert denial.covers_call(request(inside))
    assert covers in str(grant.rule)


def test_a_target_that_is_unknown_is_covered_by_its_arguments_or_its_tool_alone():
    unknown = request(UncomputableTarget("no idea"))
    assert granted(covers="arguments", made=unknown).covers_call(unknown)
    assert granted(covers="tool", made=unknown).covers_call(unknown)
    assert not granted(covers="target", made=unknown).covers_call(unknown)
    assert [each.covers for each in list_offers(unknown)] == ["arguments", "tool"]


@pytest.mark.parametrize(
    ("target", "offered"),
    [
        ("plain", ["arguments", "target", "tool"]),
        (PathTarget("/p/a/x", "/p"), ["arguments", "target", "/p/a/**", "tool"]),
        (UrlTarget.of("https://a.example/x"), ["arguments", "target", "https://a.example/**", "tool"]),
        (CommandTarget.of("git log -3"), ["arguments", "target", "git log", "tool"]),
        (CommandTarget.of("git log | sh"), ["arguments", "target", "tool"]),
    ],
)
def test_the_widths_that_make_sense_are_offered_and_cover_the_call(target, offered):
    made = request(target)
    offers = list_offers(made)
    assert [each.covers for each in offers] == offered
    for each in offers:
        verdict = Verdict(allow=True, scope="session", covers=each.covers)
        check_grant_pattern(made, verdict)
        assert make_grant(made, verdict).covers_call(made)
        assert each.rule.startswith("allow('shell', action='run'")
        assert each.matches


def test_a_pattern_may_be_given_as_one():
    patterns: list[Any] = [path("/a/**"), command("git log")]
    assert [Verdict(allow=True, covers=each).covers for each in patterns] == ["/a/**", "git log"]


@pytest.mark.parametrize("covers", ["/q/**", "../x"])
def test_a_pattern_that_does_not_match_the_call_is_refused(covers):
    with pytest.raises(ConfigError):
        check_grant_pattern(request(PathTarget("/p/x", "/p")), Verdict(allow=True, scope="run", covers=covers))
    check_grant_pattern(request(), Verdict(allow=True, covers=covers))  # it is not remembered


# -- for how long, and bound to what -----------------------------------------------------------------------------------

ELSEWHERE = [{"tool": "t"}, {"agent": "other"}, {"store": "other"}, {"project": "/other"}, {"session": "s@2"}]


@pytest.mark.parametrize("elsewhere", ELSEWHERE, ids=str)
@pytest.mark.parametrize("scope", ["run", "session", "forever"])
def test_a_permission_holds_only_where_everything_is_the_same(scope, elsewhere):
    grant = granted(scope, "tool")
    assert grant.covers_call(request())
    assert grant.covers_call(request(**elsewhere)) is (scope == "forever" and "session" in elsewhere)


@pytest.mark.parametrize(
    ("elsewhere", "holds"),
    [({"tool": "t"}, True), ({"agent": "boss/scout"}, True), ({"agent": "bossy"}, False), ({"store": "x"}, False)],
)
def test_a_denial_also_holds_for_a_changed_tool_and_for_agents_below(elsewhere, holds):
    assert granted("session", "tool", allow=False).covers_call(request(**elsewhere)) is holds


def test_a_grant_for_a_run_holds_for_its_subagents_and_no_other_run():
    grant = granted("run", "tool", request(run_id="r/call_1"))
    assert grant.run_id == "r"
    assert grant.covers_call(request(run_id="r/call_2"))
    assert not grant.covers_call(request(run_id="r2"))


def test_a_grant_that_a_program_writes_holds_everywhere_and_has_a_pattern():
    grant = Grant("forever", allow=True, tool="shell", target="l*")
    for elsewhere in ELSEWHERE:
        assert grant.covers_call(request(**elsewhere))
    assert not grant.covers_call(request("pwd"))
    assert Grant("forever", allow=True, tool="shell").covers_call(request("pwd"))
    assert str(Grant("forever", allow=True, tool="shell", target="*").rule) == "allow('shell')"
    assert not Grant("session", allow=True, tool="shell", session_id="other").covers_call(request())


def test_grants_with_different_meanings_have_different_ids():
    made = [
        granted(scope, covers) for scope in ("run", "session", "forever") for covers in ("arguments", "target", "tool")
    ]
    made += [granted("forever", "tool", request(**each)) for each in ELSEWHERE[:4]]
    made += [granted("session", "tool", request(**each)) for each in ELSEWHERE[1::3]]
    made += [Grant("session", True, "shell", "run", "", "s")]
    assert len({each.grant_id for each in made}) == len(made)


# -- in the log --------------------------------------------------------------------------------------------------------


def test_grants_of_another_session_in_a_log_are_not_used_unless_they_are_kept():
    made = build_permission_decided_event(request(), Verdict(allow=True, scope="session", covers="tool"))
    assert grants_from_log([made], "s", ["s@2"]) == {}
    (kept,) = grants_from_log([made], "fork", ["fork@2", "s@1"])
    assert (kept.session_id, kept.binding) == ("fork", replace(HERE, session="fork@2"))
    lasting = build_permission_decided_event(request(), Verdict(allow=True, scope="forever", covers="tool"))
    assert grants_from_log([lasting], "s", ["s@2"]) == {}


def test_an_answer_for_ever_in_a_log_is_for_that_session_and_has_the_id_of_the_answer():
    for_all = granted("forever", "tool")
    (logged,) = grants_from_log([decide_for_ever(at=0.0)], "s", ["s@1"])
    assert (logged.scope, logged.session_id, logged.grant_id) == ("forever", "s", for_all.grant_id)
    assert (for_all.holds_in_all_sessions, logged.holds_in_all_sessions) == (True, False)
    other = request(session="other@1")
    assert (for_all.covers_call(other), logged.covers_call(other)) == (True, False)
    assert logged.covers_call(request())


def decide_for_ever(*, at, allow=True):
    return build_permission_decided_event(request(), Verdict(allow=allow, scope="forever", covers="tool"), at=at)


@pytest.mark.parametrize(("given_at", "is_kept"), [(5.0, False), (4.0, False), (6.0, True), (0.0, True)])
def test_a_log_takes_back_the_answer_for_ever_that_it_is_about_and_none_that_was_given_later(given_at, is_kept):
    grant = make_grant(request(), Verdict(allow=True, scope="forever", covers="tool"), at=given_at)
    grants, made = Grants([grant]), decide_for_ever(at=5.0)
    grants.sync_with_log([made], "s", ["s@1"])
    assert [*grants] == [grant]  # known already
    grants.sync_with_log([made, GrantRevoked(grant.grant_id)], "s", ["s@1"])
    assert [*grants] == ([grant] if is_kept else [])


def test_a_no_for_ever_in_a_log_outranks_a_yes_that_the_process_was_given_elsewhere():
    grants = Grants([granted("forever", "tool")])
    grants.sync_with_log([decide_for_ever(at=1.0, allow=False)], "s", ["s@1"])
    found = [grants.find(made) for made in (request(), request(session="other@1"))]
    assert [each is not None and each.allow for each in found] == [False, True]


def test_what_is_taken_back_in_one_session_stays_in_the_logs_of_others():
    made = decide_for_ever(at=1.0)
    grants = Grants()
    grants.sync_with_log([made], "s", ["s@1"])
    grants.sync_with_log([replace(made, binding=replace(HERE, session="t@1"))], "t", ["t@1"])
    (first, second) = grants
    assert (first.session_id, second.session_id) == ("s", "t")
    grants.forget(first.grant_id, "s")
    assert [*grants] == [second]
    grants.sync_with_log([made, GrantRevoked(first.grant_id)], "s", ["s@1"])
    assert [*grants] == [second]
    assert grants.revoke(first.grant_id)
    assert [*grants] == []


def test_a_permission_that_is_bound_to_no_tool_is_not_used_and_a_denial_is():
    yes = PermissionDecided("c", "shell", "run", "ls", "hash", allow=True, scope="session", covers="tool")
    assert grants_from_log([yes], "s", ["s@1"]) == {}
    no = replace(yes, allow=False)
    (denial,) = grants_from_log([no], "s", ["s@1"])
    assert denial.covers_call(request("pwd"))


def test_an_approval_of_one_gate_is_not_restored_as_that_of_another():
    made = build_permission_decided_event(request(), Verdict(allow=True, scope="session"), level=1)
    assert grants_from_log([made], "s", ["s@1"]) == {}
    assert len(grants_from_log([made], "s", ["s@1"], level=None)) == 1
    grants = Grants()
    grants.sync_with_log([made], "s", ["s@1"], level=1)
    assert len([*grants]) == 1


# -- beside rules ------------------------------------------------------------------------------------------------------


def test_a_grant_for_a_whole_tool_does_not_overrule_a_denial_that_is_not_ruled_out():
    made = request(CommandTarget.of("sudo rm x"))
    for covers, verdict in (("tool", "ask"), ("target", "allow"), ("arguments", "allow")):
        gate = Permissions(
            deny(target=command("rm")), handler=later, grants=Grants([granted(covers=covers, made=made)])
        )
        explanation = gate.explain(made)
        assert explanation.verdict == verdict
        assert "rm" in explanation.rule
    asking = Permissions(deny(target=command("rm")), handler=later).explain(made)
    assert asking.why == "it cannot be ruled out that the rule deny('*', target=command('rm')) denies this"


def test_an_explanation_tells_all_of_it():
    grant = make_grant(request(), Verdict(allow=True, scope="forever", covers="tool", by="ann"), at=1e9)
    told = Permissions(grants=Grants([grant])).explain(request()).describe()
    assert told.splitlines() == [
        "allow: allowed before, for forever",
        f"grant: {grant.grant_id}: allow('shell', action='run')",
        "scope: forever",
        "covers: tool",
        "bound to: tool tool, agent boss, store store, project /project",
        "by: ann",
        "at: 2001-09-09T01:46:40+00:00",
    ]
    beaten = Permissions(allow("shell"), deny("*")).explain(request()).describe()
    assert beaten.splitlines()[1:] == ["rule: allow('shell')", "not used: deny('*')"]
    bare = Permissions(grants=Grants([Grant("forever", allow=True, tool="shell")])).explain(request()).describe()
    assert "bound to" not in bare
    assert "at:" not in bare


@pytest.mark.parametrize("allow", [True, False])
def test_an_answer_for_ever_in_a_whole_store_reaches_tenants_only_if_it_is_a_no(allow):
    grant = granted("forever", "tool", allow=allow)
    assert grant.covers_call(request(session="t@2"))
    assert grant.covers_call(request(session="acme/s@2")) is not allow
    assert not grant.covers_call(request(session="t@2", store="other"))
    assert not grant.covers_call(request(session="t@2", project="/other"))


def test_grants_of_another_session_in_a_log_do_not_hide_those_after_them():
    answer = Verdict(allow=True, scope="session", covers="tool")
    events = [build_permission_decided_event(request(session=each), answer) for each in ("t@9", "s@1", "u@9", "s@1")]
    assert [grant.binding for grant in grants_from_log(events, "s", ["s@1"])] == [HERE]
