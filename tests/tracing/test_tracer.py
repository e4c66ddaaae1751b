import asyncio
import logging
import stat
import threading
from collections.abc import Sequence

import msgspec
import pytest

from perdure import Agent, ConfigError, RateLimited, ToolContext, Usage, tool, user
from perdure.events import Entry, ModelRequested, RunEnded, TextDelta, UsageReported
from perdure.models import Request, TappedRequest, ToolSpec, failover, openai_compatible, retried, tapped
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import tracing
from perdure.tracing import (
    EntriesMissing,
    FirstDelta,
    RawRequest,
    RawResponseHead,
    RawResponseLine,
    RequestSnapshot,
    TraceEntry,
    TraceMeta,
    Tracer,
    read_trace,
    trace_session,
)
from tests.models.canned import CannedTransport

ANSWER = b'data: {"choices":[{"delta":{"content":"Rain."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@tool(effect="read")
async def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


async def test_a_tracer_collects_the_events_of_a_run_and_the_requests():
    tracer = Tracer()
    model = ScriptedModel(call("weather", city="Oslo"), "Rain.")
    await Agent(model, instructions="Be brief.", tools=[weather], extensions=[tracing(tracer)]).run("Rain?")
    trace = tracer.trace
    labels = [each.label for each in trace.entries]
    assert labels[0] == "session_opened"
    assert labels[-1] == "run_ended"
    assert {"run_started", "model_requested", "request", "first_delta", "tool_finished"} <= {*labels}
    assert "text_delta" not in labels
    assert (trace.meta.system, [each.name for each in trace.meta.tools]) == ("Be brief.", ["weather"])
    assert tracer.meta == trace.meta
    first, second = [each.data for each in trace.entries if isinstance(each.data, RequestSnapshot)]
    assert (first.is_repeated, second.is_repeated, second.system, second.messages) == (False, True, "", 3)


async def test_retries_failovers_errors_and_progress_are_kept():
    clock = FakeClock(1_000.0)

    @tool(effect="read")
    async def slow(context: ToolContext) -> str:
        """Take long."""
        context.emit("half")
        return "done"

    down = ScriptedModel(RateLimited("busy"), repeat_last=True, name="down")
    flaky = ScriptedModel(RateLimited("busy", retry_after_seconds=1.0), call("slow"), "Done.", name="flaky")
    tracer = Tracer()
    model = failover(down, retried(flaky, attempts=2, clock=clock))
    await asyncio.wait_for(_run_and_advance(Agent(model, tools=[slow], watchers=[tracer], clock=clock), clock), 30)
    labels = [each.label for each in tracer.trace.entries]
    assert {"retry_scheduled", "failed_over", "tool_progress"} <= {*labels}
    (run,) = tracer.trace.runs
    assert (run.turns[0].retries, run.turns[0].failovers) == (1, 1)
    assert run.turns[0].calls[0].progress == ["half"]


async def _run_and_advance(agent, clock):
    run = asyncio.ensure_future(agent.run("go"))
    while not run.done():
        await clock.advance(1)
        await asyncio.sleep(0)
    return await run


async def test_a_stored_session_has_the_same_turns_as_its_live_trace():
    tracer, store = Tracer(), MemoryStore()
    model = ScriptedModel(call("weather", city="Oslo"), "Rain.")
    await Agent(model, tools=[weather], watchers=[tracer], store=store).session("demo").run("Rain?")
    stored = await trace_session(store, "demo")
    assert [step.assistant for step in stored.trajectory()] == [step.assistant for step in tracer.trace.trajectory()]
    assert stored.meta.session_id == "demo"
    assert not [each for each in stored.entries if isinstance(each.data, FirstDelta)]


async def test_the_oldest_entries_make_room_and_are_counted():
    tracer = Tracer(limit=3)
    await Agent(ScriptedModel("one"), watchers=[tracer]).run("hi")
    trace = tracer.trace
    assert len(trace.entries) == 4
    assert isinstance(trace.entries[0].data, EntriesMissing)
    assert trace.missing == trace.entries[0].data.count > 3
    assert "entries are missing" in trace.format_tree()


async def test_deltas_are_kept_if_they_are_wanted():
    tracer = Tracer(deltas=True)
    await Agent(ScriptedModel("one"), watchers=[tracer]).run("hi")
    assert [each.label for each in tracer.trace.entries].count("text_delta") >= 1


async def test_raw_requests_and_lines_are_collected_without_the_key():
    tracer = Tracer()
    transport = tapped(CannedTransport(ANSWER), tracer)
    model = openai_compatible("http://127.0.0.1:9/v1", "m", api_key="key-12345-secret", transport=transport)
    await Agent(model, watchers=[tracer]).run("Rain?")
    trace = tracer.trace
    (request,) = trace.requests()
    assert request.url == trace.meta.base_url == "http://127.0.0.1:9/v1/chat/completions"
    assert [each.data.line for each in trace.entries if isinstance(each.data, RawResponseLine)][-1] == "data: [DONE]"
    (command,) = trace.curls(api_key_env="MY_KEY")
    assert command.startswith("curl -N http://127.0.0.1:9/v1/chat/completions")
    assert '"${MY_KEY}"' in command
    assert "key-12345" not in trace.to_jsonl() + command + trace.to_html()


