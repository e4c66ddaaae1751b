"""What the tracer of Open Agent Loops sees, with our names."""

import msgspec

from perdure import Agent, Settings, tool
from perdure.engines import fold_entries
from perdure.events import (
    Entry,
    MessageAdded,
    ModelEvent,
    ModelRequested,
    RunEnded,
    RunStarted,
    SessionOpened,
    TextDelta,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from perdure.models import Request, TappedRequest, observed, openai_compatible, tapped
from perdure.stores import MemoryStore, decode_entry, encode_entry, export_session, read_document
from perdure.testing import FakeClock, Recorder, ScriptedModel, call, replay
from perdure.tracing import AsyncWriter, RequestSnapshot, TraceMeta, Tracer, to_curl, trace_session
from tests.coming_from.shows import shows
from tests.models.canned import CannedTransport


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


@shows("open-agent-loops", "Tracer.observe")
async def test_an_observer_sees_what_is_disclosed_to_the_model_in_each_request():
    snapshots: list[Request] = []

    def observe(request, event):
        if not snapshots or snapshots[-1] != request:
            snapshots.append(request)

    model = observed(ScriptedModel(call("weather", city="Oslo"), "Rain."), observe)
    await Agent(model, instructions="Be brief.", tools=[weather]).run("Rain?")
    assert [(each.instructions, [spec.name for spec in each.tools], len(each.messages)) for each in snapshots] == [
        ("Be brief.", ["weather"], 1),
        ("Be brief.", ["weather"], 3),
    ]


class Notes:
    """A tap that notes everything."""

    def __init__(self):
        self.requests: list[TappedRequest] = []
        self.lines: list[bytes] = []

    def on_request(self, exchange):
        self.requests.append(exchange)

    def on_answer(self, exchange, status, headers):
        self.status = status

    def on_line(self, exchange, line):
        self.lines.append(line)


ANSWER = b'data: {"choices":[{"delta":{"content":"Rain."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@shows(
    "open-agent-loops",
    "Tracer.onRawRequest",
    "RawRequest",
    "RawRequest.messages",
    "RawRequest.tools",
    "RawRequest.chat_template_kwargs",
    "RawSSE",
    "TraceMeta.baseURL",
)
async def test_a_tap_sees_the_request_and_the_lines_of_the_answer_as_they_are_on_the_wire():
    notes = Notes()
    transport = tapped(CannedTransport(ANSWER), notes)
    model = openai_compatible("http://127.0.0.1:9/v1", "Qwen/Qwen3-8B", api_key="key-12345", transport=transport)
    agent = Agent(model, instructions="Be brief.", tools=[weather], settings=Settings(thinking="off", temperature=0.5))
    await agent.run("Rain?")
    (request,) = notes.requests
    assert (request.method, request.url) == ("POST", "http://127.0.0.1:9/v1/chat/completions")
    body = msgspec.json.decode(request.body)
    assert [(each["role"], each["content"]) for each in body["messages"]] == [
        ("system", "Be brief."),
        ("user", "Rain?"),
    ]
    assert body["tools"][0]["function"]["name"] == "weather"
    assert (body["temperature"], body["chat_template_kwargs"]) == (0.5, {"enable_thinking": False})
    assert b"".join(notes.lines) == ANSWER
    assert "key-12345" not in repr(notes.requests)


@shows(
    "open-agent-loops",
    "TraceEntry",
    "TraceEntry.data",
    "TraceEntry.label",
    "TraceEntry.t",
    "TraceEntry.dt",
    "CompactEntry",
)
async def test_the_timeline_of_a_run_is_made_of_entries_with_times():
    clock = FakeClock(1_000_000.0)

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await clock.advance(60)
        return "waited"

    recorder = Recorder()
    session = Agent(ScriptedModel(call("wait"), "Done."), tools=[wait], clock=clock, watchers=[recorder]).session(
        "demo"
    )
    outcome = await session.run("Wait.")
    finished = next(each for each in recorder.entries if isinstance(each.event, ToolFinished))
    assert isinstance(finished, Entry)
    assert isinstance(finished.event, ToolFinished)
    assert (type(finished.event).__name__, finished.event.result.text) == ("ToolFinished", "waited")
    assert (finished.at, finished.at - outcome.started_at) == (1_000_060.0, 60.0)
    assert outcome.finished_at - outcome.started_at == 60.0
    line = encode_entry(finished)
    compact = msgspec.json.decode(line)
    assert (compact["event"]["kind"], compact["at"]) == ("tool_finished", 1_000_060.0)
    assert "status" not in compact["event"]["result"]  # defaults are left out
    assert decode_entry(line) == finished


