"""Regular expressions in a form that every engine reads alike, and refusals with a hint."""

import re

import pytest

from perdure import ToolError
from perdure._tools.search.patterns import PortableRegex


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        ("boat", "boat"),
        ("a.b*c+?", "a.b*c+?"),
        ("interface{}", r"interface\{\}"),
        ("x{2} y{2,} z{2,3}", "x{2} y{2,} z{2,3}"),
        ("{", r"\{"),
        ("a{b", r"a\{b"),
        ("a]", r"a\]"),
        (r"\d\w\s\b\.\(", r"\d\w\s\b\.\("),
        (r"\/\:\"\'", "/:\"'"),
        ("(a|b)(?:c)(?P<n>d)", "(a|b)(?:c)(?P<n>d)"),
        ("[a-z]", "[a-z]"),
        ("[^a]", "[^a]"),
        ("[]a]", r"[\]a]"),
        ("[^]a]", r"[^\]a]"),
        ("[a[b]", r"[a\[b]"),
        ("[a&&b~~]", r"[a\&\&b\~\~]"),
        ("[-a]", r"[\-a]"),
        ("[a-]", r"[a\-]"),
        (r"[\w.-]", r"[\w.\-]"),
        (r"\x41\u00e9", r"\x41\u00e9"),
        ("^$", "^$"),
        ("a$|^b", "a$|^b"),
        ("foo(x|$)", "foo(x|$)"),
        ("((a$))", "((a$))"),
        ("(^|,)a", "(^|,)a"),
        ("((?:^a|b)|^c)d|^e", "((?:^a|b)|^c)d|^e"),
        (r"a\^b[^^]", r"a\^b[^^]"),
        (r"\$5 [$] a", r"\$5 [$] a"),
    ],
)
def test_a_pattern_is_written_in_the_plain_form(pattern, plain):
    assert PortableRegex(pattern).text == plain
    re.compile(plain)


def test_a_flag_at_the_beginning_ignores_case():
    assert PortableRegex("(?i)a").ignore_case
    assert PortableRegex("(?i)a").text == "a"
    assert PortableRegex("a", ignore_case=True).ignore_case
    assert not PortableRegex("a").ignore_case


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "empty"),
        ("a" * 1001, "1,000 are the most"),
        ("(", "no regular expression"),
        ("*a", "no regular expression"),
        ("[z-a]", "no regular expression"),
        ("[a", "has no end"),
        ("a\nb", "one by one"),
        ("[a\n]", "one by one"),
        (r"a\nb", "one by one"),
        (r"a\rb", "one by one"),
        ("(?=a)", "no lookaround"),
        ("(?!a)", "no lookaround"),
        ("(?<=a)b", "no lookaround"),
        ("(?<!a)b", "no lookaround"),
        ("a(?i)b", "no lookaround"),
        ("(?P=n)", "no lookaround"),
        ("(?>a)", "no lookaround"),
        (r"(a)\1", "not supported"),
        (r"\p{L}", "not supported"),
        (r"\Aa", "not supported"),
        (r"a\Z", "not supported"),
        (r"\Q", "not supported"),
        (r"[\b]", "not supported"),
        ("a\\", "not supported"),
        ("a*+", "one quantifier"),
        ("a+*", "one quantifier"),
        ("a{2}{3}", "one quantifier"),
        ("[[:alpha:]]", "named sets"),
        ("price$5", "backslash before a dollar sign"),
        ("$^", "backslash before a dollar sign"),
        ("$$", "backslash before a dollar sign"),
        ("$*", "backslash before a dollar sign"),
        (r"$\b", "backslash before a dollar sign"),
        ("(a$)b", "backslash before a dollar sign"),
        ("(a$|b)c", "backslash before a dollar sign"),
        ("((a$))?", "backslash before a dollar sign"),
        ("2^8", "backslash before a caret"),
        (r"\b^", "backslash before a caret"),
        ("^^", "backslash before a caret"),
        ("a(^b)", "backslash before a caret"),
        ("(a)^", "backslash before a caret"),
        ("(a|b(c|^d))", "backslash before a caret"),
        (r"\B$", "not supported"),
        (r"a\Bb", "not supported"),
    ],
)
def test_what_engines_read_differently_is_refused_with_a_hint(pattern, words):
    with pytest.raises(ToolError, match=re.escape(words)):
        PortableRegex(pattern)


@pytest.mark.parametrize(
    ("pattern", "what", "advice"),
    [
        ("price$5 x", "$5", "nothing can follow the end of a line: write a backslash before a dollar sign"),
        ("ab(c$)d e", ")d", "nothing can follow the end of a line: write a backslash before a dollar sign"),
        ("2^8 = x", "2^", "nothing can precede the beginning of a line: write a backslash before a caret"),
        ("ab*+cd", "*+", "one quantifier may follow another only in ( )"),
        ("ab*?+cd", "?+", "one quantifier may follow another only in ( )"),
        ("a{2}{3}b", "}{", "one quantifier may follow another only in ( )"),
        ("a(?<=bcd)e", "(?<=", "use ( ) and (?: ): there is no lookaround, backreference or flag inside a pattern"),
        ("a[bcdefghijklmnopqrstuvwxyz", "[bcdefghijklmnopqrst", "a set in brackets has no end: add ], or escape ["),
        ("a[[:alpha:]]", "[:", "use \\d, \\w or ranges such as [a-z] instead of named sets"),
        (r"ab\pL", r"\p", r"use \d \w \s \b \t, \xHH, \uHHHH, or a backslash before punctuation"),
        (r"ab\nc", r"\n", "lines are searched one by one: give a pattern for one line"),
        ("ab\nc", "a line end", "lines are searched one by one: give a pattern for one line"),
        ("a[b\r]c", "a line end", "lines are searched one by one"),
    ],
)
def test_a_refusal_shows_the_part_of_the_pattern_that_is_not_supported(pattern: str, what: str, advice: str) -> None:
    with pytest.raises(ToolError) as raised:
        PortableRegex(pattern)
    assert str(raised.value) == f"{pattern!r} cannot be searched for: {what!r} is not supported; {advice}"


def test_a_pattern_of_the_greatest_length_can_be_searched_for() -> None:
    assert PortableRegex("a" * 1000).text == "a" * 1000
    with pytest.raises(ToolError) as raised:
        PortableRegex("a" * 1001)
    assert str(raised.value) == "the pattern has 1,001 characters, and 1,000 are the most"


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        ("[a-c-e]", "[a-c-e]"),
        ("[a--]", r"[a\-\-]"),
        ("[^-a]", r"[^\-a]"),
        ("[+--z]", r"[+\--z]"),
        ("(a)(b$)", "(a)(b$)"),
        ("(a)(b)c", "(a)(b)c"),
        ("(a$|b)|c", "(a$|b)|c"),
        ("(?:^a)|(^b)", "(?:^a)|(^b)"),
        ("a(b)|^c", "a(b)|^c"),
        ("a{1,2}?b", "a{1,2}?b"),
        ("a{1000}", r"a\{1000\}"),
        (r"[\]\d\-]", r"[\]\d\-]"),
        (r"\ \!\_", " !_"),
    ],
)
def test_a_pattern_of_several_groups_or_ranges_is_written_in_the_plain_form(pattern: str, plain: str) -> None:
    assert PortableRegex(pattern).text == plain
