"""Type hints describe what a model may send, and what it sends is checked against them."""

import dataclasses
import enum
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar
from uuid import UUID

import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ConfigError, Invalid, Problem
from perdure._core.schema import checker
from perdure._core.schema import parameters as schema
from perdure._core.schema.parameters import check_json_schema
from perdure._core.schema.parsing import arguments_hash, parse_arguments
from perdure.tools import (
    build_parameters_from_json_schema,
    check_value,
    convert_value,
    json_schema_for_type,
    parameters_from_function,
)

D = TypeVar("D")


class Context(Generic[D]):
    pass


def parameters(function):
    return parameters_from_function(function)[0]


def properties(function) -> dict[str, Any]:
    return parameters(function).json_schema["properties"]


def problems(call, *arguments) -> list[str]:
    with pytest.raises(Invalid) as caught:
        call(*arguments)
    return list(map(str, caught.value.problems))


def tried(call, *arguments) -> Any:
    """What comes of it: a value, or the problems that were told."""
    try:
        return call(*arguments)
    except Invalid as invalid:
        return invalid


def is_well_told(invalid) -> bool:
    return bool(invalid.problems) and bool(str(invalid).encode())


def weather(city: str, days: int = 3, unit: Literal["c", "f"] = "c"):
    """Look up the weather.

    Args:
        city: The city.
        unit: Which degrees.
    """


