"""Spans and metrics as a real receiver gets them: over OTLP/HTTP, as protobuf."""

import http.server
import json
import sys
import threading
from typing import Any

import pytest

from perdure import (
    Agent,
    ConfigError,
    Message,
    Status,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    tool,
    user,
)
from perdure._tracing.export.attributes import PROVIDERS, SCHEMA_URLS
from perdure._tracing.view.trace import build_trace_entries
from perdure.events import (
    Compacted,
    Entry,
    ErrorRaised,
    Event,
    FailedOver,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    ReplyDiscarded,
    RetryScheduled,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)
from perdure.models import Price
from perdure.testing import ScriptedModel, call
from perdure.tracing import RawRequest, Trace
from tests.tracing.sample_traces import START, Script, coding_session

pytestmark = pytest.mark.packages("opentelemetry.exporter")  # the API alone comes with other packages
TEXTS = (
    "The test of the parser fails",
    "pytest -q",
    "1 failed",
    "9f3c2ab",
    "too many requests",
    "overloaded",
    "outside of the project",
)


class Receiver(http.server.ThreadingHTTPServer):
    """An OTLP receiver on loopback that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: dict[str, list[bytes]] = {}
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        read = [ExportTraceServiceRequest.FromString(body) for body in self.bodies.get("/v1/traces", [])]
        scopes = [scope for each in read for resource in each.resource_spans for scope in resource.scope_spans]
        return [ReceivedSpan(span, scope.schema_url) for scope in scopes for span in scope.spans]

    def metrics(self):
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        read = [ExportMetricsServiceRequest.FromString(body) for body in self.bodies.get("/v1/metrics", [])]
        scopes = [scope for each in read for resource in each.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


class Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.setdefault(self.path, []).append(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class ReceivedSpan:
    def __init__(self, span, schema_url):
        self.name, self.id, self.parent, self.trace = span.name, span.span_id, span.parent_span_id, span.trace_id
        self.attributes = {each.key: plain(each.value) for each in span.attributes}
        self.events = {each.name: {a.key: plain(a.value) for a in each.attributes} for each in span.events}
        self.seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        self.kind, self.status, self.schema_url = span.kind, span.status, schema_url


def plain(value):
    kind = value.WhichOneof("value")
    return [plain(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def export(receiver):
    """Makes a watcher that sends to the receiver; calling the fixture's `done` sends everything."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from perdure.tracing import OtelWatcher

    class Export:
        def __init__(self):
            self.spans = TracerProvider()
            self.spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
            exporter = OTLPMetricExporter(f"{receiver.url}/v1/metrics")
            self.metrics = MeterProvider([PeriodicExportingMetricReader(exporter, 3_600_000)])

        def watcher(self, **options):
            return OtelWatcher(tracer_provider=self.spans, meter_provider=self.metrics, **options)

        def send(self, trace: Trace, **options):
            self.watcher(**options).add_trace(trace)
            return self.done()

        def done(self):
            self.spans.force_flush()
            self.metrics.force_flush()
            return receiver.spans()

    made = Export()
    yield made
    made.spans.shutdown()
    made.metrics.shutdown()


def known_names() -> set[str]:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv.attributes import error_attributes

    modules = (gen_ai_attributes, error_attributes)
    return {value for module in modules for value in vars(module).values() if isinstance(value, str)}


def test_every_span_has_its_parent_and_its_times(export):
    spans = export.send(coding_session().live())
    names = {each.id: each.name for each in spans}
    tree = [(each.name, names.get(each.parent, "")) for each in spans]
    assert ("invoke_agent engineer", "") in tree
    assert ("chat claude-sonnet-5", "invoke_agent engineer") in tree
    assert ("execute_tool bash", "invoke_agent engineer") in tree
    assert ("invoke_agent historian", "execute_tool investigate") in tree
    assert ("execute_tool git_log", "invoke_agent historian") in tree
    assert len({each.trace for each in spans}) == 1
    assert [each for each in spans if each.parent and each.parent not in names] == []
    (root,) = [each for each in spans if not each.parent]
    assert root.seconds == pytest.approx(24.64, abs=0.01)


