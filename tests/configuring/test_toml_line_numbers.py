"""Which line of a TOML text each key stands on, held against what the parser of Python reads."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.configuring.line_numbers import MAX_DEPTH, ScanError
from perdure.configuring.toml_line_numbers import find_toml_line_numbers

DOCUMENT = '''\
# a comment
title = "one"
"quoted key" = 1
'literal.key' = 2
"esc\\u0061ped" = 3
dotted.inner . "x" = true

[table] # another
multi = """
first = "not a key"
""quotes"" and \\""" escaped""""
literal = \'\'\'
[not.a.table]
\'\'\'
array = [
  1, # with a comment ]
  [2, 3],
  "a]b", { inline = 1, deep.er = [4] },
]
when = 1979-05-27 07:32:00
after = 1

[table.sub]
key = 'value'

[[fruit]]
name = "apple"
[fruit.colour]
red = 1
[[fruit.kind]]
id = 1
[[fruit.kind]]
id = 2

[[fruit]]
name = "pear"
[[fruit.kind]]
id = 3
'''

LINES = {
    ("title",): 2,
    ("quoted key",): 3,
    ("literal.key",): 4,
    ("escaped",): 5,
    ("dotted",): 6,
    ("dotted", "inner", "x"): 6,
    ("table",): 8,
    ("table", "multi"): 9,
    ("table", "literal"): 12,
    ("table", "array"): 15,
    ("table", "array", 0): 16,
    ("table", "array", 1): 17,
    ("table", "array", 1, 1): 17,
    ("table", "array", 2): 18,
    ("table", "array", 3, "inline"): 18,
    ("table", "array", 3, "deep", "er", 0): 18,
    ("table", "when"): 20,
    ("table", "after"): 21,
    ("table", "sub", "key"): 24,
    ("fruit",): 26,
    ("fruit", 0): 26,
    ("fruit", 0, "name"): 27,
    ("fruit", 0, "colour", "red"): 29,
    ("fruit", 0, "kind", 0, "id"): 31,
    ("fruit", 0, "kind", 1): 32,
    ("fruit", 1): 35,
    ("fruit", 1, "name"): 36,
    ("fruit", 1, "kind", 0, "id"): 38,
}


def paths_in(value, path=()):
    """The path of every value that the parser found."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield (*path, key)
            yield from paths_in(each, (*path, key))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield (*path, place)
            yield from paths_in(each, (*path, place))


def test_each_value_has_the_line_on_which_it_stands():
    lines = find_toml_line_numbers(DOCUMENT)
    assert {path: lines.line_of(path) for path in LINES} == LINES


def test_the_scanner_finds_the_values_that_the_parser_finds():
    lines = find_toml_line_numbers(DOCUMENT)
    assert [path for path in paths_in(tomllib.loads(DOCUMENT)) if path not in lines] == []


def test_what_has_no_line_has_that_of_what_is_around_it():
    lines = find_toml_line_numbers("a = 1\n[b]\nc = 2\n")
    assert lines.line_of(("b", "missing")) == 2
    assert lines.line_of("b.c") == 3
    assert lines.line_of(("missing",)) == 1
    assert lines.line_of("no such path") == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb", 2),
        ("a = 1\nb =", 2),
        ("a = 1 b = 2", 1),
        ("[a", 1),
        ("\n[[a]", 2),
        ('\n\na = "x', 3),
        ('a = """\nx', 1),
        ("a = '''\nx", 1),
        ("a = [1\n2]", 2),
        ("a = [1,\n", 2),
        ("a = { b = 1\n c = 2 }", 2),
        ("= 1", 1),
        ("a. = 1", 1),
        ('"\\q" = 1', 1),
        ("a = 1\n]", 2),
        ("[]", 1),
    ],
)
def test_what_is_no_toml_is_noticed_where_it_is(text, line):
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    with pytest.raises(ScanError) as caught:
        find_toml_line_numbers(text)
    assert caught.value.line == line
    assert caught.value.message == ""


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a=" * 100_000,
        "a." * 200_000 + "b = 1",
        "[" + "a." * 200_000 + "b]",
        "[" + ".".join("a" * MAX_DEPTH) + "]\nb = 1",
        "".join("[[" + ".".join("a" * depth) + "]]\n" for depth in range(1, MAX_DEPTH + 1)),
    ],
)
def test_what_is_too_deep_is_refused_before_it_is_parsed(text):
    with pytest.raises(ScanError, match="nested deeper"):
        find_toml_line_numbers(text)


# -- against the parser ------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *("a", "b", "c", "1", "-", "_", ".", "=", " ", "\t", "\n", "#", ",", "[", "]", "[[", "]]", "{", "}"),
        *('"', "'", '"""', "'''", "\\", '\\"', "true", "1.5", "inf", "1979-05-27", "a = 1\n", "[a]\n", "[[b]]\n", "é"),
        *('a = "x"\n', "b.c = [1, 2]\n", "c = { a = 1 }\n", '"k" = 1\n', "x = [\n1,\n# ]\n]\n", 'm = """\n"""\n'),
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_whatever_the_parser_reads_the_scanner_has_lines_for(text):
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        try:
            find_toml_line_numbers(text)  # it may pass what the parser refuses
        except ScanError:
            return
        return
    lines = find_toml_line_numbers(text)
    assert [path for path in paths_in(values) if path not in lines] == []


KEYS = st.sampled_from(["a", "b1", "x-y", '"q.k"', "'l k'", '"\\u00e9"'])
VALUES = st.sampled_from(
    [
        "1",
        "true",
        '"#"',
        "'['",
        "[\n 1,\n 2, # ]\n]",
        '"""\nx = 1\n"""',
        "{ p = 1, q = [2] }",
        "'''\n'''",
        "1.0e3",
        "[[],[{}]]",
    ]
)


@given(
    st.lists(st.tuples(st.sampled_from(["", "\n", "# c\n"]), KEYS, VALUES), unique_by=lambda each: each[1], max_size=6)
)
def test_each_key_of_a_written_document_has_the_line_it_was_written_on(statements):
    text, expected = "", []
    for before, key, value in statements:
        text += before
        expected.append(text.count("\n") + 1)
        text += f"{key} = {value}\n"
    lines = find_toml_line_numbers(text)
    assert [lines.line_of((key,)) for key in tomllib.loads(text)] == expected
