from perdure import Agent, tool
from perdure.extensions import tracing
from perdure.testing import ScriptedModel, call
from perdure.tracing.tracer import Tracer
from tests.tracing.sample_traces import coding_session


async def test_each_step_says_what_entered_and_which_tools_and_instructions_changed():
    @tool(effect="read")
    async def one() -> str:
        """One."""
        return "1"

    tracer = Tracer()
    agent = Agent(ScriptedModel(call("one"), "Done."), instructions="Be.", tools=[one], extensions=[tracing(tracer)])
    await agent.run("go")
    first, second = tracer.trace.disclosure()
    assert (first.turn, first.system, first.tools, first.added_tools) == (1, "Be.", ("one",), ("one",))
    assert (first.messages, first.messages_delta, [each.reason for each in first.entered]) == (1, 1, ["prompt"])
    assert (second.system, second.added_tools, second.removed_tools) == (None, (), ())
    assert (second.messages_delta, [each.reason for each in second.entered]) == (2, ["reply", "result of one"])
    assert second.dt >= first.dt


def test_a_stored_log_tells_added_tools_compaction_and_the_cache():
    steps = [step for step in coding_session().stored().disclosure() if not step.path]
    assert (steps[2].added_tools, steps[2].changes) == (("git_show",), ("tools",))
    assert (steps[4].changes, steps[4].messages_delta < 0) == (("compaction",), True)
    assert (steps[1].tokens, steps[1].cached_tokens, steps[1].system) == (5_480, 5_210, None)


def test_the_timeline_as_text_names_reasons():
    text = coding_session().stored().format_disclosure()
    assert "+ result of bash: " in text
    assert "changed: compaction" in text
    assert "tools: +git_show" in text
    assert "historian: turn 1" in text
