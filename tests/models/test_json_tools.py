"""models/json_tools: what an endpoint without tools is asked, what it was told before, and what its reply becomes."""

import json

import jsonschema_rs
import pytest
from msgspec.structs import replace

from perdure import (
    Agent,
    Citation,
    ConfigError,
    Image,
    Message,
    OutputSpec,
    ReplyCutOff,
    Settings,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    tool,
    tool_message,
    user,
)
from perdure._models.endpoint.json_tools import MAX_CACHED, MessageRewriter
from perdure.events import (
    CitationAdded,
    ModelEvent,
    ReplyFinished,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure.models import ModelInfo, Request, ToolSpec, assemble_reply, json_tools, model_info, retried
from perdure.testing import Reply, ScriptedModel, check_model

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)
NOW = ToolSpec("now", "Tell the time.", {"type": "object", "properties": {}})
ASK = Request(messages=(user("What is 1 + 2?"),), instructions="Be brief.", tools=(ADD, NOW))
CALL = '{"tool": "add", "args": {"a": 1, "b": 2}}'


def held(*replies, **options) -> ScriptedModel:
    """A model that can be held to a schema."""
    model = ScriptedModel(*replies, **options)
    model.info = replace(model.info, output="native")
    return model


async def listen(model, request=ASK):
    return [event async for event in model.stream(request)]


async def reply_of(inner, request=ASK) -> Message:
    *events, finished = await listen(json_tools(inner), request)
    assert isinstance(finished, ReplyFinished)
    return assemble_reply(events, finished)


async def question(request: Request) -> Request:
    """What the endpoint is asked."""
    inner = held("{}")
    await listen(json_tools(inner), request)
    return inner.requests[0]


async def accepts(request: Request, *replies: object) -> list[bool]:
    """Which replies the schema of a request allows."""
    output = (await question(request)).output
    assert output is not None
    validator = jsonschema_rs.validator_for(dict(output.schema))
    return [validator.is_valid(reply) for reply in replies]


# -- what is asked -----------------------------------------------------------------------------------------------------


async def test_a_request_with_tools_becomes_one_without():
    asked = await question(ASK)
    assert asked.tools == ()
    assert list(asked.messages) == list(ASK.messages)
    assert asked.instructions.startswith("Be brief.\n\nTools:\nadd: Add two numbers. args: {")


async def test_the_same_tools_are_always_described_in_the_same_words():
    later = replace(ASK, messages=(*ASK.messages, assistant("3"), user("And 2 + 2?")))
    forced = replace(ASK, settings=Settings(tool_choice="required"))
    assert (await question(later)).instructions == (await question(ASK)).instructions
    assert (await question(forced)).instructions == (await question(ASK)).instructions


async def test_a_request_without_tools_is_asked_as_it_is():
    plain = Request(messages=(user("Hello"), assistant("Hi"), user("Who are you?")), instructions="Be brief.")
    asked = await question(plain)
    assert all(one is other for one, other in zip(asked.messages, plain.messages, strict=True))
    assert replace(asked, messages=plain.messages) == plain


FINAL, ADDING, TELLING = {"final": "3"}, {"tool": "add", "args": {"a": 1, "b": 2}}, {"tool": "now", "args": {}}
BROKEN = [{"tool": "add", "args": {"a": 1}}, {"tool": "sub", "args": {}}, {"final": 3}, {}, "3", {**FINAL, **ADDING}]


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        (None, [True, True, True]),
        ("auto", [True, True, True]),
        ("none", [True, False, False]),
        ("required", [False, True, True]),
        ("now", [False, False, True]),
        ("no_such_tool", [True, False, False]),
    ],
)
async def test_the_reply_is_held_to_what_may_be_chosen(choice, allowed):
    request = replace(ASK, settings=Settings(tool_choice=choice, parallel_tool_calls=False, seed=7))
    assert await accepts(request, FINAL, ADDING, TELLING) == allowed
    assert await accepts(request, *BROKEN) == [False] * len(BROKEN)
    assert (await question(request)).settings == Settings(seed=7)


