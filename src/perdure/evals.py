"""Graders, evaluations and reviews: what judges the work of agents."""

from ._facade import export

NAMES_BY_MODULE = {
    "._work.judging.evals.case": ("CaseResult",),
    "._work.judging.evals.dataset": ("Case", "Dataset"),
    "._work.judging.evals.evaluation": ("Evaluation", "EvaluationProgress"),
    "._work.judging.evals.page": ("build_report_page",),
    "._work.judging.evals.reader": ("BadDataset", "load_dataset"),
    "._work.judging.evals.report": ("AgentSummary", "CaseChange", "Comparison", "EvaluationReport", "read_report"),
    "._work.judging.evals.text": ("format_report",),
    "._work.judging.graders.combined": ("all_of", "any_of"),
    "._work.judging.graders.command": ("command_grader",),
    "._work.judging.graders.grader": (
        "AnyGrader",
        "Evidence",
        "Grade",
        "Grader",
        "GraderFailure",
        "GraderFailureKind",
        "GraderFunction",
        "Judgement",
        "function_grader",
        "grade_evidence",
        "to_grader",
    ),
    "._work.judging.graders.model": ("model_grader",),
    "._work.judging.graders.schema": ("schema_grader",),
    "._work.judging.graders.text": ("contains", "equals", "matches"),
    "._work.judging.reviews.markdown": ("render_review",),
    "._work.judging.reviews.review": (
        "FailedReviewer",
        "Finding",
        "ModelReview",
        "Review",
        "ReviewedFinding",
        "Severity",
    ),
    "._work.judging.reviews.reviewer": ("BranchReviewer",),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
