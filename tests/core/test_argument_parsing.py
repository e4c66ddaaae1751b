"""What a model wrote as arguments is read as one JSON object, or refused in words that help it."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Invalid
from perdure._core.schema.parsing import (
    MAX_DEPTH,
    MAX_LENGTH,
    arguments_hash,
    encode_canonical_arguments,
    parse_arguments,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(st.text(), json_values, max_size=5)


def refusal(raw: str) -> str:
    with pytest.raises(Invalid) as caught:
        parse_arguments(raw)
    (problem,) = caught.value.problems
    assert problem.path == ""
    assert str(caught.value) == problem.message
    return problem.message


@given(objects, st.sampled_from([None, 1]), st.booleans())
def test_an_object_is_read_whatever_is_in_it(value, indent, ensure_ascii):
    assert parse_arguments(json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)) == value


@pytest.mark.parametrize("raw", ["", " ", "\n\t ", "{}", " { } "])
def test_no_text_means_no_arguments(raw):
    assert parse_arguments(raw) == {}


@pytest.mark.parametrize(
    ("raw", "kind"),
    [("[1]", "an array"), ('"a"', "a string"), ("null", "null"), ("true", "a boolean"), ("1.5", "a number")],
)
def test_anything_but_an_object_is_refused(raw, kind):
    assert refusal(raw) == f'the arguments must be one JSON object such as {{"name": "value"}}, got {kind}'


@pytest.mark.parametrize(
    "raw",
    [
        '{"cmd":"ls","cmd":"rm"}',
        '{"a":{"cmd":"ls","cmd":"rm"}}',
        '{"a":[{"b":1},{"cmd":1,"cmd":1}]}',
        '{"url":"https://example.com","cmd":1,"cmd":1}',
        '{"cmd":1,"\\u0063md":2}',
        '{"a":"x:y","cmd" : 1,"cmd"\n:2}',
    ],
)
def test_a_key_that_is_there_twice_is_refused(raw):
    assert refusal(raw) == "the key 'cmd' appears twice; give each key once"


@given(objects, st.data())
def test_a_key_that_is_there_twice_is_found_anywhere(value, data):
    """In the text of an object, one of its objects is given some key once more."""
    key = data.draw(st.text(max_size=3))
    twice = f"{{{json.dumps(key)}:1,{json.dumps(key)}:2}}"
    raw = json.dumps({**value, "place": "PLACE"}).replace('"PLACE"', twice, 1)
    assert "twice" in refusal(raw)


@pytest.mark.parametrize("text", ["a:b", "https://example.com:80/x", '{"a":1,"a":2}', "::::"])
def test_colons_in_a_text_are_no_keys(text):
    assert parse_arguments(json.dumps({"a": text, "b": [{"c": 1.5e300}]})) == {"a": text, "b": [{"c": 1.5e300}]}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            '{"a":1',
            "end too early: incomplete JSON at character 6, near '{\"a\":1'; send the whole object again",
        ),
        ('{"a":"\\ud83d', "the arguments end too early"),
        ('{"a":1}x', "not valid JSON: trailing characters at character 8, near '{\"a\":1}x'"),
        ('{"é":"ø","b":}', 'not valid JSON: invalid character at character 13, near \'{"é":"ø","b":}\''),
        ('{"a":NaN}', "not valid JSON: invalid character at character 5"),
        ('{"a":-Infinity}', "not valid JSON: invalid character at character 6"),
        ('{"a":1e999}', "not valid JSON: number out of range"),
        (f'{{"a":{"9" * 10_000}}}', "not valid JSON: integer value out of range"),
        ('{"a":"\\ud800"}', 'not valid JSON: a lone surrogate at character 6, near \'{"a":"\\\\ud800"}\''),
        ('{"a":"x\\udc00"}', "not valid JSON: a lone surrogate at character 7"),
        ('{"a":"\ud800"}', "not valid text: a lone surrogate at character 6"),
        ("{'a': 1}", "not valid JSON: object keys must be strings at character 1"),
        ('{"a":1,}', "not valid JSON: trailing comma in object at character 7"),
        ('{"a":"\x00"}', "not valid JSON: invalid character"),
    ],
)
def test_what_is_not_json_is_refused_with_the_place(raw, message):
    assert message in refusal(raw)


def test_an_excerpt_shows_what_is_around_the_place():
    raw = '{"text": "' + "x" * 1000 + '", "next" 1, "more": "' + "y" * 1000 + '"}'
    assert "near" in refusal(raw)
    assert '"next" 1' in refusal(raw)
    assert len(refusal(raw)) < 250
    assert refusal(raw).endswith("""at character 1020, near 'xxxxxxxxxx", "next" 1, "more": "yyyyyyyy'""")


@pytest.mark.parametrize("text", ["\x00", "\U0001f600", "\u202e", "\u200b", "\\ud800"])
def test_strange_but_valid_characters_are_kept(text):
    assert parse_arguments(json.dumps({"a": text})) == {"a": text}


@pytest.mark.parametrize("name", ["__proto__", "__class__", "", " "])
def test_keys_have_no_meaning_here(name):
    assert parse_arguments(json.dumps({name: 1})) == {name: 1}


def test_integers_are_exact():
    assert parse_arguments('{"a":123456789012345678901234567890}') == {"a": 123456789012345678901234567890}


@pytest.mark.parametrize(("opened", "closed", "each"), [("[", "]", 1), ('{"a":', "}", 1), ('[{"a":', "}]", 2)])
def test_deep_nesting_is_refused(opened, closed, each):
    most = (MAX_DEPTH - 1) // each
    parse_arguments('{"a":' + opened * most + "1" + closed * most + "}")
    for levels in (MAX_DEPTH, 900, 100_000):
        raw = '{"a":' + opened * levels + "1" + closed * levels + "}"
        assert refusal(raw) == f"the arguments are nested more than {MAX_DEPTH} levels deep"
    assert "nested" in refusal('{"a":' + opened * 100_000)


def test_arguments_that_are_too_long_are_refused_unread():
    longest = MAX_LENGTH - len('{"a":""}')
    assert parse_arguments(f'{{"a":"{"x" * longest}"}}') == {"a": "x" * longest}
    message = refusal(f'{{"a":"{"x" * (longest + 1)}"}}')
    assert message == "the arguments have 8388609 characters, and at most 8388608 (8 MiB) are allowed"


@given(st.text() | objects.map(json.dumps).flatmap(lambda raw: st.integers(0, len(raw)).map(lambda end: raw[:end])))
def test_any_text_is_read_or_refused(raw):
    try:
        assert type(parse_arguments(raw)) is dict
    except Invalid as invalid:
        str(invalid).encode()


@given(objects)
def test_the_hash_does_not_depend_on_the_order_of_keys(value):
    turned = dict(reversed(value.items()))
    digest = arguments_hash(value)
    assert digest == arguments_hash(turned)
    assert len(digest) == 32
    assert int(digest, 16) >= 0


@given(objects, objects)
def test_different_arguments_have_different_hashes(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (arguments_hash(one) == arguments_hash(other)) is same


def test_the_hash_stays_what_it_is():
    """Decisions are stored with it, and must still hold for the same arguments years later."""
    assert arguments_hash({}) == "2afb9b83f9314e5d029766197f539792"
    assert arguments_hash({"b": [1, 2.5, None, True], "a": {"z": "ø"}}) == "33bd3eb04d0aa7a1e6bfad9eb152b0b9"
    assert arguments_hash({"n": 2**70}) == "5c0b2226fa857b568d7873a9a7111215"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": math.nan}, {"a": None}),
        ({"a": math.nan}, {"a": "NaN"}),
        ({"a": math.inf}, {"a": None}),
        ({"a": 2**70}, {"a": str(2**70)}),
        ({"a": "\ud800"}, {"a": "\ud801"}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": []}, {"a": {}}),
    ],
)
def test_arguments_that_look_alike_have_different_hashes(one, other):
    assert arguments_hash(one) != arguments_hash(other)


def test_whatever_a_hook_puts_into_arguments_has_a_hash():
    cycle: dict = {}
    cycle["self"] = cycle
    for value in (cycle, {"a": object}, {"a": {1: 2, "b": 3}, "n": None}, {"a": msgspec.UNSET}):
        assert arguments_hash(value) == arguments_hash(value)


# -- frozen ------------------------------------------------------------------------------------------------------------


class Odd:
    """Something that JSON cannot express."""

    def __repr__(self) -> str:
        return "<odd>"


@pytest.mark.parametrize(
    ("arguments", "thawed"),
    [
        ({}, {}),
        ({"b": 1, "a": [1.0, "é", {}]}, {"b": 1, "a": [1.0, "é", {}]}),
        ({"a": None}, {"a": None}),
        ({"a": 2**80, "b": "\ud800"}, {"a": 2**80, "b": "\ud800"}),
        ({"a": float("inf")}, {"a": float("inf")}),
        ({"a": "null"}, {"a": "null"}),
    ],
)
def test_frozen_arguments_are_the_same_when_they_are_thawed(arguments, thawed):
    frozen = encode_canonical_arguments(arguments)
    first, second = frozen.thaw(), frozen.thaw()
    assert first == second == thawed
    assert first is not second
    assert [*first] == [*arguments]
    assert arguments_hash(first) == arguments_hash(arguments)


def test_what_json_cannot_express_becomes_text():
    thawed = encode_canonical_arguments({"a": {1: Odd()}}).thaw()
    assert "<odd>" in thawed["a"]["1"]
