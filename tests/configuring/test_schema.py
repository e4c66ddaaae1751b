"""The JSON Schema of `perdure.toml`."""

import json

import jsonschema_rs

from perdure._config.schema import build_schema, config_schema, read_field_descriptions
from perdure._config.tables import ConfigFile


def test_it_is_a_schema_and_takes_what_we_take():
    schema = json.loads(json.dumps(config_schema()))
    jsonschema_rs.meta.validate(schema)
    validator = jsonschema_rs.Draft202012Validator(schema)
    assert validator.is_valid(
        {"model": "demo", "limits": {"max_turns": 3}, "permissions": {"allow": ["x", {"tool": "y"}]}}
    )
    assert not validator.is_valid({"limits": {"max_turn": 3}})
    assert not validator.is_valid({"limits": {"max_turns": None}})


def test_every_key_has_a_description():
    definitions = config_schema()["$defs"]
    silent = [
        f"{name}.{key}"
        for name, definition in definitions.items()
        if name != "Settings"  # where some names say it all
        for key, field in definition["properties"].items()
        if not field.get("description")
    ]
    assert silent == []


def test_every_table_is_closed():
    assert all(definition["additionalProperties"] is False for definition in config_schema()["$defs"].values())


def test_nothing_in_it_is_null():
    assert "null" not in json.dumps(config_schema()["$defs"]["ConfigFile"]["properties"])


def test_with_and_without_descriptions_it_is_the_same():
    schema = config_schema()
    for definition in schema["$defs"].values():
        for field in definition["properties"].values():
            field.pop("description", None)
    assert {**schema, "$schema": None, "title": None} == {**build_schema(), "$schema": None, "title": None}


def test_descriptions_come_from_the_source():
    assert read_field_descriptions(ConfigFile)["base_url"] == "URL of the provider, if not its usual one."
    assert read_field_descriptions(int) == {}


class Described:
    """Fields with and without a text of their own."""

    first: int = 1
    """The first,
    in two lines.
    """
    second: int = 2
    len("no text")
    third: int = 3
    7  # noqa: B018 - no text either
    fourth: int = 4
    fifth = 5
    """It has no type."""


def test_a_field_is_described_by_the_text_right_below_it_only():
    assert read_field_descriptions(Described) == {"first": "The first,\nin two lines."}
