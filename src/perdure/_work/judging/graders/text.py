"""Graders that compare the answer with a text: equal to it, containing it, or matching a pattern."""

import re
from typing import Any, Final

from perdure._core.tools.worker.process import search_within_time
from perdure._core.values import checks
from perdure._core.values.jsonable import short_repr, to_text

from .grader import Evidence, FunctionGrader, Grade, Grader, build_failed_grade

MATCH_SECONDS: Final = 30.0
"""The default time that the search of a pattern may take."""


def equals(expected: Any = None, *, ignore_case: bool = False, name: str = "equals") -> Grader:
    """Make a grader that passes if the answer, or the typed output, equals a value.

    Without `expected`, the value is that of the evidence, such as the `expected` of a case. Blanks around a text do not
    count.
    """
    checks.require_bool("equals", "ignore_case", ignore_case)

    def grade(evidence: Evidence) -> Grade:
        wanted = _get_expected(evidence, expected)
        if evidence.output is not None and not isinstance(wanted, str):
            found, passed = short_repr(evidence.output), evidence.output == wanted
        else:
            found = _fold(evidence.answer, ignore_case=ignore_case).strip()
            passed = found == _fold(to_text(wanted), ignore_case=ignore_case).strip()
        feedback = "" if passed else f"the answer has to be {short_repr(wanted)}, and is {short_repr(evidence.answer)}"
        return Grade(passed=passed, feedback=feedback, grader=name)

    return FunctionGrader(grade, name)


def contains(*texts: str, ignore_case: bool = True, name: str = "contains") -> Grader:
    """Make a grader that passes if the answer contains every text; its score is the fraction that it contains.

    Without `texts`, they are the `expected` of the evidence: a text, or a list of texts.
    """
    for text in texts:
        checks.require_text("contains", "texts", text, non_empty=True)
    checks.require_bool("contains", "ignore_case", ignore_case)

    def grade(evidence: Evidence) -> Grade:
        wanted = texts or _list_texts(_get_expected(evidence, None))
        if not wanted or "" in wanted:
            raise ValueError("the expected text is empty, and every answer contains that: give one, or use equals")
        answer = _fold(evidence.answer, ignore_case=ignore_case)
        missing = [each for each in wanted if _fold(each, ignore_case=ignore_case) not in answer]
        feedback = f"the answer does not contain {', '.join(map(short_repr, missing))}" if missing else ""
        return Grade(passed=not missing, score=1 - len(missing) / len(wanted), feedback=feedback, grader=name)

    return FunctionGrader(grade, name)


def matches(
    pattern: "str | re.Pattern[str]", *, timeout_seconds: float = MATCH_SECONDS, name: str = "matches"
) -> Grader:
    """Make a grader that passes if a regular expression is found in the answer.

    An answer can make some patterns search for ever, such as `(a+)+$`. So a pattern with repetitions or alternatives is
    searched in a process of its own, which is killed after `timeout_seconds`: that is a failure of the grader. Raises
    `ConfigError` for a pattern that is not valid.
    """
    checks.require_number("matches", "timeout_seconds", timeout_seconds)
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        checks.raise_config_error("matches", "pattern", pattern, f"give a regular expression ({error})")

    def grade(evidence: Evidence) -> Grade:
        try:
            passed = search_within_time(compiled, evidence.answer, timeout_seconds)
        except TimeoutError as error:
            message = f"{compiled.pattern!r}: {error}; write a pattern with fewer repetitions inside others"
            return build_failed_grade(name, "timeout", message)
        feedback = "" if passed else f"the answer does not match {compiled.pattern!r}"
        return Grade(passed=passed, feedback=feedback, grader=name)

    return FunctionGrader(grade, name)


def _get_expected(evidence: Evidence, given: Any) -> Any:
    """Return the expected value. Raises `ValueError` if neither the grader nor the evidence has one."""
    if given is not None:
        return given
    if evidence.expected is None:
        raise ValueError("there is no expected value: give one to the grader, or to the case")
    return evidence.expected


def _list_texts(value: Any) -> list[str]:
    given: list[Any] = [*value] if isinstance(value, (list, tuple)) else [value]
    return [to_text(each) for each in given]


def _fold(text: str, *, ignore_case: bool) -> str:
    return text.casefold() if ignore_case else text
