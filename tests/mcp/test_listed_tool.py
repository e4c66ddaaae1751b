"""Listings within their limits: names, descriptions and schemas of a server are claims of somebody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.tool import _check_name
from perdure.mcp.listed_tool import build_offered_name, check_tool_list, clean_text
from perdure.mcp.server_output_limits import MAX_DESCRIPTION_BYTES, MAX_TOOLS

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
    listing = check_tool_list("s", [listed(description="first"), listed(description="second")])
    assert [each.description for each in listing.tools] == ["first"]
    assert "another has the name 's__t'" in listing.problems[0]


@given(st.text())
def test_cleaned_text_has_no_control_or_format_characters(text):
    assert all(each in "\n\t" or each.isprintable() or each.isspace() for each in clean_text(text))