def test_attributes_are_those_of_the_conventions(export):
    spans = export.send(coding_session().live())
    ours = [name for span in spans for name in span.attributes if name.startswith("perdure.")]
    aggregated = [name for span in spans for name in span.attributes if name.startswith("gen_ai.aggregated_usage.")]
    others = {name for span in spans for name in span.attributes} - {*ours} - {*aggregated}
    assert others <= known_names(), others - known_names()
    chat = next(
        each
        for each in spans
        if each.name.startswith("chat") and "gen_ai.usage.cache_read.input_tokens" in each.attributes
    )
    assert chat.attributes["gen_ai.provider.name"] == "anthropic"
    assert chat.attributes["gen_ai.request.temperature"] == 0.2
    assert chat.attributes["gen_ai.response.finish_reasons"] == ["tool_call"]
    assert chat.attributes["gen_ai.usage.input_tokens"] == 5_480
    assert chat.attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.5)
    assert chat.attributes["gen_ai.conversation.id"] == "0197d2c4ab12"
    assert (chat.kind, chat.schema_url) == (3, "https://opentelemetry.io/schemas/1.44.0")
    (root,) = [each for each in spans if not each.parent]
    assert root.attributes["gen_ai.aggregated_usage.input_tokens"] == 39_290
    assert not [name for name in root.attributes if name.startswith("gen_ai.usage.")]


def test_metrics_tell_the_model_that_was_asked_for_and_the_one_that_has_replied(export, receiver):
    script = Script("s")
    script.begin("r", "Go.")
    script.turn("r", 1, [Text("Aye.")], Usage(10, 5), model="m", took=1.5, wait=0.5)
    export.send(script.live())
    shared = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "m",
    }
    replied = {**shared, "gen_ai.response.model": "m"}
    metrics = receiver.metrics()
    found = {
        name: [(point.count, point.sum, {each.key: plain(each.value) for each in point.attributes}) for point in points]
        for name, metric in metrics.items()
        if (points := metric.histogram.data_points)
    }
    tokens = found.pop("gen_ai.client.token.usage")
    assert sorted(tokens, key=lambda each: each[1]) == [
        (1, 5.0, {**replied, "gen_ai.token.type": "output"}),
        (1, 10.0, {**replied, "gen_ai.token.type": "input"}),
    ]
    [(count, seconds, attributes)] = found["gen_ai.client.operation.duration"]
    assert (count, seconds, attributes) == (1, pytest.approx(2.0), replied)


def test_providers_have_the_names_of_the_conventions():
    from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import GenAiProviderNameValues
    from opentelemetry.semconv.schemas import Schemas

    assert {*PROVIDERS.values()} <= {each.value for each in GenAiProviderNameValues}
    assert {*SCHEMA_URLS.values()} <= {each.value for each in Schemas}


def test_content_is_left_out_unless_it_is_asked_for(export, receiver):
    spans = export.send(coding_session().live())
    sent = b"".join([body for bodies in receiver.bodies.values() for body in bodies])
    assert spans
    assert [text for text in TEXTS if text.encode() in sent] == []


def test_content_has_the_form_of_the_conventions(export):
    spans = export.send(coding_session().live(), content=True)
    chats = [each for each in spans if each.name == "chat claude-sonnet-5"]
    said = json.loads(chats[1].attributes["gen_ai.input.messages"])
    assert [each["role"] for each in said] == ["user", "assistant", "tool"]
    assert [part["type"] for part in said[1]["parts"]] == ["reasoning", "text", "tool_call"]
    assert said[1]["parts"][2]["arguments"] == {"command": "pytest -q tests/test_parser.py"}
    assert said[2]["parts"][0]["type"] == "tool_call_response"
    (answer,) = json.loads(chats[-1].attributes["gen_ai.output.messages"])
    assert (answer["role"], answer["finish_reason"]) == ("assistant", "stop")
    shell = next(each for each in spans if each.name == "execute_tool bash")
    assert "pytest" in shell.attributes["gen_ai.tool.call.arguments"]
    assert shell.attributes["gen_ai.tool.call.result"].endswith("41 passed")


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("SPAN_ONLY", True), ("false", False), ("", False)])
def test_the_environment_can_ask_for_content(export, monkeypatch, value, expected):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    assert export.watcher()._has_content is expected
    assert not export.watcher(content=False)._has_content


