"""Effects and permissions: hints of a server only make a tool stricter, unless its owner trusts them."""

from types import SimpleNamespace
from typing import Any

import pytest

from perdure import Status, Text, ToolError, ToolResult
from perdure._core.log.repair import READ_IS_REPEATABLE
from perdure._core.tools.results import MAY_HAVE_HAPPENED
from perdure._mcp.client.client import CallTimedOut
from perdure._mcp.client.listing import check_tool_list
from perdure._mcp.client.tools import (
    build_permission_target,
    build_resource_tools,
    build_tool,
    choose_effect,
    is_offered,
)
from perdure.mcp import FateUnknown, McpServer


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


class Client:
    """Notes how it is called, reports a progress, and returns or raises what it was given."""

    def __init__(self, outcome=None):
        self.outcome = outcome
        self.calls = []

    async def call_tool(self, name, arguments, *, on_progress, answerer, **options):
        self.calls.append((name, arguments, answerer.run_id, options))
        on_progress(1.0, 2.0, "half\u202e" + "x" * 600)
        on_progress(2.0, None, None)
        return self._get_outcome()

    async def list_resources(self):
        return self._get_outcome()

    async def read_resource(self, uri):
        self.calls.append(uri)
        return self._get_outcome()

    def _get_outcome(self):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Context:
    """The context of one call, which notes what is reported."""

    run_id, call_id, name, idempotency_key = "r1", "c1", "s__t", "key of c1"

    def __init__(self):
        self.emitted = []

    def emit(self, value):
        self.emitted.append(value)


def make_context() -> Any:
    return Context()


def get_from(client, asked):
    async def get_client(context, name):
        asked.append((context, name))
        return client

    return get_client


@pytest.mark.parametrize(
    ("effect", "options"),
    [
        ("read", {"is_read": True, "meta": None}),
        ("at_most_once", {"is_read": False, "meta": None}),
        ("idempotent", {"is_read": False, "meta": {"perdure/idempotency-key": "key of c1"}}),
    ],
)
async def test_a_call_tells_the_client_its_effect_and_only_an_idempotent_one_has_a_key(effect, options):
    result = SimpleNamespace(content=[SimpleNamespace(type="text", text="done")], structured_content=None, is_error=0)
    client, context, tool = Client(result), make_context(), listed()
    asked: list[Any] = []
    built = build_tool(server(effects={"t": effect}), tool, get_from(client, asked))
    output = await built.call({"a": 1}, context)
    assert (output.content, output.is_error) == ([Text("done")], False)
    assert asked == [(context, "s")]
    assert client.calls == [("t", {"a": 1}, "r1", {"expected": tool, **options})]
    assert context.emitted == [
        {"progress": 1.0, "total": 2.0, "message": "half" + "x" * 495},
        {"progress": 2.0, "total": None, "message": None},
    ]
    assert built.asks_first is (effect == "read")


@pytest.mark.parametrize(
    ("problem", "status"),
    [(FateUnknown("it was lost"), Status.UNKNOWN), (CallTimedOut("it was lost"), Status.TIMED_OUT)],
)
async def test_a_call_of_unknown_fate_says_that_it_may_have_happened_and_a_read_that_it_can_be_made_again(
    problem, status
):
    built = build_tool(server(), listed(), get_from(Client(problem), []))
    assert await built.call({}, make_context()) == ToolResult(
        "c1", "s__t", (Text(f"it was lost. {MAY_HAVE_HAPPENED}"),), status
    )
    reading = build_tool(server(effects={"t": "read"}), listed(), get_from(Client(problem), []))
    with pytest.raises(ToolError) as caught:
        await reading.call({}, make_context())
    assert (caught.type, str(caught.value)) == (ToolError, f"it was lost. {READ_IS_REPEATABLE}")


async def test_resources_are_listed_with_their_addresses_and_read_in_parts():
    found = [
        SimpleNamespace(uri="note://one", name="one", description=None),
        SimpleNamespace(uri="note://two", name="two", description="The second."),
    ]
    asked: list[Any] = []
    context = make_context()
    listing, _ = build_resource_tools(server(), get_from(Client(found), asked))
    assert await listing.call({}, context) == [
        {"uri": "note://one", "name": "one", "description": ""},
        {"uri": "note://two", "name": "two", "description": "The second."},
    ]
    parts = SimpleNamespace(contents=[SimpleNamespace(uri="u", text="a"), SimpleNamespace(uri="u", text="b")])
    client = Client(parts)
    _, reading = build_resource_tools(server(), get_from(client, asked))
    assert await reading.call({"uri": "note://one"}, context) == [Text("a"), Text("b")]
    assert client.calls == ["note://one"]
    _, reading = build_resource_tools(server(), get_from(Client(SimpleNamespace(contents=[])), asked))
    assert await reading.call({"uri": "note://one"}, context) == "(no content)"
    assert asked == [(context, "s")] * 3


@pytest.mark.parametrize(
    ("settings", "permission"),
    [({}, True), ({"permission": False}, False), ({"trust_hints": True}, False)],
)
def test_the_tools_of_resources_are_described_in_full(settings, permission):
    tools = build_resource_tools(server(**settings), no_client)
    assert [
        (each.description, each.permission, each.action, each.target and each.target({}), each.source, each.sends)
        for each in tools
    ] == [
        ("List the resources of the server.", permission, "mcp_call", "s.list_resources", "mcp:s", True),
        ("Read a resource of the server by its address.", permission, "mcp_call", "s.read_resource", "mcp:s", True),
    ]
    assert tools[1].parameters.json_schema["required"] == ["uri"]
