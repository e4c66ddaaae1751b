"""Models and events, as Glove's reference describes `ModelAdapter`, `SubscriberEvent` and `SubscriberAdapter`."""

import asyncio

from perdure import Agent, Settings, StopReason, Usage, tool
from perdure.context import Command, Rewrite, Skill, Skills
from perdure.events import (
    Entry,
    Event,
    HookInvoked,
    MessageAdded,
    ReplyFinished,
    SkillLoaded,
    SubagentFinished,
    SubagentStarted,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageReported,
)
from perdure.models import ModelInfo, Request
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call, check_model
from perdure.tools import subagent
from tests.coming_from.outcomes import present, results_of
from tests.coming_from.shows import shows


@tool(effect="read")
async def get_weather(city: str) -> str:
    """Get weather for a city."""
    return f"Rain in {city}."


class MyModel:
    """A model of one's own, as the reference's custom adapter: one that streams, and one that does not."""

    info = ModelInfo("model-name", "my-provider")

    def __init__(self, *, streams: bool = True) -> None:
        self.streams = streams
        self.requests: list[Request] = []

    async def stream(self, request: Request):
        self.requests.append(request)
        if request.tools and request.messages[-1].role == "user":
            yield ToolCallDelta("call_1", "get_weather", '{"city":')
            yield ToolCallDelta(arguments='"Oslo"}')
            yield ReplyFinished(StopReason.TOOL_USE, Usage(20, 8), "model-name", "my-provider")
            return
        for text in ("It ", "rains.") if self.streams else ("It rains.",):
            yield TextDelta(text)
        yield UsageReported(Usage(30, 2))
        yield ReplyFinished(StopReason.STOP, Usage(30, 3), "model-name", "my-provider")


@shows(
    "glove",
    "ModelAdapter",
    "ModelAdapter.name",
    "ModelAdapter.prompt",
    "ModelAdapter.setSystemPrompt",
    "NotifySubscribersFunction",
    "PromptRequest",
    "PromptRequest.messages",
    "PromptRequest.tools",
    "ModelPromptResult",
    "SubscriberEvent",
    'SubscriberEvent."text_delta"',
    "text_delta.text",
    'SubscriberEvent."tool_use"',
    "tool_use.id",
    "tool_use.name",
    "tool_use.input",
    'SubscriberEvent."model_response_complete"',
    "model_response_complete.text",
    "model_response_complete.tool_calls",
    "model_response_complete.stop_reason",
    "model_response_complete.tokens_in",
    "model_response_complete.tokens_out",
    'SubscriberEvent."tool_use_result"',
    "tool_use_result.tool_name",
    "tool_use_result.call_id",
    "tool_use_result.result",
    'SubscriberEvent."token_consumption"',
)
async def test_a_streaming_model_yields_its_events_and_subscribers_get_them():
    await check_model(MyModel)
    model, seen = MyModel(), Recorder()
    settings = Settings(temperature=0.5)
    agent = Agent(model, instructions="Be brief.", tools=[get_weather], watchers=[seen], settings=settings)
    outcome = await agent.session("s").run("Weather?")
    assert outcome.text == "It rains."
    first, second = model.requests
    assert (first.instructions, [each.text for each in first.messages]) == ("Be brief.", ["Weather?"])
    assert [each.name for each in first.tools] == ["get_weather"]
    assert (first.settings, first.session_id) == (settings, "s")
    assert [each.role for each in second.messages] == ["user", "assistant", "tool"]
    assert [each.text for each in seen.of(TextDelta)] == ["It ", "rains."]
    assert [each.arguments for each in seen.of(ToolCallDelta)] == ['{"city":', '"Oslo"}']
    _, used, complete = [each.message for each in seen.of(MessageAdded)]
    [made] = used.tool_calls
    assert (made.call_id, made.name, made.arguments) == ("call_1", "get_weather", '{"city":"Oslo"}')
    assert (used.stop, present(used.usage).input_tokens, present(used.usage).output_tokens) == ("tool_use", 20, 8)
    assert (complete.text, complete.tool_calls, complete.stop) == ("It rains.", (), "stop")
    assert (present(complete.usage).input_tokens, present(complete.usage).output_tokens) == (30, 3)
    assert (complete.model, complete.provider) == ("model-name", "my-provider")
    [finished], [started] = seen.of(ToolFinished), seen.of(ToolStarted)
    assert (finished.name, finished.call_id, finished.result.text) == ("get_weather", "call_1", "Rain in Oslo.")
    assert (started.call_id, finished.duration_seconds >= 0) == ("call_1", True)
    assert [each.usage for each in seen.of(UsageReported)] == [Usage(30, 2)]
    assert all(isinstance(entry, Entry) and isinstance(entry.event, Event) for entry in seen.entries)
    assert {event.run_id for event in seen.events if event.run_id} == {outcome.run_id}
    durable = [entry.seq for entry in seen.entries if entry.seq]
    assert durable == list(range(1, len(durable) + 1))