def test_the_older_conventions_have_their_own_names(export):
    spans = export.send(coding_session().live(), conventions="1.36", content=True)
    chat = next(each for each in spans if each.name.startswith("chat"))
    assert (chat.attributes["gen_ai.system"], chat.schema_url) == (
        "anthropic",
        "https://opentelemetry.io/schemas/1.36.0",
    )
    names = {name for span in spans for name in span.attributes}
    newer = ("gen_ai.provider.name", "gen_ai.usage.cache_read", "gen_ai.input.messages", "gen_ai.response.time_to")
    assert not [name for name in names if name.startswith(newer)]


def test_retries_failovers_and_errors_are_events_of_their_request(export):
    spans = export.send(coding_session().live())
    events = {name: each for span in spans if span.name.startswith("chat") for name, each in span.events.items()}
    assert events["perdure.retry_scheduled"]["perdure.retry.attempt"] == 1
    assert events["perdure.failed_over"]["perdure.failover.to"] == "claude-opus-5"
    assert events["perdure.error_raised"] == {"error.type": "ProviderDown"}
    shell = next(each for each in spans if each.name == "execute_tool bash")
    assert (shell.attributes["error.type"], shell.status.code, shell.status.message) == ("error", 2, "")


def test_metrics_count_durations_tokens_and_first_chunks(export, receiver):
    export.send(coding_session().live())
    metrics = receiver.metrics()
    assert {*metrics} == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.time_to_first_chunk",
    }
    assert (metrics["gen_ai.client.operation.duration"].unit, metrics["gen_ai.client.token.usage"].unit) == (
        "s",
        "{token}",
    )
    tokens = metrics["gen_ai.client.token.usage"].histogram.data_points
    by_type = {plain(a.value): each for each in tokens for a in each.attributes if a.key == "gen_ai.token.type"}
    assert sum(each.sum for each in tokens) == 39_290 + 752
    assert {*by_type} == {"input", "output"}
    assert list(tokens[0].explicit_bounds)[:3] == [1, 4, 16]


async def test_a_live_run_is_below_the_span_of_its_caller(export):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel(call("look"), "Done.", price=Price(input_usd=1.0, output_usd=2.0))
    agent = Agent(model, tools=[look], watchers=[export.watcher()])
    with export.spans.get_tracer("app").start_as_current_span("handle request"):
        await agent.run("go")
    names = {each.name: each for each in export.done()}
    assert names["invoke_agent agent"].parent == names["handle request"].id
    assert names["execute_tool look"].parent == names["invoke_agent agent"].id
    assert names["invoke_agent agent"].attributes["perdure.run.status"] == "done"
    assert names["invoke_agent agent"].attributes["perdure.cost_usd"] > 0


async def test_concurrent_runs_have_traces_of_their_own(export):
    import asyncio

    agent = Agent(ScriptedModel(*["hi"] * 8), watchers=[export.watcher()])
    await asyncio.gather(*[agent.run("go") for _ in range(8)])
    spans = export.done()
    roots = [each for each in spans if each.name.startswith("invoke_agent")]
    assert len({each.trace for each in roots}) == 8
    assert all(
        each.parent in {root.id for root in roots if root.trace == each.trace} for each in spans if each not in roots
    )


def test_whatever_is_open_is_ended_and_what_is_not_known_is_ignored(export):
    script = Script()
    event: Event
    for event in (RunWaiting((), run_id="x"), ErrorRaised("E", "m", run_id="x"), ReplyDiscarded(1, "r", run_id="x")):
        script.add(event)
    result = ToolFinished("c", "t", ToolResult("c", "t"), run_id="x")
    for event in (ModelRequested(1, run_id="x"), ModelReplied(1, assistant("x"), run_id="x"), result):
        script.add(event)
    script.end("x", "done", Usage(), 0)
    script.begin("r", "go")
    script.add(ModelRequested(1, model="m", run_id="r", settings={"stop_sequences": ["END"]}))
    partial = Message("assistant", (Text("h"),), usage=Usage(7, 1))
    script.add(ReplyDiscarded(1, "cut_off", partial, run_id="r"), 1)
    script.add(ErrorRaised("E", "m", run_id="r"))
    script.add(ModelRequested(1, attempt=2, model="m", run_id="r"))
    script.add(ModelRequested(1, attempt=3, model="m", run_id="r"), 1)
    script.add(ModelRequested(5, model="m", aside=True, run_id="r"))
    script.add(ModelRequested(6, model="m", aside=True, run_id="r"))
    script.add(ModelReplied(5, assistant("x"), run_id="r"), 1)
    script.add(ReplyDiscarded(6, "unused", aside=True, run_id="r"))
    script.add(Compacted(user("all"), 1, run_id="r"))
    script.add(RunWaiting((), reason="shutdown", run_id="r"), 1)
    script.add(RunResumed(run_id="r"), 1)
    script.add(RunResumed(run_id="r"), 1)
    spans = export.send(script.live(), content=True)
    assert [each.attributes.get("error.type") for each in spans if each.name == "chat m"].count("repeated") == 1
    assert {"cut_off", "no_reply", "unused"} <= {each.attributes.get("error.type") for each in spans}
    assert [each.attributes.get("perdure.run.status") for each in spans if "invoke_agent" in each.name] == [
        "waiting",
        None,
    ]


