"""A scripted model says what it was told to say, and remembers what it was asked."""

import asyncio
from typing import Any

import pytest

from perdure import (
    Citation,
    ConfigError,
    Image,
    Message,
    ModelError,
    ProviderDown,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    assistant,
    user,
)
from perdure.events import CitationAdded, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models import ModelInfo, Price, Request, assemble_reply, model_info
from perdure.testing import Reply, ScriptedModel, ScriptEnded, call, calls, check_model, pause, thinking


def asking(text="Hello"):
    return Request(messages=(user(text),))


async def listen(model, request=None):
    return [event async for event in model.stream(request or asking())]


async def reply_of(model, request=None):
    """The message that the next stream tells, put together as the loop does it."""
    *events, finished = await listen(model, request)
    return assemble_reply(events, finished)


# -- what a reply may be -----------------------------------------------------------------------------------------------


async def test_a_text_is_told_whole_and_ends_with_stop():
    events = await listen(ScriptedModel("Hello there"))
    usage = Usage(input_tokens=10, output_tokens=5)
    assert events == [TextDelta("Hello there"), ReplyFinished(StopReason.STOP, usage, "scripted", "scripted")]


async def test_texts_thoughts_and_arguments_are_cut_into_chunks_and_lose_nothing():
    model = ScriptedModel(thinking("Hmm, hmm", "Hello", call("shell", command="ls")), chunk=3)
    events = await listen(model)
    assert [event.text for event in events if isinstance(event, ThinkingDelta)] == ["Hmm", ", h", "mm"]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hel", "lo"]
    message = assemble_reply(events[:-1], events[-1])
    assert (message.thinking, message.text) == ("Hmm, hmm", "Hello")
    assert message.tool_calls == (ToolCall("call_1", "shell", '{"command":"ls"}'),)


async def test_an_empty_text_is_a_reply_with_nothing_in_it():
    assert [type(event) for event in await listen(ScriptedModel(""))] == [ReplyFinished]


async def test_a_call_has_its_arguments_as_json_and_stops_for_tools():
    message = await reply_of(ScriptedModel(call("shell", command="ls", timeout=3)))
    assert message.tool_calls == (ToolCall("call_1", "shell", '{"command":"ls","timeout":3}'),)
    assert message.stop is StopReason.TOOL_USE


async def test_a_call_takes_a_parameter_that_is_called_name():
    assert call("greet", name="Ada").arguments == '{"name":"Ada"}'


async def test_a_call_with_raw_arguments_says_them_as_they_are():
    message = await reply_of(ScriptedModel(call("shell", '{"command": ')))
    assert message.tool_calls[0].arguments == '{"command": '


async def test_several_calls_of_one_reply_are_told_apart_by_index():
    events = await listen(ScriptedModel(calls(call("a", x=1), call("b", x=2))))
    assert events[:2] == [ToolCallDelta("call_1", "a", '{"x":1}'), ToolCallDelta("call_2", "b", '{"x":2}', index=1)]


async def test_thinking_comes_before_what_follows_it():
    message = await reply_of(ScriptedModel(thinking("Two and two", "is ", "4")))
    assert message.parts == (Thinking("Two and two", provider="scripted", model="scripted"), Text("is 4"))


async def test_a_reply_says_its_usage_and_why_it_stopped():
    model = ScriptedModel(Reply("cut", usage=Usage(7, 3), stop=StopReason.LENGTH), Reply("quiet", usage=None))
    cut, quiet = await reply_of(model), await reply_of(model)
    assert (cut.usage, cut.stop) == (Usage(7, 3), StopReason.LENGTH)
    assert quiet.usage is None


async def test_a_message_is_told_in_deltas_and_as_a_whole():
    said = assistant([Thinking("Hm", signature="sig"), "Look:", ToolCall("", "shell"), ToolCall("mine", "shell")])
    *deltas, finished = await listen(ScriptedModel(said))
    assert finished.message == Message(
        "assistant",
        (Thinking("Hm", signature="sig"), Text("Look:"), ToolCall("call_1", "shell"), ToolCall("mine", "shell")),
        provider="scripted",
        model="scripted",
        stop=StopReason.TOOL_USE,
        usage=Usage(10, 5),
    )
    told = assemble_reply(deltas, ReplyFinished())
    assert (told.thinking, told.text, told.tool_calls) == ("Hm", "Look:", finished.message.tool_calls)


async def test_a_picture_in_a_message_is_told_only_by_the_whole():
    picture = Image(url="https://example.org/cat.png")
    (finished,) = await listen(ScriptedModel(assistant(picture)))
    assert finished.message.parts == (picture,)


async def test_a_list_of_events_is_played_as_it_is():
    events = [TextDelta("cut "), TextDelta("off")]
    assert await listen(ScriptedModel(events)) == events


async def test_an_error_is_raised_where_it_stands():
    model = ScriptedModel(ProviderDown("gone"), [TextDelta("Hel"), ProviderDown("gone again")])
    with pytest.raises(ProviderDown, match="gone"):
        await listen(model)
    stream = model.stream(asking())
    assert await anext(stream) == TextDelta("Hel")
    with pytest.raises(ProviderDown, match="gone again"):
        await anext(stream)


