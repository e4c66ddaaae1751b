"""Goals and graders of Open Agent Loops, with our names."""

import asyncio
import json

from perdure import Agent
from perdure.engines import read_grades, until
from perdure.evals import Evidence, Grade, Grader, grade_evidence, model_grader
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from tests.coming_from.shows import shows
from tests.grading.failures import failure_of


@shows(
    "open-agent-loops", "runGoal", "RunGoalOptions", "RunGoalRunBase", "RunGoalRunBase.sessionId",
    "RunGoalRunBase.prompt", "GoalResult",
)  # fmt: skip
async def test_a_goal_is_worked_on_in_one_session_until_its_grader_says_that_it_is_done():
    agent = Agent(ScriptedModel("one", "two", "three"))
    session = agent.session("mine")
    grader = lambda evidence: Grade(passed=evidence.answer == "three", feedback=f"round {evidence.round}")  # noqa: E731
    outcome = await session.run("Count to three.", engine=until(grader, max_rounds=5))
    assert (outcome.status, outcome.text, outcome.session_id) == ("done", "three", "mine")
    assert [each.text for each in outcome.messages if each.role == "user"] == ["Count to three.", "round 1", "round 2"]
    assert [each.grade.passed for each in await read_grades(session)] == [False, False, True]


@shows("open-agent-loops", "runGoal")
async def test_the_rounds_are_limited():
    outcome = await Agent(ScriptedModel("no", repeat_last=True)).run("Go.", engine=until(lambda _: False, max_rounds=2))
    assert (outcome.status, outcome.reason, outcome.turns) == ("stopped", "max_rounds", 2)


@shows("open-agent-loops", "RunGoalRunBase.signal")
async def test_a_goal_is_cancelled_between_rounds_and_while_it_is_graded():
    begun = asyncio.Event()

    async def grade_for_ever(_evidence):
        begun.set()
        await asyncio.Event().wait()

    session = Agent(ScriptedModel("work"), store=open_store("memory:")).session("mine")
    running = asyncio.ensure_future(session.run("Go.", engine=until(grade_for_ever)))
    async with asyncio.timeout(30):
        await begun.wait()
        assert await session.cancel()
        outcome = await running
    assert (outcome.status, outcome.text) == ("cancelled", "work")


@shows("open-agent-loops", "Grader", "Grade", "GradeContext")
async def test_a_grader_is_a_function_or_an_object_and_sees_more_than_the_last_text():
    class Strict:
        name = "strict"

        async def grade(self, evidence: Evidence) -> Grade:
            seen = [each.name for each in evidence.tool_calls]
            return Grade(passed=bool(seen), score=0.5, feedback=f"{evidence.goal} {evidence.round} {seen}")

    assert isinstance(Strict(), Grader)
    grade = await grade_evidence(Strict(), Evidence(goal="Go.", answer="done", round=3))
    assert (grade.passed, grade.score, grade.feedback, grade.grader) == (False, 0.5, "Go. 3 []", "strict")

    def fail(_evidence):
        raise ValueError("no")

    assert failure_of(await grade_evidence(fail, Evidence())).kind == "raised"


@shows("open-agent-loops", "modelGrader", "ModelGraderOptions")
async def test_a_model_grades_with_the_evidence_before_its_eyes_and_repairs_its_reply():
    from perdure import tool

    @tool
    def look() -> str:
        """Look."""
        return "an empty harbour"

    judge = ScriptedModel("Well done!", json.dumps({"done": "true", "score": 0.9}))
    agent = Agent(ScriptedModel(call("look"), "I looked."), tools=[look])
    grader = model_grader(judge, instructions="You are kind. Answer with JSON.")
    outcome = await agent.run("Look.", engine=until(grader))
    assert outcome.status == "done"
    assert "an empty harbour" in judge.requests[0].messages[0].text
    assert judge.requests[0].instructions == "You are kind. Answer with JSON."
    assert len(judge.requests) == 2
