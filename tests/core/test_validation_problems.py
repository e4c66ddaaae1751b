"""What is wrong is told briefly, with its place, and with what would be right."""

import copy
import pickle

import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Invalid, Problem
from perdure._core.schema.problems import (
    MAX_PROBLEMS,
    format_path,
    format_value,
    missing_key_problem,
    prefix_problem_paths,
    problem_from_msgspec_error,
    problems_from_pydantic_error,
    problems_from_schema_error,
    unexpected_key_problems,
)


def told(schema, value) -> list[str]:
    """What is wrong with a value, by a JSON Schema."""
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    problems = [
        problem for error in validator.iter_errors(value) for problem in problems_from_schema_error(error, schema)
    ]
    assert all(type(problem) is Problem for problem in problems)
    return [str(problem) for problem in problems]


def test_an_invalid_value_tells_all_of_its_problems():
    invalid = Invalid([Problem("a.b", "too long"), Problem("", "wrong")])
    assert str(invalid) == "a.b: too long; wrong"
    assert invalid.problems == (Problem("a.b", "too long"), Problem("", "wrong"))


def test_the_text_of_very_many_long_problems_is_short():
    invalid = Invalid(Problem(f"p{i}", "x" * 1000 + "\ud800") for i in range(27))
    assert len(invalid.problems) == 27
    assert str(invalid).endswith("…; and 7 more")
    assert len(str(invalid)) < 21 * 302
    str(invalid).encode()


def test_an_invalid_value_can_be_copied_and_pickled():
    invalid = Invalid([Problem("a", "b")])
    assert copy.copy(invalid).problems == pickle.loads(pickle.dumps(invalid)).problems == invalid.problems


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], ""),
        (["items", 2, "city"], "items[2].city"),
        ([0, 1], "[0][1]"),
        (["a-b", "$x"], "a-b.$x"),
        (["a.b", "c d", ""], "['a.b']['c d']['']"),
    ],
)
def test_a_path_reads_like_code(steps, text):
    assert format_path(steps) == text


def test_problems_of_a_part_are_problems_of_the_whole():
    problems = prefix_problem_paths("items", [Problem("", "a"), Problem("[2].city", "b"), Problem("city", "c")])
    assert list(map(str, problems)) == ["items: a", "items[2].city: b", "items.city: c"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (False, "false"), (0, "0"), (1.5, "1.5"), ("a", "'a'"), ([1], "[1]")],
)
def test_values_are_shown_the_way_json_has_them(value, text):
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("citty", ["city", "days"], "unexpected 'citty'; did you mean 'city'?"),
        ("Max-Results", ["max_results"], "unexpected 'Max-Results'; did you mean 'max_results'?"),
        ("fil", ["file", "fill"], "unexpected 'fil'; did you mean 'fill' or 'file'?"),
        ("zzz", ["city", "days"], "unexpected 'zzz'; known: city, days"),
        ("zzz", [], "unexpected 'zzz'"),
        ("z" * 100_000, ["city"], f"unexpected '{'z' * 78}…; known: city"),
    ],
)
def test_an_unexpected_name_brings_a_suggestion(name, known, text):
    assert unexpected_key_problems("", [name], known) == [Problem("", text)]


def test_very_many_unexpected_names_are_not_all_compared():
    problems = unexpected_key_problems("", [f"citty{i}" for i in range(100_000)], ["city"])
    assert problems[0].message == "unexpected 'citty0'; did you mean 'city'?"
    assert problems[-1].message == "unexpected 'citty99999'"


def test_a_missing_name_says_so():
    assert str(missing_key_problem("city")) == "city: missing; it is required"