@shows(
    "glove",
    'SubscriberEvent."model_response"',
    "model_response.text",
    "model_response.tool_calls",
    "model_response.stop_reason",
    "model_response.tokens_in",
    "model_response.tokens_out",
)
async def test_a_model_that_does_not_stream_yields_its_text_at_once():
    seen = Recorder()
    await Agent(MyModel(streams=False), watchers=[seen]).run("Weather?")
    assert [each.text for each in seen.of(TextDelta)] == ["It rains."]
    reply = seen.of(MessageAdded)[-1].message
    assert (reply.text, reply.tool_calls, reply.stop) == ("It rains.", (), "stop")
    assert (present(reply.usage).input_tokens, present(reply.usage).output_tokens) == (30, 3)


@shows("glove", 'SubscriberEvent."tool_use_result"')
async def test_the_duration_of_a_call_is_in_its_result():
    clock = FakeClock()

    @tool(effect="read")
    async def wait() -> str:
        """Take two seconds."""
        await clock.advance(2)
        return "done"

    seen = Recorder()
    await Agent(ScriptedModel(call("wait"), "Done."), tools=[wait], watchers=[seen], clock=clock).run("Go")
    assert [each.duration_seconds for each in seen.of(ToolFinished)] == [2.0]


@shows(
    "glove",
    'SubscriberEvent."hook_invoked"',
    "hook_invoked.name",
    'SubscriberEvent."skill_invoked"',
    "skill_invoked.name",
    "skill_invoked.source",
    'skill_invoked."user"',
    'skill_invoked."agent"',
    "skill_invoked.args",
    "Message.pre_modified_text",
    "Message.is_skill_injection",
    "Message.text",
    "defineSkill.name",
    "defineSkill.description",
    "defineSkill.handler",
    "defineSkill.exposeToAgent",
    "glove_invoke_skill",
)
async def test_hooks_and_skills_are_invoked_by_users_and_skills_by_the_model_too():
    async def shout(context) -> Rewrite:
        return Rewrite(context.text.replace("[/shout]", "").strip().upper())

    async def rhyme(arguments) -> str:
        return f"Rhyme about {arguments}."

    skills = Skills(
        [
            Skill(name="rhyme", description="How to rhyme.", handler=rhyme),
            Skill(name="secret", description="Not for the model.", body="Whisper.", hidden=True),
            Skill(name="layout", description="Pages.", body="Two columns.", sections={"fonts": "Use serifs."}),
        ]
    )
    model = ScriptedModel(
        "LOUD.",
        "A rhyme.",
        call("skill", name="rhyme", arguments="snow"),
        call("skill", name="secret"),
        call("skill", name="layout"),
        call("skill_resource", skill="layout", name="fonts"),
        "Done.",
        "Psst.",
    )
    seen = Recorder()
    session = Agent(model, commands=[Command("shout", shout)], skills=skills, watchers=[seen]).session("s")
    await session.run("/shout good morning")
    await session.run("/rhyme about rain")
    outcome = await session.run("Do as you like.")
    await session.run("/secret")
    assert [each.name for each in seen.of(HookInvoked)] == ["shout"]
    assert [(each.name, each.source) for each in seen.of(SkillLoaded)] == [
        ("rhyme", "user"),
        ("rhyme", "model"),
        ("layout", "model"),
        ("secret", "user"),
    ]
    assert [each.arguments for each in seen.of(SkillLoaded)][:2] == ["about rain", "snow"]
    messages = await session.messages()
    assert (messages[0].text, messages[0].original_text) == ("GOOD MORNING", "/shout good morning")
    [injected] = [each for each in model.requests[1].messages if each.origin == "skill"]
    assert "Rhyme about about rain." in injected.text
    snow, hidden, layout, fonts = results_of(outcome)
    assert "Rhyme about snow." in snow.text
    assert (hidden.is_error, "Whisper." in hidden.text) == (True, False)
    assert ("Two columns." in layout.text, "Use serifs." in layout.text, "Use serifs." in fonts.text) == (
        True,
        False,
        True,
    )
    assert "How to rhyme." in model.requests[0].instructions
    assert "Not for the model." not in model.requests[0].instructions