def test_a_function_is_described_by_its_hints_and_docstring():
    assert parameters(weather).json_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city."},
            "days": {"type": "integer", "default": 3},
            "unit": {"type": "string", "enum": ["c", "f"], "description": "Which degrees.", "default": "c"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_takes_an_empty_object():
    empty = parameters(lambda: 1)
    assert empty.json_schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert empty.parse({}) == {}
    assert problems(empty.parse, {"a": 1}) == ["unexpected 'a'"]


def test_only_what_was_given_is_handed_on():
    parse = parameters(weather).parse
    assert parse({"city": "Oslo"}) == {"city": "Oslo"}
    assert parse({"days": 2, "city": "Oslo"}) == {"days": 2, "city": "Oslo"}
    assert parse({"city": "Oslo", "days": 2, "unit": "f"}) == {"city": "Oslo", "days": 2, "unit": "f"}


def test_the_context_and_skipped_names_are_not_described():
    class Tools:
        def look(self, context: Context[int], city: str): ...

    described, context = parameters_from_function(Tools.look, skip=("self",), context_type=Context)
    assert context == "context"
    assert list(described.json_schema["properties"]) == ["city"]


def test_every_problem_is_told_at_once():
    parse = parameters(weather).parse
    assert problems(parse, {"citty": "Oslo", "days": "many", "unit": "k"}) == [
        "city: missing; it is required",
        "unexpected 'citty'; did you mean 'city'?",
        "days: expected an integer, got 'many'",
        "unit: expected one of 'c', 'f', got 'k'",
    ]
    with pytest.raises(Invalid) as caught:
        parse({"city": 5})
    assert caught.value.problems == (Problem("city", "expected a string, got 5"),)
    assert str(caught.value) == "city: expected a string, got 5"


def test_arguments_of_nearly_the_right_type_are_converted():
    def use(number: int, share: float, flag: bool, text: str | int, maybe: int | None): ...

    assert parameters(use).parse({"number": "5", "share": "0.5", "flag": "true", "text": "7", "maybe": "null"}) == {
        "number": 5,
        "share": 0.5,
        "flag": True,
        "text": "7",
        "maybe": None,
    }
    assert parameters(use).parse({"number": 5.0, "share": 1, "flag": 1, "text": 7, "maybe": None})["number"] == 5


def test_lenience_towards_one_argument_leaves_the_others_alone():
    def use(number: int, when: datetime | int): ...

    assert parameters(use).parse({"number": "5", "when": 7}) == {"number": 5, "when": 7}


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity"])
def test_no_text_is_read_as_a_number_that_is_none(value):
    def use(share: float): ...

    assert problems(parameters(use).parse, {"share": value}) == [f"share: expected a finite number, got {value!r}"]


def test_null_for_a_parameter_with_a_default_means_that_it_is_not_given():
    assert parameters(weather).parse({"city": "Oslo", "days": None}) == {"city": "Oslo"}
    assert problems(parameters(weather).parse, {"city": None}) == ["city: expected a string, got null"]


def test_a_default_of_none_allows_null():
    def use(number: int = None, anything: object = None, more=None): ...  # type: ignore[assignment] # noqa: RUF013

    assert properties(use) == {
        "number": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "anything": {"default": None},
        "more": {"default": None},
    }
    assert parameters(use).parse({"number": None, "anything": [1], "more": {}}) == {
        "number": None,
        "anything": [1],
        "more": {},
    }


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Place(msgspec.Struct):
    """A place on a map."""

    x: Annotated[int, msgspec.Meta(ge=0, description="From the left.")]
    y: Annotated[int, "From the top."] = 0
    near: list["Place"] = []


@dataclasses.dataclass
class Person:
    name: str
    age: int = 0


class Options(TypedDict):
    verbose: bool
    depth: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Money(pydantic.BaseModel):
    amount: int = pydantic.Field(ge=0, description="In cents.")
    change: "Money | None" = None


def descriptions(
    by_note: Annotated[int, "by note"],
    by_meta: Annotated[int, msgspec.Meta(description="by meta", ge=1)],
    by_field: Annotated[int, pydantic.Field(description="by field", ge=1)],
    by_docstring: Place,
    noted_default: Annotated[int, "noted"] = None,  # type: ignore[assignment] # noqa: RUF013 - people do
):
    """Describe.

    Args:
        by_note: not this
        by_meta: not this
        by_field: not this
        by_docstring: by docstring
    """


def test_a_parameter_may_be_described_in_several_ways():
    assert {name: each["description"] for name, each in properties(descriptions).items()} == {
        "by_note": "by note",
        "by_meta": "by meta",
        "by_field": "by field",
        "by_docstring": "by docstring",
        "noted_default": "noted",
    }
    assert properties(descriptions)["by_meta"]["minimum"] == properties(descriptions)["by_field"]["minimum"] == 1


def test_definitions_lie_at_the_root():
    def use(place: Place, places: list[Place], money: Money, mode: Mode, person: Person | None = None): ...

    described = parameters(use).json_schema
    assert set(described["$defs"]) == {"Place", "Money", "Mode", "Person"}
    assert described["properties"]["places"] == {"type": "array", "items": {"$ref": "#/$defs/Place"}}
    assert described["$defs"]["Mode"] == {"title": "Mode", "type": "string", "enum": ["fast", "slow"]}
    assert described["$defs"]["Place"]["properties"] == {
        "x": {"type": "integer", "minimum": 0, "description": "From the left."},
        "y": {"type": "integer", "default": 0, "description": "From the top."},
        "near": {"type": "array", "items": {"$ref": "#/$defs/Place"}, "default": []},
    }
    jsonschema_rs.validator_for(described)


def test_two_classes_of_one_name_are_kept_apart():
    def other():
        class Place(pydantic.BaseModel):
            street: str

        return Place

    def use(here, there): ...

    use.__annotations__ = {"here": Place, "there": other() | None}
    described = parameters(use).json_schema
    assert described["properties"] == {
        "here": {"$ref": "#/$defs/Place"},
        "there": {"anyOf": [{"$ref": "#/$defs/Place_2"}, {"type": "null"}]},
    }
    assert set(described["$defs"]["Place_2"]["properties"]) == {"street"}


EXAMPLES = [
    (str, "a", "a"),
    (int, 5, 5),
    (float, 1, 1.0),
    (bool, True, True),
    (None, None, None),
    (Any, {"a": [1]}, {"a": [1]}),
    (object, [1], [1]),
    (list, [1], [1]),
    (list[int], [1], [1]),
    (set[int], [1], {1}),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (Iterable[int], [1], [1]),
    (Sequence[int], [1], [1]),
    (int | None, None, None),
    (int | str, "a", "a"),
    (Literal["a", "b"], "b", "b"),
    (Mode, "fast", Mode.FAST),
    (Level, 2, Level.HIGH),
    (Place, {"x": 1}, Place(1)),
    (Person, {"name": "Ada"}, Person("Ada")),
    (Options, {"verbose": True}, {"verbose": True}),
    (Pair, [1], Pair(1)),
    (list[Place | None], [{"x": 1}, None], [Place(1), None]),
    (datetime, "2024-05-01T12:00:00", datetime(2024, 5, 1, 12)),  # noqa: DTZ001 - as it was written
    (date, "2024-05-01", date(2024, 5, 1)),
    (Decimal, "1.10", Decimal("1.10")),
    (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
    (bytes, "aGk=", b"hi"),
    (Path, "a/b", Path("a/b")),
    (list[Path], ["a"], [Path("a")]),
    (Path | None, None, None),
    (Money, {"amount": 5}, Money(amount=5)),
    (list[Money], [{"amount": 5}], [Money(amount=5)]),
    (Money | Person, {"name": "Ada"}, Person("Ada")),
    (int | Path, "a", Path("a")),
    (pydantic.PositiveInt, 1, 1),
    (date | datetime, "2024-05-01", date(2024, 5, 1)),
]


@pytest.mark.parametrize(("type_", "value", "expected"), EXAMPLES)
def test_a_value_becomes_what_its_type_says(type_, value, expected):
    def use(it): ...

    use.__annotations__ = {"it": type_}
    assert convert_value(value, type_) == expected
    assert type(convert_value(value, type_)) is type(expected)
    assert parameters(use).parse({"it": value}) == {"it": expected}
    assert jsonschema_rs.is_valid(json_schema_for_type(type_), value)
    assert jsonschema_rs.is_valid(parameters(use).json_schema, {"it": value})


@given(st.sampled_from(EXAMPLES), st.sampled_from(EXAMPLES))
def test_a_value_of_another_type_is_converted_or_its_problems_are_told(one, other):
    found = tried(convert_value, other[1], one[0])
    assert not isinstance(found, Invalid) or is_well_told(found)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=2), children, max_size=3),
    max_leaves=10,
)


