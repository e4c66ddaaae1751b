"""OpenTelemetry spans and metrics of runs, as a watcher. Needs `pip install 'perdure[otel]'`.

    Agent("anthropic", watchers=[OtelWatcher()])

A run is a span `invoke_agent NAME`, a request to a model `chat MODEL`, a tool call `execute_tool NAME`; the run of a
subagent is below the call that started it. Parents are given explicitly: nothing is attached to a context, so that no
span is orphaned by a cancel, and spans of concurrent runs cannot mix. Content (prompts, replies, arguments, results) is
left out unless it is asked for.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, get_args

from msgspec import Struct, field

from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._core.values.event import (
    Compacted,
    Entry,
    ErrorRaised,
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
    SessionOpened,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
)
from perdure._core.values.message import SENT_ORIGINS, Message, Usage, tool_message
from perdure._tracing.collect.entry import FirstDelta
from perdure._tracing.view.trace import Trace

from .attributes import (
    DURATION_BUCKETS,
    LATEST,
    SCHEMA_URLS,
    TOKEN_BUCKETS,
    Conventions,
    encode_messages,
    provider_attributes,
    reply_attributes,
    request_attributes,
    usage_attributes,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, TracerProvider

CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Variable of the environment that turns content on: `true`, `span_only` or `span_and_event`."""
_CONTENT_VALUES: Final = frozenset({"1", "true", "span_only", "span_and_event"})
_FAILED: Final = frozenset({"failed", "error"})
_NANOSECONDS: Final = 1_000_000_000


class _OpenChat(Struct):
    """A request to a model that has no reply yet."""

    span: "Span"
    started_at: float
    attributes: dict[str, Any]
    """The attributes that metrics have too."""
    is_first_seen: bool = False


class _OpenRun(Struct):
    """A run that has not ended, with its open requests and calls."""

    span: "Span"
    context: "Context"
    session_id: str
    provider: str = ""
    chat: _OpenChat | None = None
    asides: dict[int, _OpenChat] = field(default_factory=dict[int, _OpenChat])
    calls: "dict[str, Span]" = field(default_factory=dict[str, Any])
    messages: list[Message] = field(default_factory=list[Message])
    """The conversation as far as it was seen, if content is wanted."""


