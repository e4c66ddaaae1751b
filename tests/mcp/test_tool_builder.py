"""Effects and permissions: hints of a server only make a tool stricter, unless its owner trusts them."""

import pytest

from perdure.mcp.listed_tool import check_tool_list
from perdure.mcp.server_settings import McpServer
from perdure.mcp.tool_builder import (
    build_permission_target,
    build_resource_tools,
    build_tool,
    choose_effect,
    is_offered,
)


def listed(**hints):
    return check_tool_list("s", [{"name": "t", "inputSchema": {"type": "object"}, "annotations": hints}]).tools[0]


def server(**settings):
    return McpServer(name="s", command="x", **settings)


async def no_client(context, name):
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("settings", "hints", "effect", "permission"),
    [
        ({}, {}, "at_most_once", True),
        ({}, {"readOnlyHint": True}, "at_most_once", True),
        ({}, {"readOnlyHint": True, "idempotentHint": True}, "at_most_once", True),
        ({"trust_hints": True}, {}, "at_most_once", True),
        ({"trust_hints": True}, {"readOnlyHint": True}, "read", False),
        ({"trust_hints": True}, {"readOnlyHint": "true"}, "at_most_once", True),
        ({"trust_hints": True}, {"readOnlyHint": True, "destructiveHint": True}, "at_most_once", True),
        ({"trust_hints": True}, {"idempotentHint": True}, "idempotent", True),
        ({"effects": {"t": "read"}}, {}, "read", False),
        ({"effects": {"t": "read"}}, {"readOnlyHint": False}, "at_most_once", True),
        ({"effects": {"t": "read"}}, {"destructiveHint": True}, "at_most_once", True),
        ({"effects": {"t": "idempotent"}}, {}, "idempotent", True),
        ({"effects": {"t": "idempotent"}}, {"idempotentHint": False}, "at_most_once", True),
        ({"effects": {"t": "ask"}, "trust_hints": True}, {"readOnlyHint": True}, "ask", True),
        ({"permission": False}, {}, "at_most_once", False),
    ],
)
def test_the_owners_word_counts_and_hints_only_make_it_stricter(settings, hints, effect, permission):
    tool = build_tool(server(**settings), listed(**hints), no_client)
    assert choose_effect(server(**settings), listed(**hints)) == effect
    assert (tool.effect, tool.permission) == (effect, permission)


def test_results_are_untrusted_and_calls_may_send_data_out():
    tool = build_tool(server(), listed(openWorldHint=False), no_client)
    assert tool.labels == ("untrusted",)
    assert tool.sends
    assert not build_tool(server(trust_hints=True), listed(openWorldHint=False), no_client).sends


def test_rules_see_the_server_and_the_tool():
    tool = build_tool(server(), listed(), no_client)
    assert tool.target is not None
    assert (tool.action, tool.target({}), tool.source) == ("mcp_call", "s.t", "mcp:s")


def test_no_two_tools_have_the_same_target():
    assert build_permission_target("a", "b.c") != build_permission_target("a.b", "c")


@pytest.mark.parametrize(
    ("settings", "offered"),
    [
        ({}, ["get_a", "set_a"]),
        ({"include": ("get_*",)}, ["get_a"]),
        ({"exclude": ("get_*",)}, ["set_a"]),
        ({"include": ("*",), "exclude": ("*",)}, []),
    ],
)
def test_the_owner_chooses_which_tools_are_offered(settings, offered):
    assert [each for each in ("get_a", "set_a") if is_offered(server(**settings), each)] == offered


def test_resources_are_read_by_tools_that_only_read():
    tools = build_resource_tools(server(), no_client)
    assert [each.name for each in tools] == ["s__list_resources", "s__read_resource"]
    assert all(each.effect == "read" and each.permission and each.labels == ("untrusted",) for each in tools)