@given(st.sampled_from(EXAMPLES), json_values)
def test_any_value_is_converted_or_its_problems_are_told(example, value):
    found = tried(convert_value, value, example[0])
    assert not isinstance(found, Invalid) or is_well_told(found)


@given(st.dictionaries(st.sampled_from(["city", "days", "unit", "x", "\ud800"]), json_values))
def test_arguments_are_taken_exactly_if_nothing_is_wrong_with_them(arguments):
    found = tried(parameters(weather).parse, arguments)
    if not isinstance(found, Invalid):
        weather(**found)
    else:
        assert is_well_told(found)


def test_nested_problems_have_paths():
    def use(place: Place, people: dict[str, list[Person]]): ...

    arguments = {"place": {"x": -1, "near": [{"x": 1}, {}]}, "people": {"a b": [{"name": 1, "age": "old"}]}}
    assert sorted(problems(parameters(use).parse, arguments)) == [
        "people['a b'][0].age: expected an integer, got 'old'",
        "people['a b'][0].name: expected a string, got 1",
        "place.near[1].x: missing; it is required",
        "place.x: must be at least 0, got -1",
    ]


def test_of_a_very_large_value_only_the_first_problem_is_told():
    def use(numbers: list[int], dates: list[date]): ...

    more = "there may be more problems; only the first one of so large a value is reported"
    large = ["x"] * 100_000
    assert problems(parameters(use).parse, {"numbers": large, "dates": large}) == [
        "numbers[0]: expected an integer, got 'x'",
        f"numbers: {more}",
        "dates[0]: expected a valid date, got 'x'",
        f"dates: {more}",
    ]
    raw = build_parameters_from_json_schema({"properties": {"numbers": {"items": {"type": "integer"}}}})
    assert problems(raw.parse, {"numbers": large}) == ["numbers[0]: expected an integer, got 'x'", more]
    (problem,) = problems(raw.parse, {"numbers": [1] * 100_000 + ["\ud800"]})
    assert problem.startswith("cannot be checked")


