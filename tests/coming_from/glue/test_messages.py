"""Glue's messages, with our names."""

import asyncio
import base64

from perdure import (
    Agent,
    Audio,
    Document,
    Image,
    Limits,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    Video,
    assistant,
    tool,
    user,
)
from perdure._core.values.message import Part
from perdure.events import ReplyDiscarded, TextDelta
from perdure.models import open_model
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call, calls, pause
from tests.coming_from.shows import shows
from tests.doubles import SECONDS
from tests.models.canned import CannedTransport


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    if city == "Atlantis":
        raise LookupError("no such city")
    return f"Rain in {city}."


@shows(
    "glue",
    "Message",
    "Message.ID",
    "Message.Role",
    "Message.Content",
    "Message.ToolCallID",
    "Message.ToolName",
    "Message.IsError",
    "Message.Provider",
    "Message.Model",
    "Message.StopReason",
    "Message.Usage",
    "Message.CreatedAt",
    "Message.Metadata",
    "MessageRole",
    "MessageRoleUser",
    'MessageRole."user"',
    "MessageRoleAssistant",
    'MessageRole."assistant"',
    "MessageRoleTool",
    'MessageRole."tool"',
)
async def test_a_transcript_has_messages_of_the_user_the_assistant_and_of_tools(sqlite):
    clock = FakeClock(1_000_000.0)
    model = ScriptedModel(
        calls(ToolCall("c1", "weather", '{"city":"Oslo"}'), ToolCall("c2", "weather", '{"city":"Atlantis"}')),
        Reply("Rain.", usage=Usage(30, 7)),
        name="big",
    )
    session = Agent(model, tools=[weather], clock=clock, store=sqlite()).session("oslo")
    await session.run(user(["Rain?", Image(url="https://example.org/sky.png")], metadata={"channel": "mail"}))
    await clock.advance(60)
    history = await Agent(ScriptedModel(), store=sqlite()).session("oslo").history()
    asked, called, results, answer = [each.message for each in history]
    assert (asked.role, called.role, results.role, answer.role) == ("user", "assistant", "tool", "assistant")
    assert asked.parts == (Text("Rain?"), Image(url="https://example.org/sky.png"))
    assert asked.metadata == {"channel": "mail"}
    assert [(each.call_id, each.name, each.is_error) for each in results.tool_results] == [
        ("c1", "weather", False),
        ("c2", "weather", True),
    ]
    assert (called.stop, answer.stop) == (StopReason.TOOL_USE, StopReason.STOP)
    assert (answer.provider, answer.model) == ("scripted", "big")
    assert answer.usage == Usage(30, 7)
    assert [each.at for each in history] == [1_000_000.0] * 4
    assert len({each.entry_id for each in history}) == 4
    again = await Agent(ScriptedModel(), store=sqlite()).session("oslo").history()
    assert [each.entry_id for each in again] == [each.entry_id for each in history]


@shows(
    "glue",
    "ContentPart",
    "ContentPart.Type",
    "ContentPart.Text",
    "ContentPart.Thinking",
    "ContentPart.Image",
    "ContentPart.ToolCall",
    "ContentPart.Signature",
    "ContentType",
    "ContentTypeText",
    'ContentType."text"',
    "ContentTypeThinking",
    'ContentType."thinking"',
    "ContentTypeImage",
    'ContentType."image"',
    "ContentTypeToolCall",
    'ContentType."tool_call"',
    "ImageContent",
)
async def test_parts_have_classes_and_are_stored_as_they_came(sqlite):
    thought = Thinking("Clouds.", signature="sig-1")
    called = ToolCall("c1", "weather", '{"city":"Oslo"}', signature="sig-2")
    reply = assistant([thought, Text("I look.", signature="sig-3"), called])
    pictures = [
        Image(data=b"\x89PNG", media_type="image/png"),
        Image(url="https://example.org/a.png"),
        Image(file_id="f1"),
    ]
    others: list[Part] = [
        Audio(data=b"RIFF", media_type="audio/wav"),
        Video(url="https://example.org/a.mp4"),
        Document(data=b"%PDF", media_type="application/pdf"),
    ]
    model = ScriptedModel(reply, "Rain.")
    await Agent(model, tools=[weather], store=sqlite()).session("oslo").run(["Rain?", *pictures, *others])
    asked, answered, results, _ = await Agent(ScriptedModel(), store=sqlite()).session("oslo").messages()
    assert [type(part) for part in asked.parts] == [Text, Image, Image, Image, Audio, Video, Document]
    assert list(asked.parts[1:]) == [*pictures, *others]
    assert [type(part) for part in answered.parts] == [Thinking, Text, ToolCall]
    first, second, third = answered.parts
    assert isinstance(first, Thinking)
    assert isinstance(second, Text)
    assert isinstance(third, ToolCall)
    assert (first.text, first.signature) == ("Clouds.", "sig-1")
    assert (second.text, second.signature) == ("I look.", "sig-3")
    assert (third.name, third.arguments, third.signature) == ("weather", '{"city":"Oslo"}', "sig-2")
    assert [type(part) for part in results.parts] == [ToolResult]


