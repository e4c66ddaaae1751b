"""The lines of values, by which errors in configuration files can be found in an editor."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._config.error import ConfigFault
from perdure._config.lines import LineNumbers

DOCUMENT = '''\
model = "demo"
instructions = """
Say tools = 1 and no more.
"""
settings.stop = ["a", "b"]
settings.extra_body = { a = 1, "b c" = { d = 2 } }

[limits]  # of a run
max_turns = 5

[mcp]
[mcp.servers.tides]
command = "x"
env = { TOKEN = "y" }
[mcp.servers."two words"]
command = "z"
args = [
  "a",
  "b",
]

[[schedule]]
name = "one"
[schedule.limits]
max_turns = 1

[[schedule]]
name = "two"
[schedule.limits]
max_turns = 2

[tools]
name = "last"
'''
FOUND = {
    ("model",): 1,
    ("instructions",): 2,
    ("settings",): 5,
    ("settings", "stop"): 5,
    ("settings", "stop", 1): 5,
    ("settings", "extra_body"): 6,
    ("settings", "extra_body", "a"): 6,
    ("settings", "extra_body", "b c", "d"): 6,
    ("limits",): 8,
    ("limits", "max_turns"): 9,
    ("mcp",): 11,
    ("mcp", "servers"): 12,
    ("mcp", "servers", "tides"): 12,
    ("mcp", "servers", "tides", "command"): 13,
    ("mcp", "servers", "tides", "env", "TOKEN"): 14,
    ("mcp", "servers", "two words", "command"): 16,
    ("mcp", "servers", "two words", "args", 1): 19,
    ("schedule",): 22,
    ("schedule", 0): 22,
    ("schedule", 0, "name"): 23,
    ("schedule", 0, "limits", "max_turns"): 25,
    ("schedule", 1): 27,
    ("schedule", 1, "name"): 28,
    ("schedule", 1, "limits"): 29,
    ("schedule", 1, "limits", "max_turns"): 30,
    ("tools", "name"): 33,
}


@pytest.mark.parametrize("path", FOUND)
def test_the_line_of_a_value_is_found_by_its_keys(path):
    assert tomllib.loads(DOCUMENT)
    assert LineNumbers(DOCUMENT).find_line(path) == (FOUND[path], True)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("limits", "no_such"), 8),
        (("mcp", "servers", "tides", "args"), 12),
        (("schedule", 1, "limits", "no_such"), 29),
        (("schedule", 2, "no_such"), 22),
        (("no_such",), 0),
    ],
)
def test_of_a_value_that_is_not_found_the_line_is_that_of_the_table_around_it(path, line):
    assert LineNumbers(DOCUMENT).find_line(path) == (line, False)


def test_a_path_may_be_text():
    lines = LineNumbers(DOCUMENT)
    assert [lines.find_line(path).line for path in ("", "limits.max_turns", "schedule[1].name", "nothing[0]")] == [
        1,
        9,
        28,
        0,
    ]


def test_the_line_of_a_value_in_json_is_found_by_its_keys():
    text = json.dumps({"servers": {"a": {"command": "x", "args": ["y"]}, "é": {"command": "args"}}}, indent=1)
    lines = LineNumbers(text.replace("\\u00e9", "é"), is_json=True)
    assert lines.find_line(("servers", "a", "command")) == (4, True)
    assert lines.find_line(("servers", "a", "args", 0)) == (6, True)
    assert LineNumbers('{"a":\n {"args": ["y"]}}', is_json=True).find_line(("a", "args", 0)) == (2, True)
    assert lines.find_line(("servers", "é", "command")) == (10, True)
    assert lines.find_line(("servers", "é", "no_such")) == (9, False)
    assert lines.find_line(("servers", "a", "args", 1)) == (5, False)
    assert lines.find_line(("no_such",)) == (0, False)
    assert lines.find_line(()) == (1, True)


def test_a_key_is_looked_for_in_its_own_object_alone():
    text = """{"servers": {
 "x": {"command": "a: {",
  "env": {
   "a": "1"}},
 "a": {
  "args": []},
 "b": {"x": 1}}}"""
    lines = LineNumbers(text, is_json=True)
    assert json.loads(text)
    assert lines.find_line(("servers", "a")) == (5, True)
    assert lines.find_line(("servers", "a", "x")) == (5, False)
    assert lines.find_line(("servers", "x", "env", "a")) == (4, True)


def test_of_a_key_that_is_there_twice_the_line_is_that_of_the_object_around_it():
    lines = LineNumbers('{"a": {\n"b": 1,\n"b": {\n"c": 2}}}', is_json=True)
    assert [lines.find_line(path) for path in (("a", "b"), ("a", "b", "c"))] == [(1, False)] * 2


def test_a_key_in_a_string_or_in_another_table_is_none():
    text = '''text = """
