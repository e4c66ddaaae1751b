"""What becomes of each kind of schema in the dialects of providers, in full."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure import ConfigError
from perdure._models.schemas.build import build_truncated_schema
from perdure._models.schemas.compile import can_be_strict, compile_schema, get_lenient_dialect, list_schema_dialects
from perdure._models.schemas.dialects import DIALECTS, is_portable_pattern
from perdure._models.schemas.normalize import upgrade_schema_draft
from perdure._models.schemas.notes import build_description_field, describe_keyword

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
NOT_SAID = "hat is in it is not described here"
SCALARS = [TEXT, {"type": "number"}, {"type": "boolean"}]
OF_GEMINI = {
    "anyOf": [{**each, "nullable": True} for each in [*SCALARS, {"type": "object"}, {"type": "array", "items": TEXT}]]
}
SIMPLE = {"anyOf": [*SCALARS, {"type": "null"}]}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def only(schema: Any, rules: str) -> Any:
    """What becomes of one property."""
    return compile_schema(of(x=schema), rules)["properties"]["x"]


@pytest.mark.parametrize(
    ("schema", "upgraded"),
    [
        ({"items": [TEXT], "additionalItems": NUMBER}, {"prefixItems": [TEXT], "items": NUMBER}),
        ({"items": [TEXT], "additionalItems": False}, {"prefixItems": [TEXT], "items": False}),
        ({"items": [TEXT]}, {"prefixItems": [TEXT]}),
        ({"items": TEXT, "additionalItems": NUMBER}, {"items": TEXT}),
        ({"nullable": True}, {}),
        ({"nullable": True, "type": "string"}, {"type": ["string", "null"]}),
        ({"nullable": False, "type": "string"}, {"type": "string"}),
        ({"nullable": True, "type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"nullable": True, "type": "string", "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"nullable": True, "type": "string", "enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"minimum": 1, "exclusiveMinimum": False}, {"minimum": 1}),
        ({"exclusiveMaximum": True}, {}),
        ({"maximum": 3, "exclusiveMaximum": True}, {"exclusiveMaximum": 3}),
        ({"exclusiveMaximum": 3, "maximum": 5}, {"exclusiveMaximum": 3, "maximum": 5}),
        ({"type": ["STRING", "x", "string"]}, {"type": "string"}),
        ({"type": "x"}, {}),
        ({"type": []}, {}),
        (
            {
                "properties": [],
                "required": [1],
                "anyOf": [],
                "enum": "a",
                "pattern": 7,
                "title": None,
                "$ref": 3,
                "x": 1,
            },
            {"x": 1},
        ),
        (
            {"required": ["a"], "$defs": {}, "allOf": [{}], "description": "d"},
            {"required": ["a"], "$defs": {}, "allOf": [{}], "description": "d"},
        ),
    ],
)
def test_a_schema_of_an_older_draft_is_said_in_the_words_of_today(schema: Any, upgraded: Any) -> None:
    before = str(schema)
    assert upgrade_schema_draft(schema) == upgraded
    assert str(schema) == before


@pytest.mark.parametrize(
    ("schema", "rules", "compiled"),
    [
        (
            {"oneOf": [TEXT, NUMBER], "anyOf": [TEXT, NUMBER], "description": "d"},
            "openai_strict",
            {
                "anyOf": [TEXT, NUMBER],
                "description": 'd (exactly one of [{"type":"string"},{"type":"integer"}])',
            },
        ),
        (
            {"oneOf": [TEXT, NUMBER], "title": "t", "default": 1},
            "llamacpp",
            {"anyOf": [TEXT, NUMBER], "title": "t", "description": "Default 1"},
        ),
        ({"oneOf": [TEXT, NUMBER], "title": "t"}, "gemini", {"anyOf": [TEXT, NUMBER]}),
        ({"const": "a"}, "openai_strict", {"type": "string", "const": "a"}),
        ({"const": "a"}, "kimi", {"type": "string", "enum": ["a"]}),
        ({"type": "integer", "enum": [1, 2.0, 2.5, "a", True]}, "openai_strict", {"type": "integer", "enum": [1, 2.0]}),
        ({"type": "number", "enum": [1, 2.5]}, "openai_strict", {"type": "number", "enum": [1, 2.5]}),
        ({"type": "string", "enum": [1]}, "openai_strict", TEXT),
        (
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 2,
                "patternProperties": {"^x": TEXT},
                "propertyNames": {"pattern": "a"},
            },
            "gemini",
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 2,
                "description": 'Properties by pattern: {"^x":{"type":"string"}}; names of properties: {"pattern":"a"}',
            },
        ),
        (True, "openai_strict", SIMPLE),
        (
            {"not": TEXT, "examples": [1, 2], "default": 3},
            "gemini_json",
            {"description": 'Default 3; but not {"type":"string"}; for example 1, 2'},
        ),
        ({"enum": [None]}, "openai_strict", {"type": "null"}),
        ({"type": ["string", "integer", "null"]}, "openai_strict", {"type": ["string", "integer", "null"]}),
        (
            {"type": ["string", "array", "null"], "items": TEXT},
            "openai_strict",
            {"anyOf": [TEXT, {"type": "array", "items": TEXT}, {"type": "null"}]},
        ),
        (
            {"type": ["string", "null"], "title": "t", "description": "d"},
            "kimi",
            {"anyOf": [{"type": "string", "title": "t", "description": "d"}, {"type": "null"}]},
        ),
        (
            {"type": ["string", "null"], "title": "t", "description": "d"},
            "anthropic_output",
            {"anyOf": [TEXT, {"type": "null"}], "title": "t", "description": "d"},
        ),
        (
            {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 5, "multipleOf": 2},
            "gemini",
            {"type": "number", "minimum": 1, "maximum": 5, "description": "More than 1; less than 5; a multiple of 2"},
        ),
        (
            {"type": "number", "exclusiveMinimum": 1, "minimum": 3},
            "gemini",
            {"type": "number", "minimum": 3, "description": "More than 1"},
        ),
        (
            {"type": "array", "items": TEXT, "minItems": 1000, "maxItems": 1001, "contains": TEXT},
            "llamacpp",
            {
                "type": "array",
                "minItems": 1000,
                "items": TEXT,
                "description": 'At most 1001 items; with an item of {"type":"string"}',
            },
        ),
        (
            {"type": "string", "pattern": "a", "format": "hex", "minLength": 1000},
            "llamacpp",
            {
                "type": "string",
                "minLength": 1000,
                "description": "Matches the regular expression a; format hex",
            },
        ),
        (
            {"type": "boolean", "if": TEXT, "example": 1, "dependentRequired": {"a": ["b"]}, "x-y": 2, "title": "t"},
            "gemini",
            {
                "type": "boolean",
                "title": "t",
                "description": 'If {"type":"string"}; dependentRequired {"a":["b"]}; for example 1',
            },
        ),
        (
            {"type": "object", "additionalProperties": TEXT},
            "kimi",
            {"type": "object", "properties": {}, "additionalProperties": TEXT},
        ),
        *[
            (
                {"type": "object", "additionalProperties": each},
                "llamacpp",
                {"type": "object", "properties": {}, "additionalProperties": each},
            )
            for each in (True, False)
        ],
        (
            {"type": "object", "properties": {"a": TEXT, "b": False}, "required": ["a", "b", "c", "a"]},
            "gemini",
            {"type": "object", "properties": {"a": TEXT, "c": OF_GEMINI}, "required": ["a", "c"]},
        ),
        ({"type": "array"}, "gemini", {"type": "array", "items": OF_GEMINI}),
        ({"type": "array"}, "llamacpp", {"type": "array"}),
        ({"type": "array"}, "anthropic_output", {"type": "array", "items": SIMPLE}),
    ],
)
def test_a_schema_is_said_in_the_words_of_the_provider(schema: Any, rules: str, compiled: Any) -> None:
    assert only(schema, rules) == compiled


@pytest.mark.parametrize(
    ("schema", "rules"),
    [
        ({"type": "array", "items": NUMBER, "enum": [[1]]}, "anthropic_output"),
        ({**of(a=TEXT), "patternProperties": {"^x": TEXT}}, "openai_strict"),
        ({**of(a=TEXT), "propertyNames": {"pattern": "x"}}, "openai_strict"),
        ({"type": "object", "properties": {"b": TEXT}}, "openai_strict"),
        ({"type": "array"}, "anthropic_output"),
        (True, "openai_strict"),
    ],
)
def test_what_a_dialect_cannot_enforce_is_not_strict(schema: Any, rules: str) -> None:
    assert not can_be_strict(of(x=schema), rules)
    assert can_be_strict(of(x=TEXT), rules)


@pytest.mark.parametrize(
    ("keyword", "value", "phrase"),
    [
        ("x-a", 1, ""),
        ("title", "t", ""),
        ("minLength", 3, "at least 3 characters"),
        ("frob", 3, "frob 3"),
        ("additionalProperties", True, ""),
        ("additionalProperties", TEXT, 'further properties: {"type":"string"}'),
        ("uniqueItems", False, ""),
        ("uniqueItems", True, "no item twice"),
        ("default", None, ""),
        ("default", 0, "default 0"),
        ("default", False, "default false"),
        ("enum", ["a", "b"], 'one of "a", "b"'),
        ("examples", "e", 'for example "e"'),
        ("format", "f" * 201, "format " + "f" * 200),
        ("pattern", "p" * 200, "matches the regular expression " + "p" * 200),
        ("const", "c" * 198, f'always "{"c" * 198}"'),
        ("const", "c" * 199, f'always "{"c" * 198}…'),
    ],
)
def test_a_keyword_that_is_not_supported_is_a_phrase(keyword: str, value: Any, phrase: str) -> None:
    assert describe_keyword(keyword, value) == phrase


@pytest.mark.parametrize(
    ("text", "notes", "description"),
    [
        ("", [], {}),
        ("", ["b", "c"], {"description": "B; c"}),
        ("a", ["b", "", "b", "c"], {"description": "a (b; c)"}),
        ("at most 3", ["at most 3"], {"description": "at most 3"}),
    ],
)
def test_notes_stand_behind_a_description_each_once(text: str, notes: list[str], description: Any) -> None:
    assert build_description_field({"description": text}, notes) == description


@pytest.mark.parametrize(
    ("rules", "schema", "cut"),
    [
        ("openai", {}, {"description": f"W{NOT_SAID}"}),
        ("gemini", {}, {"type": "object", "description": f"W{NOT_SAID}"}),
        ("openai", {"type": ["array", "null"]}, {"type": ["array", "null"], "description": f"W{NOT_SAID}"}),
        (
            "gemini",
            {"type": ["array", "null"], "description": "d"},
            {"type": "array", "items": TEXT, "description": f"d (w{NOT_SAID})", "nullable": True},
        ),
        ("kimi", {"type": "null"}, {"type": "null", "description": f"W{NOT_SAID}"}),
        (
            "openai_strict",
            TEXT,
            {
                "type": "object",
                "properties": {},
                "required": [],
                "additionalProperties": False,
                "description": f"W{NOT_SAID}",
            },
        ),
        (
            "anthropic_output",
            TEXT,
            {"type": "object", "properties": {}, "additionalProperties": False, "description": f"W{NOT_SAID}"},
        ),
    ],
)
def test_a_schema_that_is_cut_off_keeps_its_type(rules: str, schema: Any, cut: Any) -> None:
    assert build_truncated_schema(schema, DIALECTS[rules]) == cut


@pytest.mark.parametrize("rules", ["gemini", "openai", "kimi"])
def test_arrays_in_arrays_are_cut_off_below_the_deepest_level(rules: str) -> None:
    def nest(levels: int) -> Any:
        schema = TEXT
        for _ in range(levels):
            schema = {"type": "array", "items": schema}
        return schema

    assert only(nest(31), rules) == nest(31)
    cut = only(nest(33), rules)
    for _ in range(32):
        assert cut.keys() == {"type", "items"}
        cut = cut["items"]
    items = {} if rules == "openai" else {"items": TEXT}
    assert cut == {"type": "array", **items, "description": f"W{NOT_SAID}"}


def test_a_definition_within_itself_is_unfolded_once_where_there_are_no_references() -> None:
    node = {"type": "object", "properties": {"v": NUMBER, "kid": {"$ref": "#/$defs/Node"}}, "required": ["v"]}
    within = {"type": "object", "description": f"W{NOT_SAID}"}
    inner = {"type": "object", "properties": {"v": NUMBER, "kid": within}, "required": ["v"]}
    compiled = compile_schema({"$defs": {"Node": node}, **of(tree={"$ref": "#/$defs/Node"})}, "gemini")
    assert compiled == of(tree={**inner, "properties": {"v": NUMBER, "kid": inner}})


def test_definitions_of_one_name_in_two_places_are_told_apart() -> None:
    schema = {
        "$defs": {"a": {"P": of(v=TEXT)}, "b": {"P": of(w=TEXT)}, "c": {"P": NUMBER}, "a/b": TEXT, "c~d": NUMBER},
        **of(
            x={"$ref": "#/$defs/a/P"},
            y={"$ref": "#/$defs/b/P"},
            z={"$ref": "#/$defs/c/P"},
            again={"$ref": "#/$defs/b/P"},
            slash={"$ref": "#/$defs/a~1b"},
            tilde={"$ref": "#/$defs/c%7E0d"},
            place={"$ref": "#/properties/union/anyOf/1"},
            union={"anyOf": [TEXT, NUMBER]},
        ),
    }
    compiled = compile_schema(schema, "openai")
    references = {name: each.get("$ref") for name, each in compiled["properties"].items()}
    assert references == {
        "x": "#/$defs/P",
        "y": "#/$defs/P_2",
        "z": "#/$defs/P_3",
        "again": "#/$defs/P_2",
        "slash": "#/$defs/a_b",
        "tilde": "#/$defs/c_d",
        "place": "#/$defs/1",
        "union": None,
    }
    assert list(compiled["$defs"].items()) == [
        ("1", NUMBER),
        ("P", of(v=TEXT)),
        ("P_2", of(w=TEXT)),
        ("P_3", NUMBER),
        ("a_b", TEXT),
        ("c_d", NUMBER),
    ]


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("#/$defs/Missing", "a schema refers to '#/$defs/Missing', which does not exist: define it there"),
        ("#/required/1", "a schema refers to '#/required/1', which does not exist: define it there"),
        ("other.json", "a schema refers to 'other.json', in another document: move it under $defs"),
        ("#name", "a schema refers to the anchor '#name': refer to it as '#/$defs/…'"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told_in_full(reference: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_schema(of(a={"$ref": reference}), "openai")
    assert str(caught.value) == told


@pytest.mark.parametrize("rules", ["gemini", "openai_strict"])
def test_a_schema_of_too_many_nodes_is_cut_off_as_a_whole(rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure._models.schemas.compile.MAX_NODES", 40)

    def wide(count: int) -> Any:
        return of(**{f"of_many_{number}": TEXT for number in range(count)})

    assert len(compile_schema(wide(39), rules)["properties"]) == 39
    assert can_be_strict(wide(39), rules)
    large = wide(40)
    assert compile_schema(large, rules)["properties"] == {}
    assert compile_schema(large, rules)["description"] == f"W{NOT_SAID}"
    assert not can_be_strict(large, rules)


def test_members_of_all_of_count_as_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure._models.schemas.compile.MAX_NODES", 40)

    def joined(count: int) -> Any:
        return of(of_many={"type": "string", "allOf": [{"minLength": 1}] * count})

    assert compile_schema(joined(38), "gemini") == of(of_many={"type": "string", "minLength": 1})
    assert compile_schema(joined(39), "gemini")["properties"] == {}


def test_a_pattern_is_portable_up_to_a_length() -> None:
    assert is_portable_pattern(f"^{'a' * 497}$")
    assert not is_portable_pattern(f"^{'a' * 498}$")


def test_the_dialects_are_listed_in_order() -> None:
    assert list_schema_dialects() == [
        "anthropic",
        "anthropic_output",
        "bedrock",
        "gemini",
        "gemini_json",
        "kimi",
        "llamacpp",
        "mistral",
        "openai",
        "openai_strict",
        "plain",
    ]


@pytest.mark.parametrize("rules", ["openai", "gemini_json", "llamacpp"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda schema: {"type": "array", "items": schema},
        lambda schema: {"type": "array", "prefixItems": [schema]},
        lambda schema: {"type": "object", "properties": {"a": schema}, "required": ["a"]},
        lambda schema: {"type": "object", "properties": {}, "additionalProperties": schema},
        lambda schema: {"anyOf": [schema, {"type": "boolean"}], "description": "d"},
    ],
)
def test_a_schema_within_another_is_one_level_deeper(wrap: Callable[[Any], Any], rules: str) -> None:
    schema = TEXT
    for _ in range(20):
        schema = wrap(schema)
    assert only(schema, rules) == schema


def test_a_schema_that_is_not_enforced_is_said_in_the_wider_dialect() -> None:
    assert [get_lenient_dialect(rules) for rules in ("openai_strict", "gemini", "plain")] == [
        "openai",
        "gemini",
        "plain",
    ]


def test_alternatives_at_the_top_become_one_object_that_needs_what_all_need() -> None:
    schema = {
        "description": "d",
        "oneOf": [
            {**of(a=TEXT, b=NUMBER), "additionalProperties": False},
            {**of(a=TEXT, c=TEXT), "additionalProperties": False},
        ],
    }
    assert compile_schema(schema, "openai") == {
        "description": "d (needs a and b, or a and c)",
        "properties": {"a": TEXT, "b": NUMBER, "c": TEXT},
        "required": ["a"],
        "additionalProperties": False,
        "type": "object",
    }
    assert compile_schema({"anyOf": [TEXT, NUMBER], "description": "d"}, "openai") == {
        "type": "object",
        "properties": {},
        "description": "d",
    }