@shows("glue", "ImageContent")
async def test_an_image_of_bytes_is_sent_in_base64():
    transport = CannedTransport(
        b'data: {"choices":[{"delta":{"content":"Sky."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    model = open_model("openrouter:openai/gpt-4o", api_key="none", transport=transport)
    await Agent(model).run(["What is this?", Image(data=b"\x89PNG", media_type="image/png")])
    sent = transport.bodies[0]["messages"][-1]["content"][1]["image_url"]["url"]
    assert sent == "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()


@shows(
    "glue",
    "StopReason",
    "StopReasonStop",
    'StopReason."stop"',
    "StopReasonLength",
    'StopReason."length"',
    "StopReasonToolUse",
    'StopReason."tool_use"',
    "StopReasonError",
    'StopReason."error"',
)
async def test_a_reply_says_why_it_ended():
    called = Reply(calls=[call("weather", city="Oslo")])
    model = ScriptedModel(called, Reply("Rain.", stop=StopReason.LENGTH))
    cut = await Agent(model, tools=[weather]).run("Rain?")
    assert [each.stop for each in cut.messages if each.role == "assistant"] == ["tool_use", "length"]
    assert (cut.status, cut.reason) == ("stopped", "length")
    done = await Agent(ScriptedModel("Rain.")).run("Rain?")
    assert done.message is not None
    assert (done.message.stop, done.status, done.reason) == ("stop", "done", "")
    failed = await Agent(ScriptedModel(ConnectionError("down"))).run("Rain?")
    assert (failed.status, failed.reason, str(failed.error)) == ("failed", "ConnectionError", "down")
    said = await Agent(ScriptedModel(Reply("Sorry.", stop=StopReason.ERROR))).run("Rain?")
    assert said.message is not None
    assert said.message.stop == "error"


@shows("glue", "StopReasonCanceled", 'StopReason."canceled"')
async def test_a_reply_that_is_cancelled_is_kept_apart_with_its_reason():
    wait, recorder = pause(), Recorder()
    session = Agent(ScriptedModel([TextDelta("It will"), wait]), watchers=[recorder]).session("oslo")
    running = asyncio.create_task(session.run("Rain?"))
    async with asyncio.timeout(SECONDS):
        await wait.wait_reached()
        await session.cancel()
        outcome = await running
    (discarded,) = recorder.of(ReplyDiscarded)
    assert (outcome.status, outcome.message) == ("cancelled", discarded.partial)
    assert discarded.partial is not None
    assert (discarded.partial.text, discarded.partial.stop) == ("It will", StopReason.CANCELLED)
    assert [each.text for each in await session.messages()] == ["Rain?"]


@shows("glue", "StopReasonMaxTurns", 'StopReason."max_turns"')
async def test_a_run_out_of_turns_says_so_and_leaves_the_last_reply_as_it_was():
    model = ScriptedModel(call("weather", city="Oslo"), "Rain.")
    session = Agent(model, tools=[weather], limits=Limits(max_turns=1)).session("oslo")
    outcome = await session.run("Rain?")
    assert (outcome.status, outcome.reason) == ("limit", "max_turns")
    assert outcome.messages[1].stop == "tool_use"
    assert outcome.messages[2].tool_results[0].text == "Rain in Oslo."
    retried = await session.run("Go on.", limits=Limits(max_turns=8))
    assert retried.text == "Rain."


@shows(
    "glue",
    "Usage",
    "Usage.InputTokens",
    "Usage.OutputTokens",
    "Usage.CacheReadTokens",
    "Usage.CacheWriteTokens",
    "Usage.TotalTokens",
)
async def test_tokens_are_counted_for_each_reply_and_for_the_run():
    first = Usage(100, 20, cache_read_tokens=60, cache_write_tokens=30, reasoning_tokens=5)
    model = ScriptedModel(
        Reply(calls=[call("weather", city="Oslo")], usage=first), Reply("Rain.", usage=Usage(140, 10, 90))
    )
    outcome = await Agent(model, tools=[weather]).run("Rain?")
    assert outcome.messages[1].usage == first
    total = outcome.usage
    assert (total.input_tokens, total.output_tokens, total.total_tokens) == (240, 30, 270)
    assert (total.cache_read_tokens, total.cache_write_tokens) == (150, 30)
    assert (total.reasoning_tokens, total.precision) == (5, "exact")