def test_what_the_schema_of_a_very_large_value_cannot_say_is_told_too():
    assert problems(convert_value, [{"x": 0}] * 5_000 + [{"x": 1}], list[Careful]) == ["[5000]: x must not be 1"]


def test_very_many_problems_that_pydantic_finds_are_counted():
    assert problems(convert_value, [{"amount": -1}] * 10_000, list[Money]) == [
        "10000 problems, too many to list; compare the value with the schema"
    ]


def test_problems_that_pydantic_finds_have_paths():
    def use(money: Money): ...

    assert problems(parameters(use).parse, {"money": {"amount": -1, "change": {}}}) == [
        "money.amount: input should be greater than or equal to 0, got -1",
        "money.change.amount: missing; it is required",
    ]


def test_a_strict_pydantic_model_reads_dates_as_json_has_them():
    class Strict(pydantic.BaseModel, strict=True):
        when: date

    assert convert_value({"when": "2024-05-01"}, Strict).when == date(2024, 5, 1)


def test_a_path_may_have_a_default():
    def use(path: Path = Path("here"), count: int = 1): ...

    assert properties(use)["path"] == {"type": "string", "format": "path", "default": "here"}
    assert parameters(use).parse({"path": "there"}) == {"path": Path("there")}
    assert parameters(use).parse({"path": "there", "count": "2"}) == {"path": Path("there"), "count": 2}
    assert problems(parameters(use).parse, {"path": 5}) == ["path: expected a string, got 5"]


def test_a_default_is_described_if_json_can_hold_it():
    def use(
        mode: Mode = Mode.FAST,
        place: Place = Place(1),  # noqa: B008 - a tool may
        money: Money = Money(amount=1),  # noqa: B008 - a tool may
        thing: Any = object(),  # noqa: B008 - a tool may
    ): ...

    assert {name: each.get("default", "none") for name, each in properties(use).items()} == {
        "mode": "fast",
        "place": {"x": 1, "y": 0, "near": []},
        "money": {"amount": 1, "change": None},
        "thing": "none",
    }


def test_a_field_of_pydantic_is_no_default():
    def use(count: int = pydantic.Field(ge=1)): ...

    with pytest.raises(ConfigError, match=r"parameter 'count' of .*use has FieldInfo.* use Annotated"):
        parameters_from_function(use)


class Careful(msgspec.Struct):
    x: int
    y: int = 0

    def __post_init__(self):
        if self.x == 1:
            message = "x must not be 1"
            raise ValueError(message)
        if self.x == 2:
            raise KeyError(self.x)


def test_what_a_class_of_the_caller_refuses_is_told():
    assert problems(convert_value, {"x": 1}, Careful) == ["x must not be 1"]
    assert problems(convert_value, {"x": 2}, Careful) == ["cannot be read: KeyError(2)"]
    assert problems(convert_value, "2024-13-01", date) == ["expected a valid date, got '2024-13-01'"]


def test_a_value_that_is_no_json_is_refused_too():
    assert problems(convert_value, object, int) == ["expected an integer, got `type`"]
    (problem,) = problems(convert_value, {"amount": object}, Money)
    assert problem.startswith("cannot be read: TypeError('Object of type type")


class Plain:
    pass


def test_a_class_that_cannot_be_described_is_refused_by_name():
    def use(thing: Plain): ...

    message = r"'thing' of .*use has the type <class '.*Plain'>, which msgspec cannot express \(Plain is a custom class"
    with pytest.raises(ConfigError, match=message + r".*nor can pydantic \(.*\): use a msgspec\.Struct"):
        parameters_from_function(use)
    with pytest.raises(ConfigError, match=r"the output has the type"):
        json_schema_for_type(Plain)


@pytest.mark.parametrize("type_", [Place | Person, Money, os.PathLike, Annotated[int, pydantic.Field(ge=1)]])
def test_without_pydantic_what_only_pydantic_can_describe_is_refused(monkeypatch, type_):
    monkeypatch.setitem(sys.modules, "pydantic", None)

    def use(thing): ...

    use.__annotations__ = {"thing": type_}
    with pytest.raises(ConfigError, match=r"parameter 'thing' of .*use .*: install pydantic, or use a msgspec\.Struct"):
        parameters_from_function(use)