@pytest.mark.parametrize(
    ("schema", "value", "problems"),
    [
        ({"type": "integer"}, "five", ["expected an integer, got 'five'"]),
        ({"type": ["string", "null"]}, 4, ["expected null or a string, got 4"]),
        ({"enum": ["a", None, True]}, "c", ["expected one of 'a', null, true, got 'c'"]),
        ({"enum": list(range(20))}, 99, [f"expected one of {', '.join(map(str, range(20)))}, got 99"]),
        ({"enum": list(range(21))}, 99, [f"expected one of {', '.join(map(str, range(20)))} and 1 other, got 99"]),
        ({"enum": list(range(22))}, 99, [f"expected one of {', '.join(map(str, range(20)))} and 2 others, got 99"]),
        ({"enum": list(range(30))}, 99, [f"expected one of {', '.join(map(str, range(20)))} and 10 others, got 99"]),
        ({"const": None}, 1, ["expected null, got 1"]),
        ({"minimum": 1, "maximum": 0}, 0.5, ["must be at least 1, got 0.5", "must be at most 0, got 0.5"]),
        ({"exclusiveMinimum": 1}, 1, ["must be more than 1, got 1"]),
        ({"exclusiveMaximum": 1}, 1, ["must be less than 1, got 1"]),
        ({"minLength": 2}, "a", ["must have at least 2 characters, got 'a'"]),
        ({"maxLength": 2}, "abc", ["must have at most 2 characters, got 'abc'"]),
        ({"minItems": 2}, [1], ["must have at least 2 items, got [1]"]),
        ({"maxItems": 0}, [1], ["must have at most 0 items, got [1]"]),
        ({"uniqueItems": True}, [1, 1], ["must not contain the same item twice: [1, 1]"]),
        ({"pattern": "^x"}, "y", ["must match '^x', got 'y'"]),
        ({"pattern": "^(a|a)*\\1b$"}, "a" * 40, [f"its pattern is too costly to match against '{'a' * 40}'"]),
        ({"format": "date-time"}, "x", ["expected a valid date-time, got 'x'"]),
        ({"multipleOf": 2}, 3, ["3 is not a multiple of 2"]),
        ({"required": ["a", "b"]}, {}, ["a: missing; it is required", "b: missing; it is required"]),
        (
            {"properties": {"city": {}}, "additionalProperties": False},
            {"citty": 1, "x": 2},
            ["unexpected 'citty'; did you mean 'city'?", "unexpected 'x'; known: city"],
        ),
        (
            {"items": {"$ref": "#/$defs/D"}, "$defs": {"D": {"properties": {"q": {}}, "additionalProperties": False}}},
            [{}, {"qq": 1}],
            ["[1]: unexpected 'qq'; did you mean 'q'?"],
        ),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"a": 1}, ["unexpected 'a'"]),
        ({"additionalProperties": False}, {"a": 1}, ["nothing is allowed here, got 1"]),
        ({"prefixItems": [{}], "items": False}, [1, 2], ["[1]: nothing is allowed here, got 2"]),
        (
            {"properties": {"items": {"items": {"required": ["city"]}}}},
            {"items": [{"city": 1}, {}]},
            ["items[1].city: missing; it is required"],
        ),
    ],
)
def test_what_a_schema_finds_is_told_in_words(schema, value, problems):
    assert told(schema, value) == problems


PLACE = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["lives"]}
DOG = {"type": "object", "properties": {"kind": {"enum": ["dog"]}, "tricks": {"type": "array"}}, "required": ["tricks"]}
NO_CAT = "kind: expected 'cat', got 'cow'"
NO_DOG = "kind: expected one of 'dog', got 'cow'"


