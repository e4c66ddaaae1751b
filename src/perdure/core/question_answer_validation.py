"""Validation of a person's answers to questions, and their conversion to what is stored."""

from collections.abc import Mapping
from typing import Any

from .error import ConfigError
from .event import QuestionAsked
from .jsonable import short_repr, to_jsonable
from .permission_question import validate_verdicts
from .schema import Invalid, check_value


def validate_answer(question: QuestionAsked, answer: Any, by: str = "") -> Any:
    """Check a person's answer to a question, and return it in the form that is stored. Raises `ConfigError`.

    `by` says who answered.
    """
    if question.about == "settlement":
        return to_jsonable(answer)
    if question.about == "slot":
        return check_slot_answer(question.text, question.output, answer)
    return validate_verdicts(question, answer, by)


def build_decline_body(question: QuestionAsked, reason: str) -> dict[str, Any]:
    """Build the body of the post (a stored message to a session) that declines a question.

    A tool that asked gets `NotAnswered`; a tool call that needed permission is denied.
    """
    answer: Any = None
    if question.about == "permission":
        answer = validate_answer(question, {"allow": False, "reason": reason})
    elif question.about == "settlement":
        answer = "skip"
    rejected = reason if question.about == "slot" else ""
    return {"ask_id": question.ask_id, "answer": answer, "rejected": rejected}


def check_slot_answer(text: str, output: Mapping[str, Any] | None, value: Any) -> Any:
    """Return an answer as JSON if it fits the schema of the question; raise `ConfigError` otherwise."""
    answer = to_jsonable(value)
    try:
        if output is not None:
            check_value(answer, dict(output))
    except Invalid as problem:
        raise ConfigError(f"{short_repr(answer)} does not answer {text!r}: {problem}") from None
    return answer
