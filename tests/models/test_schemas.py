"""A schema in the words of each provider: what fits it still fits, what it refuses is not in it."""

import copy
import json
import time
from itertools import pairwise
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ConfigError
from perdure._models.schemas.compile import can_be_strict, compile_schema, list_schema_dialects
from perdure._models.schemas.lint import find_violations
from perdure._models.schemas.normalize import get_possible_types
from tests.wire.recordings import LONG, recordings

ALL = list_schema_dialects()
EXACT = [name for name in ALL if name != "plain"]
STRICT = ("openai_strict", "anthropic_output")

TEXT = {"type": "string"}


def of(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


def only(schema, name):
    """What becomes of one property."""
    return compile_schema(of(x=schema), name)["properties"]["x"]


TREE = {
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
            "required": ["v"],
        }
    },
    **of(tree={"$ref": "#/$defs/Node", "description": "the tree"}),
}


# -- for everybody -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"properties": {"a": TEXT}},
        of(a=TEXT),
        {**of(a=TEXT), "$schema": "https://json-schema.org/draft-07/schema#", "title": "T", "description": "D"},
    ],
)
def test_the_top_is_always_an_object_with_properties(schema, name):
    found = compile_schema(schema, name)
    assert found["type"] == "object"
    assert isinstance(found["properties"], dict)
    assert find_violations(found, name) == []


@pytest.mark.parametrize("name", ALL)
def test_the_input_is_left_as_it_is_and_the_result_is_always_the_same(name):
    schema = copy.deepcopy(TREE)
    first = json.dumps(compile_schema(schema, name))
    assert schema == TREE
    assert json.dumps(compile_schema(copy.deepcopy(TREE), name)) == first


def test_a_schema_that_was_compiled_costs_nothing_the_second_time():
    schema = of(a=TEXT)
    assert compile_schema(schema, "gemini") is compile_schema(schema, "gemini")
    assert compile_schema(copy.deepcopy(schema), "gemini") is compile_schema(schema, "gemini")
    started = time.process_time()
    for _ in range(10_000):
        compile_schema(schema, "gemini")
    assert time.process_time() - started < 0.2


def test_unknown_rules_are_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match=r"unknown schema rules 'klingon'.*gemini"):
        compile_schema({}, "klingon")


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("https://example.com/schema.json", "in another document"),
        ("other.json#/a", "in another document"),
        ("#/$defs/Missing", "does not exist"),
        ("#anchor", "anchor"),
    ],
)
def test_a_reference_that_leads_out_of_the_schema_or_nowhere_is_refused(reference, words, name):
    with pytest.raises(ConfigError, match=words):
        compile_schema(of(a={"$ref": reference}), name)


@pytest.mark.parametrize("name", EXACT)
def test_the_order_of_properties_is_kept(name):
    schema = of(**dict.fromkeys("zebra", TEXT))
    assert list(compile_schema(schema, name)["properties"]) == list("zebra")


@pytest.mark.parametrize("name", ALL)
def test_a_definition_that_holds_itself_is_described_as_far_as_the_provider_goes(name):
    found = compile_schema(TREE, name)
    assert find_violations(found, name) == []
    assert found["properties"]["tree"]["description"] == "the tree"
    assert ("$ref" in json.dumps(found)) == (name not in {"gemini", "kimi", "bedrock", "anthropic_output"})


# -- bombs -------------------------------------------------------------------------------------------------------------


def _wide_refs(width, depth):
    """Each definition refers to the next one many times: the unfolded form has width to the power of depth parts."""
    names = [f"d{number}" for number in range(depth)]
    defs = {one: of(**{f"p{n}": {"$ref": f"#/$defs/{other}"} for n in range(width)}) for one, other in pairwise(names)}
    return {"$defs": {**defs, names[-1]: TEXT}, **of(a={"$ref": "#/$defs/d0"})}


def _deep(levels):
    schema: dict = TEXT
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return of(a=schema)


