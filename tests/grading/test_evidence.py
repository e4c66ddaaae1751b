"""What a grader sees of the tool calls of a run."""

from perdure import Agent, ToolCallRecord, tool
from perdure._work.judging.graders.grader import MOST_RESULT_CHARACTERS
from perdure.evals import Evidence
from perdure.testing import Reply, ScriptedModel, call


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is empty" if place != "sea" else "water " * 1_000


async def test_tool_calls_are_numbered_with_their_arguments_and_shortened_results():
    calls = Reply(calls=[call("look", place="harbour"), call("look", place="sea"), call("look")])
    outcome = await Agent(ScriptedModel(calls, "done"), tools=[look]).run("Look.")
    evidence = Evidence.from_outcome(outcome, goal="Look.", round=2, details={"case": 1})
    text = evidence.describe_tool_calls()
    first, second, third = text.split("\n2. ")[0], text.split("\n2. ")[1].split("\n3. ")[0], text.split("\n3. ")[1]
    assert first == '1. look({"place":"harbour"}) -> ok\nharbour is empty'
    assert second.startswith('look({"place":"sea"}) -> ok\nwater')
    assert MOST_RESULT_CHARACTERS / 2 < len(second) < MOST_RESULT_CHARACTERS + 100
    assert third.startswith("look({}) -> error\ninvalid arguments")
    assert (evidence.answer, evidence.status, evidence.round, evidence.details) == ("done", "done", 2, {"case": 1})
    assert Evidence().describe_tool_calls() == ""


async def test_the_evidence_of_a_run_is_its_answer_and_all_that_it_did():
    outcome = await Agent(ScriptedModel(call("look", place="harbour"), "done"), tools=[look]).run("Look.")
    assert Evidence.from_outcome(outcome, goal="Look.") == Evidence(
        goal="Look.",
        answer="done",
        output=None,
        expected=None,
        status="done",
        round=1,
        messages=tuple(outcome.new_messages),
        tool_calls=tuple(outcome.tool_calls),
        details={},
    )
    assert Evidence.from_outcome(outcome, goal="", expected=3).expected == 3


def test_a_call_without_a_result_says_so():
    pending = ToolCallRecord(call_id="c", name="look", arguments="{}", result=None)
    assert Evidence(tool_calls=[pending, pending]).describe_tool_calls() == (
        "1. look({}) -> no result\n2. look({}) -> no result"
    )