def test_the_schema_of_a_type_has_the_type_at_its_root():
    assert json_schema_for_type(Person) == {
        "title": "Person",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 0}},
        "required": ["name"],
    }
    assert json_schema_for_type(Annotated[int, "how many"]) == {"type": "integer", "description": "how many"}
    assert json_schema_for_type(list[Mode])["$defs"] == {
        "Mode": {"title": "Mode", "type": "string", "enum": ["fast", "slow"]}
    }
    assert json_schema_for_type(Place)["properties"]["near"]["items"] == {"$ref": "#/$defs/Place"}
    assert json_schema_for_type(Money)["properties"]["amount"] == {
        "title": "Amount",
        "type": "integer",
        "minimum": 0,
        "description": "In cents.",
    }


def test_a_schema_may_be_changed_by_whoever_asked_for_it():
    json_schema_for_type(Person)["properties"].clear()
    assert json_schema_for_type(Person)["properties"]


def test_a_type_that_cannot_be_hashed_works_too():
    type_ = Annotated[int, msgspec.Meta(extra_json_schema={"examples": [1]})]
    assert json_schema_for_type(type_)["examples"] == [1]
    assert convert_value("5", Annotated[int, {"not": "hashable"}]) == 5


RAW = {
    "properties": {
        "city": {"type": "string"},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"Tag": {"enum": ["a", "b"]}},
}


def test_a_raw_schema_checks_arguments_and_changes_nothing():
    raw = build_parameters_from_json_schema(RAW)
    assert raw.json_schema == {**RAW, "type": "object"}
    arguments = {"city": "Oslo", "tags": ["a"], "limit": None}
    assert raw.parse(arguments) == arguments
    assert sorted(problems(raw.parse, {"citty": "Oslo", "tags": ["c"], "limit": "5"})) == [
        "city: missing; it is required",
        "limit: expected an integer or null, got '5'",
        "tags[0]: expected one of 'a', 'b', got 'c'",
        "unexpected 'citty'; did you mean 'city'?",
    ]


def nested(levels) -> dict[str, Any]:
    return {"not": nested(levels - 1)} if levels else {}


def test_a_raw_schema_is_copied():
    own = json.loads(json.dumps(RAW))
    raw = build_parameters_from_json_schema(own)
    own["properties"].clear()
    assert "city" in raw.json_schema["properties"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"type": "array"}, 'their schema needs "type": "object"'),
        ([], "no JSON object"),
        ({"a": object()}, "no JSON object"),
        ({"properties": {"a": {"type": "strnig"}}}, "that can be used at 'properties/a/type'"),
        ({"properties": {"a": {"minimum": "1"}}}, "that can be used at 'properties/a/minimum'"),
        ({"properties": {"a": {"pattern": "("}}}, "that can be used at 'properties/a/pattern'"),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, "that can be used: Pointer"),
        (
            {"$ref": "https://example.com/schema.json"},
            "'https://example.com/schema.json', and references are not fetched",
        ),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "'file:///etc/passwd', and references are not fetched"),
        ({"$schema": "https://example.com/meta"}, "that can be used: Unknown meta-schema"),
        (nested(300), "that can be used: Recursion limit reached"),
        (nested(500), "more than 64 parts are applied to one value inside one another"),
    ],
)
def test_a_raw_schema_that_cannot_be_used_is_refused(raw, message):
    with pytest.raises(ConfigError) as caught:
        build_parameters_from_json_schema(raw)
    assert message in str(caught.value)


def test_a_raw_schema_that_refers_to_itself_comes_to_an_end():
    assert build_parameters_from_json_schema({"$ref": "#"}).parse({"a": 1}) == {"a": 1}


def test_a_value_is_not_checked_against_what_is_no_schema():
    with pytest.raises(ConfigError, match="not a JSON Schema that can be used"):
        schema.check_value("x", {"type": "strin"})