def _all_of_bomb(depth):
    schema: dict = {"type": "object"}
    for _ in range(depth):
        schema = {"allOf": [schema, schema]}
    return of(a=schema)


def _nested(levels):
    schema: dict = TEXT
    for _ in range(levels):
        schema = of(a=schema)
    return schema


BOMBS = {
    "wide": _wide_refs(10, 12),
    "deep": _deep(500),
    "nested": _nested(500),
    "allOf": _all_of_bomb(12),
    "many": of(**{f"p{n}": TEXT for n in range(6_000)}),
    "itself": of(a={"$ref": "#/properties/a"}),
    "circle": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, **of(a={"$ref": "#/$defs/a"})},
    "root": {**of(a=TEXT), "allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "all of root": of(a={"allOf": [{"$ref": "#"}, {"description": "again"}]}),
    "top circle": {"$ref": "#"},
    "mutual": {
        "$defs": {
            f"d{one}": of(**{f"p{other}": {"$ref": f"#/$defs/d{other}", "description": "x"} for other in range(8)})
            for one in range(8)
        },
        **of(a={"$ref": "#/$defs/d0"}),
    },
    "any of any of": of(a={"anyOf": [{"anyOf": [{"$ref": "#/properties/a"}, TEXT]}, {"type": "integer"}]}),
}


BOMBED = len(EXACT) if LONG else 3
"""The dialects into which each bomb is compiled: others for each, unless all are, as one takes up to half a second."""


@pytest.mark.faults
@pytest.mark.parametrize(
    ("bomb", "name"),
    [
        (bomb, EXACT[(BOMBED * number + shift) % len(EXACT)])
        for number, bomb in enumerate(BOMBS)
        for shift in range(BOMBED)
    ],
)
def test_a_schema_that_explodes_becomes_one_that_says_less(bomb, name):
    started = time.process_time()
    found = compile_schema(BOMBS[bomb], name)
    assert time.process_time() - started < 5
    assert len(json.dumps(found)) < 1_000_000
    assert [each for each in find_violations(found, name) if "more than" not in each] == []


def test_what_is_too_large_for_strictness_is_not_strict():
    assert not can_be_strict(BOMBS["many"])
    nested = TEXT
    for _ in range(12):
        nested = of(a=nested)
    assert not can_be_strict(nested)
    assert can_be_strict(of(a=of(b=of(c=TEXT))))


def test_a_schema_may_be_exactly_as_large_as_a_provider_allows():
    def sizes(schema):
        return [each for each in find_violations(schema, "openai_strict") if "more than" in each]

    def wide(count):
        return of(
            **{f"p{number}": TEXT for number in range(count - 1)}, last=of(), many={"type": "array", "items": TEXT}
        )

    assert sizes(wide(4_999)) == []
    assert sizes(wide(5_000)) == ["there are 5001 properties, more than 5000"]
    deep: list[dict[str, Any]] = [TEXT]
    for _ in range(11):
        deep.append({"anyOf": [of(a=deep[-1]), TEXT]})
    assert sizes(deep[10]) == []
    assert sizes(deep[11]) == ["objects are nested 11 deep, more than 10"]


# -- one provider after the other --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["openai", "anthropic", "bedrock", "mistral"])
def test_those_who_know_all_words_get_the_schema_as_it_is(name):
    inner = {"oneOf": [TEXT, {"type": "array", "prefixItems": [TEXT], "uniqueItems": True}], "not": {"const": "a"}}
    assert only(inner, name) == inner
    assert only({"type": "string", "minLength": 1, "x-more": 1}, name) == {
        "type": "string",
        "minLength": 1,
        "x-more": 1,
    }


@pytest.mark.parametrize("name", ["anthropic", "openai", "gemini", "kimi", "bedrock"])
def test_older_drafts_are_said_in_the_words_of_today(name):
    found = only({"type": "number", "minimum": 1, "exclusiveMinimum": True}, name)
    assert found.get("exclusiveMinimum", 1) == 1
    assert "Minimum" in json.dumps(found) or "minimum" in found
    assert (
        find_violations(compile_schema(of(a={"type": "array", "items": [TEXT, {"type": "integer"}]}), name), name) == []
    )
    assert "any" not in json.dumps(only({"type": "any", "description": "x"}, name)).replace("anyOf", "")
    assert find_violations(compile_schema(of(a={"type": "string", "required": True}), name), name) == []