@pytest.mark.parametrize(
    ("schema", "value", "problems"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", ["expected an integer or null, got 'x'"]),
        ({"anyOf": [{"type": "integer"}, {"type": "integer"}]}, "x", ["expected an integer, got 'x'"]),
        ({"anyOf": [PLACE, {"type": "null"}]}, {"x": "a"}, ["x: expected an integer, got 'a'"]),
        ({"anyOf": [PLACE, {"type": "null"}]}, 5, ["expected an object or null, got 5"]),
        ({"oneOf": [CAT, DOG]}, {"kind": "dog"}, ["tricks: missing; it is required"]),
        ({"anyOf": [CAT, DOG]}, {"kind": "cat", "lives": "nine"}, ["lives: expected an integer, got 'nine'"]),
        (
            {"anyOf": [CAT, DOG]},
            {},
            ["fits none of the allowed forms (lives: missing; it is required; or tricks: missing; it is required)"],
        ),
        (
            {"anyOf": [CAT, DOG]},
            {"kind": "cow", "lives": 1, "tricks": []},
            [f"fits none of the allowed forms ({NO_CAT}; or {NO_DOG})"],
        ),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, ["fits more than one of the allowed forms: 3"]),
    ],
)
def test_of_several_forms_the_one_that_was_meant_is_talked_about(schema, value, problems):
    assert told(schema, value) == problems


class Place(msgspec.Struct):
    x: int

    def __post_init__(self):
        if self.x < 0:
            message = "X must be positive - at least"
            raise ValueError(message)
        if self.x > 100:
            raise KeyError(self.x)


@pytest.mark.parametrize(
    ("type_", "value", "problem"),
    [
        (int, "a", "expected an integer, got a string"),
        (dict[str, list[Place]], {"a": [{"x": None}]}, "[...][0].x: expected an integer, got null"),
        (Place, {"x": "a"}, "x: expected an integer, got a string"),
        (Place, {}, "object missing required field `x`"),
        (dict[int, int], {"a": 1}, "expected an integer, got a string"),
        (Place, {"x": -1}, "X must be positive - at least"),
        (list[Place], [{"x": -1}], "[0]: X must be positive - at least"),
        (Place, {"x": 101}, "cannot be read: KeyError(101)"),
    ],
)
def test_what_msgspec_finds_is_told_in_words(type_, value, problem):
    with pytest.raises((msgspec.ValidationError, KeyError)) as caught:
        msgspec.convert(value, type_)
    assert str(problem_from_msgspec_error(caught.value)) == problem


class Order(pydantic.BaseModel):
    count: int
    items: list["Order"] = []

    @pydantic.field_validator("count")
    @classmethod
    def check(cls, count):
        if count > 100:
            raise KeyError(count)
        return count


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({}, ["count: missing; it is required"]),
        (
            {"count": "a", "items": [{"count": 1}, {}]},
            [
                "count: input should be a valid integer, unable to parse string as an integer, got 'a'",
                "items[1].count: missing; it is required",
            ],
        ),
        ({"count": 101}, ["cannot be read: KeyError(101)"]),
        (
            {"count": 1, "items": [{}] * 1_001},
            ["1001 problems, too many to list; compare the value with the schema"],
        ),
    ],
)
def test_what_pydantic_finds_is_told_in_words(value, problems):
    with pytest.raises((pydantic.ValidationError, KeyError)) as caught:
        Order.model_validate(value)
    assert list(map(str, problems_from_pydantic_error(caught.value))) == problems


schemas = st.sampled_from(
    [
        {"type": "integer"},
        {"enum": [1, "a"]},
        PLACE,
        {"anyOf": [CAT, DOG, {"type": "null"}]},
        {"items": {"oneOf": [CAT]}},
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.sampled_from(["x", "kind", "lives", "é"]), children),
    max_leaves=8,
)


@given(schemas, values)
def test_there_is_a_problem_exactly_where_a_schema_finds_one(schema, value):
    assert bool(told(schema, value)) is not jsonschema_rs.is_valid(schema, value)


def test_for_exactly_so_many_unknown_keys_a_similar_one_is_named():
    problems = unexpected_key_problems("", [f"colo{number}" for number in range(MAX_PROBLEMS + 1)], ["colour"])
    assert ["colour" in problem.message for problem in problems] == [True] * MAX_PROBLEMS + [False]