async def test_an_error_that_is_raised_again_does_not_drag_its_old_frames_along():
    error = ProviderDown("gone")
    model = ScriptedModel(error, repeat_last=True)
    depths = []
    for _ in range(3):
        with pytest.raises(ProviderDown):
            await listen(model)
        frame, depth = error.__traceback__, 0
        while frame is not None:
            frame, depth = frame.tb_next, depth + 1
        depths.append(depth)
    assert len(set(depths)) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_answers_from_the_request(is_async):
    def echo(request):
        return f"You said {request.messages[-1].text}"

    async def echo_later(request):
        return echo(request)

    model = ScriptedModel(echo_later if is_async else echo)
    assert (await reply_of(model, asking("hi"))).text == "You said hi"


async def test_what_a_function_raises_is_raised_by_the_stream():
    def refuse(request):
        raise ProviderDown("not today")

    with pytest.raises(ProviderDown, match="not today"):
        await listen(ScriptedModel(refuse))


# -- one reply for each request ----------------------------------------------------------------------------------------


async def test_replies_are_played_in_order_and_counted():
    model = ScriptedModel("one", "two")
    assert model.remaining == 2
    assert [(await reply_of(model)).text, (await reply_of(model)).text] == ["one", "two"]
    assert model.remaining == 0
    assert "2 replies, asked 2 times" in repr(model)


async def test_a_script_that_is_over_says_how_many_replies_it_had_and_how_often_it_was_asked():
    model = ScriptedModel("only one")
    await listen(model)
    with pytest.raises(ScriptEnded, match="has 1 reply, and this is request 2: script another"):
        await listen(model)


async def test_a_model_without_replies_must_not_be_asked():
    with pytest.raises(ScriptEnded, match="has 0 replies, and this is request 1"):
        await listen(ScriptedModel())


def test_the_end_of_a_script_is_a_model_error_and_a_failed_assertion():
    assert issubclass(ScriptEnded, ModelError)
    assert issubclass(ScriptEnded, AssertionError)


async def test_the_last_reply_is_repeated_with_new_ids_when_asked_for():
    model = ScriptedModel("first", call("shell"), repeat_last=True)
    replies = [await reply_of(model) for _ in range(4)]
    assert [reply.tool_calls[0].call_id for reply in replies[1:]] == ["call_1", "call_2", "call_3"]


async def test_requests_are_kept_as_they_were_when_asked():
    messages = [user("one")]
    model = ScriptedModel("a", "b")
    await listen(model, Request(messages=messages))
    messages.append(user("two"))
    await listen(model, Request(messages=tuple(messages)))
    assert [[message.text for message in request.messages] for request in model.requests] == [["one"], ["one", "two"]]


def test_it_says_what_it_is_and_costs():
    price = Price(input_usd=1, output_usd=2)
    assert model_info(ScriptedModel(name="cheap", price=price)) == ModelInfo("cheap", "scripted", price)


# -- standing still ----------------------------------------------------------------------------------------------------


async def test_a_pause_holds_a_stream_until_it_is_released():
    held = pause()
    model = ScriptedModel([TextDelta("Hel"), held, TextDelta("lo"), ReplyFinished()])
    task = asyncio.create_task(reply_of(model))
    async with asyncio.timeout(30):
        await held.wait_reached()
        assert not task.done()
        held.release()
        assert (await task).text == "Hello"


async def test_a_stream_waits_for_an_event_of_the_test():
    gate = asyncio.Event()
    stream: Any = ScriptedModel([gate, TextDelta("now"), ReplyFinished()]).stream(asking())
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert not first.done()
    gate.set()
    async with asyncio.timeout(30):
        assert await first == TextDelta("now")
    await stream.aclose()


async def test_a_held_stream_can_be_cancelled():
    held = pause()
    task = asyncio.create_task(listen(ScriptedModel([held])))
    async with asyncio.timeout(30):
        await held.wait_reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_closed_stream_is_over():
    stream: Any = ScriptedModel("one two three", chunk=4).stream(asking())
    await anext(stream)
    await stream.aclose()
    assert [event async for event in stream] == []


@pytest.mark.parametrize(
    "reply",
    [
        "words",
        call("add", a=20, b=22),
        calls(call("add", a=1, b=2), call("add", a=3, b=4)),
        assistant(["words", ToolCall("", "add", "{}")]),
        thinking("hm", "words"),
        [TextDelta("a"), ReplyFinished()],
        lambda _: call("add"),
    ],
)
@pytest.mark.parametrize("chunk", [None, 2])
async def test_it_keeps_the_contract_of_a_model(reply, chunk):
    await check_model(lambda: ScriptedModel(reply, repeat_last=True, chunk=chunk))


# -- what cannot be scripted -------------------------------------------------------------------------------------------