def test_a_failed_run_is_marked(export):
    script = Script()
    script.begin("r", "go")
    script.end("r", "failed", Usage(), 0)
    (span,) = export.send(script.live())
    assert (span.status.code, span.attributes["error.type"]) == (2, "failed")


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch):
    from perdure.tracing import OtelWatcher

    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"perdure\[otel\]"):
        OtelWatcher()


@pytest.mark.parametrize("options", [{"content": 1}, {"conventions": "0.9"}])
def test_options_that_cannot_be_used_are_named(options):
    from perdure.tracing import OtelWatcher

    with pytest.raises(ConfigError, match=next(iter(options))):
        OtelWatcher(**options)


# -- whole spans -------------------------------------------------------------------------------------------------------


def everything() -> Script:
    """A run with a reply, a call that fails, a side request, one that is discarded, problems, and what stays open."""
    script = Script("s")
    script.begin("r", "Go.")
    said = [Text("Look."), ToolCall("c", "look", '{"at":1}')]
    script.turn("r", 1, said, Usage(10, 5), model="m", between=[RetryScheduled(1, 4, 0.5, "E", "slow", run_id="r")])
    script.result("r", "c", "look", "gone", 0.25, status=Status.ERROR)
    script.add(FailedOver("m", "n", "F", "down", run_id="r"))
    script.add(MessageAdded(user("More."), run_id="r"))
    script.add(ModelRequested(9, model="side", provider="xai", aside=True, run_id="r"))
    aside = Message("assistant", (Text("Aside."),), model="side-1", stop=StopReason.LENGTH, usage=Usage(3, 2))
    script.add(ModelReplied(9, aside, run_id="r"), 0.5)
    script.add(ModelRequested(2, attempt=2, model="m", provider="openai-chat", run_id="r"))
    script.add(ThinkingDelta("…", run_id="r"), 0.25)
    script.add(TextDelta("…", run_id="r"), 0.25)
    script.add(ReplyDiscarded(2, "cut_off", Message("assistant", (), usage=Usage(7, 1)), run_id="r"), 0.25)
    script.add(ToolStarted("d", "wait", "read", "k", run_id="r"))
    script.add(RunStarted("child", run_id="r/d", path="child"))
    script.add(ErrorRaised("G", "odd", run_id="r"))
    script.add(RunEnded("failed", "limit", usage=Usage(20, 8), turns=2, error="Too long.", run_id="r"), 1.0)
    return script


def draw_spans(spans: list[ReceivedSpan]) -> list[object]:
    """Return what is in each span, by its name."""
    names = {each.id: each.name for each in spans}
    found = sorted(spans, key=lambda each: each.name)
    return [
        {
            "span": (each.name, names.get(each.parent, ""), each.kind, round(each.seconds, 3)),
            "status": (each.status.code, each.status.message),
            "events": each.events,
            **{name: each.attributes[name] for name in sorted(each.attributes)},
        }
        for each in found
    ]


