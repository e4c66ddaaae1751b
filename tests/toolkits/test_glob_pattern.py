"""Patterns for paths."""

import time

import pytest

from perdure import ToolError
from perdure._tools.search.patterns import MOST_ALTERNATIVES, compile_glob, extract_file_name_patterns


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "py"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "x/src/a.py"]),
        ("./src/*.py", ["src/a.py"], ["a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py"]),
        ("**/src/**", ["src/a", "x/src/a/b"], ["src", "x/a"]),
        ("**", ["a", "a/b/c"], []),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/z/c"], ["a/c", "b/c"]),
        ("*.{ts,tsx}", ["a.ts", "x/b.tsx"], ["a.js"]),
        ("{src,lib}/{a,b}.c", ["src/a.c", "lib/b.c"], ["src/c.c"]),
        ("a{b}c", ["a{b}c"], ["abc"]),
        ("?.py", ["a.py"], ["ab.py", "/.py"]),
        ("[a-c].py", ["a.py", "c.py"], ["d.py"]),
        ("[!a].py", ["b.py"], ["a.py"]),
        ("[^a].py", ["b.py"], ["a.py"]),
        ("[]].py", ["].py"], ["a.py"]),
        ("[.py", ["[.py"], ["a.py"]),
        ("a*b*c", ["abc", "axbxc", "x/abbc"], ["ab", "a/b/c"]),
        ("a.b", ["a.b"], ["axb"]),
        ("new\nline*", ["new\nline1"], ["newline1"]),
    ],
)
def test_whole_paths_match(pattern, matching, others):
    expression = compile_glob(pattern)
    assert [each for each in matching if not expression.fullmatch(each)] == []
    assert [each for each in others if expression.fullmatch(each)] == []


@pytest.mark.parametrize(
    "pattern",
    ["", " ", "/etc/*", "../*", "a/../b", "a\0", "x" * 501, "[z-a]", "**/a/**/b/**/c/**/d/**/e", "{a,b}" * 7],
)
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(ToolError):
        compile_glob(pattern)


def test_no_pattern_takes_for_ever():
    expression = compile_glob("a*" * 100 + "b")
    begun = time.process_time()
    assert not expression.fullmatch("a" * 255)
    expression = compile_glob("**/" * 4 + "x")
    assert not expression.fullmatch("a/" * 200 + "b")
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["*.py"]), ("src/**/a?.py", ["a?.py"]), ("*.{ts,js}", ["*.js", "*.ts"]), ("src/**", []), ("*", []),
        ("a/*", []), ("a:b", []), ("a\\b", []), ("x{y", []),
    ],
)  # fmt: skip
def test_names_can_be_filtered_by_other_programs(pattern, names):
    assert extract_file_name_patterns(pattern) == names


def test_a_pattern_may_have_exactly_so_many_alternatives():
    most = ",".join(map(str, range(MOST_ALTERNATIVES)))
    assert compile_glob(f"{{{most}}}").fullmatch("63")
    with pytest.raises(ToolError, match="more than 64 alternatives"):
        compile_glob(f"{{{most},64}}")