async def test_the_answer_may_have_a_schema_of_its_own():
    output = OutputSpec("sum", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    request = replace(ASK, output=output)
    assert await accepts(request, {"final": {"n": 3}}, {"final": {"n": "3"}}, FINAL) == [True, False, False]
    assert '{"type": "object", "properties": {"n": {"type": "integer"}}' in (await question(request)).instructions


async def test_schemas_that_refer_to_themselves_still_hold_inside_the_union():
    nodes = {"Node": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}
    either = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
    properties = {"tree": {"$ref": "#/$defs/Node"}, "either": either}
    walk = ToolSpec(
        "walk", "", {"type": "object", "properties": properties, "$defs": nodes, "additionalProperties": False}
    )
    tree = {"$ref": "#/$defs/Node", "$defs": nodes}
    request = replace(ASK, tools=(walk, ADD), output=OutputSpec("tree", tree))
    good = [
        {"tool": "walk", "args": {"tree": [[], [[]]]}},
        {"tool": "walk", "args": {"either": {"either": None}}},
        {"final": [[]]},
    ]
    bad = [{"tool": "walk", "args": {"tree": [1]}}, {"tool": "walk", "args": {"either": {"x": 1}}}, {"final": [1]}]
    assert await accepts(request, *good, *bad) == [True] * 3 + [False] * 3


async def test_an_endpoint_that_cannot_be_held_to_a_schema_is_only_asked():
    inner = ScriptedModel(CALL)
    assert (await reply_of(inner)).tool_calls[0].name == "add"
    assert inner.requests[0].output is None
    assert "Reply with one JSON object" in inner.requests[0].instructions


# -- what was said before ----------------------------------------------------------------------------------------------

RESULTS = tool_message(
    [
        ToolResult("1", "add", (Text("3"),)),
        ToolResult("2", "look", (Text("a cat"), Image(url="https://example.org/cat.png")), Status.ERROR),
    ]
)
HISTORY = (
    user("Go"),
    Message("assistant", (Thinking("Hm."), ToolCall("1", "add", '{"a":1,"b":2}'), ToolCall("2", "look", "not JSON"))),
    RESULTS,
    assistant('It is "3".'),
    user("And then?"),
)


async def test_calls_results_and_answers_are_told_in_the_same_form():
    _, calls, results, answer, _ = (await question(replace(ASK, messages=HISTORY))).messages
    assert (calls.role, calls.thinking) == ("assistant", "Hm.")
    assert calls.text == '{"tool": "add", "args": {"a": 1, "b": 2}}\n{"tool": "look", "args": "not JSON"}'
    assert results.role == "user"
    assert [json.loads(line) for line in results.text.splitlines()] == [
        {"tool": "add", "result": "3"},
        {"tool": "look", "error": "a cat\n[image: https://example.org/cat.png]"},
    ]
    assert results.parts[1:] == (Image(url="https://example.org/cat.png"),)
    assert json.loads(answer.text) == {"final": 'It is "3".'}


async def test_without_tools_earlier_calls_are_told_and_answers_stay_bare():
    _, calls, results, answer, _ = (await question(Request(messages=HISTORY))).messages
    assert calls.text.startswith('{"tool": "add"')
    assert results.role == "user"
    assert answer is HISTORY[3]


async def test_words_in_front_of_a_call_stay_in_front_of_it():
    message = assistant(["Let me see.", ToolCall("1", "now")])
    asked = await question(replace(ASK, messages=(user("Go"), message, tool_message([ToolResult("1", "now")]))))
    assert asked.messages[1].text == 'Let me see.\n{"tool": "now", "args": {}}'


async def test_a_structured_answer_is_told_as_the_value_that_it_was():
    request = replace(ASK, output=OutputSpec("n", {}), messages=(user("Go"), assistant('{"n":3}'), user("Again")))
    assert (await question(request)).messages[1].text == '{"final": {"n": 3}}'


async def test_what_cannot_be_json_is_told_all_the_same():
    lonely = assistant("\ud83d")
    asked = await question(replace(ASK, messages=(user("Go"), lonely, user("What?"))))
    assert "final" in asked.messages[1].text


async def test_a_message_is_retold_once():
    inner = held("{}", "{}")
    model = json_tools(inner)
    for _ in range(2):
        await listen(model, replace(ASK, messages=list(HISTORY)))
    first, second = [request.messages for request in inner.requests]
    same = [one is other for one, other in zip(first, second, strict=True)]
    assert same == [True, True, False, True, True]  # the third has a picture in it, and pictures are not kept


def test_only_so_many_retold_messages_are_kept():
    retold = MessageRewriter()
    for number in range(MAX_CACHED + 10):
        assert json.loads(retold(assistant(str(number)), "text").text) == {"final": str(number)}
    assert len(retold._kept) == MAX_CACHED


# -- what the reply becomes --------------------------------------------------------------------------------------------


async def test_a_call_becomes_a_call():
    message = await reply_of(held(CALL, chunk=3))
    assert message.stop is StopReason.TOOL_USE
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("add", '{"a": 1, "b": 2}')]
    assert message.text == ""
    assert message.usage == Usage(10, 5)


