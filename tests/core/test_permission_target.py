"""Targets of any kind: text, what is unknown, and patterns for one kind on a target of another."""

from pathlib import Path
from uuid import UUID

import pytest

from perdure import ConfigError, allow, deny
from perdure._core.permission.rules import decide_by_rules
from perdure._core.permission.targets.command import CommandPart
from perdure._core.permission.targets.patterns import (
    is_narrower_pattern,
    is_target_pattern,
    list_wider_patterns,
    match_restricting_rule,
    matches_allow_rule,
    to_target,
)
from perdure._core.permission.targets.text import TextPattern
from perdure.permissions import (
    CommandTarget,
    PathTarget,
    PermissionRequest,
    TextTarget,
    UncomputableTarget,
    UrlTarget,
    command,
    path,
    url,
)

FILE, PAGE, LINE = PathTarget("/p/a.key", "/p"), UrlTarget.of("https://a.example/x"), CommandTarget.of("cat a.key")


def test_what_a_tool_returns_is_a_target_or_becomes_text():
    assert to_target(FILE) is FILE
    assert to_target("x") == TextTarget("x")
    assert to_target(5) == TextTarget("5")
    assert to_target(Path("a/b")) == TextTarget("a/b")
    assert to_target(UUID(int=0)) == TextTarget("00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}, b"a", object(), ("a", "b")])
def test_what_no_rule_could_match_is_no_target(value):
    with pytest.raises(ConfigError, match="it has to return a target, or text"):
        to_target(value, to_target)
    assert str(UncomputableTarget("no idea")) == "unknown (no idea)"


@pytest.mark.parametrize("make", [path, command, url])
def test_a_pattern_is_text(make):
    with pytest.raises(ConfigError, match="give a pattern as text"):
        make(5)
    assert is_target_pattern(make("a"))
    assert not is_target_pattern("a")


@pytest.mark.parametrize(
    ("pattern", "target", "allowed", "restricted"),
    [
        (TextPattern("*"), FILE, True, "yes"),
        (TextPattern("*"), UncomputableTarget(""), False, "yes"),
        (TextPattern("x"), UncomputableTarget(""), False, "maybe"),
        (TextPattern("x*"), TextTarget("xy"), True, "yes"),
        (TextPattern("x*"), TextTarget("y"), False, "no"),
        (TextPattern("*.key"), FILE, True, "yes"),
        (TextPattern("../x"), FILE, False, "no"),
        (TextPattern("/p/*"), FILE, True, "yes"),
        (TextPattern("https://a.example/**"), PAGE, True, "yes"),
        (TextPattern("cat *"), LINE, True, "yes"),
        (path("*.key"), PAGE, False, "no"),
        (path("*.key"), LINE, False, "yes"),
        (path("*.key"), TextTarget("deep/A.KEY"), False, "yes"),
        (path("*.key"), TextTarget("x\0/../a.key"), False, "yes"),
        (path("*.key"), TextTarget("deep/a.txt"), False, "no"),
        (path("a/b.txt"), TextTarget("deep/a/b.txt"), False, "yes"),
        (url("a.example"), FILE, False, "no"),
        (url("a.example"), TextTarget("https://a.example"), False, "yes"),
        (command("cat"), TextTarget("cat x"), False, "yes"),
        (command("cat"), TextTarget("  "), False, "no"),
        (command("cat"), FILE, False, "no"),
        (command("rm"), CommandTarget.of("sudo rm"), False, "maybe"),
    ],
)
def test_a_pattern_for_another_kind_allows_nothing_and_denies_what_it_finds(pattern, target, allowed, restricted):
    assert matches_allow_rule(pattern, target) is allowed
    assert match_restricting_rule(pattern, target, {}) == restricted


def test_every_text_in_the_arguments_counts():
    arguments = {"a": [1, {"b": ("x", "deep/A.key")}], "c": None}
    assert match_restricting_rule(path("*.key"), TextTarget("…"), arguments) == "yes"
    assert match_restricting_rule(path("*.txt"), TextTarget("…"), arguments) == "no"


@pytest.mark.parametrize(
    ("narrow", "wide", "within"),
    [
        (path("a/b"), TextPattern("*"), True),
        (TextPattern("ab*"), TextPattern("a*"), True),
        (TextPattern("*b"), TextPattern("a*"), False),
        (TextPattern("a/b"), path("a/**"), True),
        (path("a/b"), TextPattern("a/**"), True),
        (path("a/b"), TextPattern("../x"), False),
        (path("a/b"), url("a.example"), False),
        (command("git log"), command("git"), True),
    ],
)
def test_patterns_of_two_kinds_are_compared_only_if_one_is_text(narrow, wide, within):
    assert is_narrower_pattern(narrow, wide) is within


def test_text_and_programs_without_a_subcommand_have_no_wider_pattern():
    assert list_wider_patterns(TextTarget("x")) == []
    assert list_wider_patterns(CommandTarget.of("ls")) == []
    assert list_wider_patterns(PathTarget("/x", "/"))[0][1] == "every file and folder below /"


def reading(*reads, argv=(), root="/p"):
    parts = tuple([CommandPart(("x",), reads=each) for each in reads])
    return CommandTarget("…", argv, parts, root=root)


@pytest.mark.parametrize(
    ("target", "restricted"),
    [
        (reading(), "unproved"),  # a line that could not be split
        (reading(argv=("make",)), "no"),  # of a tool that does not tell what its commands read
        (reading(None), "unproved"),
        (reading(("/p/a",)), "no"),
        (reading(()), "no"),
        (reading(("/p/a",), None), "unproved"),
        (reading(("/p/",), None), "maybe"),
        (reading(None, ("/p/",)), "maybe"),
        (reading(("/p/",)), "maybe"),
        (reading(("/p/src/",)), "no"),
        (reading(("/p/src/",), root=""), "maybe"),
        (reading(("/p/private/x",)), "yes"),
        (reading(None, ("/p/private/",)), "yes"),
    ],
    ids=str,
)
def test_a_pattern_for_paths_is_about_what_a_command_reads(target, restricted):
    assert match_restricting_rule(path("private/**"), target, {}) == restricted
    assert match_restricting_rule(url("evil.example"), target, {}) == "no"


def test_a_rule_that_allows_a_command_by_its_words_outweighs_what_nobody_knows():
    def decide(target, *rules):
        request = PermissionRequest("c", "bash", "run", "…", {}, "", required=True, typed_target=target)
        decided = decide_by_rules([deny(target=path("private/**")), *rules], request)
        return decided.policy, decided.is_uncertain

    unknown, everything = reading(None, argv=("make", "x")), reading(("/p/",), argv=("git", "grep"))
    assert decide(unknown) == decide(unknown, allow("bash")) == ("ask", True)
    assert decide(unknown, allow("bash", target=command("make"))) == ("allow", False)
    assert decide(unknown, allow("bash", target=command("git"))) == ("ask", True)
    assert decide(everything, allow("bash", target=command("git"))) == ("ask", True)


def test_a_word_that_is_a_link_leads_where_the_link_leads(tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "pub").symlink_to("private")
    root = str(tmp_path)
    for words in (("dd", "if=pub/x"), ("awk", "1", "./pub/x")):
        assert match_restricting_rule(path("private/**"), CommandTarget("…", words, root=root), {}) == "yes"
    assert match_restricting_rule(path("private/**"), CommandTarget("…", ("awk", "1", "src/x"), root=root), {}) == "no"
    assert match_restricting_rule(path("private/**"), CommandTarget("…", ("awk", "1", "pub/x")), {}) == "no"


def test_wider_patterns_say_what_they_cover():
    assert list_wider_patterns(FILE) == [(path("/p/**"), "every file and folder below /p")]
    assert list_wider_patterns(PAGE) == [(url("https://a.example/**"), "every page of https://a.example")]
    assert list_wider_patterns(CommandTarget.of("git log -1")) == [
        (command("git log"), "every command that begins with: git log")
    ]


@pytest.mark.parametrize(
    ("narrow", "wide", "within"),
    [
        ("a*", "a*", True),
        ("a?", "*", True),
        ("ab", "a*", True),
        ("ab", "a?", True),
        ("ab", "b*", False),
        ("ab", "abc", False),
        ("ab*", "a*", True),
        ("a?c", "a*", True),
        ("a*", "ab*", False),
        ("a*", "a", False),
        ("a*b", "a?b", False),
        ("a?bc", "a?b*", False),  # not certain: the wildcard is not at the end alone
    ],
)
def test_a_pattern_for_text_is_narrower_than_another_only_if_that_is_certain(narrow, wide, within):
    assert is_narrower_pattern(TextPattern(narrow), TextPattern(wide)) is within


def test_targets_and_patterns_of_text_are_shown_as_they_were_written():
    assert (str(TextPattern("a*'")), TextPattern("a*'").text) == ('"a*\'"', "a*'")
    assert (str(TextTarget("x y")), str(UncomputableTarget("no such file"))) == ("x y", "unknown (no such file)")
