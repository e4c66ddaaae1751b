"""Two schemas become one that requires both, or a little less where both cannot be said."""

import pytest

from perdure._models.schemas.merge import MAX_LEVELS, is_same_json, merge_schemas

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (True, TEXT, TEXT),
        (TEXT, True, TEXT),
        (False, TEXT, False),
        (TEXT, False, False),
        ({"type": ["string", "number"]}, {"type": ["number", "null"]}, NUMBER),
        ({"type": ["string", "null"]}, {"type": ["null", "string"]}, {"type": ["string", "null"]}),
        (NUMBER, WHOLE, WHOLE),
        (WHOLE, NUMBER, WHOLE),
        (TEXT, WHOLE, {}),
        ({"minimum": 1, "maximum": 9}, {"minimum": 3, "maximum": 7}, {"minimum": 3, "maximum": 7}),
        ({"minimum": 3, "maxLength": 7}, {"minimum": 1, "maxLength": 9}, {"minimum": 3, "maxLength": 7}),
        ({"minItems": "x"}, {"minItems": 3}, {"minItems": "x"}),
        ({"maxItems": 3}, {"maxItems": "x"}, {"maxItems": 3}),
        ({"enum": [1, "a", True]}, {"enum": [True, "a"]}, {"enum": ["a", True]}),
        ({"enum": [1]}, {"enum": [True]}, {"enum": [1]}),
        ({"required": ["a", "b"]}, {"required": ["b", "c"]}, {"required": ["a", "b", "c"]}),
        ({"allOf": [TEXT]}, {"allOf": [WHOLE]}, {"allOf": [TEXT, WHOLE]}),
        ({"allOf": [TEXT]}, {"allOf": "x"}, {"allOf": [TEXT]}),
        ({"uniqueItems": False}, {"uniqueItems": True}, {"uniqueItems": True}),
        ({"items": NUMBER}, {"items": {"minimum": 1}}, {"items": {"type": "number", "minimum": 1}}),
        ({"description": "one"}, {"description": "other", "title": "t"}, {"description": "one", "title": "t"}),
    ],
)
def test_both_are_required(one, other, both):
    assert merge_schemas(one, other) == both


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (False, TEXT, TEXT),
        (TEXT, False, TEXT),
        (False, False, False),
        (True, TEXT, TEXT),
        (NUMBER, WHOLE, WHOLE),
    ],
)
def test_of_other_properties_the_wider_is_allowed(one, other, both):
    merged = merge_schemas({"additionalProperties": one}, {"additionalProperties": other})
    assert merged == {"additionalProperties": both}


def test_an_object_that_is_closed_is_opened_by_properties_that_only_the_other_has():
    closed = {"properties": {"a": TEXT}, "additionalProperties": False}
    assert merge_schemas(closed, {"properties": {"a": {"minLength": 1}}}) == {
        "properties": {"a": {"type": "string", "minLength": 1}},
        "additionalProperties": False,
    }
    opened = {"properties": {"a": TEXT, "b": WHOLE}}
    assert merge_schemas(closed, {"properties": {"b": WHOLE}}) == opened
    assert merge_schemas({"properties": {"b": WHOLE}}, closed) == opened
    assert merge_schemas({"additionalProperties": TEXT}, {"properties": {"b": WHOLE}}) == {
        "properties": {"b": WHOLE},
        "additionalProperties": TEXT,
    }


def test_so_many_levels_are_merged_and_below_them_the_first_stays():
    def nested(levels, least):
        schema = {"minimum": least}
        for _ in range(levels):
            schema = {"items": schema}
        return schema

    assert merge_schemas(nested(MAX_LEVELS - 1, 1), nested(MAX_LEVELS - 1, 2)) == nested(MAX_LEVELS - 1, 2)
    assert merge_schemas(nested(MAX_LEVELS, 1), nested(MAX_LEVELS, 2)) == nested(MAX_LEVELS, 1)


def test_the_schemas_stay_as_they_are():
    one, other = {"properties": {"a": TEXT}}, {"properties": {"b": WHOLE}}
    merge_schemas(one, other)
    assert (one, other) == ({"properties": {"a": TEXT}}, {"properties": {"b": WHOLE}})


def test_one_and_true_are_different_json():
    assert not is_same_json(1, True)
    assert is_same_json({"a": 1, "b": [2]}, {"b": [2], "a": 1})
