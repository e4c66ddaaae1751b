"""Values are checked against raw schemas with a bounded amount of work."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ConfigError, Invalid
from perdure._core.schema import checker as schema_checker
from perdure._core.schema.checker import SchemaChecker, check_simple_schema
from perdure._core.schema.problems import MAX_KEPT_PROBLEMS


def texts(checker: SchemaChecker, value: Any) -> list[str]:
    return list(map(str, checker.find_problems(value)))


def test_a_value_that_fits_has_no_problems():
    assert SchemaChecker({"type": "object"}).find_problems({}) == []


def test_a_schema_whose_references_cannot_be_followed_is_refused():
    nested = {"$id": "https://x.test/root/", "properties": {"a": {"$ref": "part?v=1"}}}
    nested["$defs"] = {"p": {"$id": "part%3Fv=1", "type": "string"}, "q": {"$id": "part?v=1", "type": "string"}}
    SchemaChecker(nested)
    unknown = {"properties": {"a": {"$ref": "https://x.test/root/../other/part"}}}
    unknown["$defs"] = {"p": {"$id": "https://x.test/other/%70art", "type": "string"}}
    with pytest.raises(ConfigError):
        SchemaChecker(unknown)


def test_only_so_many_problems_are_kept():
    found = SchemaChecker({"items": {"type": "string"}}).find_problems(list(range(1_000)))
    assert len(found) == MAX_KEPT_PROBLEMS


def test_a_large_value_of_a_union_is_refused_without_listing_its_errors(monkeypatch):
    form = {"type": "array", "items": {"type": "string"}}
    checker = SchemaChecker({"anyOf": [form, {**form, "minItems": 2}]})
    monkeypatch.setattr(schema_checker, "problems_from_schema_error", pytest.fail)
    assert texts(checker, list(range(5_000))) == [
        "does not match the schema; it has too many forms to tell which part is wrong"
    ]


def test_a_value_that_is_nested_too_deep_for_its_schema_is_refused():
    twice = {"allOf": [{"properties": {"a": {"$ref": "#/$defs/x"}}}] * 2}
    checker = SchemaChecker({"$ref": "#/$defs/x", "$defs": {"x": twice}})
    value: Any = 1
    for _ in range(50):
        value = {"a": value}
    assert "levels deep, which would take too long to check" in texts(checker, value)[0]
    assert texts(checker, {"a": {"a": 1}}) == []


def test_a_value_with_too_many_parts_for_its_schema_is_refused():
    checker = SchemaChecker({"items": {"pattern": "^(?!.*b)(a|a)*c"}})
    assert "too many values to be checked" in texts(checker, ["a" * 30] * 20_000)[0]
    assert len(texts(checker, ["x"])) == 1


def test_a_long_list_of_numbers_is_checked_with_a_simple_schema():
    assert SchemaChecker({"items": {"type": "integer"}}).find_problems(list(range(200_000))) == []


def test_problems_of_many_forms_stay_short():
    forms = [{"required": [f"{'k' * 50}{i}{j}" for j in range(100)]} for i in range(20)]
    problem = Invalid(SchemaChecker({"anyOf": forms}).find_problems({}))
    assert len(problem.problems[0].message) < 20 * 310


def test_a_schema_that_takes_as_much_at_every_depth_does_not_limit_the_depth():
    value: Any = 1
    for _ in range(120):
        value = [value]
    assert SchemaChecker({"type": "array"}).find_problems(value) == []


KEYWORDS = (
    *("type", "enum", "const", "minimum", "multipleOf", "maxLength", "minItems", "required", "uniqueItems", "items"),
    *("properties", "additionalProperties", "prefixItems", "dependentRequired", "dependencies", "allOf", "not", "if"),
    *(
        "format",
        "contentMediaType",
        "contentSchema",
        "definitions",
        "id",
        "pattern",
        "patternProperties",
        "$ref",
        "$id",
    ),
)
odd_values = st.sampled_from(
    ["string", "regex", ["a", "a"], ["integer"], -1, 0, 1.5, 10**30, True, None, [], "(", "#/x"]
)
odd_schemas = st.recursive(
    st.dictionaries(st.sampled_from(KEYWORDS), odd_values, max_size=3),
    lambda inner: st.dictionaries(
        st.sampled_from(KEYWORDS), st.one_of(odd_values, inner, st.lists(inner, max_size=2)), max_size=3
    ),
    max_leaves=6,
)


def is_refused(check: Callable[[], object]) -> bool:
    try:
        check()
    except ConfigError:
        return True
    return False


@given(odd_schemas)
def test_a_schema_is_refused_before_it_is_compiled_exactly_if_compiling_it_would_refuse_it(schema):
    text = msgspec.json.encode(schema)
    refused = is_refused(lambda: check_simple_schema(schema, text))
    if refused or check_simple_schema(schema, text):
        assert is_refused(lambda: SchemaChecker(schema)) is refused
