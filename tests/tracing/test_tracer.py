import asyncio
import logging
import stat

import msgspec
import pytest

from perdure import Agent, ConfigError, RateLimited, ToolContext, failover, retried, tool
from perdure.core.event import Entry, RunEnded, TextDelta
from perdure.extensions import tracing
from perdure.models import openai_compatible
from perdure.net.tap import tapped
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tracing.trace import read_trace, trace_session
from perdure.tracing.trace_entry import (
    EntriesMissing,
    FirstDelta,
    RawRequest,
    RawResponseLine,
    RequestSnapshot,
    TraceMeta,
)
from perdure.tracing.tracer import Tracer
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

    flaky = ScriptedModel(RateLimited("busy", retry_after_seconds=1.0), RateLimited("busy"), name="flaky")
    steady = ScriptedModel(call("slow"), "Done.", name="steady")
    tracer = Tracer()
    model = failover(retried(flaky, attempts=2, clock=clock), steady)
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
    from perdure.net.tap import TappedRequest

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