@pytest.mark.parametrize("name", ["anthropic", "openai", "bedrock", "gemini", "kimi", "openai_strict"])
def test_alternatives_at_the_top_become_one_object(name):
    schema = {
        "type": "object",
        "properties": {"id": TEXT, "title": TEXT, "body": TEXT},
        "required": ["id"],
        "anyOf": [{"required": ["title"]}, {"required": ["body"]}],
    }
    found = compile_schema(schema, name)
    assert find_violations(found, name) == []
    assert list(found["properties"]) == ["id", "title", "body"]
    assert "needs title, or body" in found["description"].lower()
    assert not can_be_strict(schema)


@pytest.mark.parametrize("name", ["anthropic", "gemini", "kimi"])
def test_the_properties_of_all_alternatives_at_the_top_are_offered(name):
    one, other = of(kind={"const": "a"}, name=TEXT), of(kind={"const": "b"}, age={"type": "integer"})
    found = compile_schema({"$defs": {"other": other}, "oneOf": [one, {"$ref": "#/$defs/other"}]}, name)
    assert find_violations(found, name) == []
    assert set(found["properties"]) == {"kind", "name", "age"}
    assert found["required"] == ["kind"]


@pytest.mark.parametrize("name", ["llamacpp", "plain", "gemini_json"])
def test_alternatives_at_the_top_stay_where_they_are_welcome(name):
    schema = {"anyOf": [of(tool={"const": "a"}, args=of(b=TEXT)), of(final=TEXT)]}
    found = compile_schema(schema, name)
    assert find_violations(found, name) == []
    assert len(found["anyOf"]) == 2
    validator = jsonschema_rs.validator_for(dict(found))
    assert validator.is_valid({"tool": "a", "args": {"b": "c"}})
    assert validator.is_valid({"final": "x"})
    assert not validator.is_valid({"tool": "a"})


def test_openai_strict_requires_everything_and_lets_the_optional_be_null():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "minLength": 2, "pattern": "^x", "default": "xy"},
            "b": {"enum": ["u", "v"]},
            "c": {"anyOf": [TEXT, {"type": "integer"}]},
            "d": {"const": 3},
            "e": of(f=TEXT),
        },
        "required": ["a"],
    }
    assert compile_schema(schema, "openai_strict") == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "pattern": "^x", "description": 'At least 2 characters; default "xy"'},
            "b": {"type": ["string", "null"], "enum": ["u", "v", None]},
            "c": {"anyOf": [TEXT, {"type": "integer"}, {"type": "null"}]},
            "d": {"type": ["integer", "null"], "enum": [3, None]},
            "e": {
                "type": ["object", "null"],
                "properties": {"f": TEXT},
                "required": ["f"],
                "additionalProperties": False,
            },
        },
        "required": ["a", "b", "c", "d", "e"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {},
        of(a={}),
        of(a={"type": "object"}),
        of(a={"type": "object", "additionalProperties": TEXT}),
        {**of(a=TEXT), "additionalProperties": True},
        {**of(a=TEXT), "patternProperties": {"^x": TEXT}},
        of(a={"type": "array"}),
        {"oneOf": [of(a=TEXT), of(b=TEXT)]},
        TREE,
        {"type": "object", "properties": {"a": TEXT}},  # said to be null by a model that has to say something
        of(a={"type": "array", "items": {"type": "object", "properties": {"b": TEXT}, "required": []}}),
    ],
)
def test_what_strictness_cannot_express_is_not_strict(schema):
    assert not can_be_strict(schema)
    assert find_violations(compile_schema(schema, "openai_strict"), "openai_strict") == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}, "additionalProperties": False},
        of(a=TEXT),
        {**of(a={"type": ["string", "null"], "format": "hex"}), "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": []},
        of(a={"oneOf": [of(b=TEXT), of(c=TEXT)]}),
        of(a={"allOf": [of(b=TEXT), of(c=TEXT)]}),
    ],
)
def test_what_strictness_can_express_is_strict(schema):
    assert can_be_strict(schema)
    assert find_violations(compile_schema(schema, "openai_strict"), "openai_strict") == []