[limits]
max_turns = "x" \\""" # "
"""
lists = [["limits"],
["limits"]
]
inline = { a = { no = 1 }, b = "}" }  # limits = 1
limits.max_turns = 1
[mcp.servers."a.b"]
command = 3
'''
    assert tomllib.loads(text)
    lines = LineNumbers(text)
    assert lines.find_line(("limits", "max_turns")) == (9, True)
    assert lines.find_line(("inline", "a", "b")) == (8, False)
    assert lines.find_line(("inline", "b")) == (8, True)
    assert lines.find_line("mcp.servers['a.b'].command") == lines.find_line('mcp.servers["a.b"].command') == (11, True)


def test_a_fault_names_the_keys_of_a_value_whose_line_is_unknown():
    build_fault = LineNumbers(DOCUMENT).build_fault
    assert build_fault(("limits", "max_turns"), "give more") == ConfigFault(9, "give more")
    assert build_fault(("limits", "no_such"), "give more") == ConfigFault(8, "limits.no_such: give more")
    assert build_fault("limits.no_such", "limits.no_such: expected") == ConfigFault(8, "limits.no_such: expected")
    assert build_fault(("no_such", 1), "give more") == ConfigFault(0, "no_such[1]: give more")
    assert build_fault(("\x1b[31m",), "unexpected '\\x1b[31m'") == ConfigFault(0, "unexpected '\\x1b[31m'")
    assert len(build_fault(("x" * 9_000,), "give more").message) < 300


KEYS = st.sampled_from(["a", "b1", "x-y", '"q.k"', "'l k'"])
VALUES = st.sampled_from(["1", "true", '"#"', "'['", "[\n 1,\n 2, # ]\n]", "{ p = 1, q = [2] }", "1.0e3", "[[],[{}]]"])


@given(
    st.lists(st.tuples(st.sampled_from(["", "\n", "# c\n"]), KEYS, VALUES), unique_by=lambda each: each[1], max_size=6)
)
def test_each_key_of_a_written_document_has_the_line_it_was_written_on(statements):
    text, expected = "", []
    for before, key, value in statements:
        text += before
        expected.append(text.count("\n") + 1)
        text += f"{key} = {value}\n"
    assert [LineNumbers(text).find_line((key,)).line for key in tomllib.loads(text)] == expected


TREES = st.recursive(
    st.integers(0, 9) | st.sampled_from(["", "{", '"a": [', "\\"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", 'a"b', "{", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)


def list_paths(value, path=()):
    """The paths of all values in the order in which they are written, each on a line of its own."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from list_paths(each, (*path, key))


@given(TREES)
def test_each_value_of_a_written_object_has_the_line_it_was_written_on(tree):
    text = json.dumps(tree, indent=1)
    lines = LineNumbers(text, is_json=True)
    written = [number for number, line in enumerate(text.split("\n"), 1) if line.strip(" ]},")]
    assert [lines.find_line(path) for path in list_paths(tree)] == [(line, True) for line in written[1:]]


SIGNS = st.lists(st.sampled_from([*"[]{}=:,.\n#'\"a0\\ ", '"a"', '""' + '"']), max_size=40).map("".join)


@given(st.text(max_size=60) | SIGNS, st.lists(st.text(max_size=5) | st.integers(0, 3), max_size=4), st.booleans())
def test_no_text_and_no_path_cause_an_error(text, path, is_json):
    found = LineNumbers(text, is_json=is_json).find_line(tuple(path))
    assert 0 <= found.line <= text.count("\n") + 1