class OtelWatcher:
    """Watcher that exports runs as OpenTelemetry spans and metrics; see the module for their names."""

    def __init__(
        self,
        *,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        content: bool | None = None,
        conventions: Conventions = LATEST,
    ) -> None:
        """Make a watcher for `Agent(watchers=[…])`. Raises `ConfigError` if OpenTelemetry is not installed.

        Args:
            tracer_provider: Provider of spans; by default the global one.
            meter_provider: Provider of metrics; by default the global one.
            content: True to add prompts, replies, arguments and results to spans, which conventions from 1.37 on have
                attributes for. `None`: as OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says, else not.
            conventions: Version of the conventions, for backends that expect an older one: `1.36` or `1.44`.
        """
        if content is not None:
            checks.require_bool("OtelWatcher", "content", content)
        checks.require_one_of("OtelWatcher", "conventions", conventions, get_args(Conventions))
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            raise ConfigError("OtelWatcher needs OpenTelemetry: pip install 'perdure[otel]'") from error
        from perdure._version import __version__

        url = SCHEMA_URLS[conventions]
        self._trace = trace
        self._tracer = trace.get_tracer("perdure", __version__, tracer_provider, schema_url=url)
        meter = metrics.get_meter("perdure", __version__, meter_provider, schema_url=url)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", explicit_bucket_boundaries_advisory=DURATION_BUCKETS
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=TOKEN_BUCKETS
        )
        self._first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", explicit_bucket_boundaries_advisory=DURATION_BUCKETS
        )
        given = os.environ.get(CONTENT_VARIABLE, "").strip().lower() in _CONTENT_VALUES
        self._has_content = (given if content is None else content) and conventions != "1.36"
        self._conventions: Conventions = conventions
        self._runs: dict[str, _OpenRun] = {}
        self._sessions: dict[str, str] = {}
        """The session of each run of a session's own agent."""
        self._handlers: Mapping[type, Callable[[Any, float], None]] = {
            SessionOpened: self._open_session,
            RunStarted: self._start_run,
            RunResumed: self._start_run,
            RunWaiting: self._suspend_run,
            RunEnded: self._end_run,
            ModelRequested: self._request,
            FirstDelta: self._first_delta,
            TextDelta: self._first_delta,
            ThinkingDelta: self._first_delta,
            ToolCallDelta: self._first_delta,
            MessageAdded: self._add_message,
            ModelReplied: self._reply_aside,
            ReplyDiscarded: self._discard_reply,
            RetryScheduled: self._add_problem,
            FailedOver: self._add_problem,
            ErrorRaised: self._add_problem,
            ToolStarted: self._start_call,
            ToolFinished: self._finish_call,
            Compacted: self._compact,
        }

    def __call__(self, entry: Entry) -> None:
        """Add an event to the spans; the runtime calls it on a thread, with each event."""
        if (handler := self._handlers.get(type(entry.event))) is not None:
            handler(entry.event, entry.at)

    def add_trace(self, trace: Trace) -> None:
        """Export the spans of a trace, such as that of a stored session, with the times at which they happened."""
        for entry in trace.entries:
            data = entry.data
            if isinstance(data, RunStarted | RunResumed) and not data.path:
                self._sessions.setdefault(data.run_id, trace.meta.session_id)
            if (handler := self._handlers.get(type(data))) is not None:
                handler(data, entry.t)
        for run_id in list(self._runs):
            self._close_run(run_id, trace.started_at + trace.duration_seconds)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _open_session(self, event: SessionOpened, _at: float) -> None:
        self._sessions[event.run_id] = event.session_id

    def _start_run(self, event: RunStarted | RunResumed, at: float) -> None:
        if event.run_id in self._runs:
            return
        name = event.agent if isinstance(event, RunStarted) else ""
        above, _, call_id = event.run_id.rpartition("/")
        parent = self._runs.get(above)
        session_id = self._sessions.get(event.run_id.partition("/")[0], "")
        context = None if parent is None else parent.context
        if parent is not None and call_id in parent.calls:
            context = self._trace.set_span_in_context(parent.calls[call_id])
        attributes = {"gen_ai.operation.name": "invoke_agent", "perdure.run.id": event.run_id}
        attributes |= {"gen_ai.agent.name": name} if name else {}
        attributes |= {"gen_ai.conversation.id": session_id} if session_id else {}
        span = self._start_span(f"invoke_agent {name}".strip(), self._trace.SpanKind.INTERNAL, at, attributes, context)
        self._runs[event.run_id] = _OpenRun(span, self._trace.set_span_in_context(span), session_id)

    def _suspend_run(self, event: RunWaiting, at: float) -> None:
        run = self._runs.get(event.run_id)
        if run is not None:
            run.span.set_attribute("perdure.run.status", "waiting")
            self._close_run(event.run_id, at)

    def _end_run(self, event: RunEnded, at: float) -> None:
        run = self._runs.get(event.run_id)
        self._sessions.pop(event.run_id, None)
        if run is None:
            return
        run.span.set_attribute("perdure.run.status", event.status)
        run.span.set_attribute("perdure.run.turns", event.turns)
        run.span.set_attributes(provider_attributes(run.provider, self._conventions))
        run.span.set_attributes(usage_attributes(event.usage, self._conventions, "gen_ai.aggregated_usage"))
        if event.cost_usd is not None:
            run.span.set_attribute("perdure.cost_usd", event.cost_usd)
        if event.status in _FAILED:
            self._mark_failed(run.span, event.reason or event.status, event.error)
        self._close_run(event.run_id, at)

    def _close_run(self, run_id: str, at: float) -> None:
        """End the span of a run, and those of its requests and calls that are open."""
        run = self._runs.pop(run_id)
        for chat in (run.chat, *run.asides.values()):
            if chat is not None:
                self._end_chat(chat, at, "no_reply")
        for span in run.calls.values():
            span.end(_to_nanoseconds(at))
        run.span.end(_to_nanoseconds(at))

    # -- requests and replies ------------------------------------------------------------------------------------------

    def _request(self, event: ModelRequested, at: float) -> None:
        run = self._runs.get(event.run_id)
        if run is None:
            return
        attributes = request_attributes(event, self._conventions)
        more: dict[str, Any] = {"perdure.turn": event.turn, "perdure.attempt": event.attempt}
        more |= {"gen_ai.conversation.id": run.session_id} if run.session_id else {}
        if self._has_content and run.messages and not event.aside:
            more["gen_ai.input.messages"] = encode_messages(run.messages)
        kind = self._trace.SpanKind.CLIENT
        span = self._start_span(f"chat {event.model}".strip(), kind, at, {**attributes, **more}, run.context)
        shared = {name: each for name, each in attributes.items() if name in _METRIC_ATTRIBUTES}
        chat, run.provider = _OpenChat(span, at, shared), event.provider
        if event.aside:
            run.asides[event.turn] = chat
            return
        if run.chat is not None:
            self._end_chat(run.chat, at, "repeated")
        run.chat = chat

    def _first_delta(self, event: Any, at: float) -> None:
        run = self._runs.get(event.run_id)
        if run is None or run.chat is None or run.chat.is_first_seen:
            return
        run.chat.is_first_seen = True
        seconds = max(at - run.chat.started_at, 0.0)
        self._first_chunk.record(seconds, run.chat.attributes)
        if self._conventions != "1.36":
            run.chat.span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)

    def _add_message(self, event: MessageAdded, at: float) -> None:
        run, message = self._runs.get(event.run_id), event.message
        if run is None:
            return
        if message.role == "assistant" and message.origin not in SENT_ORIGINS and run.chat is not None:
            self._reply(run.chat, message, at)
            run.chat = None
        if self._has_content:
            run.messages.append(message)

    def _reply_aside(self, event: ModelReplied, at: float) -> None:
        run = self._runs.get(event.run_id)
        if run is not None and (chat := run.asides.pop(event.turn, None)) is not None:
            self._reply(chat, event.message, at)

    def _reply(self, chat: _OpenChat, message: Message, at: float) -> None:
        chat.span.set_attributes(reply_attributes(message, self._conventions))
        if message.model:
            chat.attributes["gen_ai.response.model"] = message.model
        if self._has_content:
            chat.span.set_attribute("gen_ai.output.messages", encode_messages([message], is_output=True))
        self._record_tokens(message.usage, chat.attributes)
        self._end_chat(chat, at)

    def _discard_reply(self, event: ReplyDiscarded, at: float) -> None:
        run = self._runs.get(event.run_id)
        if run is None:
            return
        chat = run.asides.pop(event.turn, None) if event.aside else run.chat
        if not event.aside:
            run.chat = None
        if chat is not None:
            usage = None if event.partial is None else event.partial.usage
            chat.span.set_attributes(usage_attributes(usage, self._conventions))
            self._record_tokens(usage, chat.attributes)
            self._end_chat(chat, at, event.reason)

    def _end_chat(self, chat: _OpenChat, at: float, error: str = "") -> None:
        if error:
            self._mark_failed(chat.span, error, "")
        shared = {**chat.attributes, **({"error.type": error} if error else {})}
        self._duration.record(max(at - chat.started_at, 0.0), shared)
        chat.span.end(_to_nanoseconds(at))

    def _record_tokens(self, usage: Usage | None, attributes: Mapping[str, Any]) -> None:
        if usage is not None and usage.total_tokens:
            self._tokens.record(usage.input_tokens, {**attributes, "gen_ai.token.type": "input"})
            self._tokens.record(usage.output_tokens, {**attributes, "gen_ai.token.type": "output"})

    # -- calls, problems, content --------------------------------------------------------------------------------------

    def _start_call(self, event: ToolStarted, at: float) -> None:
        run = self._runs.get(event.run_id)
        if run is None or event.call_id in run.calls:
            return
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.name,
            "gen_ai.tool.call.id": event.call_id,
            "gen_ai.tool.type": "function",
            "perdure.tool.effect": event.effect,
        }
        if self._has_content:
            attributes |= _find_arguments(run.messages, event.call_id)
        kind = self._trace.SpanKind.INTERNAL
        run.calls[event.call_id] = self._start_span(f"execute_tool {event.name}", kind, at, attributes, run.context)

    def _finish_call(self, event: ToolFinished, at: float) -> None:
        run = self._runs.get(event.run_id)
        if run is None:
            return
        if self._has_content:
            run.messages.append(tool_message([event.result]))
        if (span := run.calls.pop(event.call_id, None)) is None:
            return
        span.set_attribute("perdure.tool.status", str(event.result.status))
        if self._has_content:
            span.set_attribute("gen_ai.tool.call.result", event.result.text)
        if event.result.is_error:
            self._mark_failed(span, str(event.result.status), event.result.text)
        span.end(_to_nanoseconds(at))

    def _add_problem(self, event: RetryScheduled | FailedOver | ErrorRaised, at: float) -> None:
        """Add a retry, failover or error to the span of the request, or of the run; with its text if that is wanted."""
        run = self._runs.get(event.run_id)
        if run is None:
            return
        attributes: dict[str, Any] = {"error.type": event.error}
        if isinstance(event, RetryScheduled):
            attributes |= {"perdure.retry.attempt": event.attempt, "perdure.retry.delay_seconds": event.delay_seconds}
        if isinstance(event, FailedOver):
            attributes |= {"perdure.failover.from": event.failed, "perdure.failover.to": event.next}
        if self._has_content:
            attributes["perdure.error.message"] = event.message
        span = run.span if run.chat is None else run.chat.span
        span.add_event(f"perdure.{event.__struct_config__.tag}", attributes, _to_nanoseconds(at))

    def _compact(self, event: Compacted, _at: float) -> None:
        run = self._runs.get(event.run_id)
        if run is not None and self._has_content:
            run.messages[: event.upto] = [event.summary]

    def _start_span(
        self, name: str, kind: "SpanKind", at: float, attributes: Mapping[str, Any], context: "Context | None"
    ) -> "Span":
        """Start a span below an explicit parent; without one, below the span in whose context the watcher was added."""
        return self._tracer.start_span(name, context, kind, attributes, start_time=_to_nanoseconds(at))

    def _mark_failed(self, span: "Span", kind: str, text: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, text if text and self._has_content else None))


_METRIC_ATTRIBUTES: Final = frozenset(
    {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.system", "gen_ai.request.model"}
)


def _find_arguments(messages: list[Message], call_id: str) -> dict[str, Any]:
    for message in reversed(messages):
        for call in message.tool_calls:
            if call.call_id == call_id:
                return {"gen_ai.tool.call.arguments": call.arguments}
    return {}


def _to_nanoseconds(at: float) -> int:
    return int(at * _NANOSECONDS)