def test_a_structured_output_of_anthropic_may_not_hold_itself():
    assert not can_be_strict(TREE, "anthropic_output")
    bounded = of(a={"type": "integer", "minimum": 3}, b={"type": "array", "items": TEXT, "minItems": 4})
    assert can_be_strict(bounded, "anthropic_output")
    found = only({"type": "array", "items": TEXT, "minItems": 4, "maxItems": 5}, "anthropic_output")
    assert found == {"type": "array", "minItems": 1, "items": TEXT, "description": "At least 4 items; at most 5 items"}


@pytest.mark.parametrize("name", ["openai_strict", "gemini", "anthropic"])
def test_what_cannot_stand_at_the_top_is_told_in_the_description(name):
    schema = {**of(x=TEXT), "not": {"required": ["y"]}, "enum": [{"x": "a"}]}
    compiled = compile_schema(schema, name)
    assert not {"not", "enum"} & compiled.keys()
    assert "But not" in compiled["description"]
    assert '"x":"a"' in compiled["description"].replace(" ", "")
    assert compiled["properties"] == {"x": TEXT}


@pytest.mark.parametrize("name", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({}, TEXT, TEXT),
        (TEXT, {}, TEXT),
        (True, TEXT, TEXT),
        (TEXT, TEXT, TEXT),
        (TEXT, {"type": "integer"}, {"anyOf": [TEXT, {"type": "integer"}]}),
    ],
)
def test_a_property_of_two_alternatives_at_the_top_may_be_either_and_anything_adds_nothing(name, one, other, both):
    compiled = compile_schema({"anyOf": [of(x=one), of(x=other)]}, name)
    assert compiled["properties"] == {"x": both}


POINT = of(v=TEXT) | {"additionalProperties": False}
A_REFERENCE = {"$ref": "#/$defs/Point"}


@pytest.mark.parametrize("name", ["openai", "mistral", "anthropic"])
def test_a_definition_is_referred_to_also_where_it_is_described(name):
    described = {**A_REFERENCE, "description": "the end"}
    compiled = compile_schema({"$defs": {"Point": POINT}, **of(x=A_REFERENCE, y=described)}, name)
    assert compiled["properties"] == {"x": A_REFERENCE, "y": described}
    assert compiled["$defs"] == {"Point": POINT}


def test_openai_strict_is_told_a_definition_in_full_where_it_is_described():
    described = {**A_REFERENCE, "description": "the end"}
    compiled = compile_schema({"$defs": {"Point": POINT}, **of(x=A_REFERENCE, y=described)}, "openai_strict")
    assert compiled["properties"] == {"x": A_REFERENCE, "y": {**POINT, "description": "the end"}}


@pytest.mark.parametrize(("least", "said"), [(0, {}), (1, {}), (2, {"minItems": 1, "description": "At least 2 items"})])
def test_anthropic_is_told_in_words_when_more_than_one_item_is_needed(least, said):
    array = {"type": "array", "items": TEXT, "minItems": least}
    assert only(array, "anthropic_output") == {**array, **said}


def test_what_holds_itself_behind_a_description_is_still_an_object():
    again = {"allOf": [{"$ref": "#/$defs/Node"}], "description": "A child."}
    schema = {**of(top={"$ref": "#/$defs/Node"}), "$defs": {"Node": of(children={"type": "array", "items": again})}}
    strict = compile_schema(schema, "openai_strict")
    assert json.dumps(strict).count('{"$ref": "#/$defs/Node"}') == 2
    assert '"anyOf"' not in json.dumps(strict)
    assert '"anyOf"' not in json.dumps(compile_schema(schema, "gemini"))