async def test_what_is_written_to_a_file_can_be_read_back(tmp_path):
    path = tmp_path / "run.jsonl"
    with Tracer(write=path) as tracer:
        await Agent(ScriptedModel("Hello."), extensions=[tracing(tracer)]).run("hi")
        assert tracer.flush(30)
    trace = read_trace(path.read_bytes())
    assert trace.to_jsonl() == tracer.trace.to_jsonl()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_redaction_covers_events_and_raw_traffic_and_what_fails_is_left_out(tmp_path):
    def redact(data):
        if isinstance(data, RunEnded):
            raise TypeError("no")
        text = msgspec.json.encode(data).replace(b"hunter2", b"[redacted]")
        return msgspec.json.decode(text, type=type(data))

    path = tmp_path / "run.jsonl"
    tracer = Tracer(redact=redact, write=path)
    transport = tapped(CannedTransport(ANSWER), tracer)
    model = tracer.observe(openai_compatible("http://127.0.0.1:9/v1", "m", api_key="k", transport=transport))
    outcome = await Agent(model, instructions="The word is hunter2.", watchers=[tracer]).run("is it hunter2?")
    assert outcome.status == "done"
    assert tracer.close(30)
    everything = path.read_text() + tracer.trace.to_jsonl() + tracer.trace.to_html()
    assert "hunter2" not in everything
    assert "[redacted]" in everything
    assert tracer.trace.missing == 1


async def test_a_failing_writer_and_a_failing_callback_do_not_touch_the_run(caplog):
    seen = []

    def notice(entry):
        seen.append(entry)
        raise OSError("no")

    def write(lines):
        raise OSError("disk full")

    tracer = Tracer(write=write, on_entry=notice)
    with caplog.at_level(logging.WARNING, "perdure"):
        outcome = await Agent(ScriptedModel("Hello."), watchers=[tracer]).run("hi")
        assert tracer.close(30)
    assert (outcome.status, len(seen)) == ("done", 1)
    assert tracer.writer is not None
    assert tracer.writer.stats.failed == tracer.writer.stats.added > 3
    assert "on_entry" in caplog.text
    assert "disk full" in caplog.text


async def test_a_request_that_cannot_be_read_does_not_touch_the_run():
    class Odd:
        session_id = "s"
        instructions = "i"

        @property
        def tools(self):
            raise RuntimeError("no")

    tracer = Tracer()
    stream = tracer.observe(ScriptedModel("ok")).stream
    tracer._collect_request(Odd())  # type: ignore[arg-type]
    assert (tracer.trace.missing, callable(stream)) == (1, True)


def test_a_long_body_is_cut_and_counted():
    tracer = Tracer(meta=TraceMeta(agent="known"))
    tracer.on_request(TappedRequest(1, "POST", "http://127.0.0.1/", {}, b"x" * 1_000_010))
    (entry,) = tracer.trace.entries
    assert isinstance(entry.data, RawRequest)
    assert (len(entry.data.body), entry.data.cut_characters, tracer.meta.agent) == (1_000_000, 10, "known")


def test_a_tracer_can_be_called_with_stored_entries():
    tracer = Tracer()
    tracer(Entry(1, 5.0, TextDelta("x", run_id="r")))
    tracer(Entry(2, 6.0, RunEnded("done", run_id="r")))
    assert [each.label for each in tracer.trace.entries] == ["run_ended"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limit": 0}, "limit=0"),
        ({"write": 3}, "write=3"),
        ({"redact": 3}, "redact=3"),
        ({"on_entry": "x"}, "on_entry='x'"),
        ({"deltas": 1}, "deltas=1"),
        ({"write": print, "batch_size": 0}, "batch_size=0"),
    ],
)
def test_options_that_cannot_be_used_are_named(options, told):
    with pytest.raises(ConfigError, match=told.replace("(", "\\(")):
        Tracer(**options)


def test_only_a_model_can_be_observed():
    with pytest.raises(ConfigError, match="model"):
        Tracer().observe("demo")  # type: ignore[arg-type]


async def test_instructions_and_tools_that_are_the_same_are_kept_once_for_each_session():
    tracer = Tracer(clock=FakeClock(5.0))
    one, two = ToolSpec("add", "Add.", {}), ToolSpec("sub", "Subtract.", {})
    model = tracer.observe(ScriptedModel(*["ok"] * 6))
    for session, instructions, tools in (
        ("s", "Be brief.", [one]),
        ("s", "Be brief.", [one]),
        ("t", "Be brief.", [one]),
        ("s", "Be brief.", [one, two]),
        ("s", "Be long.", [one, two]),
    ):
        model.stream(Request(messages=(user("hi"),), instructions=instructions, tools=tools, session_id=session))
    found = [each.data for each in tracer.trace.entries]
    assert found == [
        RequestSnapshot(system="Be brief.", tools=(one,), messages=1, session_id="s"),
        RequestSnapshot(messages=1, session_id="s", is_repeated=True),
        RequestSnapshot(system="Be brief.", tools=(one,), messages=1, session_id="t"),
        RequestSnapshot(system="Be brief.", tools=(one, two), messages=1, session_id="s"),
        RequestSnapshot(system="Be long.", tools=(one, two), messages=1, session_id="s"),
    ]
    assert {(each.t, each.source) for each in tracer.trace.entries} == {(5.0, "model")}