@shows(
    "open-agent-loops",
    "TraceDocument",
    "TraceDocument.startedAt",
    "TraceMeta",
    "TraceMeta.sessionId",
    "TraceMeta.system",
    "TraceMeta.tools",
    "TraceMeta.model",
    "TraceMeta.params",
    "Tracer.onRequest",
)
async def test_a_session_is_one_document_with_its_configuration_and_its_timeline():
    clock, recorder = FakeClock(1_000_000.0), Recorder()
    store = MemoryStore(clock=clock)
    model = ScriptedModel(call("weather", city="Oslo"), "Rain.", name="big")
    agent = Agent(
        model,
        instructions="Be brief.",
        tools=[weather],
        settings=Settings(temperature=0.5),
        clock=clock,
        store=store,
        watchers=[recorder],
    )
    session = agent.session("demo")
    outcome = await session.run("Rain?")
    first, second = recorder.of(ModelRequested)
    assert (first.model, first.settings, first.messages) == ("big", {"temperature": 0.5}, 1)
    assert first.prefix == second.prefix
    assert [event.session_id for event in recorder.of(SessionOpened)] == ["demo"]
    assert outcome.started_at == 1_000_000.0
    assert await session.instructions() == "Be brief."
    replayed = await replay(agent, "demo", store=store)
    document = await export_session(store, "demo", prefixes=replayed.prefixes)
    assert (document["session_id"], document["entries"][0]["at"]) == ("demo", 1_000_000.0)
    recording = read_document(msgspec.json.encode(document))
    prefix = recording.prefixes[first.prefix]
    assert prefix.instructions == "Be brief."
    assert [(each.name, each.description) for each in prefix.tools] == [("weather", "Today's weather for a city.")]
    assert list(recording.entries) == await store.read("demo")
    assert isinstance(recording.entries[0].event, RunStarted)
    assert list(fold_entries(recording.entries).messages) == list(outcome.messages)
    other = Agent(ScriptedModel("Snow."), instructions="Be long.", store=store, watchers=[recorder])
    await other.session("demo").run("And now?")
    assert recorder.of(ModelRequested)[-1].prefix != first.prefix
    assert len([each for each in recorder.of(MessageAdded) if each.message.role == "user"]) == 2


@shows("open-agent-loops", "TraceSource")
async def test_the_class_of_an_event_says_whether_it_is_of_the_model_or_of_the_agent_and_taps_see_the_wire():
    notes, recorder = Notes(), Recorder()
    model = openai_compatible("http://127.0.0.1:9/v1", "some-model", transport=tapped(CannedTransport(ANSWER), notes))
    await Agent(model, watchers=[recorder]).run("Rain?")
    of_the_model = [type(event) for event in recorder.events if isinstance(event, ModelEvent)]
    of_the_agent = [type(event) for event in recorder.events if not isinstance(event, ModelEvent)]
    assert of_the_model == [TextDelta]
    assert of_the_agent == [
        SessionOpened,
        RunStarted,
        MessageAdded,
        TurnStarted,
        ModelRequested,
        MessageAdded,
        TurnEnded,
        RunEnded,
    ]
    assert (len(notes.requests), b"".join(notes.lines)) == (1, ANSWER)


@shows(
    "open-agent-loops",
    "Tracer",
    "TracerOptions",
    "AsyncWriter",
    "AsyncWriterOptions",
    "FormatOptions",
)
async def test_a_tracer_collects_a_run_and_writes_it_in_batches():
    batches: list[list[str]] = []
    seen: list[str] = []
    tracer = Tracer(
        write=lambda lines: batches.append(list(lines)),
        on_entry=lambda entry: seen.append(entry.label),
        limit=1_000,
        batch_size=4,
        max_queue=100,
        meta=TraceMeta(base_url="http://127.0.0.1:9/v1"),
        clock=FakeClock(1_000_000.0),
    )
    await Agent(ScriptedModel("Rain."), watchers=[tracer]).run("Rain?")
    assert tracer.close(30)
    assert [line for batch in batches for line in batch] == tracer.trace.to_jsonl().splitlines()
    assert max(map(len, batches)) <= 5  # four entries, and the header before the first
    assert seen == [each.label for each in tracer.trace.entries]
    assert tracer.meta.base_url == "http://127.0.0.1:9/v1"
    lines = tracer.trace.format(max_value_length=10, sources=["agent"]).splitlines()
    assert [line.split()[1] for line in lines] == ["agent"] * len(lines)
    written: list[str] = []
    writer: AsyncWriter[str] = AsyncWriter(written.extend, batch_size=2, max_queue=4)
    assert writer.add("a")
    assert await writer.flush_async(30)
    assert (written, writer.stats.written) == (["a"], 1)