@pytest.mark.parametrize(("also", "closed"), [({"additionalProperties": False}, True), ({}, False)])
@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_union_of_objects_is_closed_when_all_of_them_are(name, also, closed):
    union = {"type": "object", "anyOf": [{**of(a=TEXT), "additionalProperties": False}, {**of(b=TEXT), **also}]}
    assert ("additionalProperties" in compile_schema(union, name)) == closed
    told = {**union, "additionalProperties": True}
    assert compile_schema(told, name)["additionalProperties"] is True


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"allOf": [{"type": "string"}], "description": "A name."}, {"type": "string", "description": "A name."}),
        ({"allOf": [{"allOf": [{"type": "string"}]}]}, {"type": "string"}),
        ({"allOf": [{"type": "string"}], "minLength": 3}, {"type": "string", "minLength": 3}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "integer", "nullable": True}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"enum": ["a", None]}, {"type": "string", "enum": ["a"], "nullable": True}),
        ({"enum": [1, 2]}, {"type": "integer", "description": "One of 1, 2"}),
        ({"enum": ["", "a"]}, {"type": "string", "description": 'One of "", "a"'}),
        ({"type": "string", "format": "uuid"}, {"type": "string", "description": "Format uuid"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "object", "properties": {}}, {"type": "object"}),
        (
            {"type": "array", "items": TEXT, "uniqueItems": True},
            {"type": "array", "items": TEXT, "description": "No item twice"},
        ),
        ({"type": "array", "items": TEXT, "uniqueItems": False}, {"type": "array", "items": TEXT}),
        ({"type": "boolean", "default": True}, {"type": "boolean", "description": "Default true"}),
        ({"type": "boolean", "default": False}, {"type": "boolean", "description": "Default false"}),
        ({"type": "string", "default": None}, {"type": "string"}),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        ({"type": "object", "additionalProperties": False}, {"type": "object"}),
        ({"type": "number", "exclusiveMaximum": 5}, {"type": "number", "maximum": 5, "description": "Less than 5"}),
        ({"anyOf": [{"allOf": [{"oneOf": [{"type": "boolean"}]}, {"title": "t"}]}]}, {"type": "boolean", "title": "t"}),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}, {"minimum": 1}]}, {"type": "integer", "minimum": 3}),
        ({"allOf": [{"type": "integer"}, {"maximum": 1}, {"maximum": 3}]}, {"type": "integer", "maximum": 1}),
        ({"allOf": [{"type": "integer"}, {"maximum": 3}, {"maximum": 1}]}, {"type": "integer", "maximum": 1}),
        (
            {"type": ["string", "integer"], "description": "d", "minimum": 1},
            {"anyOf": [{"type": "string", "description": "d"}, {"type": "integer", "minimum": 1, "description": "d"}]},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}, "description": "Counts"},
            {"type": "object", "description": 'Counts (further properties: {"type":"integer"})'},
        ),
    ],
)
def test_gemini_is_told_what_its_schema_can_say(schema, expected):
    assert only(schema, "gemini") == expected


def test_kimi_gets_a_type_everywhere_and_none_beside_alternatives():
    found = only({"type": "string", "anyOf": [{"enum": ["a"]}, {"minLength": 3}], "description": "d"}, "kimi")
    assert found == {
        "anyOf": [
            {"type": "string", "enum": ["a"], "description": "d"},
            {"type": "string", "minLength": 3, "description": "d"},
        ]
    }
    assert all("type" in each for each in only({"description": "anything"}, "kimi")["anyOf"])


def test_a_grammar_gets_only_patterns_and_repetitions_that_it_can_be_made_of():
    assert only({"type": "string", "pattern": "^[a-z]+$"}, "llamacpp") == {"type": "string", "pattern": "^[a-z]+$"}
    assert "pattern" not in only({"type": "string", "pattern": "[a-z]"}, "llamacpp")
    assert "pattern" not in only({"type": "string", "pattern": r"^\d+(?=a)$"}, "llamacpp")
    assert "maxLength" not in only({"type": "string", "maxLength": 100_000}, "llamacpp")