async def test_calls_of_later_turns_have_other_ids():
    first = await reply_of(held(CALL))
    later = await reply_of(held(CALL), replace(ASK, messages=HISTORY))
    assert first.tool_calls[0].call_id != later.tool_calls[0].call_id


async def test_an_answer_becomes_text_while_it_comes():
    events = await listen(json_tools(held('{"final": "It is three."}', chunk=4)))
    assert len([event for event in events if isinstance(event, TextDelta)]) > 2
    *told, finished = events
    assert isinstance(finished, ReplyFinished)
    message = assemble_reply(told, finished)
    assert (message.text, message.stop, message.provider, message.model) == (
        "It is three.",
        StopReason.STOP,
        "scripted",
        "scripted",
    )


async def test_a_call_that_is_cut_off_by_its_length_is_text_that_is_cut_off():
    message = await reply_of(held(Reply(CALL[:-5], stop=StopReason.LENGTH)))
    assert (message.tool_calls, message.text, message.stop) == ((), CALL[:-5], StopReason.LENGTH)


async def test_a_whole_call_counts_even_if_the_length_ran_out_behind_it():
    message = await reply_of(held(Reply(CALL + "\n", stop=StopReason.LENGTH)))
    assert message.stop is StopReason.TOOL_USE


async def test_where_one_call_at_a_time_is_wanted_one_is_taken():
    twice = held(f"{CALL}\n{CALL}", repeat_last=True)
    assert len((await reply_of(twice)).tool_calls) == 2
    alone = replace(ASK, settings=Settings(parallel_tool_calls=False))
    assert len((await reply_of(twice, alone)).tool_calls) == 1


async def test_thinking_usage_and_calls_of_the_wire_itself_go_through():
    events = [
        ThinkingDelta("Hm."),
        UsageReported(Usage(3, 1)),
        ToolCallDelta("x", "now", "{}"),
        ReplyFinished(StopReason.TOOL_USE, Usage(3, 2)),
    ]
    assert await listen(json_tools(held(events))) == events


async def test_a_reply_that_is_told_whole_is_read_whole():
    whole = Message("assistant", (Thinking("Hm.", signature="s"), Text(CALL)), stop=StopReason.STOP)
    for deltas in ([], [TextDelta(CALL[:9]), TextDelta(CALL[9:])]):
        message = await reply_of(held([*deltas, ReplyFinished(message=whole, usage=Usage(1, 1))]))
        assert message.parts[0] == whole.parts[0]
        assert [type(part) for part in message.parts] == [Thinking, ToolCall]
        assert message.stop is StopReason.TOOL_USE


async def test_what_was_said_before_a_retry_is_forgotten():
    inner = held([TextDelta(CALL[:20]), ReplyCutOff("gone")], CALL)
    *events, finished = await listen(json_tools(retried(inner, base_seconds=0)))
    assert [type(event) for event in events] == [RetryScheduled, ToolCallDelta]
    assert isinstance(finished, ReplyFinished)


async def test_a_reply_that_breaks_off_is_not_finished():
    with pytest.raises(ReplyCutOff):
        await listen(json_tools(held([TextDelta(CALL), ReplyCutOff("gone")])))


async def test_the_stream_inside_is_closed_with_the_stream_outside():
    closed = []

    class Inner:
        info = ModelInfo("inner", output="native")

        async def stream(self, request):
            try:
                while True:
                    yield TextDelta('{"final": "on and on')
            finally:
                closed.append(True)

    stream = json_tools(Inner()).stream(ASK)
    assert await anext(stream) == TextDelta("on and on")
    await stream.aclose()  # type: ignore[attr-defined]
    assert closed == [True]


