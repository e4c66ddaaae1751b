"""The rules of each dialect of schemas, and what is said when one is broken."""

from typing import Any

import pytest

from perdure._models.schemas.lint import find_violations

TEXT: dict[str, Any] = {"type": "string"}
CLOSED: dict[str, Any] = {"additionalProperties": False}
POINT: dict[str, Any] = {"$defs": {"P": TEXT}}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    ("schema", "rules", "violations"),
    [
        ("text", "gemini", ["the schema is 'text', not an object"]),
        (None, "plain", ["the schema is None, not an object"]),
        ({"anyOf": [TEXT]}, "openai", ["there is 'anyOf' at the top"]),
        ({"not": {}, "enum": [1]}, "openai", ["there is 'not' at the top"]),
        ({"oneOf": [TEXT]}, "plain", []),
        ({"$ref": "#"}, "plain", []),
        (TEXT, "plain", ["the top is not of type 'object'", "the top has no properties"]),
        ({"type": "object"}, "openai", ["the top has no properties"]),
        ({"type": "object", "properties": []}, "plain", ["the top has no properties"]),
        ({"type": "object", "properties": {}}, "gemini", []),
        ({**of(a=TEXT, b=TEXT), "required": ["a"], **CLOSED}, "openai_strict", [": not all properties are required"]),
        (of(a=TEXT), "openai_strict", [": additionalProperties is not false"]),
        ({**of(a=TEXT), **CLOSED}, "openai_strict", []),
        (
            of(**{"a b": TEXT, "n" * 64: TEXT, "m" * 65: TEXT}),
            "anthropic",
            [": no property may be called 'a b'", f": no property may be called '{'m' * 65}'"],
        ),
        (of(**{"a b": TEXT}), "openai", []),
    ],
)
def test_what_the_top_of_a_schema_breaks_is_told(schema: Any, rules: str, violations: list[str]) -> None:
    assert find_violations(schema, rules) == violations


