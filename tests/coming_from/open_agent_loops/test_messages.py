"""Messages, parts and events of Open Agent Loops, with our names."""

import asyncio
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    Audio,
    Document,
    Image,
    Message,
    ProviderDown,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolOutput,
    ToolResult,
    assistant,
    tool,
    tool_message,
    user,
)
from perdure.events import (
    EVENTS,
    Entry,
    Event,
    MessageAdded,
    ReplyDiscarded,
    ReplyFinished,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolCallDelta,
    WatcherDropped,
)
from perdure.models import open_model, retried
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call, calls, pause
from tests.coming_from.shows import shows
from tests.doubles import SECONDS, rounds
from tests.models.canned import CannedTransport


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    if city == "Atlantis":
        raise LookupError("no such city")
    return f"Rain in {city}."


@shows(
    "open-agent-loops",
    "Message",
    "Message.role",
    "Role",
    "UserMessage",
    "userMessage",
    "UserMessage.content",
    "AssistantMessage",
    "assistantMessage",
    "AssistantMessage.content",
    "AssistantMessage.reasoning",
    "AssistantMessage.finishReason",
    "finish_reason",
    "AssistantMessage.tool_calls",
    "ToolMessage",
    "toolMessage",
    "ToolMessage.tool_call_id",
    "ToolMessage.toolName",
    "ToolMessage.isError",
    "isAssistantMessage",
    "isToolMessage",
    "FinishReason",
)
async def test_a_conversation_consists_of_messages_of_parts():
    model = ScriptedModel(
        Reply(
            "I look.",
            thinking="Hm.",
            calls=[ToolCall("c1", "weather", '{"city":"Oslo"}'), ToolCall("c2", "weather", '{"city":"Atlantis"}')],
        ),
        Reply("Rain.", stop=StopReason.LENGTH),
    )
    outcome = (
        await Agent(model, tools=[weather]).session("demo").run(user(["Rain?", Image(url="https://example.org/a")]))
    )
    asked, replied, answered, last = outcome.messages
    assert [each.role for each in outcome.messages] == ["user", "assistant", "tool", "assistant"]
    assert asked == user(["Rain?", Image(url="https://example.org/a")])
    assert asked.parts == (Text("Rain?"), Image(url="https://example.org/a"))
    assert (replied.text, replied.thinking, replied.stop) == ("I look.", "Hm.", StopReason.TOOL_USE)
    assert [type(part) for part in replied.parts] == [Thinking, Text, ToolCall, ToolCall]
    assert [each.call_id for each in replied.tool_calls] == ["c1", "c2"]
    first, second = answered.tool_results
    assert (first.call_id, first.name, first.is_error, first.status) == ("c1", "weather", False, Status.OK)
    assert (second.call_id, second.is_error, second.status, second.text) == (
        *("c2", True, Status.ERROR),
        "LookupError: no such city",
    )
    assert not replied.tool_results
    assert (last.text, last.stop) == ("Rain.", StopReason.LENGTH)


@shows(
    "open-agent-loops",
    "userMessage",
    "assistantMessage",
    "toolMessage",
    "SystemMessage",
    "systemMessage",
    "SystemMessage.content",
    "contentToText",
)
async def test_messages_are_made_by_functions_and_a_conversation_of_them_is_brought_along():
    called = assistant([Thinking("Hm."), Text("I look."), ToolCall("c1", "weather", '{"city":"Oslo"}')])
    answered = tool_message(
        [ToolResult("c1", "weather", (Text("Rain "), Image(url="https://example.org/a"), Text("in Oslo")))]
    )
    history = [Message("system", (Text("You are a sailor."),)), user("Rain?"), called, answered, assistant("Rain.")]
    assert [each.role for each in history[1:]] == ["user", "assistant", "tool", "assistant"]
    assert (called.text, user(["a", Image(url="https://example.org/a"), "b"]).text) == ("I look.", "ab")
    model = ScriptedModel("Aye.")
    session = Agent(model, tools=[weather], instructions="Be brief.").session("demo")
    await session.import_messages(history)
    await session.run("Ready?")
    sent = model.requests[0]
    assert sent.instructions == "Be brief."
    assert [each.role for each in sent.messages] == ["user", "user", "assistant", "tool", "assistant", "user"]
    assert "You are a sailor." in sent.messages[0].text


@shows(
    "open-agent-loops",
    "AssistantMessage.timestamp",
    "SystemMessage.timestamp",
    "ToolMessage.timestamp",
    "UserMessage.timestamp",
)
async def test_messages_are_stamped_when_they_are_stored():
    clock = FakeClock(1_000_000.0)

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await clock.advance(60)
        return "waited"

    session = Agent(ScriptedModel(call("wait"), "Done."), tools=[wait], clock=clock).session("demo")
    await session.import_messages([Message("system", (Text("You are a sailor."),)), assistant("Aye.")])
    await clock.advance(10)
    await session.run(user("Wait.", metadata={"sent_at": 999_000.0}))
    history = await session.history()
    assert [(each.message.role, each.at) for each in history] == [
        ("user", 1_000_000.0),
        ("assistant", 1_000_000.0),
        ("user", 1_000_010.0),
        ("assistant", 1_000_010.0),
        ("tool", 1_000_070.0),
        ("assistant", 1_000_070.0),
    ]
    assert history[2].message.metadata == {"sent_at": 999_000.0}


