"""Schemas that are put together keep their meaning."""

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from perdure._core.schema.definitions import add_definitions, add_enum_types, hoist_definitions, inline_root_reference


def test_definitions_move_to_the_root():
    definitions = {"Old": {"type": "null"}}
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}}
    assert hoist_definitions(schema, definitions) == {"$ref": "#/$defs/A"}
    assert definitions == {"Old": {"type": "null"}, "A": {"type": "string"}}
    assert hoist_definitions({"type": "integer"}, definitions) == {"type": "integer"}


def test_the_same_definition_is_there_once():
    definitions: dict = {}
    for _ in range(2):
        hoist_definitions({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}}, definitions)
    assert definitions == {"A": {"type": "string"}}


def test_another_definition_of_the_same_name_gets_another_name():
    definitions = {"A": {"type": "string"}, "A_2": {"type": "null"}}
    schema = {
        "anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
        "discriminator": {"propertyName": "kind", "mapping": {"a": "#/$defs/A", "b": "#/$defs/B"}},
        "$defs": {"A": {"type": "integer"}, "B": {"items": {"$ref": "#/$defs/A"}, "minItems": 1}},
    }
    assert hoist_definitions(schema, definitions) == {
        "anyOf": [{"$ref": "#/$defs/A_3"}, {"$ref": "#/$defs/B_2"}],
        "discriminator": {"propertyName": "kind", "mapping": {"a": "#/$defs/A_3", "b": "#/$defs/B_2"}},
    }
    assert definitions == {
        "A": {"type": "string"},
        "A_2": {"type": "null"},
        "A_3": {"type": "integer"},
        "B_2": {"items": {"$ref": "#/$defs/A_3"}, "minItems": 1},
    }


def test_only_definitions_that_are_used_are_kept():
    definitions = {"A": {"items": {"$ref": "#/$defs/B"}}, "B": {}, "C": {"$ref": "#/$defs/A"}}
    schema = {"items": {"$ref": "#/$defs/A"}}
    assert add_definitions(schema, definitions) == {**schema, "$defs": {"A": definitions["A"], "B": {}}}
    assert add_definitions({"type": "null"}, definitions) == {"type": "null"}


types = st.sampled_from(["string", "integer", "null", "boolean"])
schemas = st.tuples(types, types).map(
    lambda kinds: {
        "$ref": "#/$defs/Outer",
        "$defs": {
            "Outer": {"properties": {"inner": {"$ref": "#/$defs/Inner"}, "own": {"type": kinds[0]}}},
            "Inner": {"type": kinds[1]},
        },
    }
)
values = st.sampled_from(["a", 1, None, True])


@given(st.lists(schemas, min_size=1, max_size=5), values, values)
def test_a_schema_means_the_same_after_it_was_moved(originals, inner, own):
    definitions: dict = {}
    moved = [hoist_definitions(schema, definitions) for schema in originals]
    value = {"inner": inner, "own": own}
    for schema, original in zip(moved, originals, strict=True):
        whole = {**schema, "$defs": definitions}
        assert jsonschema_rs.is_valid(whole, value) is jsonschema_rs.is_valid(original, value)


def test_a_type_stands_at_the_root_instead_of_a_reference_to_it():
    schema = {
        "description": "Outer words.",
        "$ref": "#/$defs/A",
        "$defs": {
            "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}, "description": "Inner words."},
            "B": {"type": "string"},
        },
    }
    assert inline_root_reference(schema) == {
        "type": "object",
        "properties": {"b": {"$ref": "#/$defs/B"}},
        "description": "Outer words.",
        "$defs": {"B": {"type": "string"}},
    }
    assert inline_root_reference({"$ref": "#/$defs/A", "$defs": {"A": {"type": "null"}}}) == {"type": "null"}
    assert inline_root_reference({"type": "array"}) == {"type": "array"}


def test_a_type_that_refers_to_itself_stays_a_definition_too():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    assert inline_root_reference({"$ref": "#/$defs/Node", "$defs": {"Node": node}}) == {**node, "$defs": {"Node": node}}


def test_lists_of_allowed_values_say_their_type():
    schema = {
        "anyOf": [
            {"enum": ["a", "b"]},
            {"enum": [1, 2]},
            {"enum": [1, "a"]},
            {"enum": [None]},
            {"enum": ["a"], "type": "x"},
        ],
        "properties": {"enum": {"enum": ["a"]}},
    }
    assert add_enum_types(schema) == {
        "anyOf": [
            {"type": "string", "enum": ["a", "b"]},
            {"type": "integer", "enum": [1, 2]},
            {"enum": [1, "a"]},
            {"enum": [None]},
            {"enum": ["a"], "type": "x"},
        ],
        "properties": {"enum": {"type": "string", "enum": ["a"]}},
    }