CONTENT = {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
GO = '{"role": "user", "parts": [{"type": "text", "content": "Go."}]}'
LOOK = (
    '{"role": "assistant", "parts": [{"type": "text", "content": "Look."}, '
    '{"type": "tool_call", "id": "c", "name": "look", "arguments": {"at": 1}}]'
)
GONE = '{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "gone"}]}'
MORE = '{"role": "user", "parts": [{"type": "text", "content": "More."}]}'
CHAT = {"gen_ai.conversation.id": "s", "gen_ai.operation.name": "chat", "gen_ai.request.stream": True}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function", "perdure.tool.effect": "read"}
RUN = {"gen_ai.conversation.id": "s", "gen_ai.operation.name": "invoke_agent"}


@pytest.mark.parametrize("content", [True, False])
def test_each_span_has_all_of_its_attributes_and_events_and_content_if_it_is_asked_for(export, content):
    found = draw_spans(export.send(everything().live(), content=content))
    error = {"perdure.error.message"} if content else set[str]()
    expected: list[dict[str, Any]] = [
        {
            "span": ("chat m", "invoke_agent engineer", 3, 2.7),
            "status": (0, ""),
            "events": {
                "perdure.retry_scheduled": {
                    "error.type": "E",
                    "perdure.retry.attempt": 1,
                    "perdure.retry.delay_seconds": 0.5,
                    **dict.fromkeys(error, "slow"),
                }
            },
            **CHAT,
            "gen_ai.input.messages": f"[{GO}]",
            "gen_ai.output.messages": f'[{LOOK}, "finish_reason": "tool_call"}}]',
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "m",
            "gen_ai.request.temperature": 0.2,
            "gen_ai.response.finish_reasons": ["tool_call"],
            "gen_ai.response.model": "m",
            "gen_ai.response.time_to_first_chunk": pytest.approx(1.1),
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 5,
            "perdure.attempt": 1,
            "perdure.turn": 1,
        },
        {
            "span": ("chat m", "invoke_agent engineer", 3, 0.75),
            "status": (2, ""),
            "events": {},
            **CHAT,
            "error.type": "cut_off",
            "gen_ai.input.messages": f"[{GO}, {LOOK}}}, {GONE}, {MORE}]",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "m",
            "gen_ai.response.time_to_first_chunk": 0.25,
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 1,
            "perdure.attempt": 2,
            "perdure.turn": 2,
        },
        {
            "span": ("chat side", "invoke_agent engineer", 3, 0.5),
            "status": (0, ""),
            "events": {},
            **CHAT,
            "gen_ai.output.messages": (
                '[{"role": "assistant", "parts": [{"type": "text", "content": "Aside."}], "finish_reason": "length"}]'
            ),
            "gen_ai.provider.name": "x_ai",
            "gen_ai.request.model": "side",
            "gen_ai.response.finish_reasons": ["length"],
            "gen_ai.response.model": "side-1",
            "gen_ai.usage.input_tokens": 3,
            "gen_ai.usage.output_tokens": 2,
            "perdure.attempt": 1,
            "perdure.turn": 9,
        },
        {
            "span": ("execute_tool look", "invoke_agent engineer", 1, 0.25),
            "status": (2, "gone" if content else ""),
            "events": {},
            **TOOL,
            "error.type": "error",
            "gen_ai.tool.call.arguments": '{"at":1}',
            "gen_ai.tool.call.id": "c",
            "gen_ai.tool.call.result": "gone",
            "gen_ai.tool.name": "look",
            "perdure.tool.status": "error",
        },
        {
            "span": ("execute_tool wait", "invoke_agent engineer", 1, 1.0),
            "status": (0, ""),
            "events": {},
            **TOOL,
            "gen_ai.tool.call.id": "d",
            "gen_ai.tool.name": "wait",
        },
        {
            "span": ("invoke_agent child", "execute_tool wait", 1, 1.0),
            "status": (0, ""),
            "events": {},
            **RUN,
            "gen_ai.agent.name": "child",
            "perdure.run.id": "r/d",
        },
        {
            "span": ("invoke_agent engineer", "", 1, 5.22),
            "status": (2, "Too long." if content else ""),
            "events": {
                "perdure.failed_over": {
                    "error.type": "F",
                    "perdure.failover.from": "m",
                    "perdure.failover.to": "n",
                    **dict.fromkeys(error, "down"),
                },
                "perdure.error_raised": {"error.type": "G", **dict.fromkeys(error, "odd")},
            },
            **RUN,
            "error.type": "limit",
            "gen_ai.agent.name": "engineer",
            "gen_ai.aggregated_usage.input_tokens": 20,
            "gen_ai.aggregated_usage.output_tokens": 8,
            "gen_ai.provider.name": "openai",
            "perdure.run.id": "r",
            "perdure.run.status": "failed",
            "perdure.run.turns": 2,
        },
    ]
    assert found == [{name: each[name] for name in each if content or name not in CONTENT} for each in expected]


def test_metrics_measure_every_request_also_one_that_was_discarded_or_has_no_reply(export, receiver):
    script = everything()
    script.begin("q", "Go.")
    script.add(ModelRequested(1, model="m", provider="openai", run_id="q"))
    script.add(ModelRequested(2, model="side", provider="xai", aside=True, run_id="q"), 0.5)
    script.add(RunWaiting((), run_id="q"), 0.5)
    export.send(script.live())
    found = [
        (
            metric.name.removeprefix("gen_ai.client."),
            point.count,
            round(point.sum, 3),
            *[plain(each.value) for each in sorted(point.attributes, key=lambda each: each.key)],
        )
        for metric in receiver.metrics().values()
        for point in metric.histogram.data_points
    ]
    assert sorted(found) == [
        ("operation.duration", 1, 0.5, "chat", "x_ai", "side", "side-1"),
        ("operation.duration", 1, 0.5, "no_reply", "chat", "x_ai", "side"),
        ("operation.duration", 1, 0.75, "cut_off", "chat", "openai", "m"),
        ("operation.duration", 1, 1.0, "no_reply", "chat", "openai", "m"),
        ("operation.duration", 1, 2.7, "chat", "anthropic", "m", "m"),
        ("operation.time_to_first_chunk", 1, 0.25, "chat", "openai", "m"),
        ("operation.time_to_first_chunk", 1, 1.1, "chat", "anthropic", "m"),
        ("token.usage", 1, 1.0, "chat", "openai", "m", "output"),
        ("token.usage", 1, 2.0, "chat", "x_ai", "side", "side-1", "output"),
        ("token.usage", 1, 3.0, "chat", "x_ai", "side", "side-1", "input"),
        ("token.usage", 1, 5.0, "chat", "anthropic", "m", "m", "output"),
        ("token.usage", 1, 7.0, "chat", "openai", "m", "input"),
        ("token.usage", 1, 10.0, "chat", "anthropic", "m", "m", "input"),
    ]


def test_a_request_after_a_compaction_begins_with_the_summary(export):
    script = Script()
    script.begin("r", "One.")
    for text in ("Two.", "Three."):
        script.add(MessageAdded(user(text), run_id="r"))
    script.add(Compacted(user("So far."), 2, run_id="r"))
    script.add(ModelRequested(1, run_id="r"))
    spans = export.send(script.live(), content=True)
    (chat,) = [each for each in spans if each.name == "chat"]
    said = json.loads(chat.attributes["gen_ai.input.messages"])
    assert [part["content"] for each in said for part in each["parts"]] == ["So far.", "Three."]


def test_a_message_in_the_name_of_the_assistant_ends_no_request(export):
    script = Script()
    script.begin("r", "Go.")
    script.add(ModelRequested(1, model="m", run_id="r"))
    script.add(MessageAdded(Message("assistant", (Text("Noted."),), origin="steering"), run_id="r"), 1)
    script.add(MessageAdded(Message("assistant", (Text("Done."),), model="m"), run_id="r"), 1)
    (chat,) = [each for each in export.send(script.live(), content=True) if each.name == "chat m"]
    assert (chat.seconds, json.loads(chat.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"]) == (
        2.0,
        "Done.",
    )


def test_events_are_added_as_they_come_and_only_the_first_piece_of_a_reply_is_timed(export, receiver):
    watcher = export.watcher()
    watcher(Entry(0, START, TextDelta("…", run_id="unknown")))
    for entry in everything().entries:
        watcher(entry)
    watcher(Entry(9, START + 10, RunEnded("done", run_id="r/d", path="child")))
    spans = export.done()
    assert len(spans) == 7
    assert {each.attributes.get("gen_ai.conversation.id") for each in spans if "tool" not in each.name} == {"s"}
    points = receiver.metrics()["gen_ai.client.operation.time_to_first_chunk"].histogram.data_points
    assert sorted((each.count, round(each.sum, 3)) for each in points) == [(1, 0.25), (1, 1.1)]


def test_the_spans_of_a_stored_session_belong_to_it(export):
    stored = everything().stored()
    raw = build_trace_entries([(START, RawRequest(1, "POST", "http://127.0.0.1/"), 0)])
    spans = export.send(Trace([*raw, *stored.entries], stored.meta))
    assert {each.attributes.get("gen_ai.conversation.id") for each in spans if "tool" not in each.name} == {"s"}
