"""Structured results of served tools: their JSON Schema, from a return type, and the JSON value in a result."""

from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from perdure.core.error import ConfigError
from perdure.core.message import ToolResult
from perdure.core.schema import check_value, json_schema_for_type
from perdure.core.tool import Tool, ToolOutput
from perdure.core.validation_problems import Invalid


def derive_output_schema(tool: Tool[..., Any]) -> dict[str, Any] | None:
    """Return the JSON Schema of a tool's results, from its function's return type; `None` for types without fields.

    Dataclasses, msgspec structs, pydantic models and `TypedDict`s have fields. Text, lists and a `ToolOutput` have not.
    """
    if tool.function is None:
        return None
    function = getattr(tool.function, "func", tool.function)
    try:
        returned = get_type_hints(function, include_extras=True).get("return")
        if returned is None or returned is ToolOutput or not isinstance(returned, type):
            return None
        schema = json_schema_for_type(returned)
    except (ConfigError, NameError, TypeError):  # a type that has no schema
        return None
    return schema if schema.get("type") == "object" and schema.get("properties") else None


def parse_structured_result(result: ToolResult, schema: Mapping[str, Any]) -> Any:
    """Parse the JSON in a tool's result. Raises `Invalid` or `msgspec.DecodeError` if it does not match the schema."""
    value: Any = msgspec.json.decode(result.text)
    check_value(value, dict(schema))
    return value


__all__ = ["Invalid", "derive_output_schema", "parse_structured_result"]
