"""Graders: what decides whether the work of an agent is good enough, for goals, `until` and evals.

A grader gets `Evidence` and returns a `Grade`. A function is a grader too, and may return a bool or a score from 0 to
1. `grade_evidence` calls one: a grader that raises or takes too long is a grade with a `failure`, and no work is lost.
"""

from .combined import all_of, any_of
from .command import command_grader
from .grader import (
    AnyGrader,
    Evidence,
    Grade,
    Grader,
    GraderFailure,
    GraderFunction,
    function_grader,
    grade_evidence,
    to_grader,
)
from .model import model_grader
from .schema import schema_grader
from .text import contains, equals, matches

__all__ = [
    "AnyGrader",
    "Evidence",
    "Grade",
    "Grader",
    "GraderFailure",
    "GraderFunction",
    "all_of",
    "any_of",
    "command_grader",
    "contains",
    "equals",
    "function_grader",
    "grade_evidence",
    "matches",
    "model_grader",
    "schema_grader",
    "to_grader",
]
