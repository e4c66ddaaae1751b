"""Answers of people, in the form in which they are stored."""

from typing import Any

import msgspec
import pytest

from perdure import ConfigError
from perdure._core.run.tool_calls.questions import build_decline_body, check_slot_answer, validate_answer
from perdure.events import QuestionAsked
from perdure.permissions import PermissionRequest, Verdict

REQUEST = PermissionRequest("c", "shell", "run", "ls", {"x": 1}, "hash", True, "s", "r")
NUMBER: dict[str, Any] = {"type": "integer"}


def question(about: Any) -> QuestionAsked:
    calls = (msgspec.to_builtins(REQUEST),) if about == "permission" else ()
    return QuestionAsked("q", about, "How many?", calls, output=NUMBER if about == "slot" else None)


def test_an_answer_is_checked_by_what_the_question_is_about():
    assert validate_answer(question("settlement"), (1, "x"), "ann") == [1, "x"]
    assert validate_answer(question("slot"), 5, "ann") == 5
    allowed = msgspec.to_builtins(Verdict(allow=True, by="ann"))
    assert validate_answer(question("permission"), answer=True, by="ann") == {"c": allowed}


def test_an_answer_to_a_tool_has_to_fit_its_schema():
    assert check_slot_answer("How many?", None, {"any": (1, 2)}) == {"any": [1, 2]}
    with pytest.raises(ConfigError) as caught:
        check_slot_answer("How many?", NUMBER, "x")
    assert str(caught.value) == "'x' does not answer 'How many?': expected an integer, got 'x'"


@pytest.mark.parametrize(
    ("about", "answer", "rejected"),
    [
        ("permission", {"c": msgspec.to_builtins(Verdict(allow=False, reason="not now"))}, ""),
        ("settlement", "skip", ""),
        ("slot", None, "not now"),
    ],
)
def test_a_question_is_declined_by_a_no_by_skipping_or_with_the_reason(about, answer, rejected):
    body = build_decline_body(question(about), "not now")
    assert body == {"ask_id": "q", "answer": answer, "rejected": rejected}
