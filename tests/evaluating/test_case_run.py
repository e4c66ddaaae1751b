"""A run of a case: what its attempts have cost."""

import pytest

from perdure import Usage
from perdure._work.judging.evals.case_run import CaseRun
from perdure.engines import SYSTEM_CLOCK
from perdure.evals import Case, Grade, to_grader
from perdure.events import Entry, RunEnded
from perdure.stores import MemoryStore
from tests.evaluating.quizzes import echo


def build_run(store: MemoryStore) -> CaseRun:
    case = Case(prompt="a", id="a", expected="a", graders=["equals"])
    return CaseRun(
        case=case, agent=echo(), agent_name="one", repetition=1, session_id="s", store=store, clock=SYSTEM_CLOCK
    )


async def test_a_case_that_was_not_run_has_cost_nothing_and_has_no_result():
    run = build_run(MemoryStore())
    assert (await run.measure_spent(), await run.find_result()) == (0.0, None)


async def test_all_attempts_count_with_their_grades_also_those_without_a_result_or_a_known_cost():
    store = MemoryStore()
    run = build_run(store)

    def judge(_evidence: object) -> Grade:
        return Grade(passed=True, usage=Usage(1), cost_usd=0.25)

    result = await run.perform([to_grader(judge)], None, None)
    assert result.cost_usd == pytest.approx(0.02)
    assert result.grading_cost_usd == 0.25
    for number, cost in ((2, 0.5), (3, None), (4, 1.0)):
        lease = await store.acquire(f"s-{number}")
        await store.append(lease, [Entry(1, 0.0, RunEnded("cancelled", cost_usd=cost), f"e{number}")], sync=True)
        await store.release(lease)
    assert await run.measure_spent() == pytest.approx(0.02 + 0.25 + 0.5 + 1.0)