# -- taken back --------------------------------------------------------------------------------------------------------


# -- any schema --------------------------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "c", "name", "kind"])
_SCALARS = st.one_of(
    st.text("abx1 ", max_size=4).map(lambda value: (TEXT, value)),
    st.integers(-5, 5).map(lambda value: ({"type": "integer", "minimum": -5, "exclusiveMaximum": 6}, value)),
    st.floats(-4, 4).map(lambda value: ({"type": "number", "maximum": 4.0}, value)),
    st.booleans().map(lambda value: ({"type": "boolean"}, value)),
    st.just(({"type": "null"}, None)),
    st.sampled_from(["x", "yy"]).map(lambda value: ({"enum": ["x", "yy"], "description": "Which."}, value)),
    st.sampled_from([1, 2, None]).map(lambda value: ({"enum": [1, 2, None]}, value)),
    st.sampled_from(["k", 7, True]).map(lambda value: ({"const": value}, value)),
    st.text("ab", min_size=2, max_size=4).map(
        lambda value: (
            {"type": "string", "minLength": 2, "pattern": "^[ab]+$", "format": "odd", "default": "ab"},
            value,
        )
    ),
    st.none().map(lambda value: ({"type": ["string", "integer", "null"]}, value)),
    st.text("ab", max_size=3).map(lambda value: ({"type": "string", "nullable": True}, value)),
)
"""Pairs of a schema, and a value that fits it."""


def _arrays(inner):
    return st.lists(inner, min_size=1, max_size=3).map(
        lambda pairs: (
            {"type": "array", "items": {"anyOf": [schema for schema, _ in pairs]}, "minItems": 1, "uniqueItems": False},
            [value for _, value in pairs],
        )
    )


def _tuples(inner):
    return st.lists(inner, min_size=1, max_size=3).map(
        lambda pairs: (
            {"type": "array", "prefixItems": [schema for schema, _ in pairs], "items": False},
            [value for _, value in pairs],
        )
    )


def _objects(inner):
    return st.tuples(st.dictionaries(_NAMES, inner, max_size=3), st.booleans(), st.booleans()).map(
        lambda made: (
            {
                "type": "object",
                "properties": {name: schema for name, (schema, _) in made[0].items()},
                **({"required": sorted(made[0])} if made[1] else {}),
                **({"additionalProperties": False} if made[2] else {}),
            },
            {name: value for name, (_, value) in made[0].items()},
        )
    )


def _choices(inner):
    return st.tuples(inner, inner, st.sampled_from(["anyOf", "oneOf"])).map(
        lambda made: ({made[2]: [made[0][0], {"type": "object", "required": ["never"]}], "title": "T"}, made[0][1])
    )


def _conjunctions(inner):
    return st.tuples(inner, st.booleans()).map(
        lambda made: ({"allOf": [made[0][0], {"description": "both"}, *([{}] if made[1] else [])]}, made[0][1])
    )


_PAIRS = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(_arrays(inner), _tuples(inner), _objects(inner), _choices(inner), _conjunctions(inner)),
    max_leaves=8,
)


@st.composite
def _documents(draw):
    """A whole schema with definitions, and a value that fits it."""
    made = draw(st.dictionaries(_NAMES, _PAIRS, max_size=3))
    shared, known = draw(_PAIRS)
    properties = {name: schema for name, (schema, _) in made.items()} | {
        "it": {"$ref": "#/$defs/It", "description": "i"}
    }
    schema = {"$defs": {"It": shared}, "type": "object", "properties": properties, "required": ["it"]}
    return schema, {**{name: value for name, (_, value) in made.items()}, "it": known}


