"""The demonstration model calls a tool that fits, tells what came back, and never pretends to be more than it is."""

import asyncio

import pytest

from perdure import ConfigError, Settings, Status, StopReason, Text, ToolCall, ToolResult, assistant, tool_message, user
from perdure._models.local.demo_model import DemoModel
from perdure.events import ReplyFinished, TextDelta
from perdure.models import ModelInfo, Price, Request, ToolSpec, assemble_reply, model_info
from perdure.testing import check_model

WEATHER = ToolSpec(
    "weather",
    "Today's weather for a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
SHELL = ToolSpec(
    "shell",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
ASKED = user("What is the weather in Oslo? Use your tool.")


async def listen(request):
    return [event async for event in DemoModel().stream(request)]


async def reply_to(*messages, tools=(SHELL, WEATHER), **settings):
    *events, finished = await listen(Request(messages=messages, tools=tools, settings=Settings(**settings)))
    return assemble_reply(events, finished)


def answered(*results):
    return assistant([ToolCall(result.call_id, result.name) for result in results]), tool_message(results)


async def test_it_keeps_the_contract_of_a_model():
    await check_model(DemoModel)


async def test_it_calls_the_tool_that_shares_words_with_the_message():
    reply = await reply_to(ASKED)
    assert reply.tool_calls == (ToolCall("demo_1", "weather", '{"city":"Oslo"}'),)
    assert reply.stop is StopReason.TOOL_USE


async def test_it_tells_what_the_tool_said_and_that_it_is_a_demonstration():
    reply = await reply_to(ASKED, *answered(ToolResult("c1", "weather", (Text("Rain, 7 degrees."),))))
    assert reply.text == "The tool weather says: Rain, 7 degrees. (Told by the offline demonstration model.)"
    assert (reply.tool_calls, reply.stop) == ((), StopReason.STOP)


async def test_it_tells_that_a_tool_failed_was_silent_or_said_very_much():
    reply = await reply_to(
        ASKED,
        *answered(
            ToolResult("c1", "weather", (Text("no network"),), Status.ERROR),
            ToolResult("c2", "shell"),
            ToolResult("c3", "shell", (Text("x" * 5000),)),
        ),
    )
    assert "The tool weather did not succeed (error): no network" in reply.text
    assert "The tool shell is done and says nothing." in reply.text
    assert len(reply.text) < 700


async def test_a_new_message_of_the_person_is_a_new_question():
    before = answered(ToolResult("c1", "weather", (Text("Rain."),)))
    reply = await reply_to(ASKED, *before, assistant("Rain."), user("And the weather in Bergen?"))
    assert reply.tool_calls == (ToolCall("demo_5", "weather", '{"city":"Bergen"}'),)


async def test_without_a_tool_that_fits_it_says_what_it_is_and_how_to_choose_a_real_model():
    for tools in ((), (SHELL, WEATHER)):
        reply = await reply_to(user("Who was Ada Lovelace?"), tools=tools)
        assert "I am the offline demonstration model of Perdure" in reply.text
        assert 'Agent("provider:model")' in reply.text


async def test_without_a_message_it_says_what_it_is():
    assert "demonstration model" in (await reply_to()).text


async def test_it_says_which_argument_it_misses_rather_than_invent_one():
    reply = await reply_to(user("What about the weather?"))
    assert reply.tool_calls == ()
    assert "The tool weather seems to fit, but I found nothing in your message to use as city." in reply.text


async def test_it_does_as_it_is_told_about_tools():
    assert (await reply_to(ASKED, tool_choice="none")).tool_calls == ()
    assert (await reply_to(ASKED, tool_choice="auto")).tool_calls[0].name == "weather"
    assert (await reply_to(user("Do `ls`"), tool_choice="required")).tool_calls[0].name == "shell"
    assert (await reply_to(ASKED, tool_choice="shell")).tool_calls[0].name == "shell"
    assert (await reply_to(ASKED, tool_choice="absent")).tool_calls == ()


async def test_it_speaks_word_by_word():
    events = await listen(Request(messages=(user("Hello"),)))
    words = [event.text for event in events if isinstance(event, TextDelta)]
    assert words[:3] == ["I ", "am ", "the "]
    assert len(words) == len("".join(words).split())


async def test_the_same_request_always_gets_the_same_reply():
    request = Request(messages=(ASKED,), tools=(WEATHER,))
    assert await listen(request) == await listen(request)


async def test_its_usage_is_an_estimate_and_costs_nothing():
    finished = (await listen(Request(messages=(user("Hello"),), instructions="Be brief.")))[-1]
    assert isinstance(finished, ReplyFinished)
    assert finished.usage is not None
    assert finished.usage.precision == "estimated"
    assert finished.usage.input_tokens > 0
    assert finished.usage.output_tokens > 0
    assert model_info(DemoModel()) == ModelInfo("words", "demo", Price(input_usd=0.0, output_usd=0.0))


async def test_half_a_character_in_a_message_does_not_trip_it():
    reply = await reply_to(user("weather in `Os\ud800lo`"))
    assert reply.tool_calls[0].arguments == '{"city":"Os\N{REPLACEMENT CHARACTER}lo"}'


def test_there_is_only_one_demonstration_model():
    with pytest.raises(ConfigError, match="no demonstration model 'genius'"):
        DemoModel("genius")


WHAT_IT_IS = "I am the offline demonstration model of Perdure: I match words, and understand nothing."
HOW_TO_CHOOSE = (
    'For real answers give the agent a real model: by name, as in Agent("provider:model"), or as any object that has '
    "stream(request)."
)


@pytest.mark.parametrize(
    ("tools", "settings", "text"),
    [
        ((), {}, f"{WHAT_IT_IS} {HOW_TO_CHOOSE}"),
        (
            (SHELL,),
            {},
            f"{WHAT_IT_IS} None of my tools shares enough words with your message. {HOW_TO_CHOOSE}",
        ),
        ((SHELL,), {"tool_choice": "none"}, f"{WHAT_IT_IS} {HOW_TO_CHOOSE}"),
        ((), {"tool_choice": "required"}, f"{WHAT_IT_IS} {HOW_TO_CHOOSE}"),
        (
            (WEATHER,),
            {"tool_choice": "required"},
            f"{WHAT_IT_IS} The tool weather seems to fit, but I found nothing in your message to use as city.",
        ),
    ],
)
async def test_what_it_says_of_itself_is_told_word_for_word(tools, settings, text):
    assert (await reply_to(user("hello"), tools=tools, **settings)).text == text


@pytest.mark.parametrize(("length", "told"), [(400, "x" * 400), (401, "x" * 400 + "…")])
async def test_a_result_is_repeated_up_to_a_length(length, told):
    reply = await reply_to(ASKED, *answered(ToolResult("c1", "shell", (Text(f" {'x' * length}\n"),))))
    assert reply.text == f"The tool shell says: {told} (Told by the offline demonstration model.)"


async def test_results_of_several_turns_are_told_in_their_order():
    first, second = ToolResult("c1", "weather", (Text("Rain."),)), ToolResult("c2", "shell", (Text("Done."),))
    reply = await reply_to(ASKED, *answered(first), *answered(second))
    assert reply.text == (
        "The tool weather says: Rain. The tool shell says: Done. (Told by the offline demonstration model.)"
    )


async def test_its_usage_counts_four_characters_as_a_token_and_rounds_up():
    request = Request(messages=(user("12345"), user("6789")), instructions="123")
    finished = (await listen(request))[-1]
    written = len(f"{WHAT_IT_IS} {HOW_TO_CHOOSE}")
    plain = Request(messages=(user("12345"), user("6789")))
    assert isinstance(finished, ReplyFinished)
    assert finished.usage is not None
    assert finished.usage.output_tokens == -(-written // 4)
    longer = (await listen(Request(messages=(user("12345" + "x" * 400), user("6789")), instructions="123")))[-1]
    assert isinstance(longer, ReplyFinished)
    assert longer.usage is not None
    assert longer.usage.input_tokens == finished.usage.input_tokens + 100
    shorter = (await listen(plain))[-1]
    assert isinstance(shorter, ReplyFinished)
    assert shorter.usage is not None
    assert finished.usage.input_tokens - shorter.usage.input_tokens in {0, 1}


async def test_other_tasks_run_while_it_speaks():
    stream = DemoModel().stream(Request(messages=(user("hello"),)))
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "other")
    for _ in range(2):
        await anext(stream)
    assert ran == ["other"]
    await stream.aclose()