@pytest.mark.parametrize(
    ("schema", "rules", "violations"),
    [
        (7, "openai", ["7 is not a schema"]),
        (True, "openai", []),
        (True, "gemini_json", ["True is not a schema"]),
        (
            {"type": "string", "x-a": 1, "minLength": 1},
            "gemini_json",
            ["the keyword 'minLength' is not supported", "the keyword 'x-a' is not supported"],
        ),
        ({"type": "string", "format": "uuid"}, "gemini", ["the format 'uuid' is not supported"]),
        ({"type": "string", "format": "int32"}, "gemini", ["the format 'int32' is not supported"]),
        ({"type": "integer", "format": "int32"}, "gemini", []),
        ({"type": ["string", "integer"], "format": "int32"}, "gemini_json", []),
        ({"type": "string", "pattern": "a"}, "llamacpp", ["the pattern 'a' is not simple enough"]),
        ({"type": "string", "pattern": "^a$"}, "llamacpp", []),
        ({"type": "string", "pattern": "a"}, "gemini", []),
        (
            {"type": "array", "items": TEXT, "minItems": 1001, "maxItems": 1000},
            "llamacpp",
            ["minItems is 1001, more than a grammar can repeat"],
        ),
        (
            {"type": "string", "minLength": 1000, "maxLength": 1001},
            "llamacpp",
            ["maxLength is 1001, more than a grammar can repeat"],
        ),
        (
            {"type": "number", "exclusiveMinimum": True, "exclusiveMaximum": 5},
            "openai",
            ["exclusiveMinimum is a flag, as in draft 4"],
        ),
        ({"type": "any"}, "openai", ["there is no type 'any'"]),
        ({"type": ["string", "null"]}, "gemini", ["a list of types"]),
        ({"type": ["string", "null"]}, "openai", []),
        ({"type": ["string", "null"]}, "gemini_json", []),
        ({"description": "d"}, "gemini", ["there is no type"]),
        ({"description": "d"}, "gemini_json", []),
        ({"anyOf": [TEXT, {"type": "integer"}]}, "gemini", []),
        ({"type": "array"}, "gemini", ["an array must have items"]),
        ({"type": "array"}, "openai", []),
        ({"type": "array", "items": [TEXT]}, "openai", ["items are a list, as in draft 7"]),
        ({"enum": []}, "openai", ["enum is []"]),
        ({"enum": "a"}, "openai", ["enum is 'a'"]),
        ({"type": "string", "enum": ["a", ""]}, "gemini", ["enum contains a value that is not text"]),
        ({"type": "string", "enum": ["a", 1]}, "gemini", ["enum contains a value that is not text"]),
        ({"type": "integer", "enum": ["a"]}, "gemini", ["enum of a type other than string"]),
        ({"type": "string", "enum": ["a"]}, "gemini", []),
        ({"type": "integer", "enum": [1]}, "openai", []),
        ({"type": "object", "properties": []}, "openai", ["properties or required are malformed"]),
        ({"type": "object", "required": "a"}, "openai", ["properties or required are malformed"]),
        ({**of(a=TEXT), "required": ["b"]}, "gemini", ["a required name is not a property"]),
        ({**of(a=TEXT), "required": ["b"]}, "openai", []),
        ({"type": "object", "properties": {}}, "gemini", ["there are no properties"]),
        ({"type": "object", "properties": {}}, "kimi", []),
        ({"type": "string", "properties": {"a": TEXT}}, "gemini", ["properties of a type other than object"]),
        ({"type": "string", "required": []}, "gemini", ["properties of a type other than object"]),
        ({"type": "string", "required": []}, "openai", []),
        ({"$ref": "#/$defs/Q"}, "openai", ["refers to '#/$defs/Q', which does not exist"]),
        ({"$ref": 7}, "openai", ["refers to 7, which does not exist"]),
        ({"$ref": "#/$defs/P", "description": "d"}, "openai", []),
        ({"$ref": "#/$defs/P", "description": "d"}, "gemini_json", ["there are keywords beside a reference"]),
        ({"$ref": "#/$defs/P"}, "gemini_json", []),
        ({"$ref": "#/$defs/P"}, "bedrock", ["references are not supported"]),
        ({"anyOf": [TEXT], "description": "d"}, "gemini", ["there are keywords beside anyOf"]),
        ({"anyOf": [TEXT], "description": "d"}, "openai", []),
        ({"anyOf": [TEXT, {"type": "any"}]}, "openai", ["/anyOf/1: there is no type 'any'"]),
    ],
)
def test_what_a_property_breaks_is_told_with_its_place(schema: Any, rules: str, violations: list[str]) -> None:
    definitions = POINT if "$ref" in str(schema) else {}
    found = find_violations({**of(x=schema), **definitions}, rules)
    assert found == [f"/x{each}" if each.startswith("/") else f"/x: {each}" for each in violations]


@pytest.mark.parametrize(
    ("schema", "violations"),
    [
        ({"type": "array", "items": TEXT, "minItems": 2}, ["/x: minItems is 2"]),
        ({"type": "array", "items": TEXT, "minItems": 1}, []),
        ({"type": "array", "items": TEXT, "enum": [["a"]]}, ["/x: enum contains objects or arrays"]),
        ({"type": "object", "properties": {}, **CLOSED, "enum": [{}]}, ["/x: enum contains objects or arrays"]),
        ({"type": "string", "enum": ["a", ""]}, []),
        ({"type": ["object"], "properties": {}}, ["/x: a list of types", "/x: additionalProperties is not false"]),
    ],
)
def test_the_rules_of_structured_output_of_anthropic_are_checked(schema: Any, violations: list[str]) -> None:
    assert find_violations({**of(x=schema), **CLOSED}, "anthropic_output") == violations


def test_a_schema_is_checked_to_a_hundred_levels() -> None:
    def nest(levels: int) -> dict[str, Any]:
        schema = TEXT
        for _ in range(levels):
            schema = {"type": "array", "items": schema}
        return of(x=schema)

    assert find_violations(nest(99), "openai") == []
    assert find_violations(nest(100), "openai") == [f"/x{'/items' * 100}: nested too deep"]