def _as_json_schema(schema):
    """What Gemini means by `nullable`."""
    if isinstance(schema, list):
        return [_as_json_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _as_json_schema(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain


def _with_nulls(value, schema, defs):
    """As a model says it that must say everything."""
    if "$ref" in schema:
        schema = defs[schema["$ref"].removeprefix("#/$defs/")]
    if isinstance(value, dict) and "properties" in schema:
        return {
            name: _with_nulls(value[name], each, defs) if name in value else None
            for name, each in schema["properties"].items()
        }
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_with_nulls(each, schema["items"], defs) for each in value]
    return value


@given(made=_documents())
def test_what_is_made_of_any_schema_breaks_no_rule(made):
    schema, _ = made
    before = json.dumps(schema)
    for name in ALL:
        assert find_violations(compile_schema(schema, name), name) == []
    assert json.dumps(schema) == before


@given(made=_documents())
def test_what_fits_a_schema_fits_what_is_made_of_it(made):
    schema, value = made
    assert jsonschema_rs.validator_for(_as_json_schema(schema)).is_valid(value)
    for name in sorted(set(ALL) - set(STRICT)):
        found = _as_json_schema(compile_schema(schema, name))
        assert jsonschema_rs.validator_for(found).is_valid(value), name


@given(made=st.dictionaries(_NAMES, _SCALARS, min_size=1, max_size=4), kept=st.sets(_NAMES))
def test_what_a_model_says_under_strictness_fits_a_schema_that_can_be_strict(made, kept):
    properties = {name: each for name, (each, _) in made.items()}
    schema = {"type": "object", "properties": properties, "required": sorted(kept & made.keys())}
    value = {name: each for name, (_, each) in made.items() if name in kept}
    strict = dict(compile_schema(schema, "openai_strict"))
    said = _with_nulls(value, strict, {})
    assert jsonschema_rs.validator_for(strict).is_valid(said)
    if can_be_strict(schema):
        assert jsonschema_rs.validator_for(_as_json_schema(schema)).is_valid(said)


_WORDS = [
    *("type", "properties", "required", "items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf"),
    *("enum", "const", "not", "minimum", "exclusiveMinimum", "minItems", "format", "pattern", "description"),
    *("default", "nullable", "a"),
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["object", "string", "array"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=4),
    max_leaves=15,
)


@given(schema=st.dictionaries(st.sampled_from(["type", "properties", "required", "anyOf", "a", "items"]), _JSON))
def test_nonsense_is_compiled_to_something_that_breaks_no_rule(schema):
    for name in EXACT:
        assert find_violations(compile_schema(schema, name), name) == [], name


# -- real ones ---------------------------------------------------------------------------------------------------------


def _recorded():
    """The schemas of tools in all requests that were accepted, each once, with who accepted it."""
    found = {}
    for recording in recordings():
        for exchange in recording.exchanges:
            if exchange.ok and isinstance(exchange.request, dict):
                for schema in _schemas(exchange.request):
                    found[json.dumps(schema, sort_keys=True)] = (schema, exchange.label)
    return list(found.values())


def _schemas(body):
    for tool in [*(body.get("tools") or ()), *((body.get("toolConfig") or {}).get("tools") or ())]:
        if not isinstance(tool, dict):
            continue
        for each in tool.get("functionDeclarations") or [tool.get("function", tool)]:
            spec = each if isinstance(each, dict) else {}
            told = [spec.get("parameters"), spec.get("parametersJsonSchema"), spec.get("input_schema")]
            told.append(((spec.get("toolSpec") or {}).get("inputSchema") or {}).get("json"))
            yield from (schema for schema in told if isinstance(schema, dict) and "$ref" not in schema)


@pytest.mark.wire
@pytest.mark.parametrize("name", ALL)
def test_every_recorded_schema_is_compiled_without_breaking_a_rule(name):
    recorded = _recorded()
    assert len(recorded) > 50
    for schema, label in recorded:
        found = compile_schema(schema, name)
        assert [each for each in find_violations(found, name) if "may be called 'team:'" not in each] == [], label
        told = list(schema.get("properties") or {})
        assert list(found["properties"])[: len(told)] == told, label


@pytest.mark.wire
@pytest.mark.parametrize(
    ("api", "provider", "name"),
    [
        ("anthropic-messages", "anthropic", "anthropic"),
        ("bedrock-converse", "bedrock", "openai"),
        ("openai-chat", "openai", "openai"),
        ("openai-responses", "openai", "openai"),
        ("gemini", "google", "gemini"),
    ],
)
def test_the_checker_accepts_what_providers_accepted(api, provider, name):
    for recording in recordings(api, provider):
        for exchange in recording.exchanges:
            if exchange.ok and isinstance(exchange.request, dict):
                for schema in _schemas(exchange.request):
                    if name != "gemini" or not schema.keys() & {"additionalProperties", "$defs"}:
                        assert find_violations(_in_lower_case(schema), name) == [], exchange.label


def _in_lower_case(schema):
    """Client libraries of Gemini write `STRING`, and in which order to say the properties."""
    plain = {key: value for key, value in schema.items() if key != "propertyOrdering"}
    if isinstance(plain.get("type"), str):
        plain["type"] = plain["type"].lower()
    if "properties" in plain:
        plain["properties"] = {name: _in_lower_case(each) for name, each in plain["properties"].items()}
    return plain


@pytest.mark.parametrize("name", EXACT)
def test_objects_in_objects_are_told_to_a_depth_of_32(name):
    found, levels = compile_schema(_nested(200), name), 0
    while found.get("properties"):
        (found,), levels = found["properties"].values(), levels + 1
    assert levels == 32


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"enum": ["a", 1]}, ["string", "integer"]),
        ({"type": "string", "enum": [1]}, ["string"]),
        ({"enum": "no list", "properties": {}}, ["object"]),
        ({"enum": [1, 0.5]}, ["number"]),
        ({}, []),
    ],
)
def test_types_are_those_that_are_declared_or_else_those_of_the_values_or_keywords(schema, types):
    assert get_possible_types(schema) == types


