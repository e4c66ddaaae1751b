"""Reports for the tests of tables and pages."""

from perdure._work.judging.evals.report import PastEvaluation, ReportedCaseDefinition, compare_results, summarize_agents
from perdure.evals import CaseResult, EvaluationReport, Grade

AT = 1_700_000_000.0


def result(case_id, agent="one", verdict="passed", score=None, **fields) -> CaseResult:
    """A result that cost a cent and took a second, unless something else is said."""
    usual = {"passed": 1.0, "failed": 0.25, "error": 0.0}[verdict]
    defaults = {"cost_usd": 0.01, "latency_seconds": 1.0, "status": "done", "digest": "d", "session_id": f"s-{case_id}"}
    return CaseResult(
        case_id=case_id, agent=agent, verdict=verdict, score=usual if score is None else score, **{**defaults, **fields}
    )


def failed(case_id, agent="one", feedback="it is wrong", **fields) -> CaseResult:
    """A result whose grader was not content."""
    grades = (Grade(passed=False, score=0.25, feedback=feedback, grader="judge"),)
    return result(case_id, agent, "failed", grades=grades, **fields)


def report(*results, before=None, past=(), name="sample", prompts=None, tags=("tag",)) -> EvaluationReport:
    """A report of these results, compared with those before."""
    ids = list(dict.fromkeys([each.case_id for each in results]))
    shown = prompts or {}
    cases = [
        ReportedCaseDefinition(id=each, prompt=shown.get(each, f"prompt of {each}"), expected="x", tags=tags)
        for each in ids
    ]
    return EvaluationReport(
        evaluation_id="e2",
        dataset=name,
        started_at=AT,
        finished_at=AT + 90,
        cases=tuple(cases),
        results=tuple(results),
        summaries=summarize_agents(results),
        comparison=None if before is None else compare_results(results, "e1", AT - 3600, before),
        history=tuple(
            [
                PastEvaluation(
                    evaluation_id=f"p{place}", started_at=AT - 86400 * (9 - place), summaries=summarize_agents(each)
                )
                for place, each in enumerate(past)
            ]
        ),
    )
