"""What came of an errand, as the model that gave it is told. Above: `attached.py`, `crew.py`. Below: outcomes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.core.message import Message
from perdure.core.outcome import Outcome
from perdure.core.plain import to_jsonable, to_text, words_of
from perdure.core.problem import Invalid
from perdure.core.tool import ToolOutput
from perdure.output import Output, made_in

_ENDS_WELL = frozenset(["", "terminated", "stop_condition"])
"""Why an agent may stop and be done."""


def report(name: str, outcome: Outcome[Any], output: Output[Any] | None = None, child: str = "") -> ToolOutput:
    """The answer of an agent; or what kept it from giving one, with what it had said until then."""
    said, problem = answer_of(outcome), problem_of(outcome)
    if not problem and output is not None:
        said, problem = _value_of(outcome, output)
    if problem:
        rest = f" Until then it had said:\n{said}" if said else " It had said nothing until then."
        content = f"{name} {problem}.{rest}"
    else:
        content = said or f"{name} is done, and has said nothing."
    render = {"child": child, "steps": outcome.steps, "usage": msgspec.to_builtins(outcome.usage)}
    return ToolOutput(content, render=render, is_error=bool(problem))


def answer_of(outcome: Outcome[Any]) -> str:
    """The last words that it said: of a reply that was cut off, what had come of it."""
    return outcome.text.strip() or last_words(outcome.new_messages)


def last_words(messages: Sequence[Message]) -> str:
    """What an agent said last, when it said anything at all."""
    spoken = [each.text for each in messages if each.role == "assistant" and each.text.strip()]
    return spoken[-1].strip() if spoken else ""


def problem_of(outcome: Outcome[Any]) -> str:
    """What kept it from its end; empty when nothing did."""
    match outcome.status:
        case "done":
            return ""
        case "stopped" if outcome.reason in _ENDS_WELL:
            return ""
        case "limit":
            return f"reached a limit ({outcome.reason}) before it was done"
        case "cancelled":
            return "was cancelled before it was done"
        case "failed":
            return f"failed ({'' if outcome.error is None else words_of(outcome.error)})"
        case _:
            return f"was stopped ({outcome.reason}) before it was done"


def _value_of(outcome: Outcome[Any], output: Output[Any]) -> tuple[str, str]:
    """The value that it was to make, as JSON, and what is wrong with it."""
    try:
        value = made_in(outcome.new_messages, output) if outcome.output is None else outcome.output
    except Invalid as error:
        return answer_of(outcome), f"did not answer with a {output.spec.name} ({error})"
    return to_text(to_jsonable(value)), ""
