"""Tools as functions of a program: their names, their signatures in Python, and the values of their results."""

import functools
from typing import Any

import pytest

from perdure import Image, Text, ToolOutput, ToolResult, tool
from perdure._tools.code.stubs import build_stub, build_stubs, name_program_functions, to_program_value
from perdure.tools import tool_from_schema


def make_tool(schema: Any = None, name: str = "f", description: str = "Do it."):
    return tool_from_schema(name, description, schema or {"type": "object", "properties": {}}, lambda _: "")


def write_type(given: Any, definitions: Any = None) -> tuple[str, list[str]]:
    """The type of a parameter in Python, and the classes before it."""
    schema = {"type": "object", "properties": {"x": given}, "required": ["x"], "$defs": definitions or {}}
    classes: dict[str, str] = {}
    stub = build_stub("f", make_tool(schema), classes)
    return stub.removeprefix("async def f(x: ").partition(") -> Any")[0], [*classes.values()]


def nest(depth: int) -> dict[str, Any]:
    return {"type": "string"} if not depth else {"type": "array", "items": nest(depth - 1)}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({}, "Any"),
        (True, "Any"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "items": {"type": "integer"}}, "list[int]"),
        ({"enum": ["a", 1, None]}, "Literal['a', 1, None]"),
        ({"const": "a"}, "Literal['a']"),
        ({"enum": [*range(20)]}, f"Literal[{', '.join(map(str, range(20)))}]"),
        ({"enum": [*range(21)]}, "Any"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "string"}]}, "str | None"),
        ({"oneOf": [{"type": "integer"}, {"const": "x"}]}, "int | Literal['x']"),
        ({"type": ["array", "null"], "items": {"type": "string"}}, "list[str] | None"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"type": "object", "additionalProperties": True}, "dict[str, Any]"),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, "dict[str, Any]"),
        ({"type": "object", "title": "A", "properties": {"a-b": {"type": "integer"}}}, "dict[str, Any]"),
        ({"type": "object", "title": "A b", "properties": {"a": {"type": "integer"}}}, "dict[str, Any]"),
        (nest(6), "list[list[list[list[list[list[str]]]]]]"),
        (nest(7), "list[list[list[list[list[list[list[Any]]]]]]]"),
    ],
)
def test_a_schema_is_written_as_a_type_of_python(given, written):
    assert write_type(given) == (written, [])


def test_an_object_with_known_fields_is_a_class_after_those_that_it_mentions():
    definitions = {
        "Tree": {
            "type": "object",
            "properties": {"leaf": {"$ref": "#/$defs/Leaf"}, "below": {"$ref": "#/$defs/Tree"}},
            "required": ["leaf"],
        },
        "Leaf": {"properties": {"color": {"$ref": "#/$defs/Color"}, "kept": {"type": "boolean"}}, "required": ["kept"]},
        "Color": {"enum": ["red", "green"]},
    }
    assert write_type({"$ref": "#/$defs/Tree"}, definitions) == (
        "Tree",
        [
            "class Leaf(TypedDict):\n    color: NotRequired[Literal['red', 'green']]\n    kept: bool",
            "class Tree(TypedDict):\n    leaf: Leaf\n    below: NotRequired[Tree]",
        ],
    )


def test_a_stub_has_required_parameters_first_defaults_and_the_notes_of_each():
    schema = {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "default": 5, "description": "How\n  many."},
            "place": {"type": "string", "description": "Where."},
            "none": {"type": "null", "default": None},
            "more": True,
            "unit": {"type": "string"},
        },
        "required": ["place"],
    }
    found = make_tool(schema, description="  Look.\n\nAnd tell.  \n")
    assert build_stub("look", found, {}) == (
        "async def look(place: str, limit: int = 5, none: None = None, more: Any = ..., unit: str = ...) -> Any:\n"
        '    """Look.\n\n    And tell.\n\n    Args:\n        place: Where.\n        limit: How many."""'
    )
    assert build_stub("f", make_tool(), {}) == 'async def f() -> Any:\n    """Do it."""'


