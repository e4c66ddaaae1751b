"""Running an agent, its queues and its hooks, as in Open Agent Loops."""

import asyncio

import msgspec
import pytest

from perdure import Agent, Extension, Limits, Middleware, Settings, Text, ToolContext, ToolResult, tool, user
from perdure.events import Buffer, PushReport, ToolFinished
from perdure.models import Request, gated, open_model, openai_compatible
from perdure.permissions import PermissionRequest, Verdict
from perdure.stores import MemoryStore, open_store
from perdure.testing import Recorder, ScriptedModel, call, calls
from perdure.tools import after, around, before
from tests.coming_from.shows import shows
from tests.doubles import SECONDS
from tests.models.canned import CannedTransport


@tool(effect="read")
def search(pattern: str) -> list[str]:
    """Find a pattern in the files of this repository."""
    return [f"boat.py:12: # {pattern}: paint"]


@shows(
    "open-agent-loops",
    "runAgent",
    "RunAgentOptions",
    "RunAgentOptions.model",
    "RunAgentOptions.memory",
    "RunAgentOptions.sessionId",
    "RunAgentOptions.tools",
    "RunAgentOptions.prompt",
    "RunResult",
    "RunResult.newMessages",
)
async def test_an_agent_runs_for_one_session_until_it_stops():
    model, memory = ScriptedModel(call("search", pattern="TODO"), "One.", "None."), MemoryStore()
    agent = Agent(model, store=memory, tools=[search])
    outcome = await agent.session("demo").run("Find the TODOs in this repo.")
    assert (outcome.status, outcome.text) == ("done", "One.")
    assert [each.role for each in outcome.new_messages] == ["user", "assistant", "tool", "assistant"]
    assert outcome.new_messages[0].text == "Find the TODOs in this repo."
    assert "TODO: paint" in outcome.new_messages[2].tool_results[0].text
    again = await Agent(model, store=memory).session("demo").run("And now?", tools=[])
    assert [each.text for each in again.new_messages] == ["And now?", "None."]
    assert [each.text for each in model.requests[2].messages][:1] == ["Find the TODOs in this repo."]
    assert model.requests[2].tools == ()


@shows("open-agent-loops", "runAgent", "RunAgentOptions.memory", "RunResult")
async def test_a_run_that_was_cut_off_goes_on_and_one_that_fails_keeps_its_work(tmp_path):
    store = open_store(f"sqlite:{tmp_path / 'sessions.db'}")
    agent = Agent(ScriptedModel(call("search", pattern="TODO"), "One.", "One."), store=store, tools=[search])
    await agent.session("demo").run("Find the TODOs.")
    entries = await store.read("demo")
    at = next(place for place, each in enumerate(entries, 1) if isinstance(each.event, ToolFinished))
    crashed = await agent.session("demo").fork("crashed", at=at)
    assert (await crashed.resume()).text == "One."
    await store.aclose()
    broken = Agent(ScriptedModel(call("search", pattern="TODO"), ConnectionError("down")), tools=[search])
    outcome = await broken.session("demo").run("Find the TODOs.")
    assert (outcome.status, len(outcome.new_messages), str(outcome.error)) == ("failed", 3, "down")
    limited = Agent(ScriptedModel(call("search", pattern="TODO")), tools=[search], limits=Limits(max_turns=1))
    assert (await limited.session("demo").run("Find the TODOs.")).status == "limit"
    streamed = [type(event).__name__ async for event in Agent(ScriptedModel("Hi.")).session("demo").stream("Hi")]
    assert (streamed[1], streamed[-1]) == ("RunStarted", "RunEnded")


