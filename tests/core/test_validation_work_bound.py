"""The work of validating is bounded before the first value is checked."""

import bisect
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure import ConfigError
from perdure._core.schema import work_bound
from perdure._core.schema.work_bound import (
    MAX_CHECKS_PER_VALUE,
    MAX_REFERENCE_CHAIN,
    MAX_SCHEMA_PARTS,
    MAX_VALUE_DEPTH,
    ValidationWorkBound,
    count_values,
    estimate_validation_cost,
    is_nested_deeper,
)

HEAVY = {"allOf": [{"pattern": "(?=a)"}] * 60}
"""A part that weighs more than a value may: the match of a pattern that backtracks counts as 2,000 checks."""


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def multiplied(keyword: str, levels: int, width: int) -> dict[str, Any]:
    """Levels of references, each of which is applied `width` times to the value of the one above."""
    definitions: dict[str, Any] = {f"l{i}": {keyword: [ref(f"l{i + 1}")] * width} for i in range(levels)}
    definitions[f"l{levels}"] = {"type": "string"}
    return {"type": "object", "properties": {"a": ref("l0")}, "$defs": definitions}


def reason(schema: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        estimate_validation_cost(json.loads(json.dumps(schema)))
    return str(caught.value)


def cost(schema: dict[str, Any]):
    return estimate_validation_cost(json.loads(json.dumps(schema)))


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_multiply_are_refused(keyword):
    schema = multiplied(keyword, 6, 10)
    assert len(json.dumps(schema)) < 2_000
    assert f"each value nested 1 deep would take more than {MAX_CHECKS_PER_VALUE} checks" in reason(schema)
    assert cost(multiplied(keyword, 3, 4)).errors_per_value == 2 * (1 + 4 + 16 + 64)


def test_the_value_itself_may_be_what_takes_too_long():
    schema = multiplied("allOf", 6, 10)
    assert "the value would take more than" in reason({**schema["properties"]["a"], "$defs": schema["$defs"]})


def test_references_that_multiply_with_each_level_of_the_value_limit_its_depth():
    twice = {"allOf": [{"properties": {"a": ref("x")}}, {"properties": {"a": ref("x")}}]}
    found = cost({**ref("x"), "$defs": {"x": twice}})
    assert 4 <= found.max_depth < 14
    assert found.errors_per_value <= MAX_CHECKS_PER_VALUE
    many = {"allOf": [{"properties": {"a": ref("x")}}] * 20}
    assert "deep would take more than" in reason({**ref("x"), "$defs": {"x": many}})


def test_a_tree_takes_as_much_for_each_value_however_deep():
    node = {
        "anyOf": [
            {"type": "string"},
            {"properties": {"left": ref("node"), "right": ref("node")}, "additionalProperties": ref("node")},
            {"items": ref("node")},
            {"prefixItems": [ref("node")], "items": ref("node")},
        ]
    }
    found = cost({"properties": {"tree": ref("node")}, "$defs": {"node": node}})
    assert found.max_depth < MAX_VALUE_DEPTH  # an array is read by two of the forms
    del node["anyOf"][3]
    found = cost({"properties": {"tree": ref("node")}, "$defs": {"node": node}})
    assert (found.max_depth, found.has_unions) == (MAX_VALUE_DEPTH, True)
    assert found.errors_per_value < 16


def test_names_of_forms_that_differ_do_not_multiply():
    forms = [{"properties": {f"p{i}": ref("x")}} for i in range(50)]
    assert cost({**ref("x"), "$defs": {"x": {"oneOf": forms}}}).max_depth == MAX_VALUE_DEPTH
    same = [{"properties": {"p": ref("x")}} for _ in range(50)]
    assert "nested 2 deep" in reason({**ref("x"), "$defs": {"x": {"oneOf": same}}})


def test_references_that_lead_back_to_the_same_value_are_refused_unless_they_are_one_path():
    assert cost({"$ref": "#"}).errors_per_value == 1
    assert cost({"type": "object", "$defs": {"a": ref("b"), "b": ref("a")}, **ref("a")}).max_depth == MAX_VALUE_DEPTH
    every = {f"d{i}": {"allOf": [ref(f"d{j}") for j in range(12)]} for i in range(12)}
    assert "refers back to itself for the same value" in reason({"properties": {"a": ref("d0")}, "$defs": every})


def test_long_chains_of_references_are_refused_since_the_validator_recurses():
    def chain(length: int) -> dict[str, Any]:
        links: dict[str, Any] = {f"c{i}": ref(f"c{i + 1}") for i in range(length)}
        return {**ref("c0"), "$defs": {**links, f"c{length}": {}}}

    assert cost(chain(MAX_REFERENCE_CHAIN - 2)).errors_per_value == MAX_REFERENCE_CHAIN
    for length in (MAX_REFERENCE_CHAIN - 1, 10_000):
        assert f"more than {MAX_REFERENCE_CHAIN} parts are applied" in reason(chain(length))


def test_very_many_parts_are_refused():
    many = {f"p{i}": {"type": "string"} for i in range(MAX_SCHEMA_PARTS)}
    assert f"more than {MAX_SCHEMA_PARTS} parts" in reason({"properties": many})
    wide = {f"p{i}": {"type": "string"} for i in range(MAX_CHECKS_PER_VALUE + 1)}
    assert cost({"properties": wide}).errors_per_value == 1  # each is for another value


def test_the_estimate_itself_gives_up():
    wide: dict[str, Any] = {f"w{i}": {"properties": {f"p{j}": {} for j in range(40)}} for i in range(80)}
    every = {"allOf": [ref(name) for name in wide]}
    heads = {f"h{i}": {"allOf": [ref("every")]} for i in range(120)}
    assert "it has too many parts or references to tell" in reason(
        {"properties": heads, "$defs": {**wide, "every": every}}
    )


def test_patterns_that_backtrack_weigh_more_and_patterns_share_memory():
    plain, costly = {"pattern": "^(a+)+$"}, {"pattern": "^(?=a)(a|a)*$"}
    assert cost({"properties": {"a": plain}}).checks_per_value < 10
    found = cost({"properties": {"a": costly, "b": costly}, "patternProperties": {"^(?!x)": {}}})
    assert 2_000 < found.checks_per_value < 2_010
    assert found.errors_per_value < 5
    assert "nested 1 deep" in reason({"properties": {"a": {"allOf": [costly] * 60}}})
    texts = {f"p{i}": {"pattern": f"^{i}$"} for i in range(640)}
    assert cost({"properties": texts}).pattern_bytes == 64 * 2**20 // 640


def test_long_enums_weigh_more():
    assert cost({"enum": list(range(6_400))}).checks_per_value == 101
    assert cost({"enum": list(range(63))}).checks_per_value == 1
    assert cost({"enum": list(range(64))}).checks_per_value == 2


TWO: dict[str, Any] = {"x": {"allOf": [{}, {}]}}
"""A definition which is three parts for the value that it is applied to, and four with the reference."""


@pytest.mark.parametrize(
    ("schema", "checks", "errors", "depth"),
    [
        ({}, 1, 1, 100),
        ({"properties": {"a": {"pattern": "^a$"}}}, 2, 2, 100),
        ({"properties": {"a": {"pattern": "(?=a)"}}, "patternProperties": {"(?!x)": {}}}, 2_002, 2, 100),
        ({**ref("x"), "$defs": {"x": {"allOf": [{"properties": {"a": ref("x")}}] * 2}}}, 8_192, 8_192, 11),
        ({**ref("a"), "type": "object", "$defs": {"a": ref("b"), "b": ref("a")}}, 3, 3, 100),
        ({"properties": {"a": ref("x")}, "$defs": TWO}, 4, 4, 100),
        ({"properties": {"a": ref("x")}, "additionalProperties": ref("x"), "$defs": TWO}, 4, 4, 100),
        ({"properties": {"a": ref("x")}, "unevaluatedProperties": ref("x"), "$defs": TWO}, 8, 8, 100),
        ({"properties": {"a": ref("x")}, "patternProperties": {"b": ref("x"), "c": {}}, "$defs": TWO}, 9, 9, 100),
        ({"prefixItems": [ref("x")], "items": ref("x"), "$defs": TWO}, 4, 4, 100),
        ({"items": [ref("x")], "additionalItems": ref("x"), "contains": {}, "$defs": TWO}, 5, 5, 100),
        ({"items": ref("x"), "contains": ref("x"), "unevaluatedItems": ref("x"), "$defs": TWO}, 12, 12, 100),
        ({"if": ref("x"), "then": {}, "else": {}, "not": {}, "propertyNames": {}, "$defs": TWO}, 9, 9, 100),
        ({"dependentSchemas": {"a": ref("x")}, "dependencies": {"b": ["c"], "d": {}}, "$defs": TWO}, 6, 6, 100),
        ({"properties": {"a": ref("x")}, "items": {"$ref": "#/$defs/y"}, "$defs": {**TWO, "y": {}}}, 4, 4, 100),
    ],
)
def test_the_checks_of_a_value_are_counted_exactly(schema, checks, errors, depth):
    assert cost(schema) == ValidationWorkBound(checks, errors, depth, has_unions=False, pattern_bytes=10 * 2**20)
    assert cost({**schema, "oneOf": []}).has_unions


def test_a_schema_with_many_parts_and_no_references_is_looked_at_more_closely():
    assert cost({"properties": {f"p{i}": {} for i in range(499)}}).checks_per_value == 500
    assert cost({"properties": {f"p{i}": {} for i in range(500)}}).checks_per_value == 1


def test_the_refusals_say_what_to_do():
    told = "this JSON Schema could take too long to check: {}; write it with fewer parts or references"
    deep = {"properties": {"a": {"properties": {"b": {"properties": {"c": {"properties": {"d": HEAVY}}}}}}}}
    assert reason(deep) == told.format("each value nested 4 deep would take more than 10000 checks")
    assert cost({"properties": {"z": deep}}).max_depth == 4
    assert reason({"properties": {f"p{i}": {} for i in range(20_000)}}) == told.format("it has more than 20000 parts")
    just: dict[str, Any] = {"properties": {f"p{i}": {} for i in range(19_999)}}  # none of them refers to another
    assert reason(just) == told.format("it has too many parts or references to tell")


def steps_of(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the fewest steps with which the work of a schema can be estimated."""

    def is_enough(steps: int) -> bool:
        monkeypatch.setattr(work_bound, "MAX_ESTIMATE_STEPS", steps)
        try:
            cost(schema)
        except ConfigError:
            return False
        return True

    return bisect.bisect_left(range(20_000), True, key=is_enough)


def make_properties(count: int) -> dict[str, Any]:
    return {"properties": {f"p{i}": {} for i in range(count)}, **ref("x"), "$defs": {"x": {}}}


def make_patterns(count: int) -> dict[str, Any]:
    return {"patternProperties": {f"p{i}": {} for i in range(count)}, **ref("x"), "$defs": {"x": {}}}


def make_references(count: int) -> dict[str, Any]:
    return {"allOf": [ref("x")] * count, "$defs": {"x": {}}}


def make_ring(count: int) -> dict[str, Any]:
    return {**ref("x0"), "$defs": {f"x{i}": ref(f"x{(i + 1) % count}") for i in range(count)}}


@pytest.mark.parametrize("make", [make_properties, make_patterns, make_references, make_ring])
def test_the_steps_of_the_estimate_grow_with_the_schema_and_are_limited(make, monkeypatch):
    small, middle, large = (steps_of(make(count), monkeypatch) for count in (10, 20, 40))
    assert small > 10
    assert middle - small >= 10
    assert large - middle == 2 * (middle - small)  # no faster than the schema
    assert large < 40 * 40
    monkeypatch.setattr(work_bound, "MAX_ESTIMATE_STEPS", large - 1)
    assert "it has too many parts or references to tell" in reason(make(40))


def test_patterns_take_as_many_steps_of_the_estimate_as_names(monkeypatch):
    assert steps_of(make_patterns(20), monkeypatch) == steps_of(make_properties(20), monkeypatch)


def test_checks_are_counted_as_deep_as_arguments_may_be_nested():
    schema: dict[str, Any] = {}
    for _ in range(120):
        schema = {"properties": {"a": schema}}
    assert cost({**ref("x"), "$defs": {"x": schema}}).max_depth == MAX_VALUE_DEPTH


def test_a_ring_of_references_with_one_branch_is_refused():
    branch = {"allOf": [ref("b"), {}]}
    assert "refers back to itself for the same value" in reason({**ref("a"), "$defs": {"a": branch, "b": ref("a")}})


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"a": {"$anchor": "here", "type": "string"}}, "properties": {"a": {"$ref": "#here"}}},
        {"$defs": {"a": {"$dynamicAnchor": "n"}}, "properties": {"a": {"$dynamicRef": "#n"}}},
        {"$defs": {"a": {"$id": "https://x.test/a"}}, "properties": {"a": {"$ref": "https://x.test/a"}}},
        {"definitions": {"a/b": [{"type": "string"}]}, "properties": {"a": {"$ref": "#/definitions/a~1b/0"}}},
        {"dependentSchemas": {"a": ref("x")}, "dependencies": {"b": ["c"]}, "$defs": {"x": {"required": ["a"]}}},
        {"properties": {"a": {"items": [ref("x")], "additionalItems": ref("x")}}, "$defs": {"x": {}}},
        {"if": ref("x"), "then": ref("x"), "else": ref("x"), "not": ref("x"), "$defs": {"x": {}}},
    ],
)
def test_references_of_every_form_are_followed(schema):
    found = cost(schema)
    assert not found.unresolved
    assert found.errors_per_value > 1


TWICE: dict[str, Any] = {"allOf": [{}, {}]}
"""Three parts for one value; with a reference to it they are four."""
ANCHORS = [("$anchor", "listed"), ("$anchor", "twice"), ("$dynamicAnchor", "twice")]


@pytest.mark.parametrize(
    ("reference", "errors"),
    [
        ("https://x.test/one", 4),
        ("https://x.test/one#", 4),
        ("one", 4),
        ("https://x.test/two", 2),
        ("https://x.test/one#/$defs/inner", 3),
        ("https://x.test/two#/$defs/inner", 2),
        ("#/$defs/inner", 4),  # either of the two, so both are counted
        ("#/$defs/list/1", 4),
        ("#/$defs/a~1b%20~0", 4),
        ("#listed", 4),
        ("#twice", 7),
    ],
)
def test_a_reference_counts_as_what_it_may_mean(reference, errors):
    definitions = {
        "one": {"$id": "https://x.test/one", **TWICE, "$defs": {"inner": {"not": {}}}},
        "two": {"id": "https://x.test/two#", "$defs": {"inner": {}}},
        "list": [{}, TWICE],
        "a/b ~": TWICE,
        "anchors": [{word: name, **TWICE} for word, name in ANCHORS],
    }
    found = cost({"$id": "https://x.test/", "properties": {"a": {"$ref": reference}}, "$defs": definitions})
    assert (found.errors_per_value, found.unresolved) == (errors, ())


def test_parts_that_are_true_or_false_count_as_one():
    found = cost({"allOf": [True, False, ref("x")], "$defs": {"x": True}})
    assert (found.checks_per_value, found.errors_per_value) == (5, 5)


@pytest.mark.parametrize("reference", ["#/$defs/none", "#/$defs/list/7", "#nowhere", "other.json#/a", "#/type/x"])
def test_references_that_lead_nowhere_are_named(reference):
    found = cost({"type": "object", "properties": {"a": {"$ref": reference}}, "$defs": {"list": []}})
    assert found.unresolved == (reference,)


def test_the_schema_of_schemas_may_be_referred_to():
    found = cost({"properties": {"a": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}})
    assert not found.unresolved


def test_values_are_counted_only_as_far_as_needed():
    assert count_values({"a": [1, 2, {"b": 3}]}, 100) == 6
    assert count_values([[1] * 1_000] * 1_000, 10) > 10
    assert not is_nested_deeper("x", 0)
    assert not is_nested_deeper({"a": [1]}, 2)
    assert is_nested_deeper({"a": [1]}, 1)


def test_values_inside_are_counted_also_where_those_outside_just_reach_the_limit():
    assert count_values([[1] * 1_000, 2], 3) > 3
    assert count_values([1, [2] * 1_000], 3) > 3
    assert count_values([1, 2], 3) == 3


names = st.sampled_from("abc")
leaves = st.sampled_from([{"type": "string"}, {"type": "object"}, False, True, {"enum": [1, 2]}, ref("a"), ref("b")])
words = st.sampled_from(["not", "items", "additionalProperties", "contains", "unevaluatedProperties", "if"])
parts = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda word, of: {word: of},
            st.sampled_from(["allOf", "anyOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(
            lambda of, rest: {"properties": of, "additionalProperties": rest},
            st.dictionaries(names, inner, max_size=2),
            inner,
        ),
        st.builds(lambda word, of: {word: of}, words, inner),
    ),
    max_leaves=6,
)
schemas = st.fixed_dictionaries(
    {"$defs": st.fixed_dictionaries(dict.fromkeys("abc", parts)), "allOf": st.lists(parts, min_size=1, max_size=3)}
)
values = st.recursive(
    st.sampled_from([1, "x", None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


RING = {
    "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}, "c": {}},
    "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
}
"""Parts that refer to one another in a ring, which is entered at two of them."""


@settings(max_examples=150)
@example(RING, 1)
@given(schemas, values)
def test_no_value_takes_more_checks_or_has_more_errors_than_estimated(schema, value):
    schema = json.loads(json.dumps(schema))
    try:
        found = estimate_validation_cost(schema)
    except ConfigError:
        return
    if is_nested_deeper(value, found.max_depth):
        return
    assert max(apply(schema, value).values()) <= found.errors_per_value
    errors = list(jsonschema_rs.validator_for(schema).iter_errors(value))
    assert len(errors) <= found.errors_per_value * count_values(value, 10_000)


def apply(schema: dict[str, Any], value: Any) -> Counter[str]:
    """Apply every part of a schema to a value, as the worst validator would, and count the parts for each value."""
    applied: Counter[str] = Counter()

    def visit(part: Any, value: Any, path: str, inside: tuple[int, ...] = ()) -> None:
        if isinstance(part, dict) and id(part) in inside:
            return
        applied[path] += 1
        if isinstance(part, dict):
            for each in in_place(part):
                visit(each, value, path, (*inside, id(part)))
            for key, child, each in below(part, value):
                visit(each, child, f"{path}/{key}")

    def in_place(part: dict[str, Any]) -> Iterator[Any]:
        for word in ("allOf", "anyOf", "oneOf"):
            yield from part.get(word, ())
        yield from [part[word] for word in ("not", "if") if word in part]
        if "$ref" in part:
            yield schema["$defs"][part["$ref"][-1]]

    visit(schema, value, "")
    return applied


def below(part: dict[str, Any], value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each place in a value with what is there and a part that is applied to it."""
    if isinstance(value, dict):
        known = part.get("properties", {})
        for key, child in value.items():
            if key in known:
                yield key, child, known[key]
            elif "additionalProperties" in part:
                yield key, child, part["additionalProperties"]
            if "unevaluatedProperties" in part:
                yield key, child, part["unevaluatedProperties"]
    if isinstance(value, list):
        for word in {"items", "contains"} & part.keys():
            yield from [(place, child, part[word]) for place, child in enumerate(value)]