# -- items in an order -------------------------------------------------------------------------------------------------

IN_ORDER = {"type": "array", "prefixItems": [TEXT, {"type": "integer"}]}
ORDER_NOTE = 'tems in this order: [{"type":"string"},{"type":"integer"}]'
SIMPLE = {"anyOf": [TEXT, {"type": "number"}, {"type": "boolean"}, {"type": "null"}]}
BOTH = {"anyOf": [TEXT, {"type": "integer"}]}


@pytest.mark.parametrize(
    ("further", "compiled"),
    [
        ({}, {"items": SIMPLE, "description": f"I{ORDER_NOTE}"}),
        ({"items": True}, {"items": SIMPLE, "description": f"I{ORDER_NOTE}"}),
        ({"items": False}, {"maxItems": 2, "items": BOTH, "description": f"I{ORDER_NOTE}"}),
        ({"items": False, "maxItems": 1}, {"maxItems": 1, "items": BOTH, "description": f"I{ORDER_NOTE}"}),
        (
            {"items": {"type": "boolean"}},
            {"items": {"anyOf": [*BOTH["anyOf"], {"type": "boolean"}]}, "description": f"I{ORDER_NOTE}"},
        ),
    ],
)
def test_items_in_an_order_become_any_of_them_where_the_order_cannot_be_said(further, compiled):
    assert only({**IN_ORDER, **further}, "openai_strict") == {"type": "array", **compiled}


@pytest.mark.parametrize("name", ["gemini_json", "llamacpp"])
@pytest.mark.parametrize(
    ("further", "compiled"),
    [
        ({}, {}),
        ({"items": True}, {}),
        ({"items": False}, {"items": False}),
        ({"items": {"type": "boolean"}}, {"items": {"type": "boolean"}}),
    ],
)
def test_items_in_an_order_stay_so_where_the_order_can_be_said(name, further, compiled):
    assert only({**IN_ORDER, **further}, name) == {**IN_ORDER, **compiled}