@shows("open-agent-loops", "AssistantMessage.isError")
async def test_a_stream_that_fails_is_no_message_and_its_calls_are_not_made():
    recorder = Recorder()
    half: list[Any] = [TextDelta("I look."), ToolCallDelta("c1", "weather", '{"city":"Oslo"}'), ConnectionError("down")]
    outcome = await Agent(ScriptedModel(half), tools=[weather], watchers=[recorder]).run("Rain?")
    (discarded,) = recorder.of(ReplyDiscarded)
    assert discarded.partial is not None
    assert (discarded.partial.text, len(discarded.partial.tool_calls)) == ("I look.", 1)
    assert [each.role for each in outcome.messages] == ["user"]
    assert outcome.status == "failed"


# -- parts -------------------------------------------------------------------------------------------------------------


def sse(*chunks):
    return "".join([f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]")]).encode()


ANSWER = sse('{"choices":[{"delta":{"content":"Seen."},"finish_reason":"stop"}]}')


@shows(
    "open-agent-loops",
    "ContentPart",
    "TextPart",
    "textPart",
    "ImagePart",
    "imagePart",
    "AudioPart",
    "audioPart",
    'AudioPart."wav"',
    'AudioPart."mp3"',
    "FilePart",
    "filePart",
    "FilePart.file_data",
    "FilePart.filename",
    "FilePart.file_id",
)
@pytest.mark.parametrize("model", ["openai/gpt-4o", "openai/gpt-4o-audio-preview"])
async def test_parts_are_sent_in_the_form_of_chat_completions(model):
    transport = CannedTransport(ANSWER)
    parts: list[Any] = [
        Text("Look and listen."),
        Image(url="https://example.org/a.png"),
        Image(data=b"\x89PNG", media_type="image/png"),
        Audio(data=b"RIFF", media_type="audio/wav"),
        Audio(data=b"ID3", media_type="audio/mp3"),
        Document(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
        Document(file_id="file-7"),
    ]
    opened = open_model(f"openrouter:{model}", api_key="none", transport=transport)
    outcome = await Agent(opened).session("demo").run(parts)
    assert outcome.messages[0].parts == tuple(parts)
    sent = transport.bodies[0]["messages"][0]["content"]
    assert sent[0] == {"type": "text", "text": "Look and listen."}
    assert sent[-2:] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "file", "file": {"file_id": "file-7"}},
    ]
    if model == "openai/gpt-4o":
        urls = [each["image_url"]["url"] for each in sent if each["type"] == "image_url"]
        assert urls == ["https://example.org/a.png", "data:image/png;base64,iVBORw=="]
    else:
        heard = [each["input_audio"] for each in sent if each["type"] == "input_audio"]
        assert heard == [{"data": "UklGRg==", "format": "wav"}, {"data": "SUQz", "format": "mp3"}]


@shows("open-agent-loops", "ContentPart")
async def test_results_of_tools_have_parts_too():
    @tool(effect="read")
    def draw() -> ToolOutput:
        """Draw."""
        return ToolOutput([Text("A map: "), Image(data=b"\x89PNG", media_type="image/png")])

    outcome = await Agent(ScriptedModel(call("draw"), "Drawn."), tools=[draw]).run("Draw.")
    assert outcome.messages[2].tool_results[0].content == (
        Text("A map: "),
        Image(data=b"\x89PNG", media_type="image/png"),
    )


@shows("open-agent-loops", "ToolCall", "ToolArguments")
async def test_arguments_are_kept_as_the_model_wrote_them_and_given_to_the_tool_as_an_object():
    got = []

    @tool(effect="read")
    def note(text: str, times: int = 1) -> str:
        """Note something."""
        got.append((text, times))
        return "noted"

    raw = '{ "text": "rain",  "times": "2" }'
    outcome = await Agent(ScriptedModel(calls(ToolCall("c1", "note", raw)), "Done."), tools=[note]).run("Note.")
    assert outcome.messages[1].tool_calls == (ToolCall("c1", "note", raw),)
    assert got == [("rain", 2)]


DETAILS = (
    '{"type":"reasoning.text","text":"Hm.","signature":"sig-1","format":"anthropic-claude-v1","id":"r1","index":0}',
    '{"type":"reasoning.summary","summary":"In short.","format":"openai-responses-v1","id":"r2","index":1}',
    '{"type":"reasoning.encrypted","data":"XYZ","format":"openai-responses-v1","id":"r3","index":2}',
)
CALL = '{"index":0,"id":"c1","function":{"name":"weather","arguments":"{\\"city\\":\\"Oslo\\"}"}}'


