"""The packaged weights are asked in the form in which they do well: for a call, for a result, or for a short chat."""

import re

import pytest

from perdure import OutputSpec, Settings, Status, StopReason, Text, ToolCall, ToolResult, assistant, tool_message, user
from perdure._models.local.model import (
    MAX_REPLY_TOKENS,
    MAX_RESULT_CHARACTERS,
    adapt_to_small_model,
    build_small_model_request,
)
from perdure.events import ReplyFinished, TextDelta
from perdure.models import Request, assemble_reply
from perdure.testing import ScriptedModel, call
from perdure.tools import basic_tools

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


def test_a_call_is_asked_for_with_the_prompt_alone():
    sent = plan(
        assistant("Hello!"), user("What is 17 * 23?" + " " * 3000), instructions="x", settings=Settings(temperature=0.5)
    ).request
    assert sent.instructions == ""
    assert sent.settings == Settings(temperature=0.5, tool_choice="calculate", parallel_tool_calls=False)
    assert [len(message.text) for message in sent.messages] == [2000]


def test_a_result_is_asked_for_with_examples_and_what_was_asked():
    sent = plan(user("p" * 300), *told("now", " Monday \n")).request
    assert sent.instructions == "Say the result of the tool."
    assert [message.role for message in sent.messages] == ["user", "assistant"] * 4 + ["user"]
    assert sent.messages[-1].text == f"{'p' * 200}\nResult of now: Monday"
    failed = plan(user("Go."), *told("now", "no clock", status=Status.ERROR)).request
    assert failed.messages[-1].text == "Go.\nError of now: no clock"
    assert plan(*told("now", "Monday")).request.messages[-1].text == "\nResult of now: Monday"


def test_of_several_results_the_last_is_told():
    results = [ToolResult("c1", "now", (Text("Monday"),)), ToolResult("c2", "calculate", (Text("4"),))]
    calls = assistant([ToolCall("c1", "now"), ToolCall("c2", "calculate", '{"expression": "2 + 2"}')])
    sent = plan(user("Go."), calls, tool_message(results)).request
    assert sent.settings.extra_body["grammar"] == 'root ::= ("2 + 2 is ") "4"'
    earlier = plan(user("Go."), calls, tool_message(results), assistant("It is."), user("thanks")).request
    assert "grammar" not in earlier.settings.extra_body


@pytest.mark.parametrize(
    ("argument", "text", "lead"),
    [
        ("a" * 80, "x", "a" * 80 + " says: "),
        ("a" * 81, "x", "a" * 80 + " says: "),
        ("2", "1e3", "2 is "),
        ("2", "1e3x", "2 says: "),
    ],
)
def test_an_argument_is_repeated_before_its_result(argument, text, lead):
    sent = plan(user("Go."), *told("tool", text, f'{{"it": "{argument}"}}')).request
    assert sent.settings.extra_body["grammar"] == f'root ::= ("{lead}") "{text}"'


@pytest.mark.parametrize(("length", "ending"), [(600, ""), (601, " … (the first 600 of 601 characters)")])
def test_a_result_is_repeated_as_far_as_there_is_room(length, ending):
    sent = plan(user("Go."), *told("now", "x" * length)).request
    assert sent.settings.extra_body["grammar"].endswith(f'"{"x" * 600}{ending}"')


def test_letters_that_a_grammar_needs_escaped_are():
    sent = plan(user("Go."), *told("now", 'a\\b\r\nc\t"d"\x00é')).request
    assert sent.settings.extra_body["grammar"] == (r'root ::= ("It is " | "It says: ") "a\\b\r\nc\t\"d\"\U00000000é"')


def test_a_chat_is_asked_for_with_examples_a_limit_and_a_penalty_that_the_caller_may_change():
    sent = plan(user("hello")).request
    assert sent.settings == Settings(max_output_tokens=MAX_REPLY_TOKENS, extra_body={"repeat_penalty": 1.08})
    assert len(sent.messages) == 15
    assert [message.role for message in sent.messages] == ["user", "assistant"] * 7 + ["user"]
    changed = plan(
        user("hello"), settings=Settings(max_output_tokens=7, tool_choice="none", extra_body={"repeat_penalty": 1})
    )
    assert changed.request.settings == Settings(max_output_tokens=7, extra_body={"repeat_penalty": 1})
    assert (plan(user("hello")).may_cut, changed.may_cut) == (True, False)


@pytest.mark.parametrize(("window", "count"), [(1023, 1), (1024, 15)])
def test_examples_are_shown_where_there_is_room_for_them(window, count):
    assert len(build_small_model_request(Request(messages=(user("hello"),)), window).request.messages) == count


@pytest.mark.parametrize(
    ("size", "kept", "prefix"),
    [
        (300, 300, ""),
        (301, 300, "(I read only the first 300 of 301 characters.) "),
        (3000, 300, "(I read only the first 300 of 3,000 characters.) "),
    ],
)
def test_a_prompt_may_fill_three_eighths_of_the_window(size, kept, prefix):
    planned = build_small_model_request(Request(messages=(user("x" * size),)), 800)
    assert ([len(message.text) for message in planned.request.messages], planned.prefix) == ([kept], prefix)


@pytest.mark.parametrize(("size", "count"), [(100, 3), (101, 2)])
def test_what_was_said_before_may_fill_a_quarter_of_the_window(size, count):
    messages = (user("x" * size), assistant("y" * 100), user("and?"))
    planned = build_small_model_request(Request(messages=messages), 800)
    assert [message.text[:1] for message in planned.request.messages] == ["x", "y", "a"][-count:]
    assert [message.role for message in planned.request.messages] == ["user", "assistant", "user"][-count:]