def given(function, *arguments, **keywords):
    return lambda: function(*arguments, **keywords)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (given(ScriptedModel, 42), "reply 1 of a ScriptedModel is 42: give a str"),
        (given(ScriptedModel, "ok", None), "reply 2 of a ScriptedModel is None"),
        (given(ScriptedModel, ProviderDown), "exception instance"),
        (given(ScriptedModel, ["words"]), "holds 'words': a list is played as it is"),
        (given(ScriptedModel, [call("a"), call("b")]), r"for several calls use calls\(\.\.\.\)"),
        (given(ScriptedModel, user("me?")), "role 'user': a model says 'assistant'"),
        (given(ScriptedModel, "x", chunk=0), "chunk must be at least 1"),
        (given(ScriptedModel, repeat_last=True), "needs a reply to repeat"),
        (given(Reply, 3), "text must be a str"),
        (given(Reply, "x", thinking=None), "thinking must be a str"),
        (given(Reply, calls=call("a")), "calls must be a list"),
        (given(Reply, calls=["a"]), "calls must be a list"),
        (given(call, ""), "the name of a tool"),
        (given(call, 3), "the name of a tool"),
        (given(call, "a", {"b": 1}), "as keywords, or as one raw JSON text"),
        (given(call, "a", "{}", b=1), "as keywords, or as one raw JSON text"),
        (given(call, "a", b=object()), "cannot be written as JSON"),
        (given(calls), "needs at least one call"),
        (given(calls, "a"), "calls must be a list"),
        (given(thinking, 3), "thinking must be a str"),
        (given(thinking, "x", 3), "calls must be a list"),
    ],
)
def test_what_cannot_be_scripted_is_refused_with_advice(make, complaint):
    with pytest.raises(ConfigError, match=complaint):
        make()


async def test_a_function_that_returns_no_reply_is_told_so():
    with pytest.raises(ConfigError, match="the reply of <function"):
        await listen(ScriptedModel(lambda _: 42))


async def test_every_part_of_a_message_is_told_in_its_place_with_all_that_belongs_to_it():
    said = assistant(
        [
            Thinking("Hm", signature="sig"),
            Thinking("", data="sealed", details={"a": 1}, is_item=True),
            Citation("https://example.org", "Example"),
            ToolCall("mine", "shell", '{"a":1}', "signed"),
            ToolCall("too", "shell", ""),
        ]
    )
    *deltas, _ = await listen(ScriptedModel(said, chunk=4))
    assert deltas == [
        ThinkingDelta("Hm"),
        ThinkingDelta("", "sig"),
        ThinkingDelta("", "", "sealed", {"a": 1}, 1, is_item=True),
        CitationAdded(Citation("https://example.org", "Example")),
        ToolCallDelta("mine", "shell", '{"a"', "signed"),
        ToolCallDelta(arguments=":1}"),
        ToolCallDelta("too", "shell", "", index=1),
    ]


async def test_a_text_can_be_told_letter_by_letter():
    assert [event.text for event in (await listen(ScriptedModel("abc", chunk=1)))[:-1]] == ["a", "b", "c"]


async def test_a_pause_is_reached_when_a_stream_waits_at_it_and_not_before():
    held = pause()
    reached = asyncio.ensure_future(held.wait_reached())
    stream: Any = ScriptedModel([TextDelta("a"), held, TextDelta("b")]).stream(asking())
    assert await anext(stream) == TextDelta("a")
    await asyncio.sleep(0)
    assert not reached.done()
    held.release()
    async with asyncio.timeout(30):
        assert await anext(stream) == TextDelta("b")
        await reached
    await stream.aclose()


async def test_a_model_tells_how_many_replies_it_has_and_how_often_it_was_asked():
    model = ScriptedModel("one", name="small")
    await listen(model)
    assert repr(model) == "<ScriptedModel 'small': 1 replies, asked 1 times>"
    with pytest.raises(ScriptEnded) as ended:
        await listen(model)
    assert str(ended.value) == (
        "ScriptedModel 'small' has 1 reply, and this is request 2: script another reply, or pass repeat_last=True"
    )
    assert model.remaining == 0


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (given(Reply, usage=3), "Reply(usage=3): usage must be a Usage(...), or None"),
        (given(Reply, stop="later"), "Reply(stop='later'): stop must be a StopReason, or None"),
        (
            given(ScriptedModel, "x", chunk=1.5),
            "ScriptedModel(chunk=1.5): chunk must be at least 1, or None for whole texts",
        ),
    ],
)
def test_what_cannot_be_scripted_is_told_in_full(make, complaint):
    with pytest.raises(ConfigError) as refused:
        make()
    assert str(refused.value) == complaint


async def test_a_message_keeps_the_facts_that_it_has():
    said = Message("assistant", (Text("a"),), provider="p", model="m", stop=StopReason.LENGTH, usage=Usage(1, 2))
    (_, finished) = await listen(ScriptedModel(said))
    assert finished == ReplyFinished(StopReason.LENGTH, Usage(1, 2), "m", "p", said)