@shows(
    "open-agent-loops",
    "AssistantMessage.reasoning_details",
    "ReasoningDetail",
    "ReasoningDetailBase",
    "ReasoningTextDetail",
    "ReasoningSummaryDetail",
    "ReasoningEncryptedDetail",
    "ReasoningFormat",
)
@pytest.mark.parametrize("detail", DETAILS, ids=["text", "summary", "encrypted"])
async def test_blocks_of_reasoning_are_kept_and_sent_back_word_for_word(detail):
    transport = CannedTransport(
        sse(
            f'{{"choices":[{{"delta":{{"reasoning_details":[{detail}]}}}}]}}',
            f'{{"choices":[{{"delta":{{"tool_calls":[{CALL}]}},"finish_reason":"tool_calls"}}]}}',
        ),
        ANSWER,
    )
    model = open_model("openrouter:anthropic/claude-sonnet-5.5", api_key="none", transport=transport)
    outcome = await Agent(model, tools=[weather]).run("Rain?")
    given = msgspec.json.decode(detail.encode())
    (thought,) = [part for part in outcome.messages[1].parts if isinstance(part, Thinking)]
    assert (thought.provider, thought.model) == ("openrouter", "anthropic/claude-sonnet-5.5")
    assert thought.details == {"reasoning_details": [given]}
    assert thought.text == given.get("text", given.get("summary", ""))
    assert transport.bodies[1]["messages"][1]["reasoning_details"] == [given]


ANTHROPIC = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","role":"assistant","content":[],'
    b'"model":"claude-sonnet-5.5","usage":{"input_tokens":3,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"thinking","thinking":"","signature":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"thinking_delta","thinking":"Hm."}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"signature_delta","signature":"sig-1"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":1,'
    b'"content_block":{"type":"redacted_thinking","data":"XYZ"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":2,'
    b'"content_block":{"type":"text","text":"Rain."}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":2}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
    b'"usage":{"output_tokens":9}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


@shows("open-agent-loops", "ReasoningTextDetail", "ReasoningEncryptedDetail")
async def test_signed_and_encrypted_blocks_of_anthropic_have_fields():
    model = open_model("anthropic:claude-sonnet-5.5", api_key="none", transport=CannedTransport(ANTHROPIC))
    outcome = await Agent(model).run("Rain?")
    assert outcome.message is not None
    first, second, _ = outcome.message.parts
    assert isinstance(first, Thinking)
    assert isinstance(second, Thinking)
    assert (first.text, first.signature, second.data) == ("Hm.", "sig-1", "XYZ")


# -- events ------------------------------------------------------------------------------------------------------------


@shows(
    "open-agent-loops",
    "AgentEvent",
    'AgentEvent."agent_start"',
    "AgentEventBody",
    "AgentEventType",
    "EventSink",
)
async def test_a_watcher_gets_every_event_with_its_number_and_time():
    clock = FakeClock(1_000_000.0)
    seen: list[Entry] = []
    agent = Agent(ScriptedModel("Rain."), clock=clock, watchers=[seen.append])
    session = agent.session("demo")
    await session.run("Rain?")
    assert all(isinstance(each, Entry) and isinstance(each.event, Event) for each in seen)
    assert {each.at for each in seen} == {1_000_000.0}
    kinds = [type(each.event) for each in seen]
    assert (kinds[1], kinds[2], kinds[-1]) == (RunStarted, MessageAdded, RunEnded)
    stored = [each for each in seen if each.seq]
    assert [each.seq for each in stored] == list(range(1, len(stored) + 1))
    assert stored == await session.store.read("demo")
    assert EVENTS["run_started"] is RunStarted
    assert {EVENTS[str(kind.__struct_config__.tag)] for kind in kinds} == set(kinds)


@shows("open-agent-loops", "EventSink")
async def test_a_watcher_that_raises_does_not_break_a_run_and_a_slow_reader_slows_it_only_on_request():
    def broken(entry):
        raise ValueError("no screen")

    recorder = Recorder()
    agent = Agent(ScriptedModel("Rain."), watchers=[broken, recorder])
    outcome = await agent.run("Rain?")
    assert (outcome.status, len(recorder.of(WatcherDropped))) == ("done", 1)
    wait = pause()
    wait.release()
    many: list[Any] = [*[TextDelta(f"{number} ") for number in range(3000)], wait, ReplyFinished()]
    stream = Agent(ScriptedModel(many)).session("demo").stream("Count.", backpressure=True)
    reached, read = asyncio.create_task(wait.wait_reached()), 0
    async with asyncio.timeout(SECONDS):
        async for event in stream:
            if isinstance(event, TextDelta):
                read += 1
                if read == 1:
                    await rounds()
                    assert not reached.done()  # the model waits for its reader
        await reached
    assert read == 3000


@shows("open-agent-loops", "AssistantMessage.isError")
async def test_a_run_continues_after_a_stream_that_broke_off_when_it_may_be_retried():
    recorder = Recorder()
    half: list[Any] = [TextDelta("It "), ProviderDown("down")]
    model = retried(ScriptedModel(half, "Rain."), clock=FakeClock(auto=True))
    outcome = await Agent(model, watchers=[recorder]).run("Rain?")
    assert [each.text for each in outcome.messages] == ["Rain?", "Rain."]
    (discarded,) = recorder.of(ReplyDiscarded)
    assert discarded.partial is not None
    assert discarded.partial.text == "It "
