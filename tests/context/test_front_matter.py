"""Front matter: the fields at the top of a file, and what is refused before it can cost anything."""

import pickle
from importlib import import_module

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure._context.front_matter import MAX_DEPTH, MAX_FRONT_MATTER_BYTES, MAX_VALUES, BadFrontMatter
from perdure.context import parse_front_matter


def fields_of(head):
    return parse_front_matter(f"---\n{head}\n---\n").fields


def refusal_of(text):
    with pytest.raises(BadFrontMatter) as caught:
        parse_front_matter(text)
    return caught.value


def test_a_file_has_fields_and_a_body():
    found = parse_front_matter("---\nname: rope\ntags: [a, b]\n---\n\n# Rope\n---\nmore\n")
    assert found.fields == {"name": "rope", "tags": ["a", "b"]}
    assert found.body == "\n# Rope\n---\nmore\n"
    assert found.lines == {"name": 2, "tags": 3}


@pytest.mark.parametrize("text", ["", "# Rope\n", "----\nname: x\n----\n", " ---\nname: x\n---\n", "--- x\n"])
def test_a_file_that_does_not_begin_with_front_matter_is_all_body(text):
    found = parse_front_matter(text)
    assert (found.fields, found.body, found.lines) == ({}, text, {})


@pytest.mark.parametrize("text", ["---\n---\nbody", "---\n# a comment\n---\nbody", "---\n\n---\nbody"])
def test_front_matter_may_say_nothing(text):
    found = parse_front_matter(text)
    assert (found.fields, found.body) == ({}, "body")


@pytest.mark.parametrize(
    "value", ["no", "yes", "1.10", "2024-01-01", "0x1F", "1e3", "null", "~", "12:30:45", ".inf", "9" * 60_000]
)
def test_every_value_stays_the_text_that_was_written(value):
    assert fields_of(f"version: {value}") == {"version": value}


def test_a_value_that_is_missing_is_an_empty_text():
    assert fields_of("license:\nname: x") == {"license": "", "name": "x"}


def test_maps_and_lists_hold_texts():
    head = "metadata:\n  version: 1.0\n  tags:\n    - no\n    - [on, {deep: off}]\ntext: |\n  one\n  two"
    assert fields_of(head) == {
        "metadata": {"version": "1.0", "tags": ["no", ["on", {"deep": "off"}]]},
        "text": "one\ntwo\n",
    }


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_make_no_difference(ending, mark):
    found = parse_front_matter(mark + ending.join(["---", "name: rope", "---  ", "one", "two", ""]))
    assert (found.fields, found.body, found.lines) == ({"name": "rope"}, "one\ntwo\n", {"name": 2})


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("description: Use when: it rains", "Use when: it rains"),
        ("description: It's for this: that", "It's for this: that"),
        ("description: Ends with a colon:", "Ends with a colon:"),
        ("description: Begins: here\n  and goes on", "Begins: here and goes on"),
        ("description: @mentions", "@mentions"),
        ("description: `code` and more", "`code` and more"),
    ],
)
def test_a_value_that_only_needed_quotes_is_read_as_if_it_had_them(line, value):
    found = parse_front_matter(f"---\nname: rope # short\n{line}\nversion: 1.10\n---\n")
    assert found.fields == {"name": "rope", "description": value, "version": "1.10"}
    assert found.lines["version"] == 4 + line.count("\n")


def test_when_quotes_do_not_help_the_file_is_judged_as_it_is():
    error = refusal_of("---\ndescription: Use when: it rains\nother: [\n---\n")
    assert error.line == 2
    assert "mapping values are not allowed here" in str(error)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("---\nname: x\n", 1, "not closed"),
        ("---", 1, "not closed"),
        ("---\nname: x\n ---\n", 1, "not closed"),
        ("---\nname: x\nnote: a\0b\n---\n", 3, "NUL"),
        ("---\nname: x\n---\nbody\0", 4, "NUL"),
        ("---\nname: x\nname: y\n---\n", 3, "'name' is there twice"),
        ("---\nm:\n  a: 1\n  a: 2\n---\n", 4, "'a' is there twice"),
        ("---\na: &x 1\n---\n", 2, "anchors and aliases"),
        ("---\na: 1\nb: *a\n---\n", 3, "anchors and aliases"),
        ("---\n&x {a: b}\n---\n", 2, "anchors and tags"),
        ("---\n&x a: b\n---\n", 2, "anchors and aliases"),
        ("---\n*a : b\n---\n", 2, "anchors and aliases"),
        ("---\na: !!python/object/apply:os.system [ls]\n---\n", 2, "python/object"),
        ("---\na: !!str 1\n---\n", 2, "every value is text"),
        ("---\na: ! 1\n---\n", 2, "every value is text"),
        ("---\n!!map {a: b}\n---\n", 2, "anchors and tags"),
        ("---\na: b\n<<: {c: d}\n---\n", 3, "not merged"),
        ("---\n- a\n- b\n---\n", 2, "not a list of fields"),
        ("---\njust words\n---\n", 2, "not a list of fields"),
        ("---\n? [a, b]\n: c\n---\n", 2, "cannot be the name of a field"),
        ("---\na: b\n...\n{c: d}\n---\n", 4, "not YAML"),
        ("---\na: b\n\tc: d\n---\n", 3, "not YAML"),
        ("---\na: b\n  c: d\n---\n", 3, "not YAML"),
        ("---\na: 'b\n---\n", 3, "not YAML"),
        ('---\na: "\\UFFFFFFFF"\n---\n', 2, "not YAML"),
        (f"---\n%YAML {'9' * 5000}.1\n---\n", 2, "not YAML"),
        ("---\na: b\nc: \x1b[31m\n---\n", 3, r"'\x1b'"),
        ("---\na: \ud800\n---\n", 2, r"'\ud800'"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(text, line, reason):
    error = refusal_of(text)
    assert reason in str(error)
    assert error.line == line
    assert str(error).startswith(f"line {line}: ")


def test_a_second_document_is_refused():
    assert "second document" in str(refusal_of("---\na: b\n--- {c: d}\n---\n"))


def test_an_error_can_be_sent_to_another_process():
    error = pickle.loads(pickle.dumps(BadFrontMatter("it is wrong", 7)))
    assert (str(error), error.problem, error.line) == ("line 7: it is wrong", "it is wrong", 7)


def events_read(monkeypatch):
    """Counts how much of the work of YAML is done at all."""
    yaml = import_module("yaml")
    count = [0]
    parse = yaml.parse

    def counted(*args, **kwargs):
        for event in parse(*args, **kwargs):
            count[0] += 1
            yield event

    monkeypatch.setattr(yaml, "parse", counted)
    return count


BOMB = "a: &a [x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
)