def test_stubs_follow_the_classes_of_all_of_them():
    shape = {"type": "object", "title": "Shape", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    one = make_tool({"type": "object", "properties": {"x": shape}, "required": ["x"]})
    assert build_stubs({"a": one, "b": one}) == (
        "class Shape(TypedDict):\n    size: int\n\n"
        'async def a(x: Shape) -> Any:\n    """Do it."""\n\n'
        'async def b(x: Shape) -> Any:\n    """Do it."""'
    )
    assert build_stubs({}) == ""


def test_names_of_tools_become_names_of_functions_that_python_leaves_free():
    names = ["a-b", "a_b", "a_b_tool", "2x", "list", "class", "match", "None"]
    functions = name_program_functions([make_tool(name=each) for each in names])
    assert {name: each.name for name, each in functions.items()} == {
        "a_b": "a-b",
        "a_b_tool": "a_b",
        "a_b_tool_tool": "a_b_tool",
        "_2x": "2x",
        "list_tool": "list",
        "class_tool": "class",
        "match_tool": "match",
        "None_tool": "None",
    }


def make_returning(kind: Any):
    async def give() -> Any:
        """Give."""

    give.__annotations__["return"] = kind
    return tool(give, name="give")


class Thing:
    """A class of the program, which has no schema."""

    def __init__(self, other):
        self.other = other


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (None, "None"),
        (str, "str"),
        (int, "int"),
        (list[str], "list[str]"),
        (dict[str, int], "dict[str, int]"),
        (Any, "Any"),
        (Text, "Any"),
        (Image, "Any"),
        (ToolOutput, "Any"),
        (ToolResult, "Any"),
        (Thing, "Any"),
        ("Missing", "Any"),
    ],
)
def test_what_a_tool_returns_is_written_if_its_function_says_it(kind, written):
    assert build_stub("give", make_returning(kind), {}) == f'async def give() -> {written}:\n    """Give."""'


def test_the_return_type_of_a_function_with_given_arguments_is_that_of_the_function():
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    found = tool(functools.partial(add, 1), name="add")
    assert build_stub("add", found, {}).splitlines()[0].endswith(" -> int:")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (str, '{"a": 1}', '{"a": 1}'),
        (int, "12", 12),
        (None, "null", None),
        (None, "", ""),
        (list[int], "[1]", [1]),
        (int, "twelve", "twelve"),
        (Any, "12", "12"),
        (Any, ' {"a": 1}', {"a": 1}),
        (Any, "[1]", [1]),
        (Any, "[1", "[1"),
        ("Missing", "12", "12"),
    ],
)
def test_a_result_is_a_value_if_the_tool_says_so_or_it_looks_like_one(kind, text, value):
    result = ToolResult("c", "give", (Text(text),))
    assert to_program_value(make_returning(kind), result) == value


@pytest.mark.parametrize(("text", "value"), [("12", "12"), ("[1]", [1])])
def test_the_result_of_a_tool_that_is_not_there_any_more_is_read_by_its_looks(text, value):
    result = ToolResult("c", "gone", (Text(text),))
    assert to_program_value(None, result) == value
    assert to_program_value(make_tool(), result) == value


def nest_in(kind: str, count: int) -> dict[str, Any]:
    """Return the schema of a text inside so many others."""
    given: dict[str, Any] = {"type": "string"}
    for number in range(count, 0, -1):
        schemas: dict[str, dict[str, Any]] = {
            "array": {"type": "array", "items": given},
            "choice": {"anyOf": [given]},
            "one choice": {"oneOf": [given]},
            "map": {"type": "object", "additionalProperties": given},
            "types": {"type": ["array"], "items": given},
            "object": {"type": "object", "title": f"C{number}", "properties": {"x": given}, "required": ["x"]},
        }
        given = schemas[kind]
    return given


@pytest.mark.parametrize(
    ("kind", "fits", "written", "cut"),
    [
        ("array", 6, "list[" * 6 + "str" + "]" * 6, "list[" * 7 + "Any" + "]" * 7),
        ("map", 6, "dict[str, " * 6 + "str" + "]" * 6, "dict[str, " * 7 + "Any" + "]" * 7),
        ("choice", 6, "str", "Any"),
        ("one choice", 6, "str", "Any"),
        ("types", 3, "list[list[list[str]]]", "list[list[list[Any]]]"),
    ],
)
def test_types_are_written_up_to_six_levels_deep(kind: str, fits: int, written: str, cut: str) -> None:
    assert write_type(nest_in(kind, fits)) == (written, [])
    assert write_type(nest_in(kind, fits + 1)) == (cut, [])


@pytest.mark.parametrize(("count", "last"), [(6, "str"), (7, "Any")])
def test_classes_are_written_up_to_six_levels_deep_the_innermost_first(count: int, last: str) -> None:
    kinds = [*[f"C{number}" for number in range(2, count + 1)], last]
    classes = [f"class C{number}(TypedDict):\n    x: {kind}" for number, kind in enumerate(kinds, 1)]
    assert write_type(nest_in("object", count)) == ("C1", [*reversed(classes)])


@pytest.mark.parametrize(("count", "written"), [(6, "str"), (7, "Any")])
def test_definitions_that_name_others_are_followed_up_to_six_times(count: int, written: str) -> None:
    names: dict[str, Any] = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(1, count)}
    definitions = {**names, f"d{count}": {"type": "string"}}
    assert write_type({"$ref": "#/$defs/d1"}, definitions) == (written, [])


@pytest.mark.parametrize(("count", "is_listed"), [(20, True), (21, False)])
def test_the_values_of_an_enumeration_are_listed_up_to_twenty(count: int, is_listed: bool) -> None:
    values = f"Literal[{', '.join(map(str, range(count)))}]" if is_listed else "Any"
    assert write_type({"enum": [*range(count)]}) == (values, [])
