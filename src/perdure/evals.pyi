# Written by `python -m scripts.exports`, from the table in evals.py. Not edited by hand.

from ._work.judging.evals.case import CaseResult as CaseResult
from ._work.judging.evals.dataset import Case as Case
from ._work.judging.evals.dataset import Dataset as Dataset
from ._work.judging.evals.evaluation import Evaluation as Evaluation
from ._work.judging.evals.evaluation import EvaluationProgress as EvaluationProgress
from ._work.judging.evals.page import build_report_page as build_report_page
from ._work.judging.evals.reader import BadDataset as BadDataset
from ._work.judging.evals.reader import load_dataset as load_dataset
from ._work.judging.evals.report import AgentSummary as AgentSummary
from ._work.judging.evals.report import CaseChange as CaseChange
from ._work.judging.evals.report import Comparison as Comparison
from ._work.judging.evals.report import EvaluationReport as EvaluationReport
from ._work.judging.evals.report import read_report as read_report
from ._work.judging.evals.text import format_report as format_report
from ._work.judging.graders.combined import all_of as all_of
from ._work.judging.graders.combined import any_of as any_of
from ._work.judging.graders.command import command_grader as command_grader
from ._work.judging.graders.grader import AnyGrader as AnyGrader
from ._work.judging.graders.grader import Evidence as Evidence
from ._work.judging.graders.grader import Grade as Grade
from ._work.judging.graders.grader import Grader as Grader
from ._work.judging.graders.grader import GraderFailure as GraderFailure
from ._work.judging.graders.grader import GraderFailureKind as GraderFailureKind
from ._work.judging.graders.grader import GraderFunction as GraderFunction
from ._work.judging.graders.grader import Judgement as Judgement
from ._work.judging.graders.grader import function_grader as function_grader
from ._work.judging.graders.grader import grade_evidence as grade_evidence
from ._work.judging.graders.grader import to_grader as to_grader
from ._work.judging.graders.model import model_grader as model_grader
from ._work.judging.graders.schema import schema_grader as schema_grader
from ._work.judging.graders.text import contains as contains
from ._work.judging.graders.text import equals as equals
from ._work.judging.graders.text import matches as matches
from ._work.judging.reviews.markdown import render_review as render_review
from ._work.judging.reviews.review import FailedReviewer as FailedReviewer
from ._work.judging.reviews.review import Finding as Finding
from ._work.judging.reviews.review import ModelReview as ModelReview
from ._work.judging.reviews.review import Review as Review
from ._work.judging.reviews.review import ReviewedFinding as ReviewedFinding
from ._work.judging.reviews.review import Severity as Severity
from ._work.judging.reviews.reviewer import BranchReviewer as BranchReviewer

__all__ = [
    "AgentSummary",
    "AnyGrader",
    "BadDataset",
    "BranchReviewer",
    "Case",
    "CaseChange",
    "CaseResult",
    "Comparison",
    "Dataset",
    "Evaluation",
    "EvaluationProgress",
    "EvaluationReport",
    "Evidence",
    "FailedReviewer",
    "Finding",
    "Grade",
    "Grader",
    "GraderFailure",
    "GraderFailureKind",
    "GraderFunction",
    "Judgement",
    "ModelReview",
    "Review",
    "ReviewedFinding",
    "Severity",
    "all_of",
    "any_of",
    "build_report_page",
    "command_grader",
    "contains",
    "equals",
    "format_report",
    "function_grader",
    "grade_evidence",
    "load_dataset",
    "matches",
    "model_grader",
    "read_report",
    "render_review",
    "schema_grader",
    "to_grader",
]