@pytest.mark.parametrize(
    ("head", "most"),
    [
        (BOMB, 8),
        ("a: " + "[" * 20_000, MAX_DEPTH + 8),
        ("{a: " * 15_000, 3 * MAX_DEPTH + 8),
        ("".join(f"{' ' * i}a:\n" for i in range(300)), 3 * MAX_DEPTH + 8),
        ("- " * 30_000, 8),
        ("a: [" + "x," * 30_000 + "]", MAX_VALUES + 8),
        ("".join(f"k{i}: v\n" for i in range(7000)), MAX_VALUES + 8),
        ("base: &b {k: v}\n" + "".join(f"m{i}: {{<<: [*b, *b, *b]}}\n" for i in range(1000)), 8),
    ],
    ids=["bomb", "brackets", "braces", "indents", "dashes", "long list", "many fields", "merge keys"],
)
def test_a_file_that_is_made_to_cost_much_is_left_after_its_first_steps(head, most, monkeypatch):
    count = events_read(monkeypatch)
    refusal_of(f"---\n{head}\n---\n")
    assert count[0] <= most


def test_what_is_too_long_is_not_even_parsed(monkeypatch):
    count = events_read(monkeypatch)
    assert "longer than 64 KiB" in str(refusal_of(f"---\na: {'x' * MAX_FRONT_MATTER_BYTES}\n---\n"))
    assert "longer than 64 KiB" in str(refusal_of(f"---\na: {'é' * (MAX_FRONT_MATTER_BYTES // 2)}\n---\n"))
    assert "not closed" in str(refusal_of("---\n" + "a: b\n" * 1_000_000))
    assert count[0] == 0


@pytest.mark.parametrize("letter", ["x", "é"])
def test_front_matter_may_be_as_long_as_its_limit(letter: str) -> None:
    size = MAX_FRONT_MATTER_BYTES - len("a: \n")
    value = letter * (size // len(letter.encode()))
    head = f"a: {value}\n"
    assert len(head.encode()) in {MAX_FRONT_MATTER_BYTES, MAX_FRONT_MATTER_BYTES - 1}
    assert parse_front_matter(f"---\n{head}---\n").fields == {"a": value}
    assert "longer than 64 KiB" in str(refusal_of(f"---\na: x{letter}{value}\n---\n"))


def test_there_may_be_as_many_values_and_levels_as_their_limits():
    assert fields_of(f"a: [{'x,' * (MAX_VALUES - 2)}]") == {"a": ["x"] * (MAX_VALUES - 2)}
    error = refusal_of(f"---\na: [{'x,' * (MAX_VALUES - 1)}]\n---\n")
    assert str(error) == "line 2: there are more than 2000 values: move text below the closing '---'"
    deepest = MAX_DEPTH - 1
    assert fields_of(f"a: {'[' * deepest}x{']' * deepest}")
    error = refusal_of(f"---\na: {'[' * MAX_DEPTH}x{']' * MAX_DEPTH}\n---\n")
    assert str(error) == "line 2: maps and lists are nested deeper than 8 levels: make it flatter"


@given(st.text())
@example("a: {")
@example("%TAG")
@example('a: "\\x"')
def test_any_text_is_either_read_or_refused(head):
    for text in (head, f"---\n{head}", f"---\n{head}\n---\n{head}"):
        try:
            found = parse_front_matter(text)
        except BadFrontMatter:
            continue
        assert set(found.lines) == set(found.fields)
        assert only_texts(found.fields)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#?,<. \n\t~1\\"))
def test_any_text_that_looks_like_yaml_is_either_read_or_refused(head):
    try:
        found = parse_front_matter(f"---\n{head}\n---\n")
    except BadFrontMatter:
        return
    assert only_texts(found.fields)


def only_texts(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) and only_texts(each) for key, each in value.items())
    return all(map(only_texts, value)) if isinstance(value, list) else isinstance(value, str)
