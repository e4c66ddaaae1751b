"""Present tools as Python functions to model-written programs: their names, signatures as stubs, and result values."""

import builtins
import functools
import json
import keyword
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from perdure._core.schema import parameters as schema
from perdure._core.tools.tool import Tool, ToolOutput
from perdure._core.values.message import Audio, Document, Image, Text, ToolResult, Video

_MAX_DEPTH: Final = 6
"""Depth of nested types that a stub shows; deeper ones are `Any`."""
_MAX_ENUM: Final = 20
"""Number of values of an enumeration that a stub lists."""
_NAMES_BY_TYPE: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
_RESERVED_NAMES: Final = frozenset([*dir(builtins), *keyword.kwlist, *keyword.softkwlist])
_UNTYPED: Final = (Any, Text, Image, Audio, Video, Document, ToolOutput, ToolResult)
"""Return types that say nothing about the text of a result."""
_UNKNOWN: Final = object()


def name_program_functions(tools: Iterable[Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """Return tools by their function names in a program: `-` becomes `_`, and names that Python uses get `_tool`."""
    named: dict[str, Tool[..., Any]] = {}
    for each in tools:
        name = each.name.replace("-", "_")
        name = f"_{name}" if name[0].isdigit() else name
        while name in _RESERVED_NAMES or name in named:
            name = f"{name}_tool"
        named[name] = each
    return named


# -- signatures --------------------------------------------------------------------------------------------------------


def build_stubs(functions: Mapping[str, Tool[..., Any]]) -> str:
    """Return the Python stubs of the tools that a program can call, after the classes that their signatures mention."""
    classes: dict[str, str] = {}
    stubs = [build_stub(name, tool, classes) for name, tool in functions.items()]
    return "\n\n".join([*classes.values(), *stubs])


def build_stub(name: str, tool: Tool[..., Any], classes: dict[str, str]) -> str:
    """Return a tool's signature and description as Python code; classes that it mentions are added to `classes`."""
    given = tool.parameters.json_schema
    writer = _TypeWriter(given.get("$defs", {}), classes)
    required = set(given.get("required", ()))
    properties: Mapping[str, Any] = given.get("properties", {})
    names = sorted(properties, key=lambda each: each not in required)
    parameters = [_write_parameter(each, properties[each], writer, is_required=each in required) for each in names]
    notes = [
        f"{each}: {_join_lines(text)}"
        for each in names
        if isinstance(properties[each], Mapping) and (text := properties[each].get("description"))
    ]
    returned = _write_return_type(tool, classes)
    lines = [
        *tool.description.strip().splitlines(),
        *(["", "Args:", *[f"    {note}" for note in notes]] if notes else []),
    ]
    body = "\n".join([f"    {line}".rstrip() for line in lines]).strip()
    return f'async def {name}({", ".join(parameters)}) -> {returned}:\n    """{body}"""'


def _write_parameter(name: str, given: Any, writer: "_TypeWriter", *, is_required: bool) -> str:
    hint = writer.write(given)
    if is_required:
        return f"{name}: {hint}"
    default = cast("Mapping[str, Any]", given).get("default", _UNKNOWN) if isinstance(given, Mapping) else _UNKNOWN
    return f"{name}: {hint} = {'...' if default is _UNKNOWN else repr(default)}"


def _join_lines(text: object) -> str:
    return " ".join(str(text).split())


class _TypeWriter:
    """Writes JSON Schemas as Python types; objects with known fields become classes."""

    def __init__(self, definitions: Mapping[str, Any], classes: dict[str, str]) -> None:
        self._definitions = definitions
        self._classes = classes

    def write(self, given: Any, depth: int = 0) -> str:
        """Return the Python type of a JSON Schema; `Any` for what Python's types cannot express."""
        if not isinstance(given, Mapping) or depth > _MAX_DEPTH:
            return "Any"
        known = cast("Mapping[str, Any]", given)
        if "$ref" in known:
            name = str(known["$ref"]).rpartition("/")[2]
            return self._write_object(self._definitions.get(name), depth, name)
        if values := known.get("enum", [known["const"]] if "const" in known else None):
            return f"Literal[{', '.join(map(repr, values))}]" if len(values) <= _MAX_ENUM else "Any"
        if choices := known.get("anyOf") or known.get("oneOf"):
            return " | ".join(dict.fromkeys([self.write(each, depth + 1) for each in choices]))
        kinds = known.get("type")
        if isinstance(kinds, list):
            listed = cast("Sequence[str]", kinds)
            return " | ".join(dict.fromkeys([self.write({**known, "type": each}, depth + 1) for each in listed]))
        if kinds == "array":
            return f"list[{self.write(known.get('items'), depth + 1)}]"
        if kinds == "object":
            return self._write_object(known, depth, str(known.get("title", "")))
        return _NAMES_BY_TYPE.get(str(kinds), "Any")

    def _write_object(self, given: Any, depth: int, name: str) -> str:
        known = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {})
        fields: Mapping[str, Any] = known.get("properties", {})
        if known and not fields and known.get("type") != "object":
            return self.write(known, depth + 1)  # a definition of another kind
        if not fields or not name.isidentifier() or not all(each.isidentifier() for each in fields):
            more = known.get("additionalProperties")
            return f"dict[str, {self.write(more, depth + 1) if isinstance(more, Mapping) else 'Any'}]"
        if name not in self._classes:
            self._classes[name] = ""  # a class that mentions itself is not written twice
            required = known.get("required", ())
            lines = [f"    {each}: {self._write_field(fields[each], depth, each in required)}" for each in fields]
            del self._classes[name]  # those that it mentions come first
            self._classes[name] = "\n".join([f"class {name}(TypedDict):", *lines])
        return name

    def _write_field(self, given: Any, depth: int, is_required: bool) -> str:  # noqa: FBT001 - a plain answer
        hint = self.write(given, depth + 1)
        return hint if is_required else f"NotRequired[{hint}]"


def _write_return_type(tool: Tool[..., Any], classes: dict[str, str]) -> str:
    returned = _read_return_type(tool)
    if returned is None:
        return "None"
    if returned is str:
        return "str"
    if returned is _UNKNOWN:
        return "Any"
    given = _find_schema(returned)
    return "Any" if given is None else _TypeWriter(given.get("$defs", {}), classes).write(given)


def _find_schema(kind: Any) -> "Mapping[str, Any] | None":
    try:
        return schema.json_schema_for_type(kind)
    except Exception:  # noqa: BLE001 - a type that has no schema, such as a class of the program: its value is any
        return None


def _read_return_type(tool: Tool[..., Any]) -> Any:
    """Return the return type that a tool's function declares; `_UNKNOWN` if it says nothing about the result."""
    return _UNKNOWN if tool.function is None else _read_function_return_type(tool.function)


@functools.lru_cache(maxsize=1024)
def _read_function_return_type(function: Callable[..., Any]) -> Any:
    unwrapped = function.func if isinstance(function, functools.partial) else function
    try:
        hints = typing.get_type_hints(unwrapped)
    except Exception:  # noqa: BLE001 - a hint that cannot be resolved says nothing
        return _UNKNOWN
    returned = hints.get("return", _UNKNOWN)
    return _UNKNOWN if returned in _UNTYPED else None if returned is type(None) else returned


# -- results -----------------------------------------------------------------------------------------------------------


def to_program_value(tool: Tool[..., Any] | None, result: ToolResult) -> Any:
    """Convert a tool result to the value that a program gets: text, or JSON if the tool declares or seems to send it.

    It depends on the stored result alone, so a program that is run again gets the same value.
    """
    text = result.text
    returned = _UNKNOWN if tool is None else _read_return_type(tool)
    if returned is str:
        return text
    if returned is _UNKNOWN and not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