def sse(*chunks: str) -> bytes:
    return "".join([f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]")]).encode()


DETAILS = (
    '[{"type":"reasoning.text","text":"Hm.","signature":"sig-1","format":"anthropic-claude-v1","index":0},'
    '{"type":"reasoning.encrypted","data":"XYZ","format":"openai-responses-v1","index":1}]'
)
CALL = '{"index":0,"id":"c1","function":{"name":"search","arguments":"{\\"pattern\\":\\"TODO\\"}"}}'
WITH_CALL = sse(
    f'{{"choices":[{{"delta":{{"reasoning":"Hm.","reasoning_details":{DETAILS}}}}}]}}',
    f'{{"choices":[{{"delta":{{"tool_calls":[{CALL}]}},"finish_reason":"tool_calls"}}]}}',
)
WITHOUT_CALL = sse('{"choices":[{"delta":{"reasoning":"Done, I think.","content":"One."},"finish_reason":"stop"}]}')


@shows("open-agent-loops", "prepareRequestMessages")
async def test_thinking_goes_back_with_calls_and_only_to_the_model_that_wrote_it():
    transport = CannedTransport(WITH_CALL, WITHOUT_CALL, WITHOUT_CALL, WITHOUT_CALL)
    model = open_model("openrouter:anthropic/claude-sonnet-5.5", api_key="none", transport=transport)
    other = open_model("openrouter:openai/gpt-4o", api_key="none", transport=transport)
    session = Agent(model, tools=[search]).session("demo")
    await session.run("Find the TODOs.")
    await session.run("And now?")
    await session.run("And you?", model=other)
    sent = [[each for each in body["messages"] if each["role"] == "assistant"] for body in transport.bodies]
    assert sent[1][0]["reasoning_details"] == msgspec.json.decode(DETAILS.encode())  # word for word
    assert sent[2][0]["reasoning_details"] == msgspec.json.decode(DETAILS.encode())
    assert sent[2][1] == {"role": "assistant", "content": "One."}  # no call: its thinking is left out
    assert "reasoning_details" not in sent[3][0]
    assert "Hm." not in str(sent[3])


@shows("open-agent-loops", "prepareRequestMessages")
@pytest.mark.parametrize("echo", [False, True])
async def test_an_endpoint_that_needs_its_thinking_back_is_told_by_a_setting(echo):
    transport = CannedTransport(WITH_CALL, WITHOUT_CALL)
    model = openai_compatible("http://127.0.0.1:9/v1", "some-model", transport=transport)
    await Agent(model, tools=[search], settings=Settings(echo_reasoning=echo)).run("Find the TODOs.")
    assert ("Hm." in str(transport.bodies[1]["messages"][1])) == echo


# -- queues ------------------------------------------------------------------------------------------------------------


class Steered:
    """A tool during whose first call messages are sent to the session."""

    def __init__(self, send):
        self.session = None
        self.send = send

        @tool(effect="read")
        async def look(number: int) -> str:
            """Look."""
            if number == 0:
                await self.send(self.session)
            return "nothing"

        self.tool = look


@shows(
    "open-agent-loops",
    "MessageQueue",
    "MessageQueueOptions",
    "DrainMode",
    'DrainMode."one-at-a-time"',
    'DrainMode."all"',
)
@pytest.mark.parametrize(
    ("mode", "expected"), [("one", [["first"], ["second"]]), ("all", [["first", "second"], []])], ids=["one", "all"]
)
async def test_queued_messages_are_delivered_one_at_a_time_or_all_at_once(mode, expected):
    async def steer(session):
        await session.steer("first")
        await session.steer("second")

    steered = Steered(steer)
    model = ScriptedModel(call("look", number=0), call("look", number=1), "Done.")
    session = steered.session = Agent(model, tools=[steered.tool], steering_mode=mode).session("demo")
    await session.run("Go.")
    new = [
        [each.text for each in request.messages[len(before.messages) :] if each.origin == "steering"]
        for before, request in zip(model.requests, model.requests[1:], strict=False)
    ]
    assert new == expected

    async def follow(session):
        await session.follow_up("first")
        await session.follow_up("second")

    steered = Steered(follow)
    model = ScriptedModel(call("look", number=0), "Done.", "Done.", "Done.", "Done.")
    session = steered.session = Agent(model, tools=[steered.tool], follow_up_mode=mode).session("demo")
    outcome = await session.run("Go.")
    assert [each.text for each in outcome.messages if each.origin == "follow_up"] == ["first", "second"]
    assert len(model.requests) == (4 if mode == "one" else 3)


@shows("open-agent-loops", "MessageQueue")
async def test_queued_messages_survive_a_crash(tmp_path):
    def open_file():
        return open_store(f"sqlite:{tmp_path / 'sessions.db'}")

    first, second = open_file(), open_file()
    await Agent(ScriptedModel(), store=first).session("demo").steer("In one word.")
    model = ScriptedModel("Yes.")
    await Agent(model, store=second).session("demo").run("Ready?")
    assert [each.text for each in model.requests[0].messages] == ["Ready?", "In one word."]
    await first.aclose()
    await second.aclose()


@shows(
    "open-agent-loops",
    "BoundedBuffer",
    "BoundedBuffer.push",
    "BoundedBuffer.drain",
    "BoundedBufferOptions",
    "BoundedBufferOptions.capacity",
    "OverflowPolicy",
    "OverflowPolicy.coalesce",
    "PushResult",
    "PushResult.accepted",
)
def test_a_bounded_buffer_reports_what_became_of_each_item():
    reports = {}
    for policy in ("drop_oldest", "drop_newest", "block", "coalesce"):
        fold = (lambda earlier, later: earlier + later) if policy == "coalesce" else None
        buffer = Buffer[str](2, policy, coalesce=fold)
        assert buffer.push("a") == "kept"
        report = buffer.push_all(["b", "c"])
        reports[policy] = (report, buffer.take_all())
        assert buffer.take_all() == []
    assert reports == {
        "drop_oldest": (PushReport(accepted=("b", "c"), evicted=("a",)), ["b", "c"]),
        "drop_newest": (PushReport(accepted=("b",), refused=("c",)), ["a", "b"]),
        "block": (PushReport(accepted=("b",), blocked=("c",)), ["a", "b"]),
        "coalesce": (PushReport(accepted=("b", "c")), ["a", "bc"]),
    }


@shows("open-agent-loops", "PushResult", "BoundedBuffer.drain")
def test_the_four_groups_of_a_report_are_disjoint_and_items_are_drained_singly_too():
    buffer = Buffer[str](1, "drop_oldest")
    assert buffer.push_all(["a", "b", "c"]) == PushReport(accepted=("c",), evicted=("a", "b"))
    unbounded = Buffer[str](None)
    assert unbounded.push_all(map(str, range(1000))).accepted == tuple(map(str, range(1000)))
    assert (unbounded.get_nowait(), len(unbounded.take_all())) == ("0", 999)


@shows("open-agent-loops", "BoundedBuffer.push")
async def test_a_producer_may_wait_for_room():
    buffer = Buffer[str](1)
    await buffer.put("a")
    waiting = asyncio.create_task(buffer.put("b"))
    async with asyncio.timeout(SECONDS):
        assert await buffer.get() == "a"
        assert await waiting == "kept"
    assert buffer.take_all() == ["b"]


# -- hooks and gates ---------------------------------------------------------------------------------------------------


@shows("open-agent-loops", "Hooks", "Hooks.afterToolCall", "ToolResultOverride")
async def test_a_hook_after_a_call_may_override_its_result():
    seen = []

    def shout(called, result: ToolResult):
        seen.append((called.name, result.is_error))
        return msgspec.structs.replace(result, content=(Text(result.text.upper()),)) if "TODO" in result.text else None

    model = ScriptedModel(calls(call("search", pattern="TODO"), call("search", pattern="Fix")), "Done.")
    outcome = await Agent(model, tools=[after(search, shout)]).run("Find.")
    first, second = outcome.messages[2].tool_results
    assert ("# TODO: PAINT" in first.text, "# Fix: paint" in second.text) == (True, True)
    assert seen == [("search", False)] * 2


@shows("open-agent-loops", "Hooks")
async def test_hooks_shape_the_context_and_are_around_runs_turns_calls_and_requests():
    told = []

    async def around_run(call_next, run):
        told.append("run")
        return await call_next()

    async def around_turn(call_next, run):
        told.append("turn")
        return await call_next()

    async def around_tool(call_next, arguments, context: ToolContext):
        told.append(f"call of {context.name}")
        return await call_next()

    def admit(request: Request):
        told.append("request")

    layer = Middleware(name="told", run=around_run, turn=around_turn, tool=around_tool)
    model = ScriptedModel(call("search", pattern="TODO"), "Done.")
    wrapped = around(before(search, lambda _call, _arguments: told.append("before")), around_tool)
    agent = Agent(
        gated(model, admit),
        tools=[wrapped],
        extensions=[Extension(name="hooks", middleware=[layer])],
        history_processor=lambda messages: [user("It is Tuesday."), *messages],
    )
    await agent.run("Find.")
    assert told == ["run", "turn", "request", "before", "call of search", "call of search", "turn", "request"]
    assert [each.text for each in model.requests[0].messages] == ["It is Tuesday.", "Find."]


@shows("open-agent-loops", "gateToolCalls", "ToolGateRequest", "GateDecision")
async def test_a_gate_is_asked_once_for_a_batch_and_what_it_does_not_decide_is_denied():
    asked = []

    async def gate(requests):
        asked.append([(type(each), each.call_id, each.tool, dict(each.arguments)) for each in requests])
        return [Verdict(allow=True), Verdict(allow=False, reason="not that one")]  # and nothing for the third

    recorder = Recorder()
    model = ScriptedModel(calls(*[call("search", pattern=word) for word in ("a", "b", "c")]), "Done.")
    agent = Agent(model, tools=[search], permission=gate, watchers=[recorder])
    outcome = await agent.run("Find.")
    ids = [each.call_id for each in outcome.messages[1].tool_calls]
    assert asked == [
        [(PermissionRequest, call_id, "search", {"pattern": word}) for call_id, word in zip(ids, "abc", strict=True)]
    ]
    first, second, third = outcome.messages[2].tool_results
    assert [each.is_error for each in (first, second, third)] == [False, True, True]
    assert "not that one" in second.text
    assert third.status == "denied"