async def test_it_keeps_the_contract_of_models():
    await check_model(
        lambda: json_tools(held('{"tool": "add", "args": {"a": 20, "b": 22}}', repeat_last=True, chunk=5))
    )
    await check_model(lambda: json_tools(held('{"final": "Forty-two."}', repeat_last=True, chunk=5)))


async def test_an_agent_calls_its_tools_and_answers():
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    inner = held(CALL, '{"final": "Three."}')
    outcome = await Agent(json_tools(inner), tools=[add]).session().run("What is 1 + 2?")
    assert (outcome.status, outcome.text) == ("done", "Three.")
    assert inner.requests[1].messages[-1].text == '{"tool": "add", "result": "3"}'


def test_it_says_what_the_model_inside_says_about_itself():
    inner = held("")
    assert model_info(json_tools(inner)) == inner.info


@pytest.mark.parametrize("given", ["demo", None, ScriptedModel])
def test_anything_but_a_model_is_refused(given):
    with pytest.raises(ConfigError, match="give a model object"):
        json_tools(given)


async def test_citations_stay_without_the_places_that_they_had_in_the_json():
    cited = Citation("a", start=5, end=9)
    told: list[ModelEvent] = [TextDelta('{"answer": "Yes."}'), CitationAdded(cited), ReplyFinished()]
    assert (await reply_of(ScriptedModel(told))).citations == (Citation("a"),)
    whole = Message("assistant", (Text('{"answer": "Yes."}'), cited))
    assert (await reply_of(ScriptedModel([ReplyFinished(message=whole)]))).citations == (Citation("a"),)


async def test_what_is_asked_is_told_word_for_word():
    asked = await question(replace(ASK, tools=(NOW,)))
    assert asked.instructions == (
        "Be brief.\n\n"
        'Tools:\nnow: Tell the time. args: {"type": "object", "properties": {}}\n\n'
        'Reply with one JSON object and nothing else. To use a tool: {"tool": NAME, "args": {...}}. To answer, when no '
        'tool is needed or when its result is known: {"final": TEXT}.'
    )
    structured = await question(replace(ASK, instructions="", output=OutputSpec("n", {"type": "integer"})))
    assert structured.instructions.startswith("Tools:\nadd: Add two numbers. args: ")
    assert structured.instructions.endswith('{"final": VALUE}, where VALUE is JSON of this schema: {"type": "integer"}')


def answer_of(schema):
    return {"type": "object", "properties": {"final": schema}, "required": ["final"], "additionalProperties": False}


def call_of(spec):
    return {
        "type": "object",
        "properties": {"tool": {"const": spec.name}, "args": spec.parameters},
        "required": ["tool", "args"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("choice", "schema"),
    [
        ("auto", {"anyOf": [call_of(ADD), call_of(NOW), answer_of({"type": "string"})]}),
        ("required", {"anyOf": [call_of(ADD), call_of(NOW)]}),
        ("now", call_of(NOW)),
        ("none", answer_of({"type": "string"})),
    ],
)
async def test_one_form_of_a_reply_is_its_schema_and_several_are_alternatives(choice, schema):
    output = (await question(replace(ASK, settings=Settings(tool_choice=choice)))).output
    assert output == OutputSpec("reply", schema, "A call of a tool, or the answer.")


async def test_a_schema_that_refers_to_itself_is_moved_to_the_definitions():
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "n": {"enum": [1]}}}
    request = replace(ASK, tools=(ToolSpec("walk", "", tree),), settings=Settings(tool_choice="walk"))
    output = (await question(request)).output
    assert output is not None
    moved = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/args_of_walk"}}, "n": {"enum": [1]}},
    }
    assert output.schema == {
        **call_of(ToolSpec("walk", "", {"$ref": "#/$defs/args_of_walk"})),
        "$defs": {"args_of_walk": moved},
    }


async def test_so_many_calls_of_one_reply_are_taken():
    reply = await reply_of(held("\n".join([CALL] * 65)))
    assert [call.call_id for call in reply.tool_calls] == [f"json_1_{number}" for number in range(64)]
    assert reply.stop is StopReason.TOOL_USE
