"""The failure of a grader, for tests that expect one."""

from perdure.evals import Grade, GraderFailure


def failure_of(grade: Grade) -> GraderFailure:
    """The failure of a grader that could not judge."""
    assert grade.failure is not None
    return grade.failure
