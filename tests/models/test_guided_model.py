"""The packaged weights are asked in the form in which they do well: for a call, for a result, or for a short chat."""

import re

import pytest

from perdure.core.event import ReplyFinished, TextDelta
from perdure.core.message import Status, StopReason, Text, ToolCall, ToolResult, assistant, tool_message, user
from perdure.core.model import OutputSpec, Request, Settings, assemble_reply
from perdure.models.local.small_model_adapter import (
    MAX_REPLY_TOKENS,
    MAX_RESULT_CHARACTERS,
    adapt_to_small_model,
    build_small_model_request,
)
from perdure.testing import ScriptedModel, call
from perdure.toolkits.basic_tools import basic_tools

TOOLS = tuple(each.spec for each in basic_tools())
CONTEXT = 8192


def plan(*messages, **options):
    return build_small_model_request(Request(messages=messages, **{"tools": TOOLS, **options}), CONTEXT)


def told(name, text, arguments="{}", status=Status.OK):
    result = ToolResult("c1", name, (Text(text),), status)
    return assistant([ToolCall("c1", name, arguments)]), tool_message([result])


def test_a_prompt_that_calls_for_a_tool_can_only_be_answered_by_a_call_with_what_it_contains():
    sent = plan(user("hello"), assistant("Hello!"), user("What is 17 * 23?")).request
    assert [tool.name for tool in sent.tools] == ["calculate"]
    assert sent.tools[0].parameters["properties"]["expression"]["enum"] == ["17 * 23"]
    assert sent.settings.tool_choice == "calculate"
    assert [message.text for message in sent.messages] == ["What is 17 * 23?"]


@pytest.mark.parametrize("prompt", ["hello", "What is the capital of France?", "Write a haiku about the sea", "", "?"])
def test_any_other_prompt_is_a_chat_without_tools(prompt):
    planned = plan(user(prompt))
    assert planned.request.tools == ()
    assert planned.request.instructions.startswith("You are SmolLM2")
    assert planned.request.settings.max_output_tokens == MAX_REPLY_TOKENS


@pytest.mark.parametrize(
    ("name", "arguments", "text", "status", "grammar"),
    [
        ("calculate", '{"expression": "17 * 23"}', "391", Status.OK, 'root ::= ("17 * 23 is ") "391"'),
        ("read_text", '{"path": "a.txt"}', 'a "b"\n', Status.OK, r'root ::= ("a.txt says: ") "a \"b\""'),
        ("now", "{}", "Monday\tnoon\x07", Status.OK, r'root ::= ("It is " | "It says: ") "Monday\tnoon\U00000007"'),
        (
            "write_text",
            '{"path": "a", "text": "b"}',
            "wrote it",
            Status.OK,
            'root ::= ("Done: " | "It is ") "wrote it"',
        ),
        ("write_text", '{"path": "a', "wrote it", Status.OK, 'root ::= ("It is " | "It says: ") "wrote it"'),
        ("now", "{}", " ", Status.OK, 'root ::= "Done."'),
        (
            "calculate",
            '{"expression": "1/0"}',
            "it divides by zero",
            Status.ERROR,
            'root ::= ("I am sorry, that did not work: ") "it divides by zero"',
        ),
    ],
)
def test_a_result_is_repeated_word_for_word(name, arguments, text, status, grammar):
    sent = plan(user("Do it."), *told(name, text, arguments, status)).request
    assert sent.settings.extra_body["grammar"] == grammar
    assert sent.tools == ()


def test_a_long_result_is_repeated_in_part_and_that_is_said():
    sent = plan(user("Read it."), *told("read_text", "x" * 5000)).request
    assert f"x … (the first {MAX_RESULT_CHARACTERS} of 5,000 characters)" in sent.settings.extra_body["grammar"]


def test_what_the_caller_demands_is_passed_on_as_it_is():
    for options in (
        {"output": OutputSpec("city", {"type": "object"})},
        {"settings": Settings(tool_choice="required")},
        {"settings": Settings(tool_choice="now")},
    ):
        request = Request(messages=(user("hello"),), tools=TOOLS, **options)
        assert build_small_model_request(request, CONTEXT).request is request


def test_instructions_of_the_caller_replace_the_examples():
    sent = plan(user("hello"), instructions="Be brief.").request
    assert (sent.instructions, [message.text for message in sent.messages]) == ("Be brief.", ["hello"])
    assert plan(user("What is 2 + 2?"), settings=Settings(tool_choice="none")).request.tools == ()
    assert build_small_model_request(Request(messages=()), 512).request.messages == ()


def test_a_chat_keeps_what_was_said_as_far_as_there_is_room():
    before = [message for number in range(200) for message in (user(f"word {number}" * 5), assistant("I see."))]
    sent = plan(*before, *told("now", "Monday"), assistant("It is Monday"), user("thanks")).request
    texts = [message.text for message in sent.messages]
    assert texts[-3:] == ["I see.", "It is Monday", "thanks"]
    assert sum(len(text) for text in texts) < CONTEXT // 2


def test_a_chat_leaves_nothing_out_in_the_middle():
    """What is before a message that has no room is left out as well, however short it is."""
    sent = plan(user("short"), assistant("long " * CONTEXT), user("and"), assistant("now?"), user("hello")).request
    texts = [message.text for message in sent.messages]
    assert texts[-3:] == ["and", "now?", "hello"]
    assert "short" not in texts


async def reply_to(model, request):
    *events, finished = [event async for event in model.stream(request)]
    assert isinstance(finished, ReplyFinished)
    return assemble_reply(events, finished)


async def test_a_prompt_that_is_too_long_is_read_in_part_and_the_reply_says_so():
    inner = ScriptedModel("That is long.")
    reply = await reply_to(adapt_to_small_model(inner, CONTEXT), Request(messages=(user("wörd " * 20_000),)))
    assert re.fullmatch(r"\(I read only the first 2,\d{3} of 100,000 characters\.\) That is long\.", reply.text)
    assert len(inner.requests[0].messages[-1].text.encode()) <= CONTEXT // 2


@pytest.mark.parametrize(
    ("limit", "stop", "ending"),
    [(None, StopReason.STOP, "… (cut off: I do not always find an end)"), (5, StopReason.LENGTH, "and on")],
)
async def test_a_chat_that_does_not_end_is_cut_off_and_says_so_unless_the_caller_set_the_limit(limit, stop, ending):
    class Endless:
        async def stream(self, request):
            yield TextDelta("on and on")
            yield ReplyFinished(StopReason.LENGTH)

    request = Request(messages=(user("Tell me more"),), settings=Settings(max_output_tokens=limit))
    reply = await reply_to(adapt_to_small_model(Endless(), CONTEXT), request)
    assert reply.stop is stop
    assert reply.text.endswith(ending)


async def test_calls_pass_through():
    reply = await reply_to(
        adapt_to_small_model(ScriptedModel(call("now")), CONTEXT),
        Request(messages=(user("What time is it?"),), tools=TOOLS),
    )
    assert [each.name for each in reply.tool_calls] == ["now"]
