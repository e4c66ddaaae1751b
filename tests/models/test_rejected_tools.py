"""A tool that a provider refuses is left out, so that the others go on working."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import AuthFailed, BadRequest, ProviderDown, ReplyCutOff, Settings
from perdure._models.endpoint.rejections import RejectedTools
from perdure._models.provider_errors.classify import classify_error
from perdure.models import Request, ToolSpec
from tests.wire.recordings import recordings

NAMES = ("read", "search", "write", "get_weather", "file")


def spec(name):
    return ToolSpec(name, "", {"type": "object", "properties": {}})


def request(*names, **settings):
    return Request(messages=(), tools=[spec(name) for name in names or NAMES], settings=Settings(**settings))


def names(given):
    return [tool.name for tool in given.tools]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("tools.3.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12", "get_weather"),
        ("tools.1.custom.input_schema: input_schema does not support anyOf at the top level", "search"),
        ("tools.0.custom.input_schema.type: Field required", "read"),
        ("tools.2.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", "write"),
        ("Invalid schema for function 'get_weather': In context=(), 'oneOf' is not permitted.", "get_weather"),
        ("Invalid schema for function 'x' (at tools[4].function.parameters)", "file"),
        ("Invalid 'tools[2].function.name': string does not match pattern", "write"),
        ("body.tools.1.function.parameters: Input should be a valid dictionary", "search"),
        ("* tools[0].function_declarations[3].parameters.properties: should be non-empty", "get_weather"),
        ("Invalid value at 'tools[0].function_declarations[1].parameters.properties[2].value.enum[0]'", "search"),
        ("Unable to submit because `get_weather` functionDeclaration `parameters.x` schema", "get_weather"),
        ("Value at 'toolConfig.tools.1.member.toolSpec.name' failed to satisfy constraint", "read"),
        ("The value at toolConfig.tools.1.toolSpec.inputSchema.json.type must be: object.", "search"),
        ("tools[3]: its schema is invalid", "get_weather"),
        ('Failed to compile the JSON schema of tool "file": unknown keyword', "file"),
    ],
)  # fmt: skip
def test_the_tool_that_an_error_speaks_of_is_left_out(said, name):
    quarantine = RejectedTools()
    warning = quarantine.quarantine_from_error(classify_error(400, {}, said, "acme"), request())
    assert warning is not None
    assert repr(name) in warning
    assert said in warning
    assert "Simplify its schema" in warning
    assert names(quarantine.remove_rejected_tools(request())) == [each for each in NAMES if each != name]


@pytest.mark.parametrize(
    "said",
    [
        "Invalid value: 'search'. Supported values are: 'low' and 'high'.",
        "messages[0]: unknown variant `file`, expected `text`",
        "Unknown parameter: 'read'.",
        "Tool choice 'search' not found in 'tools' parameter",
        "Invalid schema for response_format 'search': 'oneOf' is not permitted",
        "tools.1.cache_control.ttl: Input should be '5m' or '1h'",
        "tools.1.type: Input should be 'custom'",
        "tools: Tool names must be unique.",
        "tools.77.custom.input_schema: JSON schema is invalid",
        "No tool output found for function call 'read'.",
        "Please read the file and search the schema of your request",
        "temperature is too high",
        "",
    ],
)
def test_an_unrelated_error_leaves_all_tools_in(said):
    quarantine = RejectedTools()
    asked = request()
    assert quarantine.quarantine_from_error(classify_error(400, {}, said, "acme"), asked) is None
    assert quarantine.remove_rejected_tools(asked) is asked


@pytest.mark.parametrize("kind", [AuthFailed, ProviderDown, ReplyCutOff])
def test_only_a_request_that_was_not_accepted_is_blamed_on_a_tool(kind):
    assert RejectedTools().quarantine_from_error(kind("Invalid schema for function 'read'"), request()) is None


def test_while_nothing_is_left_out_a_request_is_passed_on_as_it_is():
    quarantine, asked = RejectedTools(), request()
    assert quarantine.remove_rejected_tools(asked) is asked
    assert quarantine.quarantine_from_error(BadRequest("Invalid schema for function 'read'"), asked) is not None
    other = request("write")
    assert quarantine.remove_rejected_tools(other) is other


def test_positions_are_those_of_the_request_as_it_was_sent():
    quarantine = RejectedTools()
    for _ in range(2):
        quarantine.quarantine_from_error(
            BadRequest("tools.0.custom.input_schema: bad"), quarantine.remove_rejected_tools(request())
        )
    assert names(quarantine.remove_rejected_tools(request())) == ["write", "get_weather", "file"]


def test_two_requests_at_once_that_are_refused_for_one_tool_blame_the_same_one():
    quarantine = RejectedTools()
    one, other = quarantine.remove_rejected_tools(request()), quarantine.remove_rejected_tools(request())
    for asked in (one, other):
        assert "the tool 'search' is left out" in str(
            quarantine.quarantine_from_error(BadRequest("tools.1.custom.input_schema: bad"), asked)
        )
    assert names(quarantine.remove_rejected_tools(request())) == ["read", "write", "get_weather", "file"]


def test_all_tools_that_one_error_speaks_of_are_left_out():
    quarantine = RejectedTools()
    said = "* tools[0].function_declarations[4].parameters: no * tools[0].function_declarations[1].parameters: no"
    assert "the tools 'file', 'search' are" in str(quarantine.quarantine_from_error(BadRequest(said), request()))
    assert names(quarantine.remove_rejected_tools(request())) == ["read", "write", "get_weather"]


def test_a_tool_that_must_be_called_is_not_left_out():
    quarantine = RejectedTools()
    error = BadRequest("Invalid schema for function 'read'")
    assert quarantine.quarantine_from_error(error, request(tool_choice="read")) is None
    assert quarantine.quarantine_from_error(error, request("read", tool_choice="required")) is None
    assert quarantine.quarantine_from_error(error, request(tool_choice="required")) is not None
    assert "read" in names(quarantine.remove_rejected_tools(request(tool_choice="read")))
    assert names(quarantine.remove_rejected_tools(request("read", tool_choice="required"))) == ["read"]


def test_when_no_tool_is_left_nothing_is_said_about_choosing_one():
    quarantine = RejectedTools()
    quarantine.quarantine_from_error(BadRequest("Invalid schema for function 'read'"), request())
    left = quarantine.remove_rejected_tools(
        request("read", tool_choice="auto", parallel_tool_calls=False, temperature=1)
    )
    assert left.tools == ()
    assert left.settings == Settings(temperature=1)


def test_a_tool_that_has_changed_is_tried_again():
    quarantine = RejectedTools()
    quarantine.quarantine_from_error(BadRequest("Invalid schema for function 'read'"), request())
    mended = msgspec.structs.replace(spec("read"), parameters={"type": "object", "properties": {"a": {}}})
    asked = Request(messages=(), tools=[mended])
    assert quarantine.remove_rejected_tools(asked) is asked
    assert names(quarantine.remove_rejected_tools(request("read", "write"))) == ["write"]
    assert repr(quarantine) == "RejectedTools(['read'])"


@given(said=st.text(), tools=st.lists(st.text(min_size=1), unique=True, max_size=4))
def test_no_words_and_no_names_make_it_fail(said, tools):
    quarantine = RejectedTools()
    asked = request(*tools)
    quarantine.quarantine_from_error(BadRequest(f"schema {said} tools[{said}]"), asked)
    assert set(names(quarantine.remove_rejected_tools(asked))) <= set(names(asked))


@pytest.mark.wire
def test_recorded_refusals_of_schemas_are_blamed_on_their_tool():
    found = 0
    for recording in recordings():
        for exchange in recording.exchanges:
            if exchange.status < 400 or not isinstance(exchange.request, dict):
                continue
            tools = [ToolSpec(name, "", {}) for name in _tool_names(exchange.request)]
            error = classify_error(exchange.status, exchange.headers, exchange.data, exchange.provider)
            warning = RejectedTools().quarantine_from_error(error, Request(messages=(), tools=tools))
            assert (warning is not None) == exchange.recording.endswith("2fd8fb"), exchange.label
            found += warning is not None
    assert found == 1


def _tool_names(body):
    for tool in body.get("tools") or ():
        for each in tool.get("functionDeclarations") or [tool.get("function", tool)]:
            if isinstance(each, dict) and "name" in each:
                yield each["name"]


def test_a_warning_says_which_tool_why_and_what_to_do():
    error = BadRequest("tools.1.custom.input_schema: bad.")
    assert RejectedTools().quarantine_from_error(error, request()) == (
        "the tool 'search' is left out from now on: tools.1.custom.input_schema: bad. "
        "Simplify its schema, or do not offer it to this model."
    )


@pytest.mark.parametrize(("gap", "is_near"), [(100, True), (140, False)])
def test_a_name_counts_only_near_the_words_about_schemas(gap, is_near):
    for said in (f"schema {'-' * gap} 'read'", f"'read' {'-' * gap} schema"):
        warning = RejectedTools().quarantine_from_error(BadRequest(said), request())
        assert (warning is not None) is is_near
