"""Listings within their limits: names, descriptions and schemas of a server are claims of somebody else."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._core.tools.tool import _check_name
from perdure._mcp.client.listing import (
    MAX_DESCRIPTION_BYTES,
    MAX_TOOLS,
    build_offered_name,
    check_tool_list,
    clean_text,
)

SCHEMA = {"type": "object", "properties": {}}


def listed(**values):
    return {"name": "t", "inputSchema": SCHEMA, **values}


def test_a_name_is_that_of_the_server_and_that_of_the_tool():
    assert build_offered_name("git", "git_log") == "git__git_log"


@given(st.text(min_size=1, max_size=100), st.text(max_size=100))
def test_any_name_becomes_one_that_providers_accept(server, tool):
    _check_name(build_offered_name(server, tool))


@pytest.mark.parametrize("tool", ["a/b", "a\u202eb", "a\x07b", "a b", "../a", "x" * 100, "_a", ""])
def test_a_name_that_is_cleaned_cannot_become_that_of_another_tool(tool):
    cleaned = build_offered_name("s", tool)
    assert cleaned != build_offered_name("s", "a_b")
    assert cleaned != build_offered_name("s", "a")
    assert len(cleaned) <= 64


def test_only_the_first_tools_are_used():
    listing = check_tool_list("s", [listed(name=f"t{each}") for each in range(MAX_TOOLS + 10)])
    assert len(listing.tools) == MAX_TOOLS
    assert listing.problems == (f"it lists more than {MAX_TOOLS} tools: the others are left out",)


def test_a_long_description_is_shown_in_part():
    (tool,) = check_tool_list("s", [listed(description="é" * 20_000)]).tools
    assert len(tool.shown_description.encode()) <= MAX_DESCRIPTION_BYTES
    assert tool.shown_description.endswith("[…]")
    assert len(tool.description) == 20_000  # a pin covers it all


def test_characters_that_cannot_be_seen_are_not_shown():
    (tool,) = check_tool_list("s", [listed(description="a\u202e\u200bb\x00\x1b[31mc\nd")]).tools
    assert tool.shown_description == "ab[31mc\nd"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://example.com/s"}}}}, "not fetched"),
        ({"inputSchema": {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}}, "left out"),
        ({"inputSchema": {"type": "object", "description": "x" * 70_000}}, "65536 are the most"),
        ({"outputSchema": {"description": "x" * 70_000}}, "65536 are the most"),
        ({"inputSchema": {"type": "string"}}, "object"),
        ({"inputSchema": None}, "input schema is no object"),
        ({"description": 7}, "have to be texts"),
        ({"name": 7}, "number 1 is left out"),
        ({"description": "x" * 70_000}, "65536 are the most"),
        ({"inputSchema": {"type": "object", "properties": {"a": {"pattern": "("}}}}, "left out"),
    ],
)
def test_a_tool_that_cannot_be_used_is_left_out_alone(values, problem):
    listing = check_tool_list("s", [listed(**values), listed(name="good")])
    assert [each.name for each in listing.tools] == ["good"]
    assert problem in listing.problems[0]


def test_of_two_tools_with_one_name_the_first_is_used():
    tools = [listed(description="first"), listed(description="second"), listed(name="u", description="third")]
    listing = check_tool_list("s", tools, is_cut=True)
    assert [each.description for each in listing.tools] == ["first", "third"]
    assert listing.problems == (
        "it lists more pages than are read",
        "tool 't' is left out: another has the name 's__t'",
    )


def test_a_tool_is_read_with_all_that_the_server_says_about_it():
    hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": 1, "title": "T", "openWorldHint": None}
    said = listed(title="Title", description="Text", outputSchema={"type": "object"}, annotations=hints)
    (tool,) = check_tool_list("s", [said]).tools
    assert (tool.server, tool.name, tool.offered_name, tool.title) == ("s", "t", "s__t", "Title")
    assert (tool.shown_description, tool.input_schema, tool.output_schema) == ("Text", SCHEMA, {"type": "object"})
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "title", "other")
    assert [tool.get_hint(each) for each in names] == [True, False, None, None, None, None]
    assert tool.pinned_texts == {
        "name": "t",
        "title": "Title",
        "description": "Text",
        "input_schema": SCHEMA,
        "output_schema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": 1, "openWorldHint": None},
    }


def test_what_a_server_leaves_out_is_empty():
    bare, titled = check_tool_list("s", [listed(annotations="none"), listed(name="u", title="Only a title")]).tools
    assert (bare.title, bare.description, bare.shown_description, bare.output_schema, bare.annotations) == (
        "",
        "",
        "",
        None,
        {},
    )
    assert titled.shown_description == "Only a title"


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("a", "b", "a__b"),
        ("a", "b__c", "a__b__c"),
        ("a__b", "c", "a__b__c_#"),
        ("a_", "b", "a___b_#"),
        ("a.b", "c", "a_b__c_#"),
        ("a", "b.c", "a__b_c_#"),
        ("a", "_b_", "a__b_#"),
        ("s", "x" * 61, "s__" + "x" * 61),
        ("s", "x" * 62, "s__" + "x" * 52 + "_#"),
    ],
)
def test_a_name_has_a_digest_only_where_it_could_be_that_of_another(server, tool, name):
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    assert build_offered_name(server, tool) == name.replace("#", digest)


@pytest.mark.parametrize(("count", "is_cut"), [(MAX_DESCRIPTION_BYTES, False), (MAX_DESCRIPTION_BYTES + 1, True)])
def test_a_description_of_the_limit_is_shown_whole(count, is_cut):
    (tool,) = check_tool_list("s", [listed(description="x" * count)]).tools
    shown = "x" * (MAX_DESCRIPTION_BYTES - 6) + " […]" if is_cut else "x" * count
    assert tool.shown_description == shown
    assert len(shown.encode()) == MAX_DESCRIPTION_BYTES


@pytest.mark.parametrize(("count", "is_used"), [(65_536, True), (65_537, False)])
def test_texts_and_schemas_of_the_limit_are_used(count, is_used):
    text = listed(description="x" * count)
    schema = {"type": "object", "title": ""}
    schema["title"] = "x" * (count - len('{"type":"object","title":""}'))
    for each in (text, listed(inputSchema=schema), listed(outputSchema=schema)):
        assert bool(check_tool_list("s", [each]).tools) is is_used


@given(st.text())
def test_cleaned_text_has_no_control_or_format_characters(text):
    assert all(each in "\n\t" or each.isprintable() or each.isspace() for each in clean_text(text))


@pytest.mark.parametrize(("name", "label"), [("!" * 81, repr("!" * 80)), (7, "number 2")])
def test_a_tool_that_is_left_out_is_named_in_short_or_by_its_place(name: object, label: str) -> None:
    good = {"name": "good", "description": "Good.", "inputSchema": {"type": "object"}}
    listing = check_tool_list("s", [good, {**good, "name": name, "inputSchema": 3}])
    assert [each.name for each in listing.tools] == ["good"]
    assert [each.partition(": ")[0] for each in listing.problems] == [f"tool {label} is left out"]