@shows(
    "glove",
    'SubscriberEvent."subagent_invoked"',
    "subagent_invoked.name",
    "subagent_invoked.prompt",
    'SubscriberEvent."subagent_completed"',
    "subagent_completed.name",
    "subagent_completed.status",
    'subagent_completed."success"',
    'subagent_completed."error"',
    "subagent_completed.message",
    "defineSubAgent.name",
    "defineSubAgent.description",
    "defineSubAgent.factory",
    "glove_invoke_subagent",
)
async def test_a_subagent_is_a_tool_and_each_start_has_one_end_whatever_happens():
    def build(assignment) -> Agent:
        if "broken" in assignment.task:
            raise ValueError("no such expert")
        return Agent(ScriptedModel(f"Reviewed: {assignment.task}"), name="inner")

    reviewer = subagent("reviewer", "Reviews code.", build)
    planner = Agent(ScriptedModel("A plan.")).as_tool(name="planner", description="Plans.")
    assert [(each.name, each.description) for each in (reviewer, planner)] == [
        ("reviewer", "Reviews code."),
        ("planner", "Plans."),
    ]
    model = ScriptedModel(
        call("reviewer", task="the parser"), call("reviewer", task="broken"), call("planner", task="the week"), "Done."
    )
    seen = Recorder()
    outcome = await Agent(model, tools=[reviewer, planner], watchers=[seen]).run("Go")
    assert [each.name for each in model.requests[0].tools] == ["reviewer", "planner"]
    assert [(each.name, each.prompt) for each in seen.of(SubagentStarted)] == [
        ("reviewer", "the parser"),
        ("reviewer", "broken"),
        ("planner", "the week"),
    ]
    good, bad, plan = seen.of(SubagentFinished)
    assert [each.name for each in (good, bad, plan)] == ["reviewer", "reviewer", "planner"]
    assert [each.call_id for each in seen.of(SubagentStarted)] == [each.call_id for each in (good, bad, plan)]
    assert (good.status, bad.status, plan.status) == ("done", "failed", "done")
    assert "no such expert" in bad.message
    assert results_of(outcome)[0].text == "Reviewed: the parser"
    assert results_of(outcome)[1].is_error


@shows("glove", "SubscriberAdapter", "SubscriberAdapter.record", "ListenerFn")
async def test_a_subscriber_is_a_function_plain_or_async():
    plain: list[str] = []
    awaited: list[str] = []

    async def record(entry: Entry) -> None:
        await asyncio.sleep(0)
        awaited.append(type(entry.event).__name__)

    agent = Agent(
        ScriptedModel(Reply("Hi.")), watchers=[lambda entry: plain.append(type(entry.event).__name__), record]
    )
    await agent.run("Go")
    assert plain == awaited
    assert (plain[-1], "TextDelta" in plain) == ("RunEnded", True)
