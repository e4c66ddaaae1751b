"""Evals: agents run the cases of a dataset, graders judge the answers, and reports show scores, cost and regressions.

`Evaluation(load_dataset("cases.toml"), agent).run()` returns an `EvaluationReport`; `build_report_page` makes a web
page of it, and `format_report` a table.
"""

from .case import CaseResult
from .dataset import Case, Dataset
from .evaluation import Evaluation, EvaluationProgress
from .page import build_report_page
from .reader import BadDataset, load_dataset
from .report import AgentSummary, CaseChange, Comparison, EvaluationReport, read_report
from .text import format_report

__all__ = [
    "AgentSummary",
    "BadDataset",
    "Case",
    "CaseChange",
    "CaseResult",
    "Comparison",
    "Dataset",
    "Evaluation",
    "EvaluationProgress",
    "EvaluationReport",
    "build_report_page",
    "format_report",
    "load_dataset",
    "read_report",
]