def test_what_is_collected_is_passed_on_at_once_with_its_time_since_the_first():
    seen: list[TraceEntry] = []
    clock = FakeClock(2.0)
    tracer = Tracer(on_entry=seen.append, clock=clock, deltas=True)
    tracer(Entry(4, 3.0, ModelRequested(1, run_id="r")))
    tracer(Entry(0, 5.0, UsageReported(Usage(1, 1), run_id="r")))
    tracer(Entry(0, 6.0, TextDelta("a", run_id="r", path="p")))
    tracer(Entry(0, 7.0, TextDelta("b", run_id="r", path="p")))
    exchange = TappedRequest(7, "POST", "http://127.0.0.1/", {"a": "b"}, b"{}")
    tracer.on_request(exchange)
    tracer.on_answer(exchange, 200, {"c": "d"})
    tracer.on_line(exchange, b"  data: x \n")
    tracer.on_line(exchange, b" \n")
    assert seen == [
        TraceEntry(0, 3.0, 0.0, "agent", ModelRequested(1, run_id="r"), 4),
        TraceEntry(1, 5.0, 2.0, "model", UsageReported(Usage(1, 1), run_id="r")),
        TraceEntry(2, 6.0, 3.0, "model", FirstDelta("r", "p")),
        TraceEntry(3, 6.0, 3.0, "model", TextDelta("a", run_id="r", path="p")),
        TraceEntry(4, 7.0, 4.0, "model", TextDelta("b", run_id="r", path="p")),
        TraceEntry(5, 2.0, 0.0, "wire", RawRequest(7, "POST", "http://127.0.0.1/", {"a": "b"}, "{}")),
        TraceEntry(6, 2.0, 0.0, "wire", RawResponseHead(7, 200, {"c": "d"})),
        TraceEntry(7, 2.0, 0.0, "wire", RawResponseLine(7, "data: x")),
    ]
    assert tracer.trace.entries == seen


def test_a_reply_after_the_end_of_its_run_has_no_first_piece():
    tracer = Tracer()
    for event in (ModelRequested(1, run_id="r"), RunEnded("done", run_id="r"), TextDelta("late", run_id="r")):
        tracer(Entry(0, 1.0, event))
    assert [each.label for each in tracer.trace.entries] == ["model_requested", "run_ended"]


def test_what_has_made_room_is_marked_before_the_first_entry_that_is_left():
    tracer = Tracer(limit=2)
    for number in range(5):
        tracer(Entry(number + 1, 10.0 + number, RunEnded("done", run_id=str(number))))
    reason = "the trace reached its limit, or entries could not be redacted"
    assert tracer.trace.entries == [
        TraceEntry(2, 13.0, 0.0, "agent", EntriesMissing(3, reason)),
        TraceEntry(3, 13.0, 0.0, "agent", RunEnded("done", run_id="3"), 4),
        TraceEntry(4, 14.0, 1.0, "agent", RunEnded("done", run_id="4"), 5),
    ]


def test_a_trace_of_which_all_was_left_out_says_so():
    def refuse(data: object) -> object:
        raise ValueError(data)

    tracer = Tracer(redact=refuse)
    tracer(Entry(1, 5.0, RunEnded("done", run_id="r")))
    (entry,) = tracer.trace.entries
    assert (entry.seq, entry.t, tracer.trace.missing) == (0, 0.0, 1)


async def test_instructions_are_known_also_when_their_request_has_made_room_unless_they_may_be_secret():
    for redact, system in ((None, "Be brief."), (lambda data: data, "")):
        tracer = Tracer(limit=1, redact=redact)
        tracer.observe(ScriptedModel("ok")).stream(Request(messages=(user("hi"),), instructions="Be brief."))
        tracer(Entry(1, 5.0, RunEnded("done", run_id="r")))
        assert tracer.trace.meta.system == system


def test_a_tracer_without_a_writer_has_nothing_to_wait_for():
    tracer = Tracer()
    assert (tracer.writer, tracer.flush(0), tracer.close(0)) == (None, True, True)


def test_a_writer_that_is_not_done_in_time_is_told_and_its_lines_begin_with_a_header():
    gate, written = threading.Event(), list[str]()

    def write(lines: Sequence[str]) -> None:
        gate.wait(30)
        written.extend(lines)

    tracer = Tracer(write=write)
    tracer(Entry(1, 5.0, RunEnded("done", run_id="r")))
    tracer(Entry(2, 6.0, RunEnded("done", run_id="s")))
    assert (tracer.flush(0.01), tracer.close(0.01)) == (False, False)
    gate.set()
    assert (tracer.flush(30), tracer.close(30)) == (True, True)
    assert "".join(f"{line}\n" for line in written) == tracer.trace.to_jsonl()