@shows(
    "open-agent-loops",
    "RequestSnapshot",
    "RequestSnapshot.system",
    "RequestSnapshot.tools",
    "DisclosureStep",
    "TrajectoryStep",
    "TrajectoryStep.assistant",
    "TrajectoryStep.tools",
    "TrajectoryTool",
)
async def test_a_trace_has_a_trajectory_and_a_disclosure_timeline():
    tracer = Tracer()
    model = tracer.observe(ScriptedModel(call("weather", city="Oslo"), "Rain."))
    store = MemoryStore()
    agent = Agent(model, instructions="Be brief.", tools=[weather], watchers=[tracer], store=store)
    await agent.session("demo").run("Rain?")
    snapshot = next(each.data for each in tracer.trace.entries if isinstance(each.data, RequestSnapshot))
    assert (snapshot.system, [each.name for each in snapshot.tools], snapshot.messages) == ("Be brief.", ["weather"], 1)
    first, second = tracer.trace.disclosure()
    assert (first.turn, first.added_tools, first.removed_tools, first.system) == (1, ("weather",), (), "Be brief.")
    assert (second.messages, second.messages_delta) == (3, 2)
    assert [item.reason for item in second.entered] == ["reply", "result of weather"]
    action, answer = tracer.trace.trajectory()
    assert action.assistant is not None
    assert [(each.name, each.result, each.is_error) for each in action.tools] == [("weather", "Rain in Oslo.", False)]
    assert [(item.reason, item.text) for item in action.injected] == [("prompt", "Rain?")]
    assert answer.assistant is not None
    assert (answer.assistant.text, answer.tools) == ("Rain.", ())
    stored = await trace_session(store, "demo")
    assert [step.tools for step in stored.trajectory()] == [action.tools, ()]


@shows(
    "open-agent-loops",
    "toCurl",
    "ToCurlOptions",
    "RawRequest",
    "RawSSE",
    "Tracer.observe",
    "Tracer.onRawRequest",
    "TraceEntry",
    "TraceEntry.data",
    "TraceEntry.label",
    "TraceEntry.t",
    "TraceEntry.dt",
    "TraceSource",
    "CompactEntry",
    "TraceDocument",
    "TraceDocument.startedAt",
    "TraceMeta",
    "TraceMeta.sessionId",
    "TraceMeta.system",
    "TraceMeta.tools",
    "TraceMeta.model",
    "TraceMeta.params",
    "TraceMeta.baseURL",
)
async def test_the_raw_requests_of_a_trace_can_be_sent_again_with_curl():
    tracer = Tracer()
    transport = tapped(CannedTransport(ANSWER), tracer)
    plain = openai_compatible("http://127.0.0.1:9/v1", "some-model", api_key="key-12345", transport=transport)
    agent = Agent(
        tracer.observe(plain), instructions="Be brief.", watchers=[tracer], settings=Settings(temperature=0.5)
    )
    await agent.session("demo").run("Rain?")
    trace = tracer.trace
    document = trace.to_json()
    assert document["started_at"] == trace.entries[0].t
    assert document["meta"]["session_id"] == "demo"
    assert (trace.meta.system, trace.meta.model, trace.meta.params) == ("Be brief.", "some-model", {"temperature": 0.5})
    assert trace.meta.base_url == "http://127.0.0.1:9/v1/chat/completions"
    assert {each.source for each in trace.entries} == {"agent", "model", "wire"}
    entry = next(each for each in trace.entries if each.label == "raw_request")
    line = msgspec.json.decode(trace.to_jsonl().splitlines()[1 + entry.seq])
    assert (line["seq"], line["dt"], line["source"]) == (entry.seq, round(entry.t - trace.started_at, 6), "wire")
    (request,) = trace.requests()
    assert entry.data is request
    command = to_curl(request, api_key_env="MY_KEY", stream=False, pretty=False)
    assert command.startswith("curl -N http://127.0.0.1:9/v1/chat/completions")
    assert ("${MY_KEY}" in command, "key-12345" in command, '"stream":false' in command) == (True, False, True)
    body = msgspec.json.decode(request.body)
    assert to_curl(body, base_url="http://127.0.0.1:9/v1", path="/chat/completions").startswith(
        "curl -N http://127.0.0.1"
    )
