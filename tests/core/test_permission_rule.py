"""Which rule decides: the strictest, unless a less strict one is certainly narrower."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from perdure import ConfigError, allow, ask, deny
from perdure._core.permission.rules import NO_RULE, RuleDecision, decide_by_rules, decide_by_strictest_layer
from perdure.permissions import CommandTarget, PathTarget, PermissionRequest, Rule, Target, command, path, url


def request(tool: str = "search", target: str | Target = "x", action: str = "") -> PermissionRequest:
    typed = None if isinstance(target, str) else target
    return PermissionRequest("c", tool, action or tool, str(target), {}, "", True, "s", "r", typed)


@pytest.mark.parametrize(
    ("rules", "decider", "beaten"),
    [
        ([allow("search"), ask("*")], 0, [1]),
        ([allow("search"), deny("*")], 0, [1]),
        ([ask("*"), deny("*"), allow("search")], 2, [0, 1]),
        ([allow("sea*"), ask("s*")], 0, [1]),
        ([allow("s*"), ask("sea*")], 1, [0]),
        ([allow("*"), deny("search")], 1, [0]),
        ([allow("search"), deny("search")], 1, [0]),
        ([allow("search"), ask("search"), deny("*")], 1, [0, 2]),
        ([allow("search", target="x"), deny("search")], 0, [1]),
        ([allow("search", target="x"), deny(target="?")], 0, [1]),
        ([allow("search"), deny(target="x")], 1, [0]),
        ([allow("search"), ask(target="*")], 0, [1]),
        ([allow("search", action="search"), deny("search")], 0, [1]),
        ([allow("search"), deny(action="search")], 1, [0]),
        ([allow("search", target="x*"), deny(target="*x")], 1, [0]),
        ([ask("search"), ask("*"), allow("*")], 0, [1, 2]),
        ([deny("other"), allow("*")], 1, []),
    ],
    ids=str,
)
def test_a_narrower_rule_sets_a_stricter_one_aside(rules, decider, beaten):
    decision = decide_by_rules(rules, request())
    assert decision.rule is rules[decider]
    assert decision.policy == rules[decider].policy
    assert list(decision.beaten) == [rules[each] for each in beaten]


def test_no_rule_decides_about_what_none_matches():
    assert decide_by_rules([allow("other")], request()) is NO_RULE
    assert decide_by_strictest_layer([[allow("other")], []], request()) is NO_RULE


def test_a_list_of_rules_does_not_weaken_another_one():
    decision = decide_by_strictest_layer([[ask("*")], [allow("search")]], request())
    assert (decision.policy, str(decision.rule)) == ("ask", "ask('*')")
    assert [str(each) for each in decision.beaten] == ["allow('search')"]
    assert decide_by_strictest_layer([[allow("*")], [deny("search")]], request()).policy == "deny"


HERE = PathTarget("/p/drafts/a.key", "/p")


@pytest.mark.parametrize(
    ("rules", "policy"),
    [
        ([allow("search", target=path("drafts/**")), deny(target=path("**/*.key"))], "deny"),
        ([allow("search", target=path("drafts/**")), deny("search", target=path("**"))], "allow"),
        ([allow("search", target=path("drafts/a.key")), deny(target=path("**/*.key"))], "allow"),
        ([allow("search", target="drafts/**"), deny("search", target=path("**"))], "allow"),
        ([allow("search", target=path("drafts/**")), deny("search", target="**")], "allow"),
        ([allow("search", target=path("drafts/**")), deny("search", target=url("x.example"))], "allow"),
        ([allow("search", target=command("ls")), ask("*")], "ask"),
        ([allow("search", target="../x"), ask("*")], "ask"),
        ([ask(target="../x"), allow("search")], "allow"),
        ([ask(target="/p/drafts/*"), allow("search")], "ask"),
        ([allow(target=path("drafts/**")), deny(target="../x")], "allow"),
    ],
    ids=str,
)
def test_rules_about_typed_targets_are_compared_by_what_they_match(rules, policy):
    assert decide_by_rules(rules, request(target=HERE)).policy == policy


def test_a_denial_that_is_not_ruled_out_asks():
    rules = [allow("shell"), deny(target=command("rm"))]
    decision = decide_by_rules(rules, request("shell", CommandTarget.of("sudo rm x")))
    assert (decision.policy, decision.is_uncertain, decision.rule) == ("ask", True, rules[1])
    certain = decide_by_rules([*rules, ask("shell")], request("shell", CommandTarget.of("sudo rm x")))
    assert (certain.policy, certain.is_uncertain) == ("ask", False)
    asking = decide_by_rules(
        [allow("shell"), ask(target=command("rm"))], request("shell", CommandTarget.of("sudo rm x"))
    )
    assert (asking.policy, asking.is_uncertain) == ("ask", False)


patterns = st.sampled_from(["*", "a", "ab", "a*", "ab*", "?b", "[ab]"])
made = st.builds(Rule, st.sampled_from(["allow", "ask", "deny"]), patterns, patterns, patterns)
texts = st.sampled_from(["a", "ab", "b", "abc"])


@given(st.lists(made, max_size=6), texts, texts, texts)
def test_the_order_of_rules_does_not_change_the_decision(rules, tool, action, target):
    wanted = request(tool, target, action)
    assert decide_by_rules(rules, wanted).policy == decide_by_rules(rules[::-1], wanted).policy


@given(made, made, texts, texts, texts)
def test_what_is_within_another_rule_matches_nothing_else(narrow, wide, tool, action, target):
    wanted = request(tool, target, action)
    if narrow.is_within(wide) and narrow.matches(wanted):
        assert wide.matches(wanted)


@given(st.lists(made, min_size=1, max_size=6), texts, texts, texts)
def test_a_denial_is_only_set_aside_by_something_narrower_than_it(rules, tool, action, target):
    wanted = request(tool, target, action)
    denials = [each for each in rules if each.policy == "deny" and each.matches(wanted)]
    allowing = [each for each in rules if each.policy != "deny" and each.matches(wanted)]
    if decide_by_rules(rules, wanted).policy == "allow":
        assert all(any(each.is_narrower(denial) for each in allowing) for denial in denials)


@pytest.mark.parametrize(
    ("labels", "policies"),
    [((), ["allow"]), (("untrusted",), ["allow", "deny"]), (("private", "secret"), ["allow", "ask"])],
)
def test_a_rule_for_labels_is_about_calls_that_follow_text_with_one_of_them(labels, policies):
    rules = [allow("search"), deny("search", when="un*"), ask("search", when="secret")]
    made = structs.replace(request(), labels=labels)
    assert [rule.policy for rule in rules if rule.matches(made)] == policies


@pytest.mark.parametrize(
    ("layers", "narrowing", "decider", "beaten"),
    [
        ([[allow("*")]], [], allow("*"), ()),
        ([[allow("*")], [ask("*")]], [], ask("*"), (allow("*"),)),
        ([[ask("*")], [deny("*")]], [], deny("*"), (ask("*"),)),
        ([[deny("*")], [ask("*")]], [], deny("*"), (ask("*"),)),
        ([[ask("*")], [ask("search")]], [], ask("*"), (ask("search"),)),
        ([[allow("*")]], [[ask("*")]], ask("*"), (allow("*"),)),
        ([[allow("*")]], [[deny("*")]], deny("*"), (allow("*"),)),
        ([[allow("*")]], [[allow("search")]], allow("*"), ()),
        ([[ask("*")]], [[allow("search")]], ask("*"), ()),
        ([[ask("other")]], [[deny("*"), ask("search")]], ask("search"), (deny("*"),)),
    ],
    ids=str,
)
def test_the_strictest_list_of_rules_decides_and_a_narrowing_one_allows_nothing(layers, narrowing, decider, beaten):
    expected = RuleDecision(decider.policy, decider, beaten)
    assert decide_by_strictest_layer(layers, request(), narrowing) == expected


def test_lists_that_allow_nothing_themselves_decide_nothing_by_an_allowing_rule():
    assert decide_by_strictest_layer([], request(), [[allow("*")]]) == NO_RULE
    assert decide_by_strictest_layer([[]], request(), [[]]) == NO_RULE
    assert decide_by_strictest_layer([[allow("other")]], request()) == NO_RULE


def test_a_narrower_rule_of_the_same_policy_sets_nothing_aside():
    wide, narrow = deny("*", reason="wide"), deny("search", reason="narrow")
    assert decide_by_rules([wide, narrow], request()) == RuleDecision("deny", wide, (narrow,))
    assert decide_by_rules([narrow, wide], request()) == RuleDecision("deny", narrow, (wide,))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (allow(), "allow('*')"),
        (deny("shell", reason="no"), "deny('shell')"),
        (ask("shell", action="run"), "ask('shell', action='run')"),
        (allow("write", target=path("a/**")), "allow('write', target=path('a/**'))"),
        (deny("a", action="x", target="y", when="untrusted"), "deny('a', action='x', target='y', when='untrusted')"),
    ],
)
def test_a_rule_is_shown_as_it_is_written(rule, text):
    assert str(rule) == text


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Rule, {"policy": "maybe"}, "Rule('maybe'): use allow(…), deny(…) or ask(…)"),
        (allow, {"tool": 5}, "allow(tool=5): give a pattern as text, such as 'shell' or 'git_*'"),
        (deny, {"target": 5}, "deny(target=5): give a pattern as text, such as 'shell' or 'git_*'"),
        (ask, {"when": None}, "ask(when=None): give a pattern as text, such as 'shell' or 'git_*'"),
        (deny, {"reason": 5}, "deny(reason=5): give text"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(make, options, message):
    with pytest.raises(ConfigError) as caught:
        make(**options)
    assert str(caught.value) == message