@given(st.dictionaries(st.text(st.characters(codec=None), max_size=3), json_values))
def test_any_arguments_pass_a_raw_schema_or_their_problems_are_told(arguments):
    found = tried(build_parameters_from_json_schema(RAW).parse, arguments)
    assert is_well_told(found) if isinstance(found, Invalid) else found is arguments


def test_arguments_that_cannot_be_checked_are_refused():
    raw = build_parameters_from_json_schema({"properties": {"a": {"minLength": 5}}})
    (problem,) = problems(raw.parse, {"a": "\ud800"})
    assert problem.startswith("cannot be checked: 'utf-8' codec")


def test_a_pattern_that_takes_for_ever_is_given_up():
    raw = build_parameters_from_json_schema({"properties": {"a": {"pattern": "^(a|a)*\\1b$"}}})
    assert problems(raw.parse, {"a": "a" * 50}) == [f"a: its pattern is too costly to match against '{'a' * 50}'"]


def test_reading_and_hashing_arguments_are_offered_here():
    assert arguments_hash(parse_arguments('{"a": 1}')) == arguments_hash({"a": 1})
    assert set(schema.__all__) <= set(dir(schema))


def test_validators_are_imported_when_they_are_needed():
    program = """
import sys
from perdure.tools import convert_value, parameters_from_function
def weather(city: str, days: int = 3): ...
parameters_from_function(weather)[0].parse({"city": "Oslo"})
convert_value({"a": "5"}, dict[str, int])
assert not {"pydantic", "jsonschema_rs", "json", "difflib"} & set(sys.modules), sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


# -- schemas of any value ----------------------------------------------------------------------------------------------


def test_a_schema_of_any_value_is_copied_and_checked():
    schema = {"type": "array", "items": {"type": "integer"}}
    copied = check_json_schema(schema)
    assert copied == schema
    assert copied is not schema
    with pytest.raises(ConfigError, match="not a JSON Schema that can be used"):
        check_json_schema({"type": 5})
    with pytest.raises(ConfigError, match="a schema that is no JSON object"):
        check_json_schema({"enum": [object()]})


def test_a_raw_schema_is_compiled_once_and_may_be_changed_afterwards(monkeypatch):
    numbers = {"type": "object", "properties": {"once": {"type": "integer"}}}
    check_value({"once": 1}, numbers)
    monkeypatch.setattr(checker, "_make_validator", pytest.fail)
    check_value({"once": 2}, dict(numbers))
    with pytest.raises(Invalid, match="once"):
        check_value({"once": "x"}, dict(numbers))
    monkeypatch.undo()
    numbers["properties"] = {"once": {"type": "string"}}
    check_value({"once": "x"}, numbers)


@pytest.mark.parametrize("count", [2, 400])
def test_a_raw_schema_is_checked_when_it_is_given_and_compiled_for_the_first_value(monkeypatch, count):
    given: dict[str, Any] = {
        "type": "object",
        "properties": {f"lazy{number}": {"type": "integer"} for number in range(count)},
    }
    monkeypatch.setattr(checker, "_make_validator", pytest.fail)
    described = build_parameters_from_json_schema(given)
    given["properties"]["wrong"] = {"type": "whole"}
    with pytest.raises(ConfigError, match="'properties/wrong/type'"):
        build_parameters_from_json_schema(given)
    monkeypatch.undo()
    assert described.parse({"lazy1": 1}) == {"lazy1": 1}
    assert problems(described.parse, {"lazy1": "x"}) == ["lazy1: expected an integer, got 'x'"]


def test_a_raw_schema_that_is_no_json_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match="no JSON object"):
        check_value(1, {"type": object()})


def test_the_validator_of_arguments_is_made_for_the_first_call(monkeypatch):
    monkeypatch.setattr(schema, "_make_arguments_struct", pytest.fail)
    described = parameters(weather)
    monkeypatch.undo()
    assert described.parse({"city": "Rome", "days": "2"}) == {"city": "Rome", "days": 2}
    assert described.parse({"city": "Oslo"}) == {"city": "Oslo"}
